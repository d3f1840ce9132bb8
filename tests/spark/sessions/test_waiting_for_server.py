"""Reads and writes that start while no server answers wait for one, but not for long: the address may be wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from fluss import ErrorCode, FlussError
from fluss.spark.options.parsing import parse_options
from fluss.spark.sessions import connection_cache
from fluss.spark.sessions.outage_retries import patience_seconds, start_patience_seconds
from fluss.spark.source import FlussDataSource
from tests.spark.conftest import Tables, new_tables
from tests.support.servers.restartable import RestartableServer, restartable_server
from tests.support.spark.stream_queries import ended, run_to_end
from tools.servers.ports import free_ports
from tools.servers.server_process import START_DEADLINE_SECONDS

SCHEMA = pa.schema([("id", pa.int64())])
AWAY_SECONDS = 2.0
"""A deadline for work that takes a second on an idle machine."""


@pytest.fixture
def server() -> Iterator[RestartableServer]:
    server = restartable_server("standalone")
    yield server
    server.comes_back()


@pytest.fixture
def tables(server: RestartableServer, spark: SparkSession) -> Iterator[Tables]:
    yield from new_tables(server.target, spark)


@pytest.fixture
def unanswered() -> dict[str, str]:
    """Options of a cluster that does not exist, with short waits."""
    (port,) = free_ports(1)
    return {"bootstrap.servers": f"127.0.0.1:{port}", "table": "shop.orders", "scan.poll.timeout": "1000"}


@pytest.mark.all
def test_a_program_that_starts_while_the_server_is_down(
    server: RestartableServer, tables: Tables, tmp_path: Path
) -> None:
    tables.create("t", SCHEMA)
    tables.db.append(tables.path("t"), [{"id": 1}, {"id": 2}])
    server.goes_away()
    back = threading.Timer(AWAY_SECONDS, server.comes_back)
    back.start()
    try:
        assert run_to_end(tables.stream("t"), tmp_path / "c").column() == [1, 2]
    finally:
        back.join(START_DEADLINE_SECONDS)


def test_a_wrong_address_of_a_source(unanswered: dict[str, str]) -> None:
    with pytest.raises(
        FlussError, match=r"not answered for 1 s: check that the address.*scan\.poll\.timeout"
    ) as caught:
        FlussDataSource(unanswered).schema()
    assert unanswered["bootstrap.servers"] in caught.value.message
    assert caught.value.error_code == ErrorCode.NETWORK_EXCEPTION


@pytest.mark.all
def test_a_wrong_address_of_a_sink(tables: Tables, unanswered: dict[str, str], tmp_path: Path) -> None:
    tables.create("t", SCHEMA)
    tables.db.append(tables.path("t"), [{"id": 1}])
    writer = tables.stream("t").writeStream.format("fluss").options(**unanswered)
    with pytest.raises(
        StreamingQueryException, match=f"check that the address is right.*{unanswered['bootstrap.servers']}"
    ):
        ended(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start())


def test_the_wait_for_a_known_sink_is_as_long_as_that_of_a_query(tables: Tables) -> None:
    tables.create("t", SCHEMA)
    options = parse_options(tables.options(table=tables.path("t"), **{"scan.poll.timeout": 7000}))
    connection_cache._answered.clear()
    assert start_patience_seconds(options) == 7
    FlussDataSource(tables.options(table=tables.path("t"))).streamWriter(
        StructType([StructField("id", LongType())]), False
    )
    assert start_patience_seconds(options) == patience_seconds(options) == 35
