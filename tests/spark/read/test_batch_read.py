"""Batch reads through Spark itself: types, columns, filters with push-down on and off, counting, errors."""

from __future__ import annotations

import datetime
import gc
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import fluss
import fluss.spark
from fluss.spark.options.parsing import parse_options
from fluss.spark.sessions.connection_cache import open_table
from tests.spark.conftest import Tables
from tests.support.servers.restartable import restartable_server
from tools.waiting import patience

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
UTC = datetime.UTC
MOMENT = datetime.datetime(1965, 5, 4, 3, 2, 1, 987_654)

TYPES: dict[str, tuple[Any, Any, str, Any]] = {
    # column: Arrow type, value, Spark type, Spark's value if it differs
    "b": (pa.bool_(), True, "boolean", None),
    "i1": (pa.int8(), -128, "tinyint", None),
    "i2": (pa.int16(), 32767, "smallint", None),
    "i4": (pa.int32(), -(2**31), "int", None),
    "i8": (pa.int64(), 2**63 - 1, "bigint", None),
    "f": (pa.float32(), 0.5, "float", None),
    "d": (pa.float64(), -1e300, "double", None),
    "s": (pa.string(), "häß \U0001f600", "string", None),
    "y": (pa.binary(), b"\0\xff", "binary", None),
    "y4": (pa.binary(4), b"abcd", "binary", None),
    "n": (pa.decimal128(20, 3), Decimal("-12345678901234567.891"), "decimal(20,3)", None),
    "day": (pa.date32(), datetime.date(1969, 12, 31), "date", None),
    "t": (pa.time32("ms"), datetime.time(23, 59, 58, 999_000), "time(3)", None),
    "ts0": (pa.timestamp("s"), MOMENT.replace(microsecond=0), "timestamp_ntz", None),
    "ts3": (pa.timestamp("ms"), MOMENT.replace(microsecond=987_000), "timestamp_ntz", None),
    "ts6": (pa.timestamp("us"), MOMENT, "timestamp_ntz", None),
    "ts9": (pa.timestamp("ns"), MOMENT, "timestamp_ntz", None),
    "ltz": (pa.timestamp("us", "UTC"), MOMENT.replace(tzinfo=UTC), "timestamp", None),
    "list": (pa.list_(pa.int32()), [1, None, 3], "array<int>", None),
    "map": (pa.map_(pa.string(), pa.int64()), {"a": 1, "b": None}, "map<string,bigint>", None),
    "row": (
        pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]),
        {"x": 7, "y": ["p", None]},
        "struct<x:int,y:array<string>>",
        (7, ["p", None]),
    ),
}


@pytest.mark.parametrize("key", [None, "id"], ids=["log", "keyed"])
def test_every_type(any_tables: Tables, key: str | None) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), False), *((name, each[0]) for name, each in TYPES.items())])
    any_tables.create("types", schema, primary_keys=[key] if key else None, bucket_count=1)
    full = {"id": 1, **{name: each[1] for name, each in TYPES.items()}}
    empty = {"id": 2, **dict.fromkeys(TYPES)}
    write = any_tables.db.upsert if key else any_tables.db.append
    write(any_tables.path("types"), [full, empty])
    frame = any_tables.read("types")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] == [
        ("id", "int"),
        *((name, each[2]) for name, each in TYPES.items()),
    ]
    # collect() gives a timestamp in the zone of this process
    first, second = frame.orderBy("id").selectExpr("*", "unix_micros(ltz) micros").collect()
    assert first.micros == (MOMENT - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    for name, (_, value, _, shown) in TYPES.items():
        if name != "ltz":
            assert first[name] == (shown if shown is not None else value), name
        assert second[name] is None, name


@pytest.fixture
def mixed(tables: Tables) -> Iterator[dict[str, DataFrame]]:
    """The same rows in a log table and a primary-key table, with statistics for the server to leave out batches."""
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), False),
            ("name", pa.string()),
            ("x", pa.float64()),
            ("at", pa.timestamp("us")),
            ("point", pa.struct([("a", pa.int32())])),
        ]
    )
    start = datetime.datetime(2026, 8, 1)
    rows = [
        {
            "id": number,
            "name": None if number % 17 == 0 else f"n{number % 10}",
            "x": float("nan") if number % 13 == 0 else number / 4,
            "at": start + datetime.timedelta(minutes=number),
            "point": {"a": number % 5},
        }
        for number in range(400)
    ]
    tables.create("log", schema, bucket_count=2, properties={"table.statistics.columns": "*"})
    tables.create("keyed", schema, primary_keys=["id"], bucket_count=2)
    for first in range(0, 400, 50):
        tables.db.append(tables.path("log"), rows[first : first + 50])
    tables.db.upsert(tables.path("keyed"), rows)
    yield {"log": tables.read("log"), "keyed": tables.read("keyed")}
    tables.spark.conf.set(PUSH_DOWN, "true")


CONDITIONS = [
    "id IN (3, 5, 399, 1000)",
    "x > 95",
    "x = double('NaN')",
    "name <=> NULL",
    "NOT (name = 'n3') AND id BETWEEN 100 AND 120",
    "name LIKE 'n%' AND name NOT LIKE '%7' AND at < timestamp_ntz'2026-08-01 01:00:00'",
    "point.a = 3 AND id < 100",
    "id = 5 OR name = 'n8'",
    "id = 3 AND id = 4",
]


@pytest.mark.all
def test_filters_give_the_same_rows_with_push_down_on_and_off(mixed: dict[str, DataFrame], spark: SparkSession) -> None:
    """The rows equal those of conditions over rows in Spark's memory: no row is missing, no condition fails."""
    # Not persist() and where(): cached batches are pruned by statistics that ignore NaN.
    plain = spark.createDataFrame(mixed["log"].collect(), mixed["log"].schema)
    judged = plain.selectExpr("id", *(f"{condition} AS c{n}" for n, condition in enumerate(CONDITIONS))).collect()
    for number, condition in enumerate(CONDITIONS):
        expected = [row.id for row in judged if row[f"c{number}"]]
        for kind, switch in (("log", "true"), ("keyed", "true"), (("log", "keyed")[number % 2], "false")):
            spark.conf.set(PUSH_DOWN, switch)
            found = sorted(row.id for row in mixed[kind].where(condition).select("id").collect())
            assert found == expected, f"{condition} on the {kind} table with push-down {switch}"


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_filters_that_are_evaluated_exactly_are_not_repeated(mixed: dict[str, DataFrame]) -> None:
    assert "Filter (" not in plan_of(mixed["log"].where("id = 77 AND x > 5 AND name LIKE 'n%'"))
    assert "Filter (" in plan_of(mixed["log"].where("point.a = 3")), "left to Spark"
    one_row = mixed["keyed"].where("id = 77")
    assert (one_row.rdd.getNumPartitions(), one_row.count()) == (1, 1)
    assert mixed["keyed"].rdd.getNumPartitions() == 2


def test_no_tasks_no_rows(tables: Tables) -> None:
    """Spark calls read() even when there are no partitions."""
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    tables.create("empty", schema, bucket_count=2, partition_keys=["day"])
    assert tables.read("empty").count() == 0
    tables.db.create_partition(tables.path("empty"), {"day": "d1"})
    tables.db.append(tables.path("empty"), [{"id": 1, "day": "d1"}])
    assert tables.read("empty").where("day = 'd2'").collect() == []
    assert tables.read("empty", {"limit": 0}).count() == 0
    assert [tuple(row) for row in tables.read("empty").where("day = 'd1'").collect()] == [(1, "d1")]


def test_columns_by_schema_by_option_and_in_sql(
    tables: Tables, mixed: dict[str, DataFrame], spark: SparkSession
) -> None:
    assert tables.read("log", schema="x double, id bigint").where("id = 8").collect()[0].asDict() == {"x": 2.0, "id": 8}
    assert tables.read("log", {"columns": "name, id"}).columns == ["name", "id"]
    pairs = ", ".join(f"`{key}` '{value}'" for key, value in tables.options(table=tables.path("keyed")).items())
    spark.sql(f"CREATE OR REPLACE TEMP VIEW slim (name string, id bigint) USING fluss OPTIONS ({pairs})")
    assert spark.sql("SELECT name FROM slim WHERE id IN (8, 9) ORDER BY id").collect() == [("n8",), ("n9",)]


@pytest.mark.all
def test_names_in_the_option_columns_are_resolved_like_names_in_spark(tables: Tables) -> None:
    """With the spelling of the table, and never one of two that differ only in case."""
    tables.create("mixed", pa.schema([("Name", pa.string()), ("id", pa.int64())]), bucket_count=1)
    tables.db.append(tables.path("mixed"), [{"Name": "a", "id": 1}])
    frame = tables.read("mixed", {"columns": "ID, name"})
    assert [row.asDict() for row in frame.collect()] == [{"id": 1, "Name": "a"}]
    assert frame.count() == 1
    assert tables.read("mixed", {"columns": "NAME"}, schema="Name string").collect() == [("a",)]
    assert tables.read("mixed$changelog", {"columns": "_Change_Type, ID"}).columns == ["_change_type", "id"]
    assert tables.stream("mixed", {"columns": "NAME"}).columns == ["Name"]
    tables.create("twins", pa.schema([("id", pa.int64()), ("Id", pa.string())]), bucket_count=1)
    tables.db.append(tables.path("twins"), [{"id": 1, "Id": "a"}])
    assert tables.read("twins", {"columns": "Id"}).collect() == [("a",)]
    for table, columns, reason in (
        ("mixed", "id,ID", "must not have duplicates, got 'id' twice"),
        ("mixed", "id,nope", "unknown column 'nope' in .*; its columns are Name, id"),
        ("twins", "ID", "'ID' is ambiguous: 'id' and 'Id' differ only in case"),
    ):
        with pytest.raises(PySparkException, match=reason):
            tables.read(table, {"columns": columns})


def test_counting(tables: Tables, mixed: dict[str, DataFrame], spark: SparkSession) -> None:
    options = tables.options()
    tables.db.delete(tables.path("keyed"), [{"id": 5}])
    tables.db.upsert(tables.path("keyed"), [{"id": 6}])

    def count(table: str, **extra: Any) -> int:
        return fluss.spark.count(spark, tables.path(table), options={**options, **extra})

    assert (count("log"), mixed["log"].count()) == (400, 400)
    assert (count("keyed"), mixed["keyed"].count()) == (399, 399)
    assert count("keyed", mode="changelog") == 400 + 1 + 2
    assert count("log", start="timestamp:0", end="timestamp:1") == 0
    assert count("log", limit=7) == 7
    assert tables.read("log", {"mode": "changelog", "columns": "_log_offset"}).count() == 400


def test_an_invalid_read_fails_at_planning_with_a_reason(tables: Tables, mixed: dict[str, DataFrame]) -> None:
    with pytest.raises(PySparkException, match=r"'id' of .* is bigint, not int"):
        tables.read("log", schema="id int").collect()
    with pytest.raises(PySparkException, match="names bucket 9"):
        tables.read("log", {"start": '{"9": 0}'}).collect()
    with pytest.raises(PySparkException, match="does not exist"):
        tables.read("nothing")
    tables.create("empty", pa.schema([("id", pa.int64())]))
    for table in ("log", "keyed", "empty"):
        backwards = tables.read(table, {"start": "latest", "end": "earliest"})
        for action in (backwards.collect, backwards.count):
            with pytest.raises(PySparkException, match=r"start=latest with end=earliest .* ends before it begins"):
                action()


def test_a_job_outlives_a_restart_of_the_server(spark: SparkSession) -> None:
    server = restartable_server("standalone")
    rows = 60_000
    with fluss.connect(server.config()) as db:
        db.create_table("fluss.restarted", pa.schema([("id", pa.int64())]), bucket_count=2)
        db.append("fluss.restarted", pa.table({"id": pa.array(range(rows))}))
        options = {"bootstrap.servers": server.target.bootstrap_servers, "scan.maxRecordsPerPartition": "5000"}
        frame = spark.read.format("fluss").options(**options).load("fluss.restarted")
        frame.count()  # starts everything
        found: list[Any] = []
        reading = threading.Thread(target=lambda: found.extend(frame.selectExpr("count(1)", "sum(id)").collect()))
        reading.start()
        server.goes_away()
        server.comes_back()
        reading.join(patience(120))
        assert [tuple(row) for row in found] == [(rows, rows * (rows - 1) // 2)]


def test_only_workers_keep_their_modules_from_the_garbage_collector(tables: Tables, spark: SparkSession) -> None:
    options = parse_options(tables.options(table=tables.create("t", pa.schema([("id", pa.int64())]))))

    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            with open_table(options):
                yield pa.RecordBatch.from_pydict({"id": [gc.get_freeze_count()]})

    assert all(row.id > 10_000 for row in spark.range(0, 2, 1, 2).mapInArrow(frozen, "id long").collect())
    before = gc.get_freeze_count()
    with open_table(options):
        assert gc.get_freeze_count() == before
