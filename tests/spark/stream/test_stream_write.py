"""Streaming writes: every row once, across crashes and repeated batches; and the helper for update mode.

A crash between the commit of the sink and Spark's own log entry is simulated by removing that entry: Spark then repeats
the batch with the same number, rows and query id.
"""

from __future__ import annotations

import functools
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

import fluss
import fluss.spark
from fluss.spark.options.session_options import SESSION_OPTIONS_VARIABLE
from fluss.spark.write.foreach_batch import STOPPED_TEXT
from tests.spark.conftest import Tables
from tests.support.spark.stream_queries import ended
from tools.waiting import wait_until

EVENTS = pa.schema([("id", pa.int64()), ("name", pa.string())])
SPARK_SCHEMA = "id bigint, name string"
FIRST_FILE_SECONDS = 1_700_000_000
SLOW_SECONDS = 100.0


class Input:
    """A directory of JSON files; a batch of the stream reads one of them."""

    def __init__(self, directory: Path, spark: SparkSession) -> None:
        self.directory = directory / "input"
        self.directory.mkdir()
        self.checkpoint = directory / "checkpoint"
        self._spark = spark
        self._files = 0

    def add(self, ids: range | list[int], name: str = "n") -> None:
        """Add a file, for one more batch."""
        lines = (json.dumps({"id": each, "name": f"{name}{each}"}) for each in ids)
        path = self.directory / f"{self._files:03}.json"
        path.with_suffix(".tmp").write_text("\n".join(lines))
        # Spark orders files by their times, in milliseconds: two that are written at once would come in any order.
        moment = FIRST_FILE_SECONDS + self._files
        os.utime(path.with_suffix(".tmp"), (moment, moment))
        path.with_suffix(".tmp").rename(path)
        self._files += 1

    def frame(self) -> DataFrame:
        """The stream of all files."""
        reader = self._spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.option("pathGlobFilter", "*.json").json(str(self.directory))

    def forget_commit(self, batch_id: int) -> None:
        """Simulate the death of the driver right after the sink's commit."""
        for path in (self.checkpoint / "commits").glob(f"*{batch_id}*"):
            path.unlink()


@pytest.fixture
def source(tmp_path: Path, spark: SparkSession) -> Input:
    return Input(tmp_path, spark)


def run(
    tables: Tables, frame: DataFrame, checkpoint: Path, table: str, mode: str = "append", **options: Any
) -> StreamingQuery:
    """Write all existing rows, then stop."""
    writer = frame.writeStream.format("fluss").outputMode(mode).options(**tables.options(**options))
    writer = writer.option("table", tables.path(table)).option("checkpointLocation", str(checkpoint))
    return ended(writer.trigger(availableNow=True).start())


def ids(tables: Tables, table: str = "events") -> list[int]:
    return sorted(row["id"] for row in tables.rows(table))


def test_rows_of_a_log_table_are_written_once(any_tables: Tables, source: Input, tmp_path: Path) -> None:
    any_tables.create("events", EVENTS, bucket_count=2)
    source.add(range(100))
    source.add(range(100, 200))
    frame = source.frame().repartition(2)
    first = run(any_tables, frame, source.checkpoint, "events")
    assert ids(any_tables) == list(range(200))
    source.forget_commit(1)
    source.add(range(200, 300))
    second = run(any_tables, frame, source.checkpoint, "events")
    assert second.id == first.id
    assert [progress["batchId"] for progress in second.recentProgress if progress["numInputRows"]] == [1, 2]
    assert ids(any_tables) == list(range(300))
    # Another checkpoint is another query, which has written nothing yet.
    run(any_tables, source.frame(), tmp_path / "other", "events")
    assert ids(any_tables) == sorted([*range(300)] * 2)


def failing_at(frame: DataFrame, number: int, marker: Path, wait: Callable[[], None]) -> DataFrame:
    """The rows of a frame; while there is a marker file, the task that reaches this id waits and fails."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if number in batch.column(0).to_pylist() and marker.exists():
                wait()
                raise ValueError("a task that fails")
            yield batch

    return frame.mapInArrow(fail, SPARK_SCHEMA)


def until_rows_are_there(servers: str, path: str) -> None:
    with fluss.connect(servers) as db:
        wait_until(lambda: db.scan(path).num_rows, "rows of the other task")


def test_a_batch_that_failed_half_way(any_tables: Tables, source: Input, tmp_path: Path) -> None:
    """One task has done its work when the other one fails; the batch is repeated as a whole."""
    any_tables.create("events", EVENTS)
    source.add(range(1_000))
    marker = tmp_path / "marker"
    marker.touch()
    wait = functools.partial(until_rows_are_there, any_tables.target.bootstrap_servers, any_tables.path("events"))
    nothing: Callable[[], None] = functools.partial(print, end="")  # staged rows of the other task are not visible
    # By a hash, so that the repeated batch has the same rows in the same tasks, as Apache Fluss requires.
    frame = source.frame().repartition(2, "id")
    frame = failing_at(frame, 900, marker, wait if any_tables.target.is_apache else nothing)
    with pytest.raises(PySparkException, match="a task that fails"):
        run(any_tables, frame, source.checkpoint, "events")
    marker.unlink()
    run(any_tables, frame, source.checkpoint, "events")
    assert ids(any_tables) == list(range(1_000))


def test_at_least_once_repeats_rows(tables: Tables, source: Input) -> None:
    tables.create("events", EVENTS)
    source.add(range(10))
    for _ in range(2):
        run(tables, source.frame(), source.checkpoint, "events", delivery="at-least-once")
        source.forget_commit(0)
    assert ids(tables) == sorted([*range(10)] * 2)


def test_upserts_of_a_repeated_batch_change_nothing(any_tables: Tables, source: Input) -> None:
    any_tables.create("users", fluss.Schema(EVENTS, ["id"]), bucket_count=2)
    source.add(range(100), "a")
    source.add(range(50, 150), "b")
    run(any_tables, source.frame(), source.checkpoint, "users")
    expected = {n: f"{'a' if n < 50 else 'b'}{n}" for n in range(150)}
    for _ in range(2):
        assert {row["id"]: row["name"] for row in any_tables.rows("users")} == expected
        source.forget_commit(1)
        run(any_tables, source.frame(), source.checkpoint, "users")


@pytest.mark.all
def test_output_modes(tables: Tables, source: Input) -> None:
    tables.create("users", fluss.Schema(EVENTS, ["id"]))
    source.add(range(3))
    counts = source.frame().groupBy("id").count().selectExpr("id", "cast(count as string) name")
    for mode, said in (("complete", "foreach_batch"), ("update", "[Uu]pdate")):
        with pytest.raises(PySparkException, match=said):
            run(tables, counts, source.checkpoint / mode, "users", mode)


TOTALS = fluss.Schema(pa.schema([("name", pa.string()), ("total", pa.int64())]), ["name"])


def update(frame: DataFrame, checkpoint: Path, sink: Callable[[DataFrame, int], None]) -> None:
    writer = frame.writeStream.outputMode("update").foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    ended(writer.trigger(availableNow=True).start())


@pytest.mark.all
def test_spark_does_not_report_the_layout_of_a_stream(tables: Tables, source: Input, tmp_path: Path) -> None:
    """So it cannot be refused, as documented; a table that `toTable` creates has the partitions."""
    tables.create("events", EVENTS, bucket_count=2)
    source.add(range(10))
    for number, layout in enumerate(("partitionBy", "clusterBy")):
        writer = source.frame().writeStream.format("fluss").options(**tables.options(table=tables.path("events")))
        writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint{number}")).trigger(availableNow=True)
        ended(getattr(writer, layout)("name").start())
    assert ids(tables) == sorted([*range(10)] * 2)
    fluss.spark.catalog.register(tables.spark, "fl", tables.target.bootstrap_servers)
    writer = source.frame().writeStream.option("checkpointLocation", str(tmp_path / "made")).trigger(availableNow=True)
    ended(writer.partitionBy("name").toTable(f"fl.{tables.name}.made"))
    assert tables.db.info(tables.path("made")).partition_keys == ["name"]
    assert ids(tables, "made") == [*range(10)]


def test_update_mode(any_tables: Tables, source: Input) -> None:
    """Totals per name, with those that reach a limit deleted; each batch also leaves rows in a log table."""
    any_tables.create("totals", TOTALS)
    any_tables.create("history", pa.schema([("name", pa.string()), ("total", pa.int64())]))
    totals = source.frame().groupBy("name").count().withColumnRenamed("count", "total")
    servers = any_tables.target.bootstrap_servers
    both = fluss.spark.foreach_batch(any_tables.path("totals"), any_tables.path("history"), bootstrap_servers=servers)
    source.add([1, 1, 2])
    source.add([2, 3])
    update(totals, source.checkpoint, both)
    source.forget_commit(1)
    source.add([1])
    update(totals, source.checkpoint, both)
    assert {row["name"]: row["total"] for row in any_tables.rows("totals")} == {"n1": 3, "n2": 2, "n3": 1}
    history = sorted((row["name"], row["total"]) for row in any_tables.rows("history"))
    assert history == [("n1", 2), ("n1", 3), ("n2", 1), ("n2", 2), ("n3", 1)]
    limited = fluss.spark.foreach_batch(
        any_tables.path("totals"), bootstrap_servers=servers, delete_where="total >= 4", latest_by="total"
    )
    source.add([1, 3])
    update(totals, source.checkpoint, limited)
    assert {row["name"]: row["total"] for row in any_tables.rows("totals")} == {"n2": 2, "n3": 2}


@pytest.mark.all
def test_only_the_latest_row_of_a_key_counts(tables: Tables, spark: SparkSession) -> None:
    tables.create("totals", TOTALS)
    sink = fluss.spark.foreach_batch(
        tables.path("totals"), options=tables.options(), latest_by="total", delete_where="total = 9"
    )
    rows = [("a", 3), ("a", 5), ("a", 4), ("b", 8), ("b", 9), ("c", 1)]
    sink(spark.createDataFrame(rows, "name string, total bigint").repartition(4), 0)
    assert {row["name"]: row["total"] for row in tables.rows("totals")} == {"a": 5, "c": 1}


@pytest.mark.all
def test_the_session_of_the_query_decides_where_batches_go(
    tables: Tables, source: Input, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for requests of primary keys; the address in the environment is of an earlier session."""
    tables.create("totals", TOTALS)
    source.add([1, 1, 2])
    totals = source.frame().groupBy("name").count().withColumnRenamed("count", "total")
    early = fluss.spark.foreach_batch(tables.path("totals"), latest_by="total")  # no address yet
    spark.conf.set("spark.sql.fluss.bootstrap.servers", tables.target.bootstrap_servers)
    spark.conf.set("spark.sql.fluss.limit", "1")  # a limit for reads, which does not matter here
    monkeypatch.setenv(SESSION_OPTIONS_VARIABLE, '{"bootstrap.servers": "127.0.0.1:1"}')
    try:
        update(totals, source.checkpoint, early)
    finally:
        spark.conf.unset("spark.sql.fluss.bootstrap.servers")
        spark.conf.unset("spark.sql.fluss.limit")
    assert {row["name"]: row["total"] for row in tables.rows("totals")} == {"n1": 2, "n2": 1}


def test_batches_may_be_written_at_least_once(tables: Tables, source: Input) -> None:
    tables.create("events", EVENTS)
    source.add(range(3))
    options = tables.options(delivery="at-least-once")
    update(source.frame(), source.checkpoint, fluss.spark.foreach_batch(tables.path("events"), options=options))
    assert ids(tables) == [0, 1, 2]


def test_a_query_that_is_stopped_in_the_middle_of_a_batch(tables: Tables, source: Input, tmp_path: Path) -> None:
    """Spark's pattern for the sink's error would overflow the stack on the message of Java's error."""
    tables.create("events", EVENTS)
    source.add([1])
    started = tmp_path / "started"
    raised: list[str] = []

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        started.touch()
        time.sleep(SLOW_SECONDS)
        yield from batches

    rows = source.frame().mapInArrow(slow, source.frame().schema)
    sink = fluss.spark.foreach_batch(tables.path("events"), options=tables.options())

    def noted(frame: DataFrame, batch_id: int) -> None:
        try:
            sink(frame, batch_id)
        except Exception as error:
            raised.append(str(error))
            raise

    query = rows.writeStream.foreachBatch(noted).option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        wait_until(started.exists, "the batch runs", SLOW_SECONDS)
    finally:
        query.stop()
    assert query.exception() is None
    assert [text.startswith(STOPPED_TEXT) for text in raised] == [True], raised
    assert ids(tables) == []


def test_errors_are_raised_before_the_first_batch() -> None:
    with pytest.raises(fluss.FlussError, match="foreach_batch needs a table"):
        fluss.spark.foreach_batch(bootstrap_servers="localhost:1")
    with pytest.raises(fluss.FlussError, match="no option 'rowkind'"):
        fluss.spark.foreach_batch("t", options={"bootstrap.servers": "localhost:1", "rowKind": "op"})
    with pytest.raises(fluss.FlussError, match="option limit is for batch reads"):
        fluss.spark.foreach_batch("t", options={"limit": "1"})
    in_a_list: Any = ["shop.totals", "shop.history"]
    with pytest.raises(
        fluss.FlussError,
        match=r"takes names of tables as separate arguments, got \['shop.totals', 'shop.history'\]: write",
    ):
        fluss.spark.foreach_batch(in_a_list)
    with pytest.raises(fluss.FlussError, match=r"has table fluss\.t twice"):
        fluss.spark.foreach_batch("t", "fluss.t")


def test_the_document_runs(tables: Tables, source: Input, spark: SparkSession, tmp_path: Path) -> None:
    """The code about writing in docs/spark-streaming.md, with other names of server, database and checkpoint."""
    tables.create("events", pa.schema([("user", pa.string()), ("amount", pa.int64())]))
    tables.create("totals", fluss.Schema(pa.schema([("user", pa.string()), ("total", pa.int64())]), ["user"]))
    source.add([1, 2, 2])
    text = (Path(__file__).parents[3] / "docs" / "spark-streaming.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", text, flags=re.MULTILINE)
    (writing,) = [part for part in section if part.startswith("Writing")]
    blocks = re.findall(r"^```python\n(.*?)^```$", writing, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    events = source.frame().selectExpr("name user", "id amount")
    names = {"fluss": fluss, "sf": functions, "events": events, "cluster": tables.options()}
    for block in blocks:
        block = block.replace('format("fluss")', 'format("fluss").options(**cluster)').replace(
            "shop.", f"{tables.name}."
        )
        block = block.replace("127.0.0.1:9123", tables.target.bootstrap_servers).replace("checkpoints", str(tmp_path))
        exec(block, names)
        query: Any = names["query"]
        try:
            query.processAllAvailable()
        finally:
            query.stop()
    assert sorted(row["amount"] for row in tables.rows("events")) == [1, 2, 2]
    assert {row["user"]: row["total"] for row in tables.rows("totals")} == {"n1": 1, "n2": 4}
