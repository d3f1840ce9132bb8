"""A session that a user creates with Spark's own builder: without our defaults, and without our Java classes.

One program in a separate process does everything; the tests check its results and output.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from fluss.spark.java import java_runtime
from fluss.spark.java.java_classes import SOURCE_CLASS
from tests.spark.conftest import Tables
from tests.spark.sessions.test_session import run_process
from tools.peers.spark_classes import HOME_VARIABLE, OPTIONS_VARIABLE

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
AN_HOUR = {"properties": {"table.log.ttl": "1h"}}


@dataclass(frozen=True)
class Outcome:
    """The results of the program."""

    tables: Tables
    found: dict[str, Any]
    said: str


@pytest.fixture(scope="module")
def outcome(module_tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    tables = module_tables
    for name in ("log", "started", "windowed", "recent"):
        tables.create(name, SCHEMA, bucket_count=2, **AN_HOUR)
    tables.create("keyed", SCHEMA, primary_keys=["id"], bucket_count=2)
    passed_on = ("PATH", HOME_VARIABLE, OPTIONS_VARIABLE)
    python = java_runtime.plain_python(sys.executable)  # Spark itself finds no Python if the path has a space
    variables = {"PYSPARK_PYTHON": python, **{key: os.environ[key] for key in passed_on if key in os.environ}}
    java_home = java_runtime.find_java_home()
    if java_home is not None:
        variables["JAVA_HOME"] = str(java_home)
    script = f"""
        import json, time
        from py4j.protocol import Py4JJavaError
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[1]").config("spark.driver.memory", "512m")
        builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        spark = builder.getOrCreate()

        def read(table, **options):
            reader = spark.read.format("fluss").options(**{tables.options()!r}).options(**options)
            return reader.load("{tables.name}." + table)

        def ids(frame):
            return sorted(row.id for row in frame.collect())

        an_hour_ago = int((time.time() - 3600) * 1000)
        read("started", start="timestamp:" + str(an_hour_ago - 60_000)).collect()
        read("windowed", **{{"scan.incremental.start.timestamp": an_hour_ago - 60_000}}).collect()
        read("recent", start="timestamp:" + str(an_hour_ago + 600_000)).collect()
        rows = spark.range(20).selectExpr("id", "concat('n', id) name")
        for table in ("log", "keyed"):
            writer = rows.write.format("fluss").mode("append").options(**{tables.options()!r})
            writer.save("{tables.name}." + table)
        found = {{"push-down": spark.conf.get("spark.sql.python.filterPushdown.enabled")}}
        for table, switch in (("log", "false"), ("log", "true"), ("keyed", "true")):
            spark.conf.set("spark.sql.python.filterPushdown.enabled", switch)
            # Spark gives every query of a frame the same reader, whatever the filters are.
            frame = read(table)
            few = frame.where("id >= 17 AND name <> 'n18'")
            found[table + " " + switch] = [ids(few), frame.count(), ids(frame.where("id = 3"))]
        try:
            spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass("{SOURCE_CLASS}")
            found["has classes"] = True
        except Py4JJavaError:
            found["has classes"] = False
        print(json.dumps(found))
    """
    done = run_process(script, tmp_path_factory.mktemp("program"), **variables)
    return Outcome(tables, json.loads(done.stdout.strip().splitlines()[-1]), done.stderr)


def test_reads_filters_writes_and_counts(outcome: Outcome) -> None:
    assert outcome.found.pop("has classes") is False, "otherwise this is not the session of a user's own"
    assert outcome.found.pop("push-down") == "false", "Spark's default"
    assert outcome.found == {key: [[17, 19], 20, [3]] for key in ("log false", "log true", "keyed true")}
    for table in ("log", "keyed"):
        rows = sorted(outcome.tables.rows(table), key=lambda row: row["id"])
        assert rows == [{"id": number, "name": f"n{number}"} for number in range(20)]


def test_a_time_older_than_the_retention_gives_a_warning(outcome: Outcome) -> None:
    warned = [name for name in ("started", "windowed", "recent", "log") if warning(outcome, name) in outcome.said]
    assert warned == ["started", "windowed"]


def warning(outcome: Outcome, table: str) -> str:
    return f"table {outcome.tables.path(table)} keeps its log for 3600 s: older rows of the time range may have expired"
