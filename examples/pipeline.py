"""Sensors, a stream, lookups: the whole system in one program.

    python examples/pipeline.py                        # with a server inside
    python examples/pipeline.py 127.0.0.1:9123         # on any other server, an Apache Fluss cluster for example

Sensors append readings to a log table. Spark reads them as a stream, averages them per sensor and second, and upserts
the results into a primary-key table while the sensors are still running. All the time this program looks up single
results, and at the end it draws the table.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import fluss
import fluss.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SENSORS = ["attic", "cellar", "garden", "kitchen"]
READINGS = pa.schema([("sensor", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("celsius", pa.float64())])
AVERAGES = pa.schema(
    [
        pa.field("sensor", pa.string(), nullable=False),
        pa.field("second", pa.timestamp("us", tz="UTC"), nullable=False),
        ("celsius", pa.float64()),
        ("readings", pa.int64()),
    ]
)
READINGS_PER_ROUND = 2_000
ROUND_SECONDS = 0.1
CATCH_UP_SECONDS = 180


def create_tables(db: fluss.Database) -> None:
    """Create two tables: readings as they arrive, averages by key."""
    for name in ("readings", "averages"):
        db.drop_table(name, ignore_if_not_exists=True)
    db.create_table("readings", READINGS)
    db.create_table("averages", AVERAGES, primary_keys=["sensor", "second"])


def readings(started: float) -> pa.Table:
    """Current readings of randomly chosen sensors."""
    now = time.time()
    numbers = np.random.randint(len(SENSORS), size=READINGS_PER_ROUND)
    celsius = 12 + 4 * numbers + 3 * np.sin((now - started) / 3 + numbers) + np.random.normal(size=len(numbers))
    at = pa.array(np.full(len(numbers), round(now * 1e6)), READINGS.field("at").type)
    return pa.table([pa.array(SENSORS).take(pa.array(numbers)), at, pa.array(celsius)], schema=READINGS)


class Sensors(threading.Thread):
    """Appends twenty thousand readings a second until `stop`, or until an append fails."""

    def __init__(self, db: fluss.Database) -> None:
        super().__init__(name="sensors", daemon=True)
        self.db = db
        self.rows = 0
        self._end = threading.Event()

    def run(self) -> None:
        started = time.time()
        while not self._end.wait(ROUND_SECONDS):
            self.db.append("readings", readings(started))  # on disk when it returns
            self.rows += READINGS_PER_ROUND

    def stop(self) -> int:
        """Stop appending and wait for the thread; return the number of readings."""
        self._end.set()
        self.join()
        return self.rows


def start_stream(spark: SparkSession, address: str, checkpoint: Path) -> StreamingQuery:
    """Start the query that averages readings."""
    from pyspark.sql import functions as sf

    readings = spark.readStream.format("fluss").option("start", "earliest").load("readings")
    averages = (
        readings.withWatermark("at", "1 minute")
        .groupBy("sensor", sf.date_trunc("second", "at").alias("second"))
        .agg(sf.avg("celsius").alias("celsius"), sf.count("*").alias("readings"))
    )
    return (
        averages.writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(fluss.spark.foreach_batch("averages", bootstrap_servers=address))
        .start()
    )


def averaged(db: fluss.Database) -> int:
    """The number of readings that Spark has averaged so far."""
    return int(sum(db.to_arrow("averages", ["readings"])["readings"].to_pylist()))


def newest(db: fluss.Database, sensor: str) -> str:
    """Look up the last average of a sensor by its key."""
    seconds = [
        row["second"] for row in db.to_arrow("averages", ["sensor", "second"]).to_pylist() if row["sensor"] == sensor
    ]
    found = db.lookup("averages", {"sensor": sensor, "second": max(seconds)}) if seconds else None
    return "" if found is None else f", {sensor} at {found['second']:%H:%M:%S}: {found['celsius']:.1f} °C"


def progress(db: fluss.Database, sensors: Sensors, started: float) -> int:
    """Print one line once Spark has averaged some readings; return their number."""
    done = averaged(db)
    if done:
        line = f"{time.time() - started:4.0f} s  {sensors.rows:>8,} readings, {done:>8,} of them averaged"
        line += newest(db, "attic")
        print(f"\r{line:<100}" if sys.stdout.isatty() else line, end="" if sys.stdout.isatty() else "\n", flush=True)
    return done


def plot(db: fluss.Database, file: Path) -> None:
    """Draw the averages of each sensor to a picture file."""
    import matplotlib

    matplotlib.use("Agg")  # a file, no window
    from matplotlib import pyplot

    table = db.to_arrow("averages").to_pandas().sort_values("second")
    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    for sensor, rows in table.groupby("sensor"):
        (line,) = axes.plot(rows["second"], rows["celsius"], marker=".")
        end = (rows["second"].iloc[-1], rows["celsius"].iloc[-1])
        axes.annotate(str(sensor), end, (8, 0), textcoords="offset points", va="center", color=line.get_color())
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(title="Averages per second, from the primary-key table", ylabel="°C")
    figure.autofmt_xdate()
    figure.savefig(file, dpi=120)


def run(address: str, seconds: float, folder: Path, picture: Path) -> None:
    """Run the sensors for some seconds, and Spark until it has seen all readings."""
    started = time.time()
    with fluss.connect(address) as db:
        create_tables(db)
        sensors = Sensors(db)
        print(f"server at {address}, Spark is starting", flush=True)
        settings = {"spark.sql.fluss.bootstrap.servers": address, "spark.log.level": "ERROR"}
        # No micro-batches that only clean up old state: the end of the query would interrupt one.
        settings["spark.sql.streaming.noDataMicroBatches.enabled"] = "false"
        spark = fluss.spark.session("pipeline", config=settings)
        query = start_stream(spark, address, folder / "checkpoint")
        sensors.start()
        try:
            done, deadline = 0, math.inf
            stop_at = time.time() + seconds
            while done < sensors.rows or time.time() < stop_at:
                if time.time() >= stop_at and deadline == math.inf:
                    sensors.stop()
                    deadline = time.time() + CATCH_UP_SECONDS
                if query.exception() is not None or time.time() > deadline:
                    raise SystemExit(f"\nthe stream did not keep up: {query.exception() or query.lastProgress}")
                query.awaitTermination(1)
                done = progress(db, sensors, started)
            query.processAllAvailable()  # so that stopping interrupts nothing
        finally:
            query.stop()
            spark.stop()
        plot(db, picture)
        if sys.stdout.isatty():
            print()  # after the progress line
        print(f"all {done:,} readings are averaged; the picture is {picture}")


def main() -> None:
    """Parse the arguments, and run the pipeline on the given server or on one inside this program."""
    parser = argparse.ArgumentParser(description="Sensors into a log table, Spark into a primary-key table, lookups.")
    parser.add_argument("address", nargs="?", help="HOST:PORT of a server; without it one runs inside this program")
    parser.add_argument("--seconds", type=float, default=20, help="how long the sensors run (default: 20)")
    parser.add_argument(
        "--plot", type=Path, default=Path("pipeline.png"), help="file for the picture (default: pipeline.png)"
    )
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fluss-pipeline-")))
        address = arguments.address
        if address is None:
            address = stack.enter_context(fluss.embedded(folder / "data")).bootstrap_servers
        run(address, arguments.seconds, folder, arguments.plot)


if __name__ == "__main__":
    main()
