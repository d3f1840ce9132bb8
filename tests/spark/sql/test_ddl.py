"""Databases, tables, partitions and options of the cluster from Spark, by Python functions."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import fluss
import fluss.spark
from fluss import ErrorCode, FlussError
from tests.spark.conftest import Tables


def test_a_primary_key_table_with_everything(any_tables: Tables) -> None:
    tables, options = any_tables, any_tables.options()
    name = tables.path("orders")
    fluss.spark.create_table(
        tables.spark,
        name,
        "id BIGINT COMMENT 'the number', day STRING, amount DECIMAL(10, 2)",
        primary_key=["id", "day"],
        partitioned_by=["day"],
        buckets=3,
        properties={"table.log.ttl": "2d", "owner.team": "sales", "pinned": True},
        comment="what people buy",
        options=options,
    )
    info = fluss.spark.table_info(tables.spark, name, options=options)
    assert info.schema.get_columns() == [
        ("id", "bigint NOT NULL"), ("day", "string NOT NULL"), ("amount", "decimal(10,2)"),
    ]  # fmt: skip
    assert info.schema.columns[0].comment == "the number"
    assert (info.primary_keys, info.partition_keys, info.bucket_keys) == (["id", "day"], ["day"], ["id"])
    assert (info.num_buckets, info.comment) == (3, "what people buy")
    assert info.properties["table.log.ttl"] == "2d"
    assert info.custom_properties == {"owner.team": "sales", "pinned": "true"}
    assert fluss.spark.table_exists(tables.spark, name, options=options)


def test_the_spellings_of_apache_fluss_and_a_bucket_key_alone(tables: Tables) -> None:
    options = tables.options()
    schema = "a INT, b STRING"
    properties = {"primary.key": "a", "bucket.num": "2", "bucket.key": "a", "comment": "by properties"}
    fluss.spark.create_table(tables.spark, tables.path("k"), schema, properties=properties, options=options)
    info = tables.db.info(tables.path("k"))
    assert (info.primary_keys, info.num_buckets, info.comment) == (["a"], 2, "by properties")
    assert info.custom_properties == {}
    fluss.spark.create_table(tables.spark, tables.path("l"), schema, properties={"bucket.key": "b"}, options=options)
    assert tables.db.info(tables.path("l")).bucket_keys == ["b"]
    with pytest.raises(FlussError, match=r"primary.key is \['a'\], but the argument is \['b'\]"):
        fluss.spark.create_table(
            tables.spark, tables.path("m"), schema, primary_key=["b"], properties=properties, options=options
        )
    with pytest.raises(FlussError, match=r"bucket.num must be a whole number, got 'two'"):
        fluss.spark.create_table(
            tables.spark, tables.path("m"), schema, properties={"bucket.num": "two"}, options=options
        )


def test_invalid_arguments(tables: Tables) -> None:
    """Python accepts a string as a list of letters; and a fixed property would become one of the user's own."""
    spark: Any = tables.spark
    for name in ("primary_key", "bucket_keys", "partitioned_by"):
        text: Any = {name: "id"}
        with pytest.raises(FlussError, match=rf"{name} must be a list of columns, got the string 'id': write \['id'\]"):
            fluss.spark.create_table(spark, tables.path("t"), "id bigint", options=tables.options(), **text)
    tables.create("t", pa.schema([("id", pa.int64())]))
    change: Any
    for change in ({"set_properties": {"bucket.num": 9}}, {"unset_properties": ["primary.key"]}):
        with pytest.raises(FlussError, match="of a table cannot be changed"):
            fluss.spark.alter_table(spark, tables.path("t"), options=tables.options(), **change)


def test_tables_can_be_altered_and_dropped(any_tables: Tables) -> None:
    tables, options = any_tables, any_tables.options()
    name = tables.path("t")
    fluss.spark.create_table(tables.spark, name, "a INT", properties={"x": "1", "y": "2"}, options=options)
    fluss.spark.alter_table(tables.spark, name, add_columns="b STRING COMMENT 'new', c ARRAY<INT>", options=options)
    fluss.spark.alter_table(tables.spark, name, set_properties={"x": "3"}, unset_properties=["y"], options=options)
    info = fluss.spark.table_info(tables.spark, name, options=options)
    assert info.schema.get_columns() == [("a", "int"), ("b", "string"), ("c", "array<int>")]
    assert info.custom_properties == {"x": "3"}
    with pytest.raises(FlussError, match="nothing to change"):
        fluss.spark.alter_table(tables.spark, name, options=options)
    with pytest.raises(FlussError, match="null"):
        fluss.spark.alter_table(tables.spark, name, add_columns="d INT NOT NULL", options=options)
    assert fluss.spark.list_tables(tables.spark, tables.name, options=options) == ["t"]
    assert fluss.spark.list_tables(tables.spark, tables.name, "x*", options=options) == []
    fluss.spark.drop_table(tables.spark, name, options=options)
    with pytest.raises(FlussError) as missing:
        fluss.spark.drop_table(tables.spark, name, options=options)
    assert missing.value.error_code == ErrorCode.TABLE_NOT_EXIST
    fluss.spark.drop_table(tables.spark, name, ignore_if_not_exists=True, options=options)


def test_partitions_by_typed_values(tables: Tables) -> None:
    spark, options, name = tables.spark, tables.options(), tables.path("p")
    fluss.spark.create_table(spark, name, "day DATE, n INT, v INT", partitioned_by=["day", "n"], options=options)
    for n in (1, 2):
        fluss.spark.create_partition(spark, name, {"day": dt.date(2026, 8, 1), "n": n}, options=options)
    fluss.spark.create_partition(spark, name, {"day": "2026-08-02", "n": "1"}, options=options)
    found = fluss.spark.list_partitions(spark, name, options=options)
    assert sorted(found, key=str) == [
        {"day": "2026-08-01", "n": "1"}, {"day": "2026-08-01", "n": "2"}, {"day": "2026-08-02", "n": "1"},
    ]  # fmt: skip
    assert fluss.spark.list_partitions(spark, name, {"day": dt.date(2026, 8, 2)}, options=options) == [found[-1]]
    with pytest.raises(FlussError, match="needs all partition values: add n"):
        fluss.spark.drop_partition(spark, name, {"day": "2026-08-02"}, options=options)
    with pytest.raises(FlussError, match=r"unknown partition column 'v' .* it has day, n"):
        fluss.spark.create_partition(spark, name, {"v": 1}, options=options)
    with pytest.raises(FlussError, match="partition column 'n' is INT"):
        fluss.spark.create_partition(spark, name, {"day": "2026-08-02", "n": 1.5}, options=options)
    fluss.spark.drop_partition(spark, name, {"day": "2026-08-02", "n": 1}, options=options)
    fluss.spark.drop_partition(spark, name, {"day": "2026-08-02", "n": 1}, ignore_if_not_exists=True, options=options)
    assert len(fluss.spark.list_partitions(spark, name, options=options)) == 2


def test_databases(tables: Tables) -> None:
    spark, options, name = tables.spark, tables.options(), f"{tables.name}_more"
    fluss.spark.create_database(spark, name, comment="spare", properties={"k": 1}, options=options)
    info = fluss.spark.database_info(spark, name, options=options)
    assert (info.database_descriptor.comment, info.database_descriptor.custom_properties) == ("spare", {"k": "1"})
    fluss.spark.alter_database(spark, name, set_properties={"k": 2}, comment="used", options=options)
    info = fluss.spark.database_info(spark, name, options=options)
    assert (info.database_descriptor.comment, info.database_descriptor.custom_properties) == ("used", {"k": "2"})
    assert name in fluss.spark.list_databases(spark, options=options)
    fluss.spark.create_table(spark, f"{name}.t", "a INT", options=options)
    with pytest.raises(FlussError) as full:
        fluss.spark.drop_database(spark, name, options=options)
    assert full.value.error_code == ErrorCode.DATABASE_NOT_EMPTY
    fluss.spark.drop_database(spark, name, cascade=True, options=options)
    assert name not in fluss.spark.list_databases(spark, options=options)


def test_altering_a_database_where_the_server_cannot_is_an_error(apache_tables: Tables) -> None:
    with pytest.raises(FlussError) as refused:
        fluss.spark.alter_database(
            apache_tables.spark, apache_tables.name, set_properties={"k": "v"}, options=apache_tables.options()
        )
    assert refused.value.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_options_of_the_cluster(tables: Tables) -> None:
    spark, options = tables.spark, tables.options()
    key = "super.users"
    entries = fluss.spark.get_cluster_configs(spark, [key], options=options)
    assert [entry.name for entry in entries] == [key]
    assert len(fluss.spark.get_cluster_configs(spark, options=options)) > 1
    assert fluss.spark.get_cluster_configs(spark, [], options=options) == []
    roles = [node.server_type for node in fluss.spark.server_nodes(spark, options=options)]
    assert roles[0] != roles[-1]
    with pytest.raises(FlussError, match=r"no\.such\.option"):
        fluss.spark.set_cluster_configs(spark, {"no.such.option": "1"}, options=options)


def test_the_cluster_may_be_a_setting_of_the_session(tables: Tables) -> None:
    spark = tables.spark
    with pytest.raises(FlussError, match="needs the address of a server"):
        fluss.spark.list_databases(spark)
    spark.conf.set("spark.sql.fluss.bootstrap.servers", tables.target.bootstrap_servers)
    try:
        assert tables.name in fluss.spark.list_databases(spark)
        fluss.spark.create_table(spark, tables.path("t"), "a INT")
        chosen = fluss.spark.table_options(spark, tables.path("t"), limit=3)
        assert spark.read.format("fluss").options(**chosen).load().columns == ["a"]
        # With our Java classes, reads and writes see the current settings of the session.
        spark.sql("SELECT 7 AS a").write.format("fluss").mode("append").save(tables.path("t"))
        assert spark.read.format("fluss").load(tables.path("t")).collect() == [(7,)]
        spark.conf.set("spark.sql.fluss.limit", "0")
        assert spark.read.format("fluss").load(tables.path("t")).collect() == []
        # Defaults for all tables may apply to some reads and writes only; an option of a write must apply to it.
        spark.sql("SELECT 8 AS a").write.format("fluss").mode("append").save(tables.path("t"))
        rest = fluss.spark.table_options(spark, tables.path("t"))
        spark.sql("SELECT 9 AS a").write.format("fluss").mode("append").options(**rest).save()
        assert sorted(row["a"] for row in tables.rows("t")) == [7, 8, 9]
        with pytest.raises(PySparkException, match="option limit is for batch reads"):
            spark.sql("SELECT 1 AS a").write.format("fluss").mode("append").option("limit", 0).save(tables.path("t"))
    finally:
        spark.conf.unset("spark.sql.fluss.bootstrap.servers")
        spark.conf.unset("spark.sql.fluss.limit")
