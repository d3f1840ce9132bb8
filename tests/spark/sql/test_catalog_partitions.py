"""SQL statements about partitions, by three-part names."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyspark.sql import SparkSession

import fluss
import fluss.spark
from tests.spark.conftest import Tables

NAME = "fl"
NANOS_NAME = "nanos"

# The columns of one table that is partitioned by all of them: a value that a row has, as SQL and as SHOW PARTITIONS
# prints it, and another one for a partition without rows.
TYPED_COLUMNS = [
    ("s", "STRING", "'eu'", "eu", "'us'"),
    ("yes", "BOOLEAN", "true", "true", "false"),
    ("b", "TINYINT", "-8", "-8", "127"),
    ("h", "SMALLINT", "300", "300", "-300"),
    ("i", "INT", "70000", "70000", "7"),
    ("l", "BIGINT", "5000000000", "5000000000", "-1"),
    ("f", "FLOAT", "0.1", "0.1", "'Infinity'"),
    ("d", "DOUBLE", "2.5", "2.5", "'NaN'"),
    ("x", "BINARY", "'ab'", "ab", "'cd'"),
    ("day", "DATE", "'2026-08-01'", "2026-08-01", "'1969-12-31'"),
    ("t", "TIME(3)", "'12:30:05.25'", "12%3A30%3A05.25", "'00:00:00'"),
    ("at", "TIMESTAMP_NTZ", "'2026-08-01 10:20:30.000123'", "2026-08-01 10%3A20%3A30.000123", "'1960-01-01 00:00:00'"),
    ("z", "TIMESTAMP", "'2026-08-01 10:20:30.5'", "2026-08-01 10%3A20%3A30.5", "'2026-01-01 00:00:00'"),
]


def registered(tables: Tables) -> str:
    """`fl.<database>`."""
    fluss.spark.catalog.register(tables.spark, NAME, tables.target.bootstrap_servers)
    return f"{NAME}.{tables.name}"


def shown(spark: SparkSession, table: str, rest: str = "") -> list[str]:
    return [row[0] for row in spark.sql(f"SHOW PARTITIONS {table} {rest}").collect()]


def known(tables: Tables, table: str) -> list[dict[str, str]]:
    """The partitions that the server has, without SQL."""
    found = fluss.spark.list_partitions(tables.spark, tables.path(table), options=tables.options())
    return sorted(found, key=str)


@pytest.fixture(scope="module")
def catalog(module_tables: Tables) -> str:
    """A catalog with a table that has two partitions and one that has none; for statements that change nothing."""
    spark, catalog = module_tables.spark, registered(module_tables)
    spark.sql(f"CREATE TABLE {catalog}.u (id INT)")
    spark.sql(f"CREATE TABLE {catalog}.p (day STRING, n INT, v INT) PARTITIONED BY (day, n)")
    for n in (1, 2):
        spark.sql(f"ALTER TABLE {catalog}.p ADD PARTITION (day = 'kept', n = {n})")
    return catalog


def test_partitions_are_added_shown_and_dropped(any_tables: Tables) -> None:
    tables, spark = any_tables, any_tables.spark
    table = f"{registered(tables)}.p"
    spark.sql(f"CREATE TABLE {table} (day DATE, n INT, v INT) PARTITIONED BY (day, n)")
    assert shown(spark, table) == []
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (day = '2026-08-01', n = 1)")
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (N = '2', day = DATE'2026-08-01')")
    spark.sql(f"ALTER TABLE {table} ADD IF NOT EXISTS PARTITION (day = '2026-08-02', n = 1)")
    spark.sql(f"ALTER TABLE {table} ADD IF NOT EXISTS PARTITION (day = '2026-08-02', n = 1)")
    with pytest.raises(Exception, match="PARTITIONS_ALREADY_EXIST"):
        spark.sql(f"ALTER TABLE {table} ADD PARTITION (day = '2026-08-02', n = 1)")
    assert known(tables, "p") == [
        {"day": "2026-08-01", "n": "1"}, {"day": "2026-08-01", "n": "2"}, {"day": "2026-08-02", "n": "1"},
    ]  # fmt: skip
    assert shown(spark, table) == ["day=2026-08-01/n=1", "day=2026-08-01/n=2", "day=2026-08-02/n=1"]
    assert shown(spark, table, "PARTITION (day = '2026-08-01')") == ["day=2026-08-01/n=1", "day=2026-08-01/n=2"]
    assert shown(spark, table, "PARTITION (n = 1)") == ["day=2026-08-01/n=1", "day=2026-08-02/n=1"]
    assert shown(spark, table, "PARTITION (n = 2, day = '2026-08-01')") == ["day=2026-08-01/n=2"]
    assert shown(spark, table, "PARTITION (n = 3)") == []
    spark.sql(f"ALTER TABLE {table} DROP PARTITION (day = '2026-08-01', n = 2)")
    with pytest.raises(Exception, match="PARTITIONS_NOT_FOUND"):
        spark.sql(f"ALTER TABLE {table} DROP PARTITION (day = '2026-08-01', n = 2)")
    spark.sql(f"ALTER TABLE {table} DROP IF EXISTS PARTITION (day = '2026-08-01', n = 2)")
    assert shown(spark, table) == ["day=2026-08-01/n=1", "day=2026-08-02/n=1"]


@pytest.mark.all
def test_values_of_every_type_select_the_partitions_of_rows(tables: Tables) -> None:
    """A row creates its partition: SQL must find the same one by value, whatever its name on the server."""
    spark, table = tables.spark, f"{registered(tables)}.typed"
    columns = ", ".join(f"{name} {kind}" for name, kind, *_ in TYPED_COLUMNS)
    names = ", ".join(name for name, *_ in TYPED_COLUMNS)
    of_row = ", ".join(f"{name} = {value}" for name, _, value, *_ in TYPED_COLUMNS)
    other = ", ".join(f"{name} = {value}" for name, *_, value in TYPED_COLUMNS)
    spark.sql(f"CREATE TABLE {table} ({columns}, v INT) PARTITIONED BY ({names})")
    values = ", ".join(f"CAST({value} AS {kind})" for _, kind, value, *_ in TYPED_COLUMNS)
    spark.sql(f"INSERT INTO {table} VALUES ({values}, 1)")
    assert shown(spark, table) == ["/".join(f"{name}={text}" for name, _, _, text, _ in TYPED_COLUMNS)]
    for name, _, value, _, missing in TYPED_COLUMNS:
        assert len(shown(spark, table, f"PARTITION ({name} = {value})")) == 1
        assert shown(spark, table, f"PARTITION ({name} = {missing})") == []
    with pytest.raises(Exception, match="PARTITIONS_ALREADY_EXIST"):
        spark.sql(f"ALTER TABLE {table} ADD PARTITION ({of_row})")
    spark.sql(f"ALTER TABLE {table} ADD PARTITION ({other})")
    others = ", ".join(f"CAST({value} AS {kind})" for _, kind, *_, value in TYPED_COLUMNS)
    spark.sql(f"INSERT INTO {table} VALUES ({others}, 2)")
    assert len(known(tables, "typed")) == 2
    spark.sql(f"ALTER TABLE {table} DROP PARTITION ({of_row})")
    assert [row["v"] for row in spark.table(table).collect()] == [2]
    spark.sql(f"ALTER TABLE {table} DROP PARTITION ({other})")
    assert known(tables, "typed") == []


@pytest.mark.all
def test_values_with_nanoseconds(tables: Tables) -> None:
    """Integers of nanoseconds match exactly; with microseconds the values are cut."""
    spark, catalog = tables.spark, registered(tables)
    fluss.spark.catalog.register(spark, NANOS_NAME, tables.target.bootstrap_servers, options={"nanosAs": "bigint"})
    builder = fluss.Schema.builder().column("at", fluss.DataTypes.timestamp(9)).column("v", fluss.DataTypes.int())
    tables.create("n", builder.build(), partition_keys=["at"])
    exact = f"{NANOS_NAME}.{tables.name}.n"
    spark.sql(f"ALTER TABLE {exact} ADD PARTITION (at = 1500000001)")
    assert known(tables, "n") == [{"at": "1970-01-01-00-00-01_500000001"}]
    assert shown(spark, exact) == ["at=1500000001"]
    assert shown(spark, f"{catalog}.n") == ["at=1970-01-01 00%3A00%3A01.5"]
    with pytest.raises(Exception, match="PARTITIONS_NOT_FOUND"):
        spark.sql(f"ALTER TABLE {catalog}.n DROP PARTITION (at = '1970-01-01 00:00:01.5')")
    spark.sql(f"ALTER TABLE {exact} DROP PARTITION (at = 1500000001)")
    assert known(tables, "n") == []


def test_reads_writes_and_descriptions_of_partitioned_tables(tables: Tables) -> None:
    spark, table = tables.spark, f"{registered(tables)}.p"
    spark.sql(f"CREATE TABLE {table} (day DATE, v INT) PARTITIONED BY (day) TBLPROPERTIES ('bucket.num' = '1')")
    spark.sql(f"INSERT INTO {table} VALUES (DATE'2026-08-01', 1), (DATE'2026-08-02', 2)")
    spark.sql(f"INSERT INTO {table} PARTITION (day = '2026-08-03') VALUES (3)")
    assert shown(spark, table) == ["day=2026-08-01", "day=2026-08-02", "day=2026-08-03"]
    chosen = spark.sql(f"SELECT * FROM {table} WHERE day = '2026-08-02'")
    assert [tuple(row) for row in chosen.collect()] == [(dt.date(2026, 8, 2), 2)]
    assert chosen.rdd.getNumPartitions() == 1
    assert spark.table(table).rdd.getNumPartitions() == 3
    described = [tuple(row) for row in spark.sql(f"DESCRIBE TABLE {table}").collect()]
    assert described == [
        ("day", "date", None), ("v", "int", None),
        ("# Partition Information", "", ""), ("# col_name", "data_type", "comment"), ("day", "date", None),
    ]  # fmt: skip
    one = spark.sql(f"SHOW TABLE EXTENDED IN {NAME}.{tables.name} LIKE 'p' PARTITION (day = '2026-08-01')").collect()
    assert one[0]["information"].strip() == "Partition Values: [day=2026-08-01]"
    spark.sql(f"CACHE TABLE {table}")
    try:
        assert spark.table(table).count() == 3
        spark.sql(f"ALTER TABLE {table} DROP PARTITION (day = '2026-08-02')")
        assert sorted(row["v"] for row in spark.table(table).collect()) == [1, 3]
    finally:
        spark.sql(f"UNCACHE TABLE {table}")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE {p} ADD PARTITION (day = '2026-09-01', n = 1) LOCATION '/tmp/x'", "leave out location"),
        ("ALTER TABLE {p} ADD PARTITION (day = 'd', n = 8) PARTITION (day = 'd', n = 9)", "can not add multiple"),
        ("ALTER TABLE {p} ADD PARTITION (day = 'd')", r"must match the partition spec \(day, n\)"),
        ("ALTER TABLE {p} ADD PARTITION (day = 'd', v = 1)", "PARTITIONS_NOT_FOUND"),
        ("ALTER TABLE {p} ADD PARTITION (day = 'd', n = 'many')", "CAST_INVALID_INPUT"),
        ("ALTER TABLE {p} ADD PARTITION (day = 'd', n = null)", "'n' .*a partition value must not be null"),
        ("ALTER TABLE {p} ADD PARTITION (day = 'a/b', n = 1)", "a/b"),
        ("ALTER TABLE {p} DROP PARTITION (day = 'kept')", r"must match the partition spec \(day, n\)"),
        (
            "ALTER TABLE {p} DROP PARTITION (day = 'kept', n = 1), PARTITION (day = 'kept', n = 2)",
            "can not drop multiple partitions",
        ),
        ("ALTER TABLE {p} DROP PARTITION (day = 'kept', n = 1) PURGE", "leave PURGE out"),
        (
            "ALTER TABLE {p} PARTITION (day = 'kept', n = 1) RENAME TO PARTITION (day = 'kept', n = 3)",
            "cannot be renamed",
        ),
        ("TRUNCATE TABLE {p} PARTITION (day = 'kept', n = 1)", "drop the partition and add it again"),
        ("TRUNCATE TABLE {p} PARTITION (day = 'kept')", "does not support truncation of multiple partition"),
        ("SHOW PARTITIONS {u}", "does not support partition management"),
        ("ALTER TABLE {u} ADD PARTITION (id = 1)", "does not support partition management"),
        ("ALTER TABLE {u} DROP IF EXISTS PARTITION (id = 1)", "does not support partition management"),
        ("SHOW PARTITIONS {c}.`p$changelog`", "does not support partition management"),
        ("ALTER TABLE {c}.`p$lake` DROP PARTITION (day = 'kept', n = 1)", "does not support partition management"),
    ],
)
def test_refusals_have_a_reason_and_change_nothing(
    spark: SparkSession, catalog: str, statement: str, words: str
) -> None:
    names: dict[str, Any] = {"c": catalog, "p": f"{catalog}.p", "u": f"{catalog}.u"}
    with pytest.raises(Exception, match=words):
        spark.sql(statement.format(**names)).collect()
    assert shown(spark, f"{catalog}.p") == ["day=kept/n=1", "day=kept/n=2"]


def test_reads_without_the_partition_columns_can_be_described(tables: Tables) -> None:
    """Spark fails to describe a table that declares partition columns which it does not have."""
    spark, catalog = tables.spark, registered(tables)
    spark.sql(f"CREATE TABLE {catalog}.p (n INT, v INT) PARTITIONED BY (n)")
    described = [row[0] for row in spark.sql(f"DESCRIBE TABLE {catalog}.`p$lake$files`").collect()]
    assert described[0] == "path"
    assert "# Partition Information" not in described


def test_a_partition_that_another_program_created_in_the_meantime(tables: Tables) -> None:
    """Spark checks first and adds afterwards; if the partition is created in between, the error must be the same."""
    spark, table = tables.spark, f"{registered(tables)}.p"
    spark.sql(f"CREATE TABLE {table} (n INT, v INT) PARTITIONED BY (n)")
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (n = 1)")
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    gateway: Any = spark.sparkContext._gateway
    namespace = gateway.new_array(jvm.java.lang.String, 1)
    namespace[0] = tables.name
    name = jvm.org.apache.spark.sql.connector.catalog.Identifier.of(namespace, "p")
    loaded = session.sessionState().catalogManager().catalog(NAME).loadTable(name)
    (row,) = loaded.listPartitionIdentifiers(gateway.new_array(jvm.java.lang.String, 0), None)
    with pytest.raises(Exception, match="PARTITIONS_ALREADY_EXIST"):
        loaded.createPartition(row, jvm.java.util.HashMap())
    assert loaded.dropPartition(row) is True
    assert loaded.dropPartition(row) is False
