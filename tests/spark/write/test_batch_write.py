"""Batch writes: rows of every kind arrive, and rows that cannot be written are errors."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import fluss
from tests.spark.conftest import Tables

EVENTS = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string()), ("amount", pa.float64())])
USERS = fluss.Schema(
    pa.schema([("id", pa.int64()), ("name", pa.string()), ("age", pa.int32()), ("city", pa.string())]), ["id"]
)

ALL_TYPES = pa.schema(
    [
        ("b", pa.bool_()),
        ("i1", pa.int8()),
        ("i2", pa.int16()),
        ("i4", pa.int32()),
        ("i8", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("y", pa.binary()),
        ("y4", pa.binary(4)),
        ("n", pa.decimal128(20, 3)),
        ("date", pa.date32()),
        ("t", pa.time32("ms")),
        ("ts3", pa.timestamp("ms")),
        ("ts6", pa.timestamp("us")),
        ("ltz", pa.timestamp("us", "UTC")),
        ("list", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("row", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
    ]
)
ALL_TYPES_SQL = """
    b boolean, i1 tinyint, i2 smallint, i4 int, i8 bigint, f float, d double, s string, y binary, y4 binary,
    n decimal(20,3), date date, t time(3), ts3 timestamp_ntz, ts6 timestamp_ntz, ltz timestamp, list array<int>,
    map map<string,bigint>, row struct<x: int, y: array<string>>
"""
MOMENT = dt.datetime(1965, 5, 4, 3, 2, 1, 987_654)
ALL_VALUES: dict[str, Any] = {
    "b": True,
    "i1": -128,
    "i2": 32767,
    "i4": -(2**31),
    "i8": 2**63 - 1,
    "f": 0.5,
    "d": -1e300,
    "s": "häß",
    "y": b"\0\xff",
    "y4": b"abcd",
    "n": Decimal("12345678901234567.891"),
    "date": dt.date(1969, 12, 31),
    "t": dt.time(23, 59, 58, 999_000),
    "ts3": MOMENT,
    "ts6": MOMENT,
    "ltz": MOMENT.replace(tzinfo=dt.UTC),
    "list": [1, None, 3],
    "map": {"a": 1, "b": None},
    "row": {"x": 7, "y": ["p", None]},
}


def by_id(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows), "an id is there twice"
    return found


def test_every_type_is_appended(any_tables: Tables, spark: SparkSession) -> None:
    any_tables.create("types", ALL_TYPES)
    nothing = dict.fromkeys(ALL_VALUES)
    frame = spark.createDataFrame(cast(Any, [ALL_VALUES, nothing]), ALL_TYPES_SQL)
    with pytest.raises(Exception, match=r"'ts3'.*digits finer than the milliseconds"):
        any_tables.write(frame.coalesce(1), "types")  # on Apache Fluss rows of another task would remain
    any_tables.write(frame, "types", {"onExtraDigits": "truncate"})
    expected = {**ALL_VALUES, "ts3": MOMENT.replace(microsecond=987_000), "map": [("a", 1), ("b", None)]}
    rows = any_tables.rows("types")
    assert sorted(rows, key=repr) == sorted([expected, nothing], key=repr)


def test_columns_are_matched_by_name_and_numbers_widened(any_tables: Tables, spark: SparkSession) -> None:
    any_tables.create("events", EVENTS, bucket_count=3, bucket_keys=["id"])
    frame = spark.range(1000).selectExpr("id * 0.5D Amount", "cast(id as int) id", "concat('n', id) name")
    any_tables.write(frame.repartition(3), "events")
    rows = by_id(any_tables.rows("events"))
    assert len(rows) == 1000
    assert rows[7] == {"id": 7, "name": "n7", "amount": 3.5}


def test_some_columns_of_a_log_table(tables: Tables, spark: SparkSession) -> None:
    tables.create("events", EVENTS)
    tables.write(spark.range(3), "events", {"columns": "id"})
    assert by_id(tables.rows("events")) == {n: {"id": n, "name": None, "amount": None} for n in range(3)}


def test_missing_partitions_are_created(any_tables: Tables, spark: SparkSession) -> None:
    schema = pa.schema([("region", pa.string()), ("id", pa.int64())])
    any_tables.create("parts", schema, partition_keys=["region"], bucket_count=2, bucket_keys=["id"])
    any_tables.create("users", fluss.Schema(schema, ["region", "id"]), partition_keys=["region"], bucket_count=2)
    frame = spark.range(2000).selectExpr("concat('r', id % 5) region", "id").repartition(4)
    for table in ("parts", "users"):
        any_tables.write(frame, table)
        rows = by_id(any_tables.rows(table))
        assert len(rows) == 2000
        assert all(row["region"] == f"r{key % 5}" for key, row in rows.items())
        assert len(any_tables.db.partitions(any_tables.path(table))) == 5


def test_upserts_deletes_and_partial_updates(any_tables: Tables, spark: SparkSession) -> None:
    any_tables.create("users", USERS, bucket_count=3)
    people = spark.range(500).selectExpr("id", "concat('n', id) name", "cast(id % 90 as int) age", "'Bern' city")
    any_tables.write(people.repartition(2), "users")
    any_tables.write(spark.range(0, 500, 5).selectExpr("id", "-1 age"), "users", {"columns": "ID, age"})
    changes = "id bigint, name string, age int, city string, op string"
    any_tables.write(
        spark.createDataFrame(
            [
                (1, None, None, None, "-D"),
                (2, "two", 2, "Rome", "-u"),
                (2, "two", 22, "Rome", "update_after"),
                (3, None, None, None, "DELETE"),
                (3, "three", 3, None, "+I"),
                (900, "new", None, None, "insert"),
                (900, None, None, None, "delete"),
            ],
            changes,
        ).coalesce(1),
        "users",
        {"rowKindColumn": "op"},
    )
    any_tables.write(spark.range(100, 200).selectExpr("id", "'-D' op"), "users", {"rowKindColumn": "OP"})
    rows = by_id(any_tables.rows("users"))
    assert len(rows) == 500 - 1 - 100
    assert not rows.keys() & {1, 900, *range(100, 200)}
    assert rows[2] == {"id": 2, "name": "two", "age": 22, "city": "Rome"}
    assert rows[3] == {"id": 3, "name": "three", "age": 3, "city": None}
    assert rows[5] == {"id": 5, "name": "n5", "age": -1, "city": "Bern"}
    assert rows[6] == {"id": 6, "name": "n6", "age": 6, "city": "Bern"}


def test_insert_into_a_view(tables: Tables, spark: SparkSession) -> None:
    tables.create("events", EVENTS)
    options = ", ".join(f"'{key}' '{value}'" for key, value in tables.options(table=tables.path("events")).items())
    spark.sql(f"CREATE OR REPLACE TEMP VIEW sink USING fluss OPTIONS ({options})")
    spark.sql("INSERT INTO sink SELECT id, 'x', 0.5D FROM range(4)")
    spark.sql("INSERT INTO sink (amount, id, name) VALUES (1.5D, 9, 'y')")
    assert by_id(tables.rows("events"))[9] == {"id": 9, "name": "y", "amount": 1.5}
    assert len(tables.rows("events")) == 5


def test_a_job_with_a_name_and_a_number_is_done_once(any_tables: Tables, spark: SparkSession) -> None:
    any_tables.create("events", EVENTS)
    for number, first in ((0, 0), (0, 0), (1, 10), (1, 99)):
        frame = spark.range(first, first + 10).selectExpr("id", "'x' name", "0.5D amount")
        any_tables.write(frame, "events", {"transaction": "nightly", "transactionBatch": number})
    assert sorted(by_id(any_tables.rows("events"))) == list(range(20))
    any_tables.write(frame, "events")  # without a name every job is new
    assert len(any_tables.rows("events")) == 30


def test_batches_fill(tables: Tables, spark: SparkSession) -> None:
    """Ten batches of Spark for eight buckets would be eighty small ones."""
    tables.create("events", EVENTS, bucket_count=8, bucket_keys=["id"])
    frame = spark.range(0, 100_000, 1, 1).selectExpr("id", "concat('name-', id) name", "0.5D amount")
    tables.write(frame, "events")
    contents = tables.contents("events")
    assert contents.num_rows == 100_000
    assert contents.column("id").num_chunks == 8


def test_the_document_runs(tables: Tables, spark: SparkSession) -> None:
    """The code of docs/spark-writing.md; only the names of server and database differ."""
    orders = pa.schema([("id", pa.int64()), ("item", pa.string()), ("price", pa.float64())])
    tables.create("orders", orders)
    tables.create("totals", fluss.Schema(pa.schema([("item", pa.string()), ("total", pa.float64())]), ["item"]))
    tables.create("users", USERS)
    tables.read("orders").createOrReplaceTempView("orders")
    rows = spark.createDataFrame([(1, "cup", 2.5), (2, "pan", 9.0)], "id bigint, item string, price double")
    people = "id bigint, name string, age int, city string, op string"
    names = {
        "spark": spark,
        "orders": rows,
        "df": rows,
        "totals": rows.selectExpr("item", "price total"),
        "keys": spark.range(1),
        "changes": spark.createDataFrame([(7, "a", 1, None, "+I"), (8, "b", 2, None, "+I")], people),
        "ages": spark.createDataFrame([(7, 40)], "id bigint, age int"),
        "cluster": tables.options(),
    }
    text = (Path(__file__).parents[3] / "docs" / "spark-writing.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for block in [*blocks, blocks[-1]]:  # the last one has a name, so it is done once
        exec(
            block.replace('format("fluss")', 'format("fluss").options(**cluster)').replace("shop.", f"{tables.name}."),
            names,
        )
    assert len(tables.rows("orders")) == 2 + 1 + 2
    assert len(tables.rows("totals")) == 2
    assert {row["id"]: row["age"] for row in tables.rows("users")} == {7: 40, 8: 2}
