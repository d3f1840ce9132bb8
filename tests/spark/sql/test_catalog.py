"""Three-part names: a catalog that is compiled when it is registered."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import fluss
import fluss.spark
from fluss import FlussError
from tests.spark.conftest import Tables
from tests.support.spark.stream_queries import ended
from tools.waiting import patience

NAME = "fl"
SESSION_ADDRESS = "spark.sql.fluss.bootstrap.servers"
EVENTS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def catalog(tables: Tables) -> str:
    """`fl.<database>`."""
    fluss.spark.catalog.register(tables.spark, NAME, tables.target.bootstrap_servers)
    return f"{NAME}.{tables.name}"


def rows(spark: SparkSession, statement: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.sql(statement).collect())


def columns_read(spark: SparkSession, statement: str) -> set[str]:
    """The columns that the scans of a query ask the source for, from its plan."""
    frame = spark.sql(statement)
    plan = frame._jdf.queryExecution().optimizedPlan()
    leaves = plan.collectLeaves()
    return {
        leaves.apply(i).output().apply(j).name()
        for i in range(leaves.size())
        for j in range(leaves.apply(i).output().size())
    }


def explain(spark: SparkSession, statement: str) -> dict[str, Any]:
    """The only scan of a query in EXPLAIN: the table or format, the columns, and the pushed filters."""
    text = str(spark.sql(f"EXPLAIN {statement}").collect()[0][0])
    assert "== Physical Plan ==" in text
    (scan,) = re.findall(r"BatchScan (\S+?)\[(.*?)\] \(Python\)", text)
    formatted = str(spark.sql(f"EXPLAIN FORMATTED {statement}").collect()[0][0])
    filters = re.findall(r"PushedFilters: \[(.*)\]", formatted)
    read = re.findall(r"ReadSchema: struct<(.*)>", formatted)
    columns = [re.sub(r"#\d+L?$", "", column.strip()) for column in scan[1].split(",")]
    assert [part.rsplit(":", 1)[0] for part in read[0].split(",")] == columns
    return {"name": scan[0], "columns": columns, "filters": filters[0] if filters else ""}


def test_queries_inserts_and_pruned_columns(tables: Tables, catalog: str) -> None:
    spark = tables.spark
    spark.sql(
        f"CREATE TABLE {catalog}.orders (id BIGINT, item STRING COMMENT 'what', price DOUBLE) "
        "TBLPROPERTIES ('bucket.num' = '2', 'table.log.ttl' = '3d', 'team' = 'x')"
    )
    spark.sql(f"CREATE TABLE {catalog}.items (item STRING, stock INT) TBLPROPERTIES ('primary.key' = 'item')")
    spark.sql(f"INSERT INTO {catalog}.orders VALUES (1, 'cup', 2.5), (2, 'pan', 9), (3, 'cup', 2)")
    spark.sql(f"INSERT INTO {catalog}.items (stock, item) VALUES (5, 'cup'), (1, 'pan')")
    assert rows(spark, f"SELECT count(*) FROM {catalog}.orders") == [(3,)]
    joined = f"SELECT o.id, i.stock FROM {catalog}.orders o JOIN {catalog}.items i ON o.item = i.item"
    assert rows(spark, joined) == [(1, 5), (2, 1), (3, 5)]
    assert columns_read(spark, joined) == {"id", "item", "stock"}
    assert rows(spark, f"SELECT id FROM {catalog}.orders WHERE price > 2.2 AND item = 'cup'") == [(1,)]
    assert columns_read(spark, f"SELECT sum(id) FROM {catalog}.orders") == {"id"}
    assert columns_read(spark, f"SELECT count(*) FROM {catalog}.orders") == {"count(*)"}
    assert columns_read(spark, f"SELECT count(*), max(id) FROM {catalog}.orders") == {"id"}
    assert rows(spark, f"SELECT id FROM {catalog}.orders WITH ('start' = 'latest')") == []
    changes = f"SELECT _change_type, item, stock FROM {catalog}.`items$changelog`"
    assert rows(spark, changes) == [("insert", "cup", 5), ("insert", "pan", 1)]
    explained = explain(spark, f"SELECT sum(id) FROM {catalog}.orders WHERE item = 'cup'")
    assert explained["name"] == f"{catalog}.orders"
    assert explained["columns"] == ["id", "item"]
    assert "EqualTo(item,cup)" in explained["filters"]
    assert explain(spark, f"SELECT count(*) FROM {catalog}.orders")["columns"] == ["count(*)"]
    tables.read("orders").createOrReplaceTempView("by_format")
    by_format = explain(spark, "SELECT item FROM by_format")
    assert (by_format["name"], by_format["columns"]) == ("fluss", ["item"])
    # A later query sees later rows: no plan is kept.
    tables.db.append(tables.path("orders"), [{"id": 4, "item": "cup", "price": 1.0}])
    assert rows(spark, f"SELECT count(*) FROM {catalog}.orders") == [(4,)]


@pytest.mark.all
def test_a_filter_that_the_source_applies_needs_its_column(tables: Tables, catalog: str) -> None:
    """The lookup by key is exact and Spark does not repeat it, though the query has no other use for the key."""
    spark = tables.spark
    spark.sql(f"CREATE TABLE {catalog}.k (id INT, a STRING, b STRING) TBLPROPERTIES ('primary.key' = 'id')")
    spark.sql(f"INSERT INTO {catalog}.k VALUES (1, 'x', 'p'), (2, 'y', 'q'), (3, 'z', 'r')")
    assert rows(spark, f"SELECT a FROM {catalog}.k WHERE id = 2") == [("y",)]
    assert rows(spark, f"SELECT count(*) FROM {catalog}.k WHERE id IN (1, 3, 9)") == [(2,)]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert rows(spark, f"SELECT a FROM {catalog}.k WHERE id = 2") == [("y",)]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_streams_from_and_into_tables(tables: Tables, catalog: str, tmp_path: Path) -> None:
    spark = tables.spark
    spark.sql(f"CREATE TABLE {catalog}.source (id INT, name STRING)")
    spark.sql(f"CREATE TABLE {catalog}.target (id INT, name STRING) TBLPROPERTIES ('primary.key' = 'id')")
    spark.sql(f"INSERT INTO {catalog}.source VALUES (1, 'a'), (2, 'b')")
    stream = spark.readStream.option("start", "earliest").table(f"{catalog}.source")
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    ended(writer.toTable(f"{catalog}.target"))
    assert rows(spark, f"SELECT * FROM {catalog}.target") == [(1, "a"), (2, "b")]


def test_statements_about_tables_and_databases(tables: Tables, catalog: str) -> None:
    spark = tables.spark
    spark.sql(
        f"CREATE TABLE {catalog}.p (day STRING, id INT, v INT) PARTITIONED BY (day) "
        "COMMENT 'by day' TBLPROPERTIES ('primary.key' = 'day,id', 'bucket.num' = '2')"
    )
    info = tables.db.info(tables.path("p"))
    assert (info.primary_keys, info.partition_keys, info.comment) == (["day", "id"], ["day"], "by day")
    spark.sql(f"ALTER TABLE {catalog}.p ADD COLUMN more STRING COMMENT 'later'")
    spark.sql(f"ALTER TABLE {catalog}.p SET TBLPROPERTIES ('team' = 'x')")
    described = {row[0]: row[1] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {catalog}.p").collect()}
    assert described["more"] == "string"
    assert "primary.key=day,id" in described["Table Properties"]
    assert rows(spark, f"SHOW TABLES IN {catalog}") == [(tables.name, "p", False)]
    assert (tables.name,) in rows(spark, f"SHOW NAMESPACES IN {NAME}")
    spark.sql(f"CREATE TABLE {catalog}.copy AS SELECT day, id FROM {catalog}.p")
    assert spark.table(f"{catalog}.copy").columns == ["day", "id"]
    spark.sql(f"DROP TABLE {catalog}.copy")
    spark.sql(f"CREATE DATABASE {NAME}.{tables.name}_b COMMENT 'spare'")
    spark.sql(f"ALTER DATABASE {NAME}.{tables.name}_b SET DBPROPERTIES ('a' = 'b')")
    assert ("Comment", "spare") in rows(spark, f"DESCRIBE NAMESPACE {NAME}.{tables.name}_b")
    spark.sql(f"DROP DATABASE {NAME}.{tables.name}_b")
    assert (f"{tables.name}_b",) not in rows(spark, f"SHOW NAMESPACES IN {NAME}")


def test_tables_are_listed_by_a_pattern(tables: Tables, catalog: str) -> None:
    for name in ("orders", "orders_old", "items"):
        tables.create(name, EVENTS)

    def listed(pattern: str) -> list[str]:
        found = rows(tables.spark, f"SHOW TABLES IN {catalog} LIKE '{pattern}'")
        assert all(database == tables.name for database, _, _ in found)
        return [name for _, name, _ in found]

    assert listed("ord*") == ["orders", "orders_old"]
    assert listed("*s") == ["items", "orders"]
    assert listed("items|orders") == ["items", "orders"]
    assert listed("x*") == []


@pytest.fixture(scope="module")
def catalog_with_t(module_tables: Tables) -> str:
    """A catalog with one table `t`, for statements that change nothing."""
    fluss.spark.catalog.register(module_tables.spark, NAME, module_tables.target.bootstrap_servers)
    catalog = f"{NAME}.{module_tables.name}"
    module_tables.spark.sql(f"CREATE TABLE {catalog}.t (id INT)")
    return catalog


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT * FROM {c}.missing", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SHOW TABLES IN fl.missing", "SCHEMA_NOT_FOUND"),
        ("DROP TABLE {c}.missing", "TABLE_OR_VIEW_NOT_FOUND"),
        ("CREATE TABLE {c}.t (id INT)", "TABLE_OR_VIEW_ALREADY_EXISTS"),
        ("CREATE TABLE {c}.u (id INT) TBLPROPERTIES ('primary.key' = 'no')", "no"),
        ("CREATE TABLE {c}.u (id INT, at TIMESTAMP) PARTITIONED BY (days(at))", "partitioned by columns, not by"),
        ("CREATE TABLE {c}.u (id INT) LOCATION '/tmp/u'", "LOCATION is not supported"),
        (
            "CREATE TABLE {c}.u (id INT) USING orc",
            "have the format fluss, not orc: leave the format out, or write USING fluss",
        ),
        ("CREATE TABLE {c}.u USING csv AS SELECT 1 AS id", "have the format fluss, not csv"),
        ("CREATE TABLE {c}.u (id INT) STORED AS PARQUET", "have the format fluss, not PARQUET"),
        ("CREATE TABLE {c}.u (id INT, s STRING COLLATE UNICODE_CI)", "column 's' has the collation UNICODE_CI"),
        ("CREATE TABLE {c}.u (id INT, s CHAR(3) COLLATE UNICODE_CI)", "CHAR or VARCHAR column has a collation"),
        ("CREATE TABLE {c}.u (id INT) DEFAULT COLLATION UNICODE_CI", "leave DEFAULT COLLATION UNICODE_CI out"),
        ("CREATE TABLE {c}.u AS SELECT 'a' COLLATE UNICODE_CI AS s", "column 's' has the collation UNICODE_CI"),
        ("ALTER TABLE {c}.t ADD COLUMN s STRING COLLATE UNICODE_CI", "column 's' has the collation UNICODE_CI"),
        ("ALTER TABLE {c}.t SET TBLPROPERTIES ('bucket.num' = '9')", "bucket.num of a table cannot be changed"),
        ("COMMENT ON TABLE {c}.t IS 'late'", "comment of a table cannot be changed"),
        ("ALTER TABLE {c}.t RENAME TO {c}.u", "cannot be renamed"),
        ("ALTER TABLE {c}.t DROP COLUMN id", "not DeleteColumn"),
        ("DELETE FROM {c}.t WHERE id = 1", "does not support deletes"),
        ("TRUNCATE TABLE {c}.t", "does not support truncates"),
        ("INSERT OVERWRITE {c}.t VALUES (1)", "overwrite"),
        (
            "SELECT * FROM {c}.t WITH ('mode' = 'changelog')",
            r"mode=changelog would change the columns of .*t\$changelog`",
        ),
        ("SELECT * FROM {c}.t WITH ('columns' = 'id')", "select the columns"),
        ("INSERT INTO {c}.t VALUES ('x')", "CAST"),
    ],
)
def test_refusals_have_a_reason(module_tables: Tables, catalog_with_t: str, statement: str, words: str) -> None:
    with pytest.raises(Exception, match=words):
        module_tables.spark.sql(statement.format(c=catalog_with_t)).collect()
    assert "u" not in module_tables.db.tables(module_tables.name)


@pytest.mark.all
def test_the_format_of_a_table_may_be_left_out_or_given(tables: Tables, catalog: str) -> None:
    """Spark adds its default format if a program gives none."""
    spark = tables.spark
    new = spark.range(3)
    spark.sql(f"CREATE TABLE {catalog}.a (id BIGINT) USING Fluss")
    new.write.saveAsTable(f"{catalog}.b")
    new.write.format("fluss").saveAsTable(f"{catalog}.c")
    new.writeTo(f"{catalog}.d").using("fluss").create()
    assert tables.db.tables(tables.name) == ["a", "b", "c", "d"]
    for make in (
        lambda: new.write.format("orc").saveAsTable(f"{catalog}.e"),
        lambda: new.writeTo(f"{catalog}.e").using("orc").create(),
        lambda: spark.catalog.createTable(f"{catalog}.e", source="orc", schema=new.schema),
    ):
        with pytest.raises(Exception, match="have the format fluss, not orc"):
            make()
    assert "e" not in tables.db.tables(tables.name)


def test_replacing_a_table_is_refused_before_any_change(tables: Tables, catalog: str) -> None:
    """Otherwise Spark drops the table first and then finds that it cannot be overwritten."""
    spark = tables.spark
    tables.create("kept", EVENTS)
    tables.db.append(tables.path("kept"), [{"id": 1, "name": "a"}])
    table_id = tables.db.info(tables.path("kept")).table_id
    new = spark.range(3).selectExpr("id", "'new' AS name")
    new.createOrReplaceTempView("new_rows")
    for replace in (
        lambda: spark.sql(f"REPLACE TABLE {catalog}.kept AS SELECT * FROM new_rows"),
        lambda: spark.sql(f"CREATE OR REPLACE TABLE {catalog}.kept AS SELECT * FROM new_rows"),
        lambda: spark.sql(f"REPLACE TABLE {catalog}.kept (id BIGINT)"),
        lambda: new.writeTo(f"{catalog}.kept").createOrReplace(),
        lambda: new.writeTo(f"{catalog}.kept").replace(),
        lambda: new.write.mode("overwrite").saveAsTable(f"{catalog}.kept"),
    ):
        with pytest.raises(Exception, match="exists, and tables are not replaced or overwritten"):
            replace()
        assert tables.db.info(tables.path("kept")).table_id == table_id
        assert tables.rows("kept") == [{"id": 1, "name": "a"}]


def test_tables_made_of_rows(tables: Tables, catalog: str) -> None:
    """If there is nothing to replace; and no table remains if the rows cannot be written."""
    spark = tables.spark
    new = spark.range(3).selectExpr("id", "'new' AS name")
    new.createOrReplaceTempView("new_rows")
    spark.sql(f"CREATE OR REPLACE TABLE {catalog}.a AS SELECT * FROM new_rows")
    new.writeTo(f"{catalog}.b").createOrReplace()
    new.write.mode("overwrite").saveAsTable(f"{catalog}.c")
    new.writeTo(f"{catalog}.d").create()
    for name in "abcd":
        assert sorted(row["id"] for row in tables.rows(name)) == [0, 1, 2]
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        spark.sql(f"CREATE TABLE {catalog}.e AS SELECT id, 1 / (id - id) AS broken FROM new_rows")
    assert "e" not in tables.db.tables(tables.name)


def test_names_of_other_catalogs_are_left_alone(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.catalog.taken", "some.other.Catalog")
    try:
        with pytest.raises(FlussError, match="already has a catalog named 'taken'"):
            fluss.spark.catalog.register(spark, "taken", "localhost:1")
    finally:
        spark.conf.unset("spark.sql.catalog.taken")
    with pytest.raises(FlussError, match="letters, digits"):
        fluss.spark.catalog.register(spark, "a.b", "localhost:1")


def test_registering_again_and_in_another_thread_changes_the_address(tables: Tables) -> None:
    tables.create("t", pa.schema([("id", pa.int64())]))
    fluss.spark.catalog.register(tables.spark, "moved", "127.0.0.1:1")
    with ThreadPoolExecutor(1) as other:
        other.submit(fluss.spark.catalog.register, tables.spark, "moved", tables.target.bootstrap_servers).result(
            patience(100)
        )
    assert rows(tables.spark, f"SHOW TABLES IN moved.{tables.name}") == [(tables.name, "t", False)]


@pytest.mark.all
def test_the_address_of_a_catalog_wins_over_that_of_the_session(tables: Tables, tmp_path: Path) -> None:
    """Reads, writes and statements go to the catalog's cluster although the session has another one."""
    spark, path = tables.spark, f"other.{tables.name}.t"
    tables.create("t", EVENTS)
    tables.db.append(tables.path("t"), [{"id": 1, "name": "of the session"}])
    with fluss.embedded(tmp_path / "data") as cluster, fluss.connect(cluster.bootstrap_servers) as db:
        spark.conf.set(SESSION_ADDRESS, tables.target.bootstrap_servers)
        try:
            # The limit is for reads: inserts ignore it.
            fluss.spark.catalog.register(spark, "other", cluster.bootstrap_servers, options={"limit": 5})
            spark.sql(f"CREATE DATABASE other.{tables.name}")
            spark.sql(f"CREATE TABLE {path} (id BIGINT, name STRING) TBLPROPERTIES ('bucket.num' = '1')")
            spark.sql(f"INSERT INTO {path} VALUES (2, 'of the catalog')")
            assert rows(spark, f"SELECT * FROM {path}") == [(2, "of the catalog")]
            of_query = f"SELECT id FROM {path} WITH ('bootstrap.servers' = '{tables.target.bootstrap_servers}')"
            assert rows(spark, of_query) == [(1,)]
            assert spark.read.format("fluss").load(tables.path("t")).count() == 1
            assert db.scan(tables.path("t")).num_rows == 1
            spark.sql(f"DROP TABLE {path}")
            assert db.tables(tables.name) == []
        finally:
            spark.conf.unset(SESSION_ADDRESS)
    assert tables.rows("t") == [{"id": 1, "name": "of the session"}]
