"""Temporary views for the tables of a database."""

from __future__ import annotations

import pyarrow as pa
import pytest

import fluss.spark
from fluss import FlussError
from tests.spark.conftest import Tables

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def test_views_read_insert_and_follow_the_tables(tables: Tables) -> None:
    spark = tables.spark
    tables.create("plain", SCHEMA, bucket_count=2)
    tables.create("keyed", SCHEMA, primary_keys=["id"])
    tables.db.append(tables.path("plain"), [{"id": 1, "name": "a"}])
    attached = fluss.spark.attach(spark, tables.name, options=tables.options())
    assert isinstance(attached, fluss.spark.Attached)
    try:
        assert attached.views == {"keyed": tables.path("keyed"), "plain": tables.path("plain")}
        assert spark.sql("SELECT count(*) FROM plain").first() == (1,)
        spark.sql("INSERT INTO plain VALUES (2, 'b'), (3, 'c')")
        spark.sql("INSERT INTO keyed SELECT id, name FROM plain")
        spark.sql("INSERT INTO keyed VALUES (3, 'new')")
        tables.db.append(tables.path("plain"), [{"id": 4, "name": "d"}])
        assert sorted(row.id for row in spark.sql("SELECT id FROM plain").collect()) == [1, 2, 3, 4]
        joined = spark.sql("SELECT p.id, k.name FROM plain p JOIN keyed k ON p.id = k.id WHERE p.id > 2")
        assert [tuple(row) for row in joined.collect()] == [(3, "new")]

        tables.db.alter_table(tables.path("plain"), add_columns={"more": pa.int32()})
        tables.db.drop_table(tables.path("keyed"))
        tables.create("third", SCHEMA)
        attached.refresh()
        assert sorted(attached.views) == ["plain", "third"]
        assert spark.table("plain").columns == ["id", "name", "more"]
        assert not spark.catalog.tableExists("keyed")
    finally:
        attached.detach()
    assert not spark.catalog.tableExists("plain")
    assert tables.db.tables() == ["plain", "third"]


def test_names_in_use_are_left_alone(tables: Tables) -> None:
    spark = tables.spark
    tables.create("mine", SCHEMA)
    tables.create("other", SCHEMA)
    spark.range(3).createOrReplaceTempView("mine")
    try:
        with pytest.raises(FlussError, match=r"already has tables or views named mine: .*prefix"):
            fluss.spark.attach(spark, tables.name, options=tables.options())
        assert not spark.catalog.tableExists("other")  # all or nothing
        with fluss.spark.attach(spark, tables.name, prefix="f_", like="m*", options=tables.options()) as attached:
            assert attached.views == {"f_mine": tables.path("mine")}
            assert spark.table("mine").count() == 3
        with fluss.spark.attach(spark, tables.name, replace=True, options=tables.options()):
            assert spark.table("mine").columns == ["id", "name"]
    finally:
        spark.catalog.dropTempView("mine")


@pytest.mark.all
def test_plain_names_of_the_current_database_are_not_in_use(tables: Tables) -> None:
    """After USE with a catalog of ours they mean the same tables as the views; those of another database do not."""
    spark = tables.spark
    tables.create("orders", SCHEMA, bucket_count=1)
    tables.db.append(tables.path("orders"), [{"id": 1, "name": "a"}])
    fluss.spark.catalog.register(spark, "fl", tables.target.bootstrap_servers)
    other = f"{tables.name}_b"
    tables.db.create_database(other)
    tables.db.create_table(f"{other}.orders", SCHEMA)
    try:
        spark.sql(f"USE fl.{tables.name}")
        with fluss.spark.attach(spark, tables.name, options=tables.options()) as attached:
            assert attached.refresh().views == {"orders": tables.path("orders")}
            assert spark.sql("SHOW VIEWS IN spark_catalog.default LIKE 'orders'").where("isTemporary").count() == 1
            assert spark.table("orders").count() == 1
        spark.range(3).createOrReplaceTempView("orders")
        with pytest.raises(FlussError, match="already has tables or views named orders"):
            fluss.spark.attach(spark, tables.name, options=tables.options())
        spark.catalog.dropTempView("orders")
        spark.sql(f"USE fl.{other}")
        with pytest.raises(FlussError, match="already has tables or views named orders"):
            fluss.spark.attach(spark, tables.name, options=tables.options())
        fluss.spark.catalog.register(spark, "elsewhere", tables.target.bootstrap_servers)
        spark.sql(f"USE elsewhere.{tables.name}")
        spark.conf.set("spark.sql.catalog.elsewhere.bootstrap.servers", "127.0.0.1:1")  # another cluster
        with pytest.raises(FlussError, match="already has tables or views named orders"):
            fluss.spark.attach(spark, tables.name, options=tables.options())
    finally:
        spark.sql("USE spark_catalog.default")
        spark.catalog.dropTempView("orders")


def test_names_that_differ_only_in_case(tables: Tables) -> None:
    tables.create("Sales", SCHEMA)
    tables.create("sales", SCHEMA)
    with pytest.raises(FlussError, match="differ only in case"):
        fluss.spark.attach(tables.spark, tables.name, options=tables.options())


def test_options_with_quotes_reach_the_table(tables: Tables) -> None:
    tables.create("quoted", SCHEMA, bucket_count=1)
    tables.db.append(tables.path("quoted"), [{"id": number, "name": "x"} for number in range(5)])
    options = tables.options(start='{"0": 3}', client__writer__acks="all")
    options["client.writer.acks"] = options.pop("client__writer__acks")
    with fluss.spark.attach(tables.spark, tables.name, options=options):
        assert sorted(row.id for row in tables.spark.table("quoted").collect()) == [3, 4]


def test_options_of_views_may_be_for_reads_alone(tables: Tables) -> None:
    tables.create("short", SCHEMA, bucket_count=1)
    with fluss.spark.attach(tables.spark, tables.name, options=tables.options(limit=1)):
        tables.spark.sql("INSERT INTO short VALUES (1, 'a'), (2, 'b')")
        assert tables.spark.table("short").count() == 1
    assert len(tables.rows("short")) == 2


def test_spark_forgets_the_options_of_a_table_and_the_error_says_so(tables: Tables) -> None:
    """`CREATE TABLE ... USING` keeps only a name; options of the query itself are passed."""
    spark = tables.spark
    tables.create("real", SCHEMA)
    tables.db.append(tables.path("real"), [{"id": 1, "name": "a"}])
    pairs = ", ".join(f"'{key}' '{value}'" for key, value in tables.options(table=tables.path("real")).items())
    spark.sql(f"CREATE TABLE forgetful (id BIGINT, name STRING) USING fluss OPTIONS ({pairs})")
    try:
        with pytest.raises(Exception, match=r"CREATE TABLE \.\.\. USING are not passed to it"):
            spark.sql("SELECT * FROM forgetful").collect()
        again = ", ".join(f"'{key}' = '{value}'" for key, value in tables.options(table=tables.path("real")).items())
        assert spark.sql(f"SELECT id FROM forgetful WITH ({again})").collect() == [(1,)]
    finally:
        spark.sql("DROP TABLE forgetful")
