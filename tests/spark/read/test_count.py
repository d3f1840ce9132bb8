"""`df.count()` and `SELECT count(*)`: from the servers' numbers, or counted in the tasks; no rows are sent to Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from fluss import FlussError
from tests.spark.conftest import Tables
from tests.support.spark.local_reads import Place, later_commit_time
from tests.support.spark.stream_queries import ended

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
KNOWN = ["CountSplit"]


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}"} for number in range(start, stop)]


def test_a_log_table_is_counted_by_its_offsets(place: Place) -> None:
    path = place.create("t", COLUMNS, bucket_count=2, bucket_keys=["id"])
    place.db.append(path, rows(0, 30))
    whole = place.count(path)
    assert (whole.kinds, whole.count) == (KNOWN, 30)
    some: list[dict[str, Any]] = [
        {"limit": 7},
        {"limit": 0},
        {"start": '{"0": 3, "1": 4}'},
        {"start": "latest"},
        {"end": '{"0": 2, "1": 1}', "limit": 2},
        {"end": "open"},
        {"mode": "changelog"},
        {"columns": "name"},
        {"scan.startup.mode": "latest"},
    ]
    for options in some:
        reading = place.count(path, **options)
        assert (reading.kinds, reading.count) == (KNOWN, place.read(path, **options).table().num_rows), options
    place.db.append(path, rows(30, 35))
    assert (whole.count, place.count(path).count) == (30, 35), "planned before and after the last rows"
    with pytest.raises(FlussError, match="names bucket 9"):
        place.count(path, start='{"9": 0}')
    with pytest.raises(FlussError, match="which mode=state needs: leave the mode out"):
        place.count(path, mode="state")


def test_tasks_count_rows_that_servers_do_not_count(place: Place) -> None:
    log = place.create("log", COLUMNS, bucket_count=2)
    place.db.append(log, rows(0, 10))
    later_commit_time()
    place.db.append(log, rows(10, 30))
    keyed = place.create("keyed", KEYED, primary_keys=["id"], bucket_count=2)
    place.db.upsert(keyed, rows(0, 20))
    place.db.upsert(keyed, rows(5, 8))
    place.db.delete(keyed, [{"id": 1}])
    first = place.read(log, mode="changelog").column("_commit_timestamp")[0]
    after = f"timestamp:{int(first.timestamp() * 1000) + 1}"
    unknown: list[tuple[str, dict[str, Any]]] = [
        (log, {"start": after}),
        (log, {"start": after, "limit": 4}),
        (log, {"start": "timestamp:0", "end": "timestamp:1"}),
        (keyed, {"mode": "changelog"}),
        (keyed, {"mode": "binlog"}),
        (keyed, {"start": "timestamp:0"}),
        (keyed, {"read.optimized": "true"}),
    ]
    for path, options in unknown:
        reading = place.count(path, **options)
        wanted = place.read(path, **options).table().num_rows
        assert reading.count == wanted, options
        assert (reading.kinds == KNOWN) == (wanted == 0), options
    state = place.count(keyed)
    assert (state.kinds, state.count) == (KNOWN, 19)


def test_partitions_are_counted_as_they_are(place: Place) -> None:
    path = place.create("days", pa.schema([("id", pa.int64()), ("day", pa.string())]), partition_keys=["day"])
    assert (place.count(path).kinds, place.count(path).count) == (KNOWN, 0)
    for number, day in enumerate(("d1", "d2", "d3")):
        place.db.create_partition(path, {"day": day})
        place.db.append(path, [{"id": number, "day": day}] * 4)
    assert place.count(path).count == 12
    assert place.read(path, own_scan=False).table().num_rows == 12, "a reader that our Java classes did not ask for"


def scan_of(frame: DataFrame) -> tuple[str, int]:
    """The columns that a query with one scan requested, and the number of rows from the source."""
    query: Any = frame._jdf
    frame.collect()
    plan = query.queryExecution().executedPlan()
    leaf = plan.executedPlan() if plan.nodeName() == "AdaptiveSparkPlan" else plan
    while not leaf.nodeName().startswith("BatchScan"):  # a stage of the query is a leaf with a plan inside
        leaf = leaf.plan() if leaf.nodeName().endswith("QueryStage") else leaf.collectLeaves().apply(0)
    names = ",".join(leaf.output().apply(index).name() for index in range(leaf.output().size()))
    return names, int(leaf.metrics().apply("numOutputRows").value())


def test_spark_gets_one_number_instead_of_rows(tables: Tables) -> None:
    tables.create("t", KEYED, bucket_count=2)
    frame = tables.read("t")
    assert frame.count() == 0
    tables.db.append(tables.path("t"), rows(0, 100))
    assert frame.count() == 100
    assert scan_of(frame.selectExpr("count(*)")) == ("count(*)", 1)
    assert scan_of(frame.selectExpr("count(id)")) == ("count(*)", 1), "never null"
    assert scan_of(frame.selectExpr("count(name)")) == ("name", 100)
    # Everything else is counted by Spark.
    assert scan_of(frame.selectExpr("count(*)", "max(id)")) == ("id", 100)
    assert scan_of(frame.groupBy().agg({"*": "count"}).where("`count(1)` > 5")) == ("count(*)", 1)
    assert frame.where("id >= 90").count() == 10
    assert frame.where("id % 10 = 1").count() == 10
    assert frame.limit(3).count() == 3
    assert frame.groupBy("id").count().count() == 100
    assert frame.union(frame.where("id = 5")).count() == 101
    assert frame.select("id").distinct().count() == 100


@pytest.mark.parametrize(
    ("schema", "options", "reason"),
    [
        ("nope string", {}, "unknown column 'nope' in .*; its columns are id, name"),
        pytest.param("id bigint, name int", {}, "column 'name' of .* is string, not int", marks=pytest.mark.all),
        pytest.param(
            "id bigint, name string", {"columns": "id"}, r"the option columns \(id\) leaves out", marks=pytest.mark.all
        ),
    ],
)
def test_a_wrong_schema_is_the_same_error_whatever_the_query_needs(
    module_tables: Tables, schema: str, options: dict[str, str], reason: str
) -> None:
    if "declared" not in module_tables.db.tables(module_tables.name):
        module_tables.create("declared", COLUMNS)
    frame = module_tables.read("declared", options, schema)
    for action in (frame.collect, frame.count, frame.select(frame.columns[0]).collect, frame.where("1 = 1").count):
        with pytest.raises(PySparkException, match=reason):
            action()
    stream = module_tables.stream("declared", options, schema).select(frame.columns[0])
    query = stream.writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match=reason):
        ended(query)
