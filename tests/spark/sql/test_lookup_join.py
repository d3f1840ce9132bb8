"""`fluss.spark.lookup_join`: rows of a frame with the rows of a primary-key table that have their keys."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import fluss
import fluss.spark
from fluss.errors import FlussError
from tests.spark.conftest import Tables
from tests.support.spark.stream_queries import Seen, running, wait_for_rows

CUSTOMERS = fluss.Schema(pa.schema([("id", pa.int64()), ("name", pa.string()), ("city", pa.string())]), ["id"])


def joined(tables: Tables, frame: DataFrame, table: str, *arguments: Any, **more: Any) -> DataFrame:
    return fluss.spark.lookup_join(frame, tables.path(table), *arguments, options=tables.options(), **more)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.fixture
def customers(any_tables: Tables) -> Tables:
    """Customers 0 to 9,999 on each server."""
    any_tables.create("customers", CUSTOMERS, bucket_count=2)
    any_tables.db.upsert(
        any_tables.path("customers"),
        [{"id": number, "name": f"name {number}", "city": f"city {number % 7}"} for number in range(10_000)],
    )
    return any_tables


def test_rows_with_and_without_a_match(spark: SparkSession, customers: Tables) -> None:
    orders = spark.createDataFrame(
        [(1, 5), (2, None), (3, 10_000), (4, 9_999), (5, 5)], "number int, customer_id bigint"
    ).repartition(2)
    left = joined(customers, orders, "customers", {"id": "customer_id"})
    assert left.schema.simpleString() == "struct<number:int,customer_id:bigint,name:string,city:string>"
    assert rows(left) == [
        (1, 5, "name 5", "city 5"),
        (2, None, None, None),
        (3, 10_000, None, None),
        (4, 9_999, "name 9999", "city 3"),
        (5, 5, "name 5", "city 5"),
    ]
    inner = joined(customers, orders, "customers", {"id": "CUSTOMER_ID"}, how="inner")
    assert [row[0] for row in rows(inner)] == [1, 4, 5]
    some = joined(customers, orders, "customers", {"id": "customer_id"}, columns=["CITY"])
    assert some.columns == ["number", "customer_id", "city"]


@pytest.mark.all
def test_many_rows_equal_the_join_of_spark(spark: SparkSession, customers: Tables) -> None:
    visits = spark.range(0, 25_000, 1, 3).selectExpr("id AS visit", "id * 7 % 12000 AS id")
    of_spark = visits.join(customers.read("customers"), "id").select("visit", "name")
    ours = joined(customers, visits, "customers", how="inner", columns=["name"]).select("visit", "name")
    assert ours.exceptAll(of_spark).count() == of_spark.exceptAll(ours).count() == 0
    assert ours.count() > 20_000


def test_no_rows_and_empty_tasks(spark: SparkSession, tables: Tables) -> None:
    tables.create("customers", CUSTOMERS)
    nothing = spark.range(0).selectExpr("id")
    assert rows(joined(tables, nothing, "customers")) == []
    lonely = spark.range(1).repartition(3)
    assert rows(joined(tables, lonely, "customers")) == [(0, None, None)]
    assert rows(joined(tables, lonely, "customers", how="inner")) == []


def test_keys_of_several_types_and_partitions(spark: SparkSession, tables: Tables) -> None:
    schema = pa.schema(
        [
            ("day", pa.string()),
            ("at", pa.timestamp("ms")),
            ("code", pa.decimal128(10, 2)),
            ("small", pa.int16()),
            ("value", pa.timestamp("us", "UTC")),
            ("tags", pa.list_(pa.string())),
        ]
    )
    keys = ["day", "at", "code", "small"]
    tables.create("wide", fluss.Schema(schema, keys), partition_keys=["day"], bucket_count=1)
    moment = datetime.datetime(2026, 8, 1, 12, 30)
    key = {"day": "a", "at": moment, "code": decimal.Decimal("1.50"), "small": 7}
    tables.db.create_partition(tables.path("wide"), {"day": "a"})
    value = moment.replace(tzinfo=datetime.UTC)
    tables.db.upsert(tables.path("wide"), [{**key, "value": value, "tags": ["x", None]}])
    frame = spark.sql(
        "SELECT day, TIMESTAMP_NTZ'2026-08-01 12:30:00' AS at, 1.5BD AS code, 7 AS small "
        "FROM VALUES ('a'), ('b') AS t(day)"
    )
    found = {row.day: row for row in joined(tables, frame, "wide", keys).collect()}
    assert found["a"].tags == ["x", None]
    assert found["a"].value is not None
    assert (found["b"].value, found["b"].tags) == (None, None)


def test_a_key_is_never_cut(spark: SparkSession, tables: Tables) -> None:
    tables.create("prices", fluss.Schema(pa.schema([("id", pa.decimal128(10, 2)), ("name", pa.string())]), ["id"]))
    with pytest.raises(Exception, match=r"'id' expects DECIMAL.*got .*1\.0149.* in row 0: .*keys are never cut off"):
        joined(tables, spark.sql("SELECT 1.0149BD AS id"), "prices").collect()


def test_a_stream_sees_the_rows_of_each_moment(tables: Tables, tmp_path: Path) -> None:
    tables.create("customers", CUSTOMERS)
    tables.create("orders", pa.schema([("number", pa.int32()), ("id", pa.int64())]))
    tables.db.upsert(tables.path("customers"), [{"id": 1, "name": "old", "city": ""}])
    seen = Seen()
    with running(joined(tables, tables.stream("orders"), "customers"), tmp_path / "c", seen) as query:
        tables.db.append(tables.path("orders"), [{"number": 1, "id": 1}])
        wait_for_rows(query, seen, 1)
        tables.db.upsert(tables.path("customers"), [{"id": 1, "name": "new", "city": ""}])
        tables.db.append(tables.path("orders"), [{"number": 2, "id": 1}])
        wait_for_rows(query, seen, 2)
    assert seen.rows == [(1, 1, "old", ""), (2, 1, "new", "")]


def test_invalid_joins(spark: SparkSession, tables: Tables) -> None:
    tables.create("customers", CUSTOMERS)
    tables.create("log", pa.schema([("id", pa.int64())]))
    ids = spark.range(1)
    for table, arguments, more, reason in (
        ("log", (), {}, "needs a primary-key table"),
        ("customers", (["id", "name"],), {}, "the whole primary key"),
        ("customers", ({"id": "other"},), {}, "unknown column 'other' for 'id'"),
        ("customers", ("id",), {}, "must be a list or a map"),
        ("customers", (), {"how": "outer"}, "how must be left or inner"),
        ("customers", (), {"columns": ["nothing"]}, "unknown column 'nothing'"),
        ("customers", (), {"columns": "name"}, "columns must be a list"),
        ("customers", (), {"columns": ["id"]}, "'id' is in the frame and in"),
    ):
        with pytest.raises(FlussError, match=reason):
            joined(tables, ids, table, *arguments, **more)
    with pytest.raises(FlussError, match="column 'id'"):
        joined(tables, spark.sql("SELECT 'x' AS id"), "customers")
