"""Rows that cannot be written are errors: while Spark plans if possible, else the job fails with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

import fluss
from fluss.errors import FlussError
from fluss.spark.options.parsing import parse_options
from fluss.spark.write.plan import plan_write
from tests.spark.conftest import Tables

USERS = fluss.Schema(pa.schema([("id", pa.int64()), ("name", pa.string()), pa.field("age", pa.int32(), False)]), ["id"])
EVENTS = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string()), ("at", pa.timestamp("us"))])


@pytest.fixture(scope="module")
def planned(module_tables: Tables) -> Tables:
    """A log table and a primary-key table that stay empty."""
    module_tables.create("events", EVENTS)
    module_tables.create("users", USERS)
    module_tables.create("loose", fluss.Schema(pa.schema([("id", pa.int64()), ("a", pa.int32())]), ["id"]))
    twins = pa.schema([("key", pa.int64()), ("id", pa.int64()), ("Id", pa.string())])
    module_tables.create("twins", fluss.Schema(twins, ["key"]))
    return module_tables


GOOD_EVENT = "id, cast(id as string) name, cast(null as timestamp_ntz) at"
GOOD_USER = "id, 'x' name, 1 age"
TRANSACTION = {"transaction": "nightly", "transactionBatch": "1"}


@pytest.mark.parametrize(
    ("table", "columns", "options", "said"),
    [
        ("events", "id, 'x' name", {}, "the rows lack 'at': add them, or name the columns to write with the option"),
        ("events", f"{GOOD_EVENT}, 1 more", {}, "unknown columns 'more'; its columns are id, name, at"),
        ("events", f"{GOOD_EVENT}, 'y' NAME", {}, "column 'name' is duplicated"),
        ("events", "'one' id, 'x' name, cast(null as timestamp_ntz) at", {}, "column 'id' is BIGINT.*rows have string"),
        ("events", "id, 'x' name, current_timestamp() at", {}, "column 'at' is.*timestamp_ntz is not"),
        ("events", "null id, 'x' name, null at", {}, "column 'id' is NOT NULL, but null in all rows"),
        ("events", "id, make_ym_interval(1, 1) name, null at", {}, "column 'name'|that Spark cannot convert to Arrow"),
        ("events", "'x' name", {"columns": "name"}, "leaves out 'id', which is BIGINT NOT NULL"),
        (
            "events",
            GOOD_EVENT,
            {"columns": "id, nam"},
            "option columns: unknown column 'nam' in the table; its columns are id, name, at",
        ),
        ("events", GOOD_EVENT, {"columns": "id, ID"}, "option columns must not have duplicates, got 'id' twice"),
        ("twins", "id, 'a' Id", {"columns": "key, ID"}, "option columns: 'ID' is ambiguous: 'id' and 'Id'"),
        ("twins", "1 key, 'a' ID", {}, "a column of the rows: 'ID' is ambiguous: 'id' and 'Id'"),
        (
            "users",
            f"{GOOD_USER}, '' Op, '' oP",
            {"rowKindColumn": "op"},
            "rowKindColumn: 'op' is ambiguous: 'Op' and 'oP'",
        ),
        ("events", f"{GOOD_EVENT}, '+I' op", {"rowKindColumn": "op"}, "rows of log tables can only be appended"),
        ("events", GOOD_EVENT, {"mode": "changelog"}, "the changelog of table .* cannot be written"),
        ("users", GOOD_USER, {"columns": "name, age"}, "must include the primary key: add id"),
        ("users", "id, 'x' name", {"columns": "id, name"}, "leaves out 'age', which is INT NOT NULL"),
        ("users", GOOD_USER, {"rowKindColumn": "op"}, "rowKindColumn='op' is missing; the columns are id, name, age"),
        ("users", f"{GOOD_USER}, 1 op", {"rowKindColumn": "op"}, "must be a string such as .*, got int"),
        ("users", "id", {}, "the rows lack 'name', 'age'"),
        ("users", GOOD_USER, TRANSACTION, "are for log tables, but .*users has a primary key"),
        ("users", GOOD_USER, {"transactionBatch": "1"}, "are for log tables, but .*users has a primary key"),
        ("events", GOOD_EVENT, {**TRANSACTION, "delivery": "at-least-once"}, "leave one or the other out"),
        ("nowhere", "id", {}, "nowhere"),
    ],
)
def test_refused_while_planning(
    planned: Tables, spark: SparkSession, table: str, columns: str, options: dict[str, str], said: str
) -> None:
    schema = spark.range(1).selectExpr(*_split(columns)).schema
    parsed = parse_options(planned.options(table=planned.path(table), **options))
    with pytest.raises(FlussError) as caught:
        plan_write(parsed, schema, overwrite=False, is_stream=False)
    assert re.search(said, str(caught.value)), str(caught.value)


def test_spark_shows_the_refusal(planned: Tables, spark: SparkSession) -> None:
    with pytest.raises(
        PySparkException, match=r"the rows cannot be written to table .*users: the rows lack 'name', 'age'"
    ):
        planned.write(spark.range(1), "users")
    with pytest.raises(PySparkException, match="no option 'rowkind': did you mean rowKindColumn"):
        planned.write(spark.range(1), "users", {"rowKind": "op"})
    with pytest.raises(PySparkException, match=r"belongs to no streaming query: .* needs option transaction too"):
        planned.write(spark.range(1), "events", {"transactionBatch": 1, "columns": "id"})
    with pytest.raises(PySparkException, match="option limit is for batch reads and has no effect on batch writes"):
        planned.write(spark.range(1), "events", {"limit": 1, "columns": "id"})


def _split(columns: str) -> list[str]:
    """At commas that are not inside parentheses."""
    return re.split(r",\s*(?![^()]*\))", columns)


def test_save_modes(planned: Tables, spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr(*_split(GOOD_EVENT))
    options = planned.options(table=planned.path("events"))
    for mode, said in [
        ("overwrite", "mode overwrite is not supported .* use mode.'append'.; to start over, drop and create"),
        ("error", "Append"),
        ("ignore", "Append"),
    ]:
        with pytest.raises(PySparkException) as caught:
            frame.write.format("fluss").mode(mode).options(**options).save()
        assert re.search(said, str(caught.value)), f"{mode}: {caught.value}"
    with pytest.raises(PySparkException) as caught:
        frame.write.format("fluss").options(**options).save()  # Spark's default mode
    assert "Append" in str(caught.value)
    assert planned.rows("events") == []


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (lambda writer: writer.partitionBy("name"), "partitioning or clustering columns do not match"),
        (lambda writer: writer.clusterBy("name"), "partitioning or clustering columns do not match"),
        (lambda writer: writer.bucketBy(2, "name"), "does not support bucketBy"),
        (lambda writer: writer.bucketBy(2, "name").sortBy("id"), "does not support bucketBy and sortBy"),
        (lambda writer: writer.sortBy("id"), "SORT_BY_WITHOUT_BUCKETING"),
    ],
)
def test_spark_refuses_a_layout_that_differs_from_the_table(
    planned: Tables, spark: SparkSession, layout: Callable[[DataFrameWriter], DataFrameWriter], said: str
) -> None:
    writer = spark.range(1).selectExpr(*_split(GOOD_EVENT)).write.format("fluss").mode("append")
    with pytest.raises(PySparkException, match=said):
        layout(writer.options(**planned.options(table=planned.path("events")))).save()
    assert planned.rows("events") == []


@pytest.mark.parametrize(
    ("table", "columns", "options", "said"),
    [
        ("events", "nullif(id, 1) id, '' name, null at", {}, "column 'id' .* must not be null, but .* in row 1"),
        ("loose", "id, id + 2147483646 a", {}, "column 'a' expects INT, got 2147483648 .* in row 2"),
        ("users", "id, 'x' name, nullif(1, id) age, '+U' op", {"rowKindColumn": "op"}, "'age'.*must not be null"),
        ("users", f"{GOOD_USER}, 'x' op", {"rowKindColumn": "op"}, "row kind 'x' .* must be one of .I, .U, -U, -D"),
        ("users", f"{GOOD_USER}, nullif('+I', '+I') op", {"rowKindColumn": "op"}, "3 rows .* have no row kind"),
        ("users", "id, '+I' op", {"rowKindColumn": "op"}, "only the columns of the primary key"),
    ],
)
def test_values_that_do_not_fit_fail_the_job(
    planned: Tables, spark: SparkSession, table: str, columns: str, options: dict[str, str], said: str
) -> None:
    frame = spark.range(3).coalesce(1).selectExpr(*_split(columns))
    with pytest.raises(PySparkException) as caught:
        planned.write(frame, table, options)
    assert re.search(said, str(caught.value)), str(caught.value)
    assert planned.rows(table) == []


def test_a_row_that_is_too_large(any_tables: Tables, spark: SparkSession) -> None:
    any_tables.create("events", EVENTS, properties={"table.log.arrow.compression.type": "none"})
    frame = spark.range(2).selectExpr("id", "repeat('large', 3000000) name", "null at")
    with pytest.raises(PySparkException, match=r"a row .* takes \d+ bytes; writer.request-max-size allows"):
        any_tables.write(frame, "events")


def test_partitions_that_may_not_be_created_or_cannot_exist(any_tables: Tables, spark: SparkSession) -> None:
    any_tables.create("parts", pa.schema([("region", pa.string()), ("id", pa.int64())]), partition_keys=["region"])
    frame = spark.range(1).selectExpr("'EU' region", "id")
    with pytest.raises(PySparkException, match="no partition 'EU'"):
        any_tables.write(frame, "parts", {"client.writer.dynamic-create-partition.enabled": "false"})
    with pytest.raises(PySparkException, match=r"got 'a/b' .* cannot exist"):
        any_tables.write(spark.range(1).selectExpr("'a/b' region", "id"), "parts")
    assert any_tables.rows("parts") == []


def dropping(frame: DataFrame, servers: str, path: str) -> DataFrame:
    """The rows of the frame; the table is dropped after some of them."""

    def drop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 3:
                with fluss.connect(servers) as db:
                    db.drop_table(path)
            yield batch

    return frame.mapInArrow(drop, frame.schema)


@pytest.mark.parametrize("delivery", [None, pytest.param("at-least-once", marks=pytest.mark.all)])
def test_a_table_that_is_dropped_in_the_middle(any_tables: Tables, spark: SparkSession, delivery: str | None) -> None:
    any_tables.create("events", EVENTS)
    any_tables.create("users", USERS)
    options: dict[str, Any] = {"client.writer.batch-size": 65536, **({"delivery": delivery} if delivery else {})}
    for table, columns in (("events", GOOD_EVENT), ("users", GOOD_USER)):
        frame = spark.range(0, 200_000, 1, 1).selectExpr(*_split(columns))
        path = any_tables.path(table)
        with pytest.raises(PySparkException) as caught:
            any_tables.write(dropping(frame, any_tables.target.bootstrap_servers, path), table, options)
        assert re.search(r"FlussError.*(not exist|unknown table|dropped)", str(caught.value), re.S | re.I)
