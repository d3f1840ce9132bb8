"""Spark Connect: the same source, found without registration, in its own process."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.conftest import Tables
from tests.spark.sessions.test_session import run_script
from tools.servers.ports import free_ports
from tools.waiting import patience

pytestmark = pytest.mark.all


def test_connect_reads_writes_and_attaches(tables: Tables, tmp_path: Path) -> None:
    tables.create("t", pa.schema([("id", pa.int64()), ("name", pa.string())]))
    tables.create("k", pa.schema([("id", pa.int64()), ("name", pa.string())]), primary_keys=["id"])
    script = f"""
        import json
        import fluss
        import fluss.spark

        spark = fluss.spark.session(config={{"spark.driver.memory": "512m", "spark.log.level": "ERROR"}})
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
    module, read, attached, refused = run_script(script, tmp_path, PATH=os.environ["PATH"], SPARK_REMOTE="local[1]")
    assert "connect" in module
    assert read == [1, 2]
    assert attached == 3
    assert "Spark Connect: use fluss.spark.attach" in refused
    assert sorted(row["id"] for row in tables.rows("k")) == [1, 2]


CLIENT = """
    import json, sys, warnings
    import fluss, fluss.spark

    try:
        fluss.spark.session(master="local[2]")
        refused = ""
    except fluss.FlussError as error:
        refused = error.message
    settings = {"spark.sql.fluss.bootstrap.servers": SERVERS, "spark.sql.session.timeZone": "Asia/Tokyo"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spark = fluss.spark.session("mine", config={**settings, "spark.driver.memory": "3g"})
    warned = [str(each.message) for each in caught if each.category is RuntimeWarning]
    again = fluss.spark.session()
    shown = [spark.conf.get(key) for key in ("spark.sql.session.timeZone", "spark.sql.timeType.enabled")]
    reader = spark.read.format("fluss").options(**fluss.spark.table_options(spark, TABLE))
    print(json.dumps([type(spark).__module__, again is spark, shown, reader.load().count(), refused, warned]))
"""


def test_the_session_of_a_running_connect_server(tables: Tables, tmp_path: Path) -> None:
    """SPARK_REMOTE has the address, as for PySpark: no Java is started, and a warning names settings of a start."""
    tables.create("t", pa.schema([("id", pa.int64())]))
    tables.db.append(tables.path("t"), [{"id": 1}, {"id": 2}])
    client = textwrap.dedent(CLIENT).replace("SERVERS", repr(tables.target.bootstrap_servers))
    client = client.replace("TABLE", repr(tables.path("t")))
    script = f"""
        import os, subprocess, sys
        import fluss.spark

        port = {free_ports(1)[0]}
        spark = fluss.spark.session(master="local[1]", config={{
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.port": port,
            "spark.driver.memory": "512m", "spark.log.level": "ERROR",
            "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
        }})
        # Remove what would be needed to start Java.
        client = {{key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "SPARK_HOME")}}
        client.update(PATH="/nowhere", SPARK_REMOTE=f"sc://127.0.0.1:{{port}}")
        for key in [key for key in client if key.startswith("PYSPARK_")]:
            del client[key]
        program = [sys.executable, "-c", {client!r}]
        done = subprocess.run(program, env=client, capture_output=True, text=True, timeout={patience(180)})
        assert done.returncode == 0, done.stderr[-3000:]
        print(done.stdout.strip().splitlines()[-1])
        spark.stop()
    """
    found = run_script(script, tmp_path, PATH=os.environ["PATH"])
    module, is_same, shown, count, refused, warned = found
    assert "connect" in module
    assert is_same
    assert shown == ["Asia/Tokyo", "true"]
    assert count == 2
    assert "Spark Connect at sc://127.0.0.1:" in refused
    assert "master=local[2] was given too: leave one of them out" in refused
    assert len(warned) == 1
    assert "spark.app.name=mine, spark.driver.memory=3g. Give them to the server" in warned[0]
