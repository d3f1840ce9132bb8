"""Rows through our Java classes: values read from and written to Arrow's memory, compared with those of the client.

The columns are those that the classes handle themselves, and two that they leave to Spark. Nulls have different
patterns, there are several batches, and strings outgrow the initial size of a batch.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import Tables, setting

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("real", pa.float64()),
        ("short_real", pa.float32()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us")),
        ("instant", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("tags", pa.list_(pa.string())),
    ]
)
COLUMNS = (
    "id",
    "IF(id % 2 = 0, NULL, CAST(id * -7 AS INT)) AS small",
    "IF(id % 3 = 0, NULL, id / 3) AS real",
    "IF(id % 5 = 0, NULL, CAST(id / 4 AS FLOAT)) AS short_real",
    "IF(id % 7 = 0, NULL, repeat(concat('ä', id), CAST(id % 40 AS INT))) AS name",
    "IF(id % 11 = 0, NULL, date_add(DATE'1969-12-01', CAST(id % 1000 AS INT))) AS day",
    "IF(id % 13 = 0, NULL, TIMESTAMP_NTZ'1969-12-31 23:59:59.999999' + make_dt_interval(0, 0, 0, id)) AS moment",
    "IF(id % 17 = 0, NULL, timestamp_micros(id * 1000003 - 5)) AS instant",
    "IF(id % 19 = 0, NULL, id % 4 = 0) AS flag",
    "IF(id % 23 = 0, NULL, array(CAST(id AS STRING), NULL)) AS tags",
)
ROWS = 20_000


def frame(spark: SparkSession, rows: int = ROWS, tasks: int = 2) -> DataFrame:
    return spark.range(0, rows, 1, tasks).selectExpr(*COLUMNS)


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def expected(spark: SparkSession, rows: int = ROWS) -> pa.Table:
    """The rows as Spark itself converts them."""
    return frame(spark, rows).toArrow().cast(SCHEMA).sort_by("id")


@pytest.fixture(scope="module")
def filled(module_tables: Tables, spark: SparkSession) -> Tables:
    """Table `t` with the rows, written by Spark."""
    module_tables.create("t", SCHEMA, bucket_count=2)
    module_tables.write(frame(spark), "t")
    return module_tables


def test_the_client_reads_what_spark_writes(filled: Tables, spark: SparkSession) -> None:
    assert filled.contents("t").sort_by("id").equals(expected(spark))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("spark.sql.codegen.wholeStage", "true", marks=pytest.mark.all),
        ("spark.sql.codegen.wholeStage", "false"),
        pytest.param("spark.sql.execution.arrow.useLargeVarTypes", "true", marks=pytest.mark.all),
        pytest.param("spark.sql.execution.arrow.compression.codec", "zstd", marks=pytest.mark.all),
    ],
)
def test_reads_and_writes_with_other_settings(filled: Tables, spark: SparkSession, key: str, value: str) -> None:
    """With and without generated code, with other Arrow types, and with compression between Java and Python."""
    with setting(spark, key, value):
        assert filled.read("t").toArrow().cast(SCHEMA).sort_by("id").equals(expected(spark))
        filled.create("copy", SCHEMA, bucket_count=2)
        filled.write(filled.read("t"), "copy")
    assert filled.contents("copy").sort_by("id").equals(expected(spark))
    filled.db.drop_table(filled.path("copy"))


def test_queries_take_values_from_columns(filled: Tables, spark: SparkSession) -> None:
    ours, theirs = filled.read("t"), frame(spark)
    assert "ColumnarToRow" in plan_of(ours)
    question = (
        "count(*)",
        "count(small)",
        "sum(small)",
        "sum(CAST(real AS DECIMAL(20, 6)))",  # exact: sums of doubles depend on the order of the tasks
        "sum(CAST(short_real AS DECIMAL(20, 6)))",
        "sum(length(name))",
        "max(name)",
        "min(day)",
        "max(moment)",
        "min(instant)",
        "count_if(flag)",
        "sum(size(tags))",
    )
    assert ours.selectExpr(*question).collect() == theirs.selectExpr(*question).collect()
    chosen = "small IS NULL AND name > 'ä15' AND day IS NOT NULL"
    assert ours.where(chosen).count() == theirs.where(chosen).count() > 0
    assert len(ours.limit(5).collect()) == 5
    by_flag = [frame.groupBy("flag").agg({"id": "sum"}).orderBy("flag").collect() for frame in (ours, theirs)]
    assert by_flag[0] == by_flag[1]


@pytest.mark.all
def test_a_join_keeps_values_of_earlier_batches(filled: Tables) -> None:
    """Values are read from memory that the next batch overwrites, so a join must copy the rows that it keeps."""
    left, right = filled.read("t").select("id", "name"), filled.read("t").select("id", "name", "real")
    joined = left.join(right, "id").where(left["name"].eqNullSafe(right["name"]))
    assert joined.count() == ROWS
    assert filled.read("t").orderBy("name", "id").select("id").distinct().count() == ROWS


@pytest.mark.parametrize("rows_per_batch", [1, 7, 0])
def test_batches_have_at_most_the_rows_of_the_setting(tables: Tables, spark: SparkSession, rows_per_batch: int) -> None:
    tables.create("t", SCHEMA, bucket_count=1)
    with setting(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", str(rows_per_batch)):
        tables.write(frame(spark, 500), "t")
    assert tables.contents("t").sort_by("id").equals(expected(spark, 500))


@pytest.mark.all
def test_tasks_without_rows_and_texts_larger_than_a_batch(tables: Tables, spark: SparkSession) -> None:
    """Eight tasks for three rows, one of them larger than Java's batches."""
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    tables.create("t", schema, bucket_count=1)
    texts = spark.range(0, 3, 1, 8).selectExpr("id", "repeat('x', CAST(pow(id, 2) * 3000000 AS INT)) AS text")
    tables.write(texts, "t")
    found = tables.contents("t").sort_by("id")
    assert [len(text.as_py()) for text in found["text"]] == [0, 3_000_000, 12_000_000]
    seen = tables.read("t").orderBy("id").selectExpr("length(text) AS n").collect()
    assert [row["n"] for row in seen] == [0, 3_000_000, 12_000_000]


def test_streams_share_the_environment_of_their_workers(spark: SparkSession, tables: Tables) -> None:
    """Spark has one for all queries, and two streams that add to it at the same time would corrupt it."""
    tables.create("settled", pa.schema([("id", pa.int64())]))
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    environment = manager.lookupDataSource("fluss").dataSourceCls().envVars()
    added = ["SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME"]
    for name in added:
        environment.remove(name)
    assert tables.read("settled").count() == 0
    assert [name for name in added if name not in environment] == []
