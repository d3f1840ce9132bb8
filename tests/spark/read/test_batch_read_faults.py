"""Batch reads while servers restart, rows change and tables are dropped: exact rows, or an error with the reason."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss.client.state.snapshot_plan import latest_snapshots
from fluss.errors import ErrorCode, FlussError
from tests.support.servers.restartable import ALL_LOCAL, RestartableServer, restartable_server
from tests.support.servers.targets import running_target
from tests.support.spark.local_reads import Place, new_place
from tools.servers.server_process import START_DEADLINE_SECONDS
from tools.waiting import wait_until

WIDE = "x" * 1_000
# More than a reader prefetches, so that it must ask the server again after the first batches.
LOG_ROWS = 130_000
KEYED_ROWS = 25_000
LOG = pa.schema([("id", pa.int64()), ("text", pa.string())])
KEYED = fluss.Schema(pa.schema([("id", pa.int64()), ("version", pa.int32()), ("text", pa.string())]), ["id"])
# Longer than any test: a read that waits for a dropped table, instead of failing, does not end.
NEVER_GIVES_UP = {"scan.poll.timeout": 3_600_000}


@pytest.fixture(params=["standalone", "apache"])
def server(request: pytest.FixtureRequest) -> Iterator[RestartableServer]:
    server = restartable_server(request.param)
    yield server
    server.comes_back()


def log_table(place: Place, rows: int) -> str:
    path = place.create(
        "log", LOG, bucket_count=1, properties={**ALL_LOCAL, "table.log.arrow.compression.type": "NONE"}
    )
    for first in range(0, rows, 10_000):
        numbers = list(range(first, min(first + 10_000, rows)))
        place.db.append(path, pa.table([pa.array(numbers), pa.array([WIDE] * len(numbers))], schema=LOG))
    return path


def keyed_rows(numbers: range, version: int) -> pa.Table:
    columns = [pa.array(numbers), pa.array([version] * len(numbers), pa.int32()), pa.array([WIDE] * len(numbers))]
    return pa.table(columns, names=["id", "version", "text"])


def restart(server: RestartableServer) -> None:
    server.goes_away()
    server.comes_back()


def read_with(batches: Iterator[Any], meanwhile: Callable[[], None], column: str = "id") -> list[Any]:
    """The values of a column; calls `meanwhile` after the first batch."""
    found: list[Any] = next(batches).column(column).to_pylist()
    meanwhile()
    for batch in batches:
        found += batch.column(column).to_pylist()
    return found


def test_a_restart_in_the_middle_of_a_log(server: RestartableServer) -> None:
    with new_place(server.target) as place:
        path = log_table(place, LOG_ROWS)
        reading = place.read(path, **{"scan.maxRecordsPerPartition": LOG_ROWS, **NEVER_GIVES_UP})
        assert len(reading.tasks) == 1
        assert read_with(reading.batches(), lambda: restart(server)) == list(range(LOG_ROWS))


def test_a_task_that_begins_while_the_server_is_down() -> None:
    server = restartable_server("standalone")
    with new_place(server.target) as place:
        path = log_table(place, 1_000)
        reading = place.read(path)
        server.goes_away()
        back = threading.Timer(1.0, server.comes_back)
        back.start()
        try:
            assert reading.column("id") == list(range(1_000))
        finally:
            back.join(START_DEADLINE_SECONDS)


def test_a_restart_and_changes_in_the_middle_of_a_scan() -> None:
    """The rows are those at the start of the task, each once, although the scan had to start again."""
    server = restartable_server("standalone")
    with new_place(server.target) as place:
        path = place.create("keyed", KEYED, bucket_count=1)
        place.db.upsert(path, keyed_rows(range(KEYED_ROWS), 1))

        def change_and_restart() -> None:
            place.db.upsert(path, keyed_rows(range(0, KEYED_ROWS, 3), 2))
            place.db.upsert(path, keyed_rows(range(KEYED_ROWS, KEYED_ROWS + 100), 2))
            place.db.delete(path, [{"id": number} for number in range(1, KEYED_ROWS, 50)])
            restart(server)
            place.db.delete(path, [{"id": number} for number in range(2, KEYED_ROWS, 50)])

        batches = list(_tee(place.read(path).batches(), change_and_restart))
        table = pa.Table.from_batches(batches)
        assert sorted(table.column("id").to_pylist()) == list(range(KEYED_ROWS))
        assert set(table.column("version").to_pylist()) == {1}


def _tee(batches: Iterator[Any], meanwhile: Callable[[], None]) -> Iterator[Any]:
    yield next(batches)
    meanwhile()
    yield from batches


@pytest.mark.parametrize("kind", ["log", "keyed"])
def test_a_table_that_is_dropped_in_the_middle(kind: str) -> None:
    with new_place(running_target("standalone")) as place:
        if kind == "log":
            path = log_table(place, LOG_ROWS)
        else:
            path = place.create("keyed", KEYED, bucket_count=1)
            place.db.upsert(path, keyed_rows(range(KEYED_ROWS), 1))
        reading = place.read(path, **{"scan.maxRecordsPerPartition": LOG_ROWS, **NEVER_GIVES_UP})
        with pytest.raises(FlussError) as caught:
            read_with(reading.batches(), lambda: place.db.drop_table(path))
        assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST
        with pytest.raises(FlussError) as caught:
            reading.table()
        assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST
        place.create(path.partition(".")[2], LOG, bucket_count=1)
        with pytest.raises(FlussError, match="dropped and created again"):
            reading.table()


def test_a_partition_that_is_dropped_after_planning() -> None:
    with new_place(running_target("standalone")) as place:
        schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
        path = place.create("parts", schema, bucket_count=1, partition_keys=["day"])
        for day in ("a", "b"):
            place.db.create_partition(path, {"day": day})
            place.db.append(path, [{"id": 1, "day": day}])
        reading = place.read(path, **NEVER_GIVES_UP)
        admin = place.db.connection.get_admin()
        place.db._session.run(admin._calls.drop_partition(fluss.TablePath(*path.split(".")), {"day": "b"}, False))
        with pytest.raises(FlussError) as caught:
            reading.table()
        assert caught.value.error_code == ErrorCode.PARTITION_NOT_EXISTS


@pytest.mark.all
def test_the_wait_for_a_server_that_stays_down_is_limited() -> None:
    server = restartable_server("standalone")
    with new_place(server.target) as place:
        path = log_table(place, LOG_ROWS)
        options = {"scan.poll.timeout": 2_000, "scan.maxRecordsPerPartition": LOG_ROWS}
        reading = place.read(path, **options)
        started = time.monotonic()
        with pytest.raises(FlussError, match=r"no rows for \d+ s"):
            read_with(reading.batches(), server.goes_away)
        assert time.monotonic() - started >= 2
        with pytest.raises(FlussError, match=r"have not answered for \d+ s"):
            reading.table()
        server.comes_back()


def test_less_work_rather_than_the_newest_rows(server: RestartableServer) -> None:
    """read.optimized: Apache Fluss is asked for a snapshot alone; our server returns the newest rows as cheaply."""
    with new_place(server.target) as place:
        path = place.create("keyed", KEYED, bucket_count=1)
        place.db.upsert(path, keyed_rows(range(100), 1))
        session, table = place.db._session, place.db._open(path)._table
        bucket = fluss.TableBucket(table.table_id, 0)

        def find() -> Any:
            return session.run(latest_snapshots(session.cluster, table, [bucket]))

        if server.target.is_apache:
            wait_until(find, "a snapshot")
        old = dict.fromkeys(range(100), 1)
        place.db.upsert(path, keyed_rows(range(50, 150), 2))
        newest = {number: 1 if number < 50 else 2 for number in range(150)}
        before = find()
        found = {row["id"]: row["version"] for row in place.read(path, **{"read.optimized": "true"}).rows()}
        if server.target.is_apache and find() == before and before[bucket].log_offset == 100:
            assert found == old
        else:  # our server, or there was a second snapshot before this read
            assert found == newest or (server.target.is_apache and found == old)
        assert {row["id"]: row["version"] for row in place.read(path).rows()} == newest
