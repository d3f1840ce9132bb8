"""Every data type from a table into Spark and from Spark into a table, on real Spark and a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType

import fluss
import fluss.spark
from fluss.spark.convert.types import to_spark_schema
from tests.spark.conftest import Tables, new_tables
from tests.support.servers.targets import running_target
from tests.support.spark.all_types import CASES, TypeCase, arrow_rows, plain, table_schema

NAMES = [case.name for case in CASES]


@pytest.fixture(scope="module", params=["log", "primary key"])
def filled(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Tables]:
    """Table `a` filled by the client, and table `b` filled by Spark with what it read from `a`."""
    keyed = request.param == "primary key"
    for tables in new_tables(running_target("standalone"), spark):
        for name in ("a", "b"):
            tables.create(name, table_schema(keyed), bucket_count=2)
        write = tables.db.upsert if keyed else tables.db.append
        write(tables.path("a"), pa.Table.from_batches([arrow_rows()]))
        tables.write(tables.read("a"), "b")
        yield tables


@pytest.fixture(scope="module")
def seen(filled: Tables) -> list[Row]:
    """The rows that Spark reads."""
    return filled.read("a").orderBy("id").collect()


@pytest.fixture(scope="module")
def spark_schema(filled: Tables) -> StructType:
    """The schema that Spark sees."""
    return filled.read("a").schema


@pytest.fixture(scope="module")
def written(filled: Tables) -> tuple[pa.Table, pa.Table]:
    """The rows of both tables that the client reads."""
    return filled.contents("a").sort_by("id"), filled.contents("b").sort_by("id")


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_spark_reads_every_type(spark_schema: StructType, seen: list[Row], case: TypeCase) -> None:
    assert spark_schema[case.name].dataType.simpleString() == case.spark_type
    assert [plain(row[case.name]) for row in seen] == [plain(value) for value in case.seen_by_spark]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_spark_writes_every_type(written: tuple[pa.Table, pa.Table], case: TypeCase) -> None:
    original, copy = (table[case.name] for table in written)
    if case.spark_values is None:
        assert copy.equals(original)
    else:  # the digits that Spark cut are zeros in the copy
        cut = pa.chunked_array([pa.array(case.spark_values, pa.timestamp("us", original.type.tz))])
        assert copy.equals(cut.cast(original.type))


def test_nullability_and_comments_reach_spark(spark_schema: StructType) -> None:
    schema: Any = spark_schema
    assert not schema["id"].nullable
    assert schema["c_int"].nullable
    assert not schema["c_array_not_null"].dataType.containsNull
    assert not schema["c_row"].dataType["a"].nullable
    assert schema["c_int"].metadata["comment"] == "the type INT"


def test_nanoseconds_as_numbers_there_and_back(tables: Tables) -> None:
    tables.create("n", table_schema(keyed=False).to_arrow().remove(0))
    tables.create("m", tables.db.info(tables.path("n")).schema)
    rows = arrow_rows().drop_columns(["id"])
    tables.db.append(tables.path("n"), rows)
    frame = tables.read("n", {"nanosAs": "bigint", "columns": "c_ts9,c_ltz9,c_ts6"})
    assert [field.dataType.simpleString() for field in frame.schema] == ["bigint", "bigint", "timestamp_ntz"]
    assert [row.c_ts9 for row in frame.collect()] == list(CASES[NAMES.index("c_ts9")].values)
    wide = tables.read("n", {"nanosAs": "bigint"})
    tables.write(wide, "m", {"nanosAs": "bigint"})
    assert tables.contents("m")["c_ltz9"].equals(tables.contents("n")["c_ltz9"])


def test_a_session_in_another_zone_reads_and_writes_the_same_points_in_time(tables: Tables) -> None:
    """Writers get points in time in the zone of the session, whichever it is."""
    tables.create("z", pa.schema([("id", pa.int32()), ("at", pa.timestamp("us", "UTC"))]))
    tables.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        tables.write(tables.spark.sql("SELECT 1 AS id, TIMESTAMP '2026-08-01 09:00:00' AS at"), "z")
        texts = tables.read("z").selectExpr("CAST(at AS STRING) AS text").collect()
    finally:
        tables.spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [row["at"].isoformat() for row in tables.rows("z")] == ["2026-08-01T00:00:00+00:00"]
    assert [row.text for row in texts] == ["2026-08-01 09:00:00"]


def test_time_columns_can_be_filtered_and_cast(tables: Tables) -> None:
    schema = fluss.Schema.builder().column("t", fluss.DataTypes.time(3)).build()
    tables.create("times", schema)
    tables.db.append(tables.path("times"), [{"t": value} for value in CASES[NAMES.index("c_time3")].values])
    found = (
        tables.read("times")
        .where("t > CAST(TIME '12:00:00' AS TIME(3))")
        .selectExpr("CAST(t AS STRING) AS text")
        .collect()
    )
    assert [row.text for row in found] == ["23:59:59.999"]


@pytest.mark.parametrize("pruned", ["c_string string", "c_row struct<a:int,b:string>, id int", "id int not null"])
def test_a_schema_of_some_columns_is_read_as_given(filled: Tables, seen: list[Row], pruned: str) -> None:
    """Such a schema is nullable for columns that are NOT NULL, and has another order of columns."""
    frame = filled.read("a", schema=pruned)
    rows = frame.collect()
    for name in frame.columns:
        assert sorted(repr(row[name]) for row in rows) == sorted(repr(row[name]) for row in seen)


def test_tables_from_every_spark_type(tables: Tables) -> None:
    frame = tables.spark.sql(
        "SELECT true b, 1Y y, 1S s, 1 i, 1L l, 1.0F f, 1D d, 'x' t, X'00' x, 1.25 n, DATE '2026-08-01' a, "
        "TIME '12:00:00' c, TIMESTAMP '2026-08-01 00:00:00' z, TIMESTAMP_NTZ '2026-08-01 00:00:00' w, "
        "array(1) r, map('k', 1) m, named_struct('p', 1, 'q', 'x') o"
    )
    name = tables.path("made")
    fluss.spark.create_table(tables.spark, name, frame, options=tables.options())
    info = tables.db.info(name)
    assert dict(info.schema.get_columns()) == {
        "b": "boolean NOT NULL", "y": "tinyint NOT NULL", "s": "smallint NOT NULL", "i": "int NOT NULL",
        "l": "bigint NOT NULL", "f": "float NOT NULL", "d": "double NOT NULL", "t": "string NOT NULL",
        "x": "bytes NOT NULL", "n": "decimal(3,2) NOT NULL", "a": "date NOT NULL", "c": "time(6) NOT NULL",
        "z": "timestamp_ltz NOT NULL", "w": "timestamp NOT NULL", "r": "array<int NOT NULL> NOT NULL",
        "m": "map<string NOT NULL,int NOT NULL> NOT NULL",
        "o": "row<p: int NOT NULL, q: string NOT NULL> NOT NULL",
    }  # fmt: skip
    assert to_spark_schema(info) == frame.schema
    tables.write(frame, "made")
    assert tables.read("made").collect() == frame.collect()


def test_types_that_tables_do_not_have_are_named(tables: Tables) -> None:
    with pytest.raises(fluss.FlussError, match=r"column 'a', element has the Spark type interval.*cast it first"):
        fluss.spark.create_table(
            tables.spark, tables.path("no"), "a array<interval day to second>", options=tables.options()
        )


@pytest.mark.parametrize(
    ("column", "place"),
    [
        ("s STRING COLLATE UNICODE_CI", "column 's'"),
        ("s ARRAY<STRING COLLATE UNICODE_CI>", "column 's', element"),
        ("s STRUCT<a: MAP<STRING, STRING COLLATE UNICODE_CI>>", "column 's', field 'a', value"),
    ],
)
def test_collations_are_refused(tables: Tables, column: str, place: str) -> None:
    """They would be lost silently."""
    spark, options = tables.spark, tables.options()
    reason = f"{place} has the collation UNICODE_CI, which tables do not store: make it STRING"
    with pytest.raises(fluss.FlussError, match=reason):
        fluss.spark.create_table(spark, tables.path("no"), column, options=options)
    fluss.spark.create_table(spark, tables.path("yes"), "id INT, t STRING COLLATE UTF8_BINARY", options=options)
    with pytest.raises(fluss.FlussError, match=reason):
        fluss.spark.alter_table(spark, tables.path("yes"), add_columns=column, options=options)
    assert tables.db.tables(tables.name) == ["yes"]


def check_refused(tables: Tables, sql: str, table: str, words: str) -> None:
    with pytest.raises(Exception, match=words):
        tables.write(tables.spark.sql(sql), table)
    assert tables.rows(table) == []


def test_rows_that_do_not_fit_fail_with_the_column(tables: Tables) -> None:
    schema: Any = pa.schema([("id", pa.int8()), ("name", pa.string()), ("at", pa.timestamp("us")), ("b", pa.binary(2))])
    tables.create("strict", schema)
    values = "1Y AS id, 'x' AS name, TIMESTAMP_NTZ '2026-08-01 00:00:00' AS at, X'0001' AS b"
    check_refused(tables, f"SELECT {values.replace('1Y', '300')}", "strict", "column 'id'.*300")
    check_refused(tables, f"SELECT {values.replace(chr(39) + 'x' + chr(39), '5')}", "strict", "column 'name'.*int32")
    check_refused(tables, f"SELECT {values.replace('TIMESTAMP_NTZ', 'TIMESTAMP')}", "strict", "column 'at'.*cast it")
    check_refused(tables, f"SELECT {values.replace('0001', '00')}", "strict", "column 'b'")
    check_refused(tables, f"SELECT {values}, 1 AS more", "strict", "more")
    check_refused(tables, "SELECT 1Y AS id", "strict", "lack.*name")
