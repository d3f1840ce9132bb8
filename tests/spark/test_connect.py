"""Spark Connect: the same source, found without registration, in a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from tests.spark.conftest import Tables
from tests.spark.test_session import run_script


def test_connect_reads_writes_and_attaches(tables: Tables, tmp_path: Path) -> None:
    tables.create("t", pa.schema([("id", pa.int64()), ("name", pa.string())]))
    tables.create("k", pa.schema([("id", pa.int64()), ("name", pa.string())]), primary_keys=["id"])
    script = f"""
        import json
        import fluss
        import fluss.spark
        from fluss.spark.environment import prepare_environment
        from pyspark.sql import SparkSession

        prepare_environment({{}})
        builder = SparkSession.builder.remote("local[1]").config("spark.driver.memory", "512m")
        spark = builder.config("spark.log.level", "ERROR").config("spark.sql.shuffle.partitions", "1").getOrCreate()
        options, table = {tables.options()!r}, {tables.path("t")!r}
        rows = spark.sql("SELECT 1L AS id, 'a' AS name UNION ALL SELECT 2L, 'b'")
        rows.write.format("fluss").mode("append").options(**options).save(table)
        read = sorted(row.id for row in spark.read.format("fluss").options(**options).load(table).collect())
        stream = spark.readStream.format("fluss").options(**options).option("start", "earliest").load(table)
        writer = stream.writeStream.format("fluss").options(**options).option("table", {tables.path("k")!r})
        query = writer.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start()
        query.awaitTermination(120)
        with fluss.spark.attach(spark, {tables.name!r}, options=options):
            spark.sql("INSERT INTO t VALUES (3, 'c')")
            attached = spark.sql("SELECT count(*) FROM t").first()[0]
        try:
            fluss.spark.catalog.register(spark, "fl", options["bootstrap.servers"])
            refused = ""
        except fluss.FlussError as error:
            refused = error.message
        print(json.dumps([type(spark).__module__, read, attached, refused]))
        spark.stop()
    """
    module, read, attached, refused = run_script(script, tmp_path, PATH=os.environ["PATH"])
    assert "connect" in module
    assert read == [1, 2]
    assert attached == 3
    assert "Spark Connect: use fluss.spark.attach" in refused
    assert sorted(row["id"] for row in tables.rows("k")) == [1, 2]
