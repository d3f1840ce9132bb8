"""The server is killed in the middle of a running stream: the query continues, every row arrives once."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import Tables, new_tables
from tests.support.servers.restartable import RestartableServer, restartable_server
from tests.support.spark.stream_queries import Seen, run_to_end, running, wait_for_rows
from tools.waiting import patience

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
KILLS = 2
ROWS_PER_APPEND = 50
PAUSE_SECONDS = 0.02
ROWS_AHEAD = 5_000
"""How far the writer may be ahead of the query, so that a slow machine is not flooded."""
LAST_WRITE_SECONDS = patience(100.0)

pytestmark = pytest.mark.all


@pytest.fixture
def server() -> Iterator[RestartableServer]:
    """A server that may be killed; it runs again afterwards."""
    server = restartable_server("standalone")
    yield server
    server.comes_back()


@pytest.fixture
def tables(server: RestartableServer, spark: SparkSession) -> Iterator[Tables]:
    yield from new_tables(server.target, spark)


def checksum(rows: Iterable[tuple[int, str]]) -> str:
    """A checksum that depends on how often each row occurs, but not on the order."""
    total = sum(int.from_bytes(hashlib.sha256(repr(row).encode()).digest()[:8], "big") for row in rows)
    return f"{total % 2**64:016x}"


def test_a_killed_server_costs_time_and_no_row(server: RestartableServer, tables: Tables, tmp_path: Path) -> None:
    path = tables.create("events", SCHEMA, bucket_count=3)
    written: list[tuple[int, str]] = []
    stop = threading.Event()

    seen = Seen()

    def write() -> None:
        while not stop.wait(PAUSE_SECONDS):
            if len(written) < seen.count + ROWS_AHEAD:
                batch = [(len(written) + n, f"row {len(written) + n}") for n in range(ROWS_PER_APPEND)]
                tables.db.append(path, [{"id": number, "text": text} for number, text in batch])
                written.extend(batch)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    stream = tables.stream("events", {"maxRowsPerTrigger": 500})
    try:
        with running(stream, tmp_path / "c", seen) as query:
            for _ in range(KILLS):
                wait_for_rows(query, seen, seen.count + 1000)
                server.goes_away()
                server.comes_back()
            wait_for_rows(query, seen, seen.count + 1000)
            restarts = {each["runId"] for each in query.recentProgress}
            assert len(restarts) == 1, "the query never ended"
    finally:
        stop.set()
        writer.join(LAST_WRITE_SECONDS)
    assert not writer.is_alive(), "the last write did not end"
    run_to_end(tables.stream("events"), tmp_path / "c", seen)
    assert len(seen.rows) == len(written)
    assert checksum((row[0], row[1]) for row in seen.rows) == checksum(written)
