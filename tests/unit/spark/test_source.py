"""The modules that Spark imports in every session: light, and never any of the server."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import fluss.spark
from fluss.spark.source import FlussDataSource
from pyspark_fluss import DefaultSource
from tools.waiting import patience


def modules_after(statement: str) -> set[str]:
    code = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=patience(120)
    )
    return set(json.loads(done.stdout))


def test_the_package_that_spark_looks_for() -> None:
    assert DefaultSource is FlussDataSource
    assert DefaultSource.name() == "fluss"
    loaded = modules_after("import pyspark_fluss")
    assert "fluss.spark.source" in loaded
    assert not loaded & {"pyarrow", "pandas", "numpy", "google.protobuf", "fluss.api.connection", "fluss.config"}


def test_reads_streams_and_writes_load_no_server() -> None:
    parts = (
        "read.batch_reader",
        "stream.stream_reader",
        "write.batch_writer",
        "write.stream_writer",
        "sql.ddl",
        "sql.catalog",
    )
    loaded = modules_after(f"import {', '.join(f'fluss.spark.{part}' for part in parts)}")
    assert "fluss.api.connection" in loaded
    assert [name for name in loaded if name.startswith("fluss.server")] == []


def test_every_public_name_exists() -> None:
    for name in fluss.spark.__all__:
        assert getattr(fluss.spark, name) is not None
    assert callable(fluss.spark.session)
    assert callable(fluss.spark.attach)
    assert set(fluss.spark.__all__) <= set(dir(fluss.spark))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = fluss.spark.no_such_name
