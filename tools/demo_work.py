"""The work of `tools/demo.py`: the parts of `examples/pipeline.py`, run in parallel, with reports as JSON lines.

Threads: Spark starts on its own thread, since starting Java takes longer than all the rest; sensors append on another;
the main thread watches both tables and reports. There is no clean shutdown: the parent process kills this one and
removes the folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import fluss
    from examples.pipeline import Sensors

LOOK_SECONDS = 0.25
CATCH_UP_SECONDS = 600.0
"""How long Spark may take to average all readings. It is long, for slow machines: users can end the demo."""
SECONDS_AFTER_THE_FIRST = 6.0
"""Spark is shown at work for at least this long, however long it took to start."""
RATE_SECONDS = 2.0
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java that does not run long enough to benefit from thorough compilation."""
SOCKET_NAME_BYTES = 45
"""The length that Spark adds to the folder for its sockets; systems allow 103 bytes in all."""


def report(**event: Any) -> None:
    """Write a line for the parent process."""
    sys.__stdout__.write(json.dumps(event) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


def say(text: str, *, timed: bool = True) -> None:
    """Print a permanent line."""
    report(say=text, timed=timed)


class SparkSide(threading.Thread):
    """Starts Java, a session and the stream; `failure` is the error if that failed."""

    def __init__(self, folder: Path, address: str, tables: threading.Event) -> None:
        super().__init__(name="spark", daemon=True)
        self.folder = folder
        self.failure: BaseException | None = None
        self._address = address
        self._tables = tables
        self.query: Any = None

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.failure = error

    def _run(self) -> None:
        settings = self._settings()
        start_java(settings)
        import fluss.spark
        from examples.pipeline import start_stream

        spark = fluss.spark.session("demo", "local[2]", settings)
        self._tables.wait()
        self.query = start_stream(spark, self._address, self.folder / "checkpoint")

    def _settings(self) -> dict[str, str]:
        """Spark's settings for a short run, with all files in the demo's folder."""
        settings = {
            "spark.sql.fluss.bootstrap.servers": self._address,
            "spark.log.level": "ERROR",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(self.folder),
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        }
        if len(os.fsencode(self.folder)) + SOCKET_NAME_BYTES > 103:
            settings["spark.python.unix.domain.socket.enabled"] = "false"
        return settings


def start_java(settings: dict[str, str]) -> None:
    """Start Java before Python imports Spark's modules: on two cores both run at the same time."""
    from pyspark import SparkConf, SparkContext

    from fluss.spark.java.java_runtime import prepare_environment

    use_class_archive()
    prepare_environment(settings)
    context: Any = SparkContext
    starting = threading.Thread(target=lambda: context._ensure_initialized(conf=SparkConf(loadDefaults=False)))
    starting.start()
    import pyspark.sql.functions
    import pyspark.sql.streaming  # noqa: F401

    import fluss.spark  # noqa: F401

    starting.join()


def use_class_archive() -> None:
    """Use the archive of Spark's classes for faster starts of Java, if tests have created it on this machine."""
    from tools.peers import spark_classes
    from tools.peers.cache import PeerMissingError, peers_folder

    if "SPARK_HOME" in os.environ:
        return
    try:
        if not any(peers_folder().glob(f"spark-*-classes-*/{spark_classes.ARCHIVE}")):
            return  # finding the right archive would create a home of Spark
        home = spark_classes.spark_home()
        archive = peers_folder() / spark_classes.archive_name(home) / spark_classes.ARCHIVE
    except (PeerMissingError, OSError):
        return
    if archive.exists():
        os.environ["SPARK_HOME"] = str(home)
        options = f"-XX:SharedArchiveFile={archive} -Xshare:auto {spark_classes.QUIET}"
        os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {options}"


class Rate:
    """The number of rows per second in the last moments."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = [(time.monotonic(), 0)]

    def of(self, rows: int) -> float:
        """Record the present number of rows, and return the recent rate."""
        now = time.monotonic()
        self._seen.append((now, rows))
        while len(self._seen) > 2 and now - self._seen[0][0] > RATE_SECONDS:
            self._seen.pop(0)
        (before, had), (after, has) = self._seen[0], self._seen[-1]
        return (has - had) / max(after - before, 1e-3)


class Watch:
    """Watches both tables until all readings are averaged."""

    def __init__(self, db: fluss.Database, sensors: Sensors, spark: SparkSide, seconds: float) -> None:
        self._db = db
        self._sensors = sensors
        self._spark = spark
        self._seconds = seconds
        self._start = time.monotonic()
        self._written, self._averaged = Rate(), Rate()
        self._first_at: float | None = None

    def until_all_is_averaged(self) -> int:
        """Wait until Spark has averaged all readings; return their number."""
        ends_at = self._start + self._seconds
        gives_up_at = ends_at + CATCH_UP_SECONDS
        is_over = False
        while True:
            self._fail_if_spark_did(gives_up_at)
            done = self._look()
            if self._first_at is not None and not is_over:
                ends_at = max(ends_at, self._first_at + SECONDS_AFTER_THE_FIRST)
                if time.monotonic() >= ends_at:
                    self._sensors.stop()
                    is_over = True
            if is_over and done == self._sensors.rows:
                return done
            self._draw(done, ends_at)
            time.sleep(LOOK_SECONDS)

    def _look(self) -> int:
        from examples.pipeline import averaged

        done = averaged(self._db)
        if done and self._first_at is None:
            self._first_at = time.monotonic()
            say(f"Spark has averaged the first {done:,} of them, and keeps up as more arrive")
        return done

    def _draw(self, done: int, ends_at: float) -> None:
        share = (time.monotonic() - self._start) / (ends_at - self._start)
        written = f"{self._written.of(self._sensors.rows):>7,.0f} rows/s written"
        averaged = f"{self._averaged.of(done):>7,.0f} averaged"
        report(bar=share, text=f"{written}, {averaged if done else 'Spark is starting'}")

    def _fail_if_spark_did(self, gives_up_at: float) -> None:
        failure = self._spark.failure
        if failure is None and self._spark.query is not None:
            failure = self._spark.query.exception()
        if failure is not None:
            raise failure
        if time.monotonic() > gives_up_at:
            raise TimeoutError(f"Spark did not average all readings within {CATCH_UP_SECONDS:.0f} s")


def show_results(db: fluss.Database, picture: Path) -> None:
    """Show Spark's results, one lookup, and the picture."""
    import pyarrow.compute as pc

    from examples.pipeline import plot

    averages = db.to_arrow("averages")
    say("         sensor    averages   lowest  highest", timed=False)
    for sensor in sorted(set(averages["sensor"].to_pylist())):
        rows = averages.filter(pc.equal(averages["sensor"], sensor))
        lowest, highest = pc.min(rows["celsius"]).as_py(), pc.max(rows["celsius"]).as_py()
        say(f"         {sensor:<9} {rows.num_rows:>8} {lowest:>6.1f} °C {highest:>5.1f} °C", timed=False)
    newest = {"sensor": "attic", "second": pc.max(averages["second"]).as_py()}
    start = time.perf_counter()
    found = db.lookup("averages", newest)
    if found is not None:
        took = (time.perf_counter() - start) * 1000
        say(f"lookup of attic at {found['second']:%H:%M:%S}: {found['celsius']:.1f} °C, in {took:.1f} ms")
    plot(db, picture)
    say(f"the picture is {picture}")


def end_with_parent() -> None:
    """End this process if the parent is killed."""
    sys.stdin.buffer.read()
    os._exit(1)


def work(folder: Path, seconds: float, picture: Path) -> None:
    """Run the demo: server, sensors, Spark, lookup, picture."""
    from tools.servers.ports import free_ports

    address = f"127.0.0.1:{free_ports(1)[0]}"
    tables = threading.Event()
    spark = SparkSide(folder, address, tables)
    spark.start()

    import fluss
    from examples.pipeline import Sensors, create_tables

    with fluss.embedded(folder / "data", bind=address), fluss.connect(address) as db:
        say(f"a server is ready at {address}; its data is in a temporary folder")
        create_tables(db)
        tables.set()
        sensors = Sensors(db)
        sensors.start()
        say("four sensors append readings, each batch on disk before the next; Spark is starting")
        done = Watch(db, sensors, spark, seconds).until_all_is_averaged()
        say(f"all {done:,} readings are averaged, by sensor and second, in a primary-key table:")
        show_results(db, picture)
        os._exit(0)


def main() -> None:
    """Parse the arguments and run the demo in its folder; an error ends it with code 1."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    folder, seconds, picture = Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    # Java keeps performance data in temporary files, which would remain after Java is killed.
    os.environ["JDK_JAVA_OPTIONS"] = f'-XX:-UsePerfData "-Djava.io.tmpdir={folder}"'
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {QUICK_JAVA}"
    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK_JAVA
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        work(folder, seconds, picture)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
