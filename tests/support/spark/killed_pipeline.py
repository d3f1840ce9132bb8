"""A pipeline of real processes whose parts can be killed: a server, a Spark program (`kill_job`), a steady writer.

The writer appends to a table without pause; two queries of the Spark program copy its rows into a log table and into a
primary-key table. Killed parts are started again, on the same data and checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow as pa

import fluss
from tests.support.runner.time_limits import BASE_LIMIT_SECONDS
from tools.servers.ports import free_ports
from tools.servers.server_process import ServerProcess
from tools.waiting import patience, wait_until

# A little less than the limit of a test, so that a failure shows Spark's log.
PROGRESS_SECONDS = 0.8 * BASE_LIMIT_SECONDS
WRITER_PAUSE_SECONDS = 0.1
ROWS_PER_APPEND = 50
REPOSITORY = Path(__file__).parents[3]
SOURCE, LOG_SINK, KEY_SINK = "fluss.killed_source", "fluss.killed_log", "fluss.killed_keys"
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
SINK_SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("text", pa.string()), ("rest", pa.int64())])
SETTINGS = {
    "spark.driver.memory": "700m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}


def checksum(rows: Iterable[tuple[int, str, int]]) -> str:
    """A checksum that depends on how often each row occurs, but not on the order."""
    total = sum(int.from_bytes(hashlib.sha256(repr(row).encode()).digest()[:8], "big") for row in rows)
    return f"{total % 2**64:016x}"


class Writer(threading.Thread):
    """Appends rows until it is stopped; if the server does not answer, it waits."""

    def __init__(self, db: fluss.Database, seed: int) -> None:
        super().__init__(name="writer", daemon=True)
        self._db, self._rng = db, random.Random(seed)
        self._ended, self._turn = threading.Event(), threading.Lock()
        self.rows: list[tuple[int, str]] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ended.wait(WRITER_PAUSE_SECONDS):
                with self._turn:
                    self._append()
        except BaseException as error:
            self.error = error

    def _append(self) -> None:
        start = len(self.rows)
        rows = [(start + n, self._rng.randbytes(self._rng.randrange(30)).hex()) for n in range(ROWS_PER_APPEND)]
        self._db.append(SOURCE, [{"id": number, "text": text} for number, text in rows])
        self.rows.extend(rows)

    @contextmanager
    def paused(self) -> Iterator[list[tuple[int, str]]]:
        """Wait until all started rows are written; no others are written inside the block."""
        assert self._turn.acquire(timeout=PROGRESS_SECONDS), "the last append did not end"
        try:
            if self.error is not None:
                raise self.error
            yield self.rows
        finally:
            self._turn.release()

    def end(self) -> None:
        self._ended.set()
        self.join(PROGRESS_SECONDS)
        assert not self.is_alive(), "the last append did not end"


class Checkpoint:
    """The progress of a query in Spark's checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def committed(self) -> int:
        """The last finished batch, -1 before the first."""
        commits = self.path / "commits"
        names = [file.name for file in commits.iterdir()] if commits.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def rows(self) -> int:
        """Rows of the source that finished batches have read."""
        batch = self.committed()
        if batch < 0:
            return 0
        offsets = json.loads((self.path / "offsets" / str(batch)).read_text().splitlines()[2])
        return sum(offsets["buckets"])


def python_workers(driver: int) -> list[psutil.Process]:
    """The Python processes in which a driver's tasks run: children of Spark's daemon."""
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        try:
            parent = process.parent()
            if parent is not None and all("pyspark.worker" in each.cmdline() for each in (process, parent)):
                found.append(process)
        except psutil.NoSuchProcess:  # ended in the meantime
            continue
    return found


def kill_worker(driver: int, rng: random.Random, deadline_seconds: float) -> None:
    """Kill (`kill -9`) a Python process in which tasks run, as soon as there is one."""

    def is_killed() -> bool:
        try:
            found = python_workers(driver)
            if found:
                rng.choice(found).kill()
            return bool(found)
        except psutil.NoSuchProcess:  # just ended by itself
            return False

    wait_until(is_killed, "a Python worker runs", deadline_seconds)


class SparkProgram:
    """The driver with all its processes: killed, and replaced by one that may be prepared."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.checkpoints = [Checkpoint(folder / "log"), Checkpoint(folder / "keys")]
        sinks = dict(zip((LOG_SINK, KEY_SINK), (str(checkpoint.path) for checkpoint in self.checkpoints), strict=True))
        settings = {**SETTINGS, "spark.sql.fluss.bootstrap.servers": server.address}
        job = {"settings": settings, "source": SOURCE, "sinks": sinks}
        self._command = [sys.executable, "-m", "tests.support.spark.kill_job", json.dumps(job)]
        self._log = folder / "driver.log"
        self._left: list[psutil.Process] = []
        self._spare: subprocess.Popen[str] | None = None
        self.start()

    def prepare(self) -> None:
        """Start Spark for use after the next kill."""
        if self._spare is None:
            with self._log.open("ab") as log:
                self._spare = subprocess.Popen(
                    self._command,
                    cwd=REPOSITORY,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    text=True,
                )

    def start(self) -> None:
        """Start the queries, in the prepared process if there is one."""
        self.prepare()
        assert self._spare is not None
        assert self._spare.stdin is not None
        self._process, self._spare = self._spare, None
        self._process.stdin.write("go\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]

    def kill(self) -> None:
        """`kill -9` of the driver and its Java process. Workers notice it a moment later."""
        self._kill(self._process)

    def _kill(self, process: subprocess.Popen[str]) -> None:
        self._left += psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def kill_worker(self, rng: random.Random) -> None:
        kill_worker(self._process.pid, rng, PROGRESS_SECONDS)

    def wait_for_progress(self, batches: int = 1) -> None:
        """Wait until both queries have finished this many more batches."""
        wanted = [checkpoint.committed() + batches for checkpoint in self.checkpoints]
        self._wait(
            lambda: all(c.committed() >= n for c, n in zip(self.checkpoints, wanted, strict=True)), "new batches"
        )

    def wait_for_rows(self, count: int) -> None:
        """Wait until both queries have read and written this many rows."""
        self._wait(lambda: all(checkpoint.rows() >= count for checkpoint in self.checkpoints), f"{count} rows")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            assert self._process.poll() is None, f"Spark ended by itself: {self.log_text()}"
            return condition()

        try:
            wait_until(holds, what, PROGRESS_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_text()}") from error

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")[-8000:]

    def end(self) -> None:
        """End the program and all its processes."""
        for process in (self._process, self._spare):
            if process is not None and process.poll() is None:
                self._kill(process)
        _, alive = psutil.wait_procs(self._left, timeout=patience(120))
        for left in alive:
            left.kill()


class Pipeline:
    """The whole pipeline; `strike` kills a part."""

    def __init__(self, server: ServerProcess, db: fluss.Database, spark: SparkProgram, writer: Writer) -> None:
        self.server, self.db, self.spark, self.writer = server, db, spark, writer

    def strike(self, kind: str, rng: random.Random) -> None:
        """Kill one part, and start it again unless another process does that."""
        if kind == "driver":
            self.spark.kill()
            self.spark.start()
        elif kind == "worker":
            self.spark.kill_worker(rng)
        elif kind == "server":
            self.server.kill()
            self.server.start()
        else:
            self.server.kill_child(rng.randrange(3))


@contextmanager
def running_pipeline(folder: Path, seed: int) -> Iterator[Pipeline]:
    """Run a new pipeline."""
    (port,) = free_ports(1)
    with (
        ServerProcess(folder / "data", bind=f"127.0.0.1:{port}", tablets=2) as server,
        fluss.connect(server.address) as db,
    ):
        db.create_table(SOURCE, SCHEMA, bucket_count=3)
        db.create_table(LOG_SINK, SINK_SCHEMA, bucket_count=2)
        db.create_table(KEY_SINK, SINK_SCHEMA, primary_keys=["id"], bucket_count=2)
        writer = Writer(db, seed)
        writer.start()
        spark = SparkProgram(server, folder)
        try:
            yield Pipeline(server, db, spark, writer)
        finally:
            spark.end()
            writer.end()
