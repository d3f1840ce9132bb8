"""The steps of the Spark benchmark, on one server with one session."""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import fluss
import fluss.spark
from bench import spark_floors
from bench.spark_floors import TWO_COLUMNS, CountingSource, IdleSource, narrow_rows, wide_rows

TINY_ROWS = 10
WARM_BATCHES = 5
STREAM_BATCHES = 2
WAIT_SECONDS = 120.0
POLL_SECONDS = 0.005

Note = Callable[[str, float], None]
Step = Callable[[Note], None]


class SparkRounds:
    """The steps. `__enter__` creates the tables and files to read; steps create and drop the tables to write."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path, options: argparse.Namespace) -> None:
        self._spark = spark
        self._address = {"bootstrap.servers": bootstrap}
        self._db = fluss.connect(bootstrap)
        self._directory = directory
        self._options = options
        self._numbers = itertools.count()
        self._wide, self._narrow = (
            make(spark, rows, options.cores).cache()
            for make, rows in ((wide_rows, options.rows), (narrow_rows, options.key_rows))
        )
        self.steps = self._chosen(options.only)

    def __enter__(self) -> SparkRounds:
        # Workers need not be able to import this package.
        cloudpickle.register_pickle_by_value(spark_floors)  # type: ignore[no-untyped-call]
        for source in (CountingSource, IdleSource):
            self._spark.dataSource.register(source)
        for name, frame, keys in (("wide", self._wide, None), ("keys", self._narrow, ["id"])):
            frame.write.parquet(self._file(name))
            self._create(name, frame, keys)
            self._append(frame, name)
        single = self._narrow.where("id = 0").coalesce(1)
        single.write.parquet(self._file("single"))
        for name, rows in (("single", 1), ("tiny", (self._batches() + 2 * WARM_BATCHES) * TINY_ROWS)):
            self._create(name, self._narrow, None, buckets=1)
            self._append(narrow_rows(self._spark, rows, 1), name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wide.unpersist()
        self._narrow.unpersist()
        self._db.close()

    def _chosen(self, only: list[str] | None) -> list[Step]:
        steps: dict[str, Step] = {
            "read": self._read_wide,
            "write": self._write_wide,
            "keys": self._keys,
            "wide_keys": self._wide_keys,
            "stream": self._streams,
            "sink": self._sinks,
            "one_row": self._one_row,
            "seen": self._seen,
            "tiny": self._tiny,
        }
        unknown = [name for name in only or () if name not in steps]
        if unknown:
            raise SystemExit(f"unknown steps {', '.join(unknown)}; the steps are {', '.join(steps)}")
        return [step for name, step in steps.items() if only is None or name in only]

    # ---- steps ----

    def _read_wide(self, note: Note) -> None:
        ours, parquet = self._table("wide"), self._spark.read.parquet(self._file("wide"))
        rows = self._options.rows
        note("read_all", rate(rows, lambda: swallow(ours)))
        note("parquet_all", rate(rows, lambda: swallow(parquet)))
        note("read_two", rate(rows, lambda: swallow(ours.select(*TWO_COLUMNS))))
        note("parquet_two", rate(rows, lambda: swallow(parquet.select(*TWO_COLUMNS))))

    def _write_wide(self, note: Note) -> None:
        rows = self._options.rows
        with self._fresh(self._wide) as table:
            note("write", rate(rows, lambda: self._append(self._wide, table)))
        note("counting", rate(rows, lambda: count(self._wide)))
        with self._fresh(self._wide) as table:
            note("write_plain", rate(rows, lambda: self._append(self._wide, table, delivery="at-least-once")))
        path = self._file("written")
        note("parquet_write", rate(rows, lambda: self._wide.write.mode("overwrite").parquet(path)))

    def _keys(self, note: Note) -> None:
        rows, parquet = self._options.key_rows, self._spark.read.parquet(self._file("keys"))
        with self._fresh(self._narrow, ["id"]) as table:
            note("key_write", rate(rows, lambda: self._append(self._narrow, table)))
            note("counting_keys", rate(rows, lambda: count(self._narrow)))
            note("key_read", rate(rows, lambda: swallow(self._table(table))))
            note("parquet_keys", rate(rows, lambda: swallow(parquet)))

    def _wide_keys(self, note: Note) -> None:
        rows = self._options.rows
        with self._fresh(self._wide, ["i0"]) as table:
            note("wide_key_write", rate(rows, lambda: self._append(self._wide, table)))
            note("wide_key_read", rate(rows, lambda: swallow(self._table(table))))

    def _streams(self, note: Note) -> None:
        files = self._spark.readStream.schema(self._wide.schema).option("maxFilesPerTrigger", 1)
        note("stream_noop", self._streamed(self._stream("wide"), "noop"))
        note("parquet_stream", self._streamed(files.parquet(self._file("wide")), "noop"))

    def _sinks(self, note: Note) -> None:
        with self._fresh(self._wide) as table:
            note("stream_sink", self._streamed(self._stream("wide"), "fluss", table=path_of(table), **self._address))
        note("stream_counting", self._streamed(self._stream("wide"), "counting"))

    def _one_row(self, note: Note) -> None:
        parquet = self._spark.read.schema(self._narrow.schema)
        key = self._options.key_rows // 2
        for _ in range(self._options.times):
            note("one_row", milliseconds(lambda: self._table("single").collect()))
            note("parquet_one_row", milliseconds(lambda: parquet.parquet(self._file("single")).collect()))
            note("one_key", milliseconds(lambda: self._table("keys").where(f"id = {key}").collect()))

    def _seen(self, note: Note) -> None:
        came = threading.Event()

        def look(frame: DataFrame, batch_id: int) -> None:
            if frame.collect():
                came.set()

        with self._fresh(self._narrow, buckets=1) as table:
            writer = self._stream(table).writeStream.foreachBatch(look)
            with self._running(writer.option("checkpointLocation", self._file(f"checkpoint{table}"))):
                for number in range(self._options.times + 1):
                    came.clear()
                    began = time.perf_counter()
                    self._db.append(
                        path_of(table), [{"id": number, "name": "one", "score": 0.5, "flag": True, "count": 1}]
                    )
                    if not came.wait(WAIT_SECONDS):
                        raise TimeoutError("foreachBatch does not see the row")
                    if number:  # the first one waits for the query to start
                        note("seen", (time.perf_counter() - began) * 1000)

    def _tiny(self, note: Note) -> None:
        note("tiny", self._batch_milliseconds(self._stream("tiny", maxRowsPerTrigger=TINY_ROWS)))
        note("idle", self._batch_milliseconds(self._spark.readStream.format("idle").load()))

    # ---- tables, files, queries ----

    def _file(self, name: str) -> str:
        return str(self._directory / f"file-{name}")

    def _create(self, name: str, frame: DataFrame, keys: list[str] | None, buckets: int | None = None) -> None:
        fluss.spark.create_table(
            self._spark,
            path_of(name),
            frame.schema,
            primary_key=keys or (),
            buckets=buckets or self._options.buckets,
            options=self._address,
        )

    @contextmanager
    def _fresh(self, frame: DataFrame, keys: list[str] | None = None, buckets: int | None = None) -> Iterator[str]:
        name = f"fresh{next(self._numbers)}"
        self._create(name, frame, keys, buckets)
        yield name
        self._db.drop_table(path_of(name))

    def _append(self, frame: DataFrame, name: str, **options: str) -> None:
        frame.write.format("fluss").mode("append").options(**self._address, **options).save(path_of(name))

    def _table(self, name: str) -> DataFrame:
        return self._spark.read.format("fluss").options(**self._address).load(path_of(name))

    def _stream(self, name: str, **options: Any) -> DataFrame:
        limit = {"maxRowsPerTrigger": -(-self._options.rows // STREAM_BATCHES), **options}
        reader = self._spark.readStream.format("fluss").options(**self._address)
        return reader.options(start="earliest", **limit).load(path_of(name))

    def _streamed(self, frame: DataFrame, sink: str, **options: str) -> float:
        """Rows per second of a query over all existing rows, from its progress, so without its start."""
        place = self._file(f"checkpoint-{next(self._numbers)}")
        writer = frame.writeStream.format(sink).options(**options).option("checkpointLocation", place)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(int(WAIT_SECONDS)):
            raise TimeoutError("the query did not end")
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
        rows = sum(progress["numInputRows"] for progress in batches)
        if rows != self._options.rows:
            raise AssertionError(f"a query had {rows} of {self._options.rows} rows")
        return float(rows / sum(progress["durationMs"]["triggerExecution"] for progress in batches))

    def _batches(self) -> int:
        return int(self._options.tiny_batches)

    def _batch_milliseconds(self, frame: DataFrame) -> float:
        """The median of the batches of a query, without its first ones."""
        place = self._file(f"checkpoint-{next(self._numbers)}")
        writer = frame.writeStream.format("noop").option("checkpointLocation", place)
        wanted = self._batches() + WARM_BATCHES
        with self._running(writer) as query:
            deadline = time.monotonic() + WAIT_SECONDS
            while (progress := query.lastProgress) is None or progress["batchId"] < wanted:
                if time.monotonic() > deadline or query.exception() is not None:
                    raise TimeoutError(f"a query has no {wanted} batches: {query.exception()}")
                time.sleep(20 * POLL_SECONDS)
            took = [each["durationMs"]["triggerExecution"] for each in query.recentProgress]
        return float(statistics.median(took[WARM_BATCHES:wanted]))

    @contextmanager
    def _running(self, writer: Any) -> Iterator[StreamingQuery]:
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            yield query
        finally:
            query.stop()


def path_of(name: str) -> str:
    """The path of a table of the benchmark."""
    return f"fluss.bench_{name}"


def swallow(frame: DataFrame) -> None:
    """Read all rows, keep none."""
    frame.write.format("noop").mode("overwrite").save()


def count(frame: DataFrame) -> None:
    """Pass all rows to Python, keep none."""
    frame.write.format("counting").mode("append").save()


def milliseconds(work: Callable[[], object]) -> float:
    """The milliseconds that work takes."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def rate(rows: int, work: Callable[[], object]) -> float:
    """Thousands of rows per second."""
    return rows / milliseconds(work)
