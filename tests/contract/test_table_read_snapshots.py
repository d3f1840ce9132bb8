"""`to_arrow()` of primary-key tables on servers that cannot scan them: from snapshots and the changelog behind them.

Our own server can scan; for these tests the client is told that it cannot.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import FlussConnection, FlussError, col
from fluss.api import current_rows
from fluss.client.calls.bucket_offsets import EARLIEST, list_bucket_offsets
from fluss.client.state import changelog_state, snapshot_rows
from fluss.client.state.bucket_scan import BucketScan
from fluss.client.state.bucket_state import BucketState
from fluss.client.state.snapshot_plan import MAX_PLANS, KvSnapshot, SnapshotLease, latest_snapshots
from fluss.values.basic import TableBucket
from tests.support.servers.restartable import RestartableServer
from tests.support.tables.kv_tables import KvTable, user
from tools.waiting import wait_until

FIRST = [user(number) for number in range(300)]
EXPIRING = {"table.log.ttl": "1s", "table.log.tiered.local-segments": "1"}


@pytest.fixture
def connection(server: RestartableServer) -> Iterator[FlussConnection]:
    server.comes_back()
    with FlussConnection.open(server.config()) as connection:
        yield connection


@pytest.fixture
def name() -> str:
    return f"t_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Without scans; the buckets whose snapshots were read."""
    found: list[Any] = []
    original = snapshot_rows.snapshot_batches

    def spy(session: Any, table: Any, bucket: Any, snapshot_id: int) -> Any:
        found.append(bucket)
        return original(session, table, bucket, snapshot_id)

    async def no(*_: object) -> bool:
        return False

    monkeypatch.setattr(changelog_state, "snapshot_batches", spy)
    monkeypatch.setattr(current_rows, "_serves_scans", no)
    return found


def _buckets(table: KvTable) -> list[TableBucket]:
    inner = table.table._table
    if not inner.is_partitioned:
        return [TableBucket(inner.table_id, bucket_id) for bucket_id in range(inner.bucket_count)]
    infos = table.run(lambda: table.admin.list_partition_infos(table.path))
    return [
        TableBucket.with_partition(inner.table_id, info.partition_id, bucket_id)
        for info in infos
        for bucket_id in range(inner.bucket_count)
    ]


def _snapshots(table: KvTable) -> dict[TableBucket, KvSnapshot]:
    session = table.table._session
    return session.run(latest_snapshots(session.cluster, table.table._table, _buckets(table)))


def _earliest(table: KvTable) -> list[int]:
    session = table.table._session
    found = session.run(list_bucket_offsets(session.cluster, table.path, _buckets(table), EARLIEST))
    return list(found.values())


def _wait_for_snapshots(table: KvTable) -> None:
    count = len(_buckets(table))
    wait_until(lambda: len(_snapshots(table)) == count, "a snapshot of every bucket")


def test_a_snapshot_and_what_came_after_it(connection: FlussConnection, name: str, read: list[Any]) -> None:
    table = KvTable(connection, name, bucket_count=2)
    table.write(FIRST)
    _wait_for_snapshots(table)
    table.write([user(5, "five"), user(1000)], deleted=[{"id": number} for number in range(100, 200)])
    expected = [user(n, "five" if n == 5 else None) for n in [*range(100), *range(200, 300), 1000]]
    assert table.rows() == expected
    assert sorted(read, key=str) == sorted(_buckets(table), key=str)
    assert table.rows(["name"], filter=col("id") == 5) == [{"name": "five"}]
    assert len(table.rows(limit=7)) == 7


def test_rows_from_before_a_column_was_added(connection: FlussConnection, name: str, read: list[Any]) -> None:
    table = KvTable(connection, name, bucket_count=1)
    table.write(FIRST)
    _wait_for_snapshots(table)
    table.run(lambda: table.admin.alter_table(table.path, add_columns={"note": fluss.DataTypes.string()}))
    table.reopen()
    table.write([{**user(5), "note": "new"}])
    assert table.rows() == [{**row, "note": "new" if row["id"] == 5 else None} for row in FIRST]
    assert read


def test_partitions(connection: FlussConnection, name: str, read: list[Any]) -> None:
    schema = pa.schema([("id", pa.int32()), ("day", pa.string()), ("text", pa.string())])
    table = KvTable(connection, name, schema, ["id", "day"], partition_keys=["day"], bucket_count=1)
    table.run(lambda: table.admin.create_partition(table.path, {"day": "a"}))
    table.run(lambda: table.admin.create_partition(table.path, {"day": "b"}))
    rows = [{"id": number, "day": "ab"[number % 2], "text": "x"} for number in range(20)]
    table.write(rows)
    _wait_for_snapshots(table)
    assert table.rows() == rows
    assert len(read) == 2
    table.run(lambda: table.admin.create_partition(table.path, {"day": "c"}))
    table.write([{"id": 100, "day": "c", "text": "y"}], deleted=[{"id": 0, "day": "a"}])
    assert table.rows() == [*rows[1:], {"id": 100, "day": "c", "text": "y"}]


def test_a_changelog_whose_beginning_has_expired(connection: FlussConnection, name: str, read: list[Any]) -> None:
    """Small segments: the old ones move to remote storage and are deleted there after a second."""
    table = KvTable(connection, name, bucket_count=1, properties=EXPIRING)
    numbers = iter(range(10_000))

    def has_expired() -> bool:
        number = next(numbers)
        table.write([{**user(key, "x" * 200), "score": float(number)} for key in range(150)])
        return min(_earliest(table)) > 0

    wait_until(has_expired, "the beginning of the changelog is gone")
    last = float(next(numbers) - 1)
    assert {(row["id"], row["score"]) for row in table.rows()} == {(key, last) for key in range(150)}
    assert read


def test_a_bucket_as_of_an_offset(
    connection: FlussConnection, name: str, read: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows at offsets before and behind that of the snapshot: changes are undone or redone."""

    def refused(_: object) -> int:
        raise FlussError("no scans", fluss.ErrorCode.UNSUPPORTED_VERSION)

    monkeypatch.setattr(BucketScan, "open", refused)
    table = KvTable(connection, name, bucket_count=1)
    session, (bucket,) = table.table._session, _buckets(table)

    def rows_at(offset: int | None) -> list[dict[str, Any]]:
        state = BucketState(session, table.table._table, bucket, offset)
        return sorted([row for batch in state for row in batch.to_pylist()], key=lambda row: int(row["id"]))

    table.write(FIRST[:200])
    _wait_for_snapshots(table)
    wait_until(lambda: _snapshots(table)[bucket].log_offset == 200, "a snapshot of all rows")
    table.write([user(5, "five"), user(250)], deleted=[{"id": 7}])
    wait_until(lambda: _snapshots(table)[bucket].log_offset == 204, "a snapshot of all changes")
    table.write([user(5, "six")], deleted=[{"id": 250}])
    second = [user(n, "five" if n == 5 else None) for n in [*range(7), *range(8, 200), 250]]
    assert rows_at(200) == FIRST[:200]
    assert rows_at(204) == second
    assert rows_at(None) == [user(n, "six" if n == 5 else None) for n in [*range(7), *range(8, 200)]]
    assert rows_at(0) == []


def test_files_that_are_not_there(
    connection: FlussConnection, name: str, read: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Snapshots on another machine's disk, or superseded ones: the changelog_state, as long as it has everything."""
    table = KvTable(connection, name, bucket_count=1)
    table.write(FIRST)
    _wait_for_snapshots(table)

    def elsewhere(path: str) -> str:
        return str(tmp_path / "nowhere")

    monkeypatch.setattr(snapshot_rows, "local_path", elsewhere)
    assert table.rows() == FIRST
    assert len(read) == MAX_PLANS


def test_files_that_are_too_short(
    server: RestartableServer, connection: FlussConnection, name: str, read: list[Any]
) -> None:
    """Also where RocksDB would not notice: a list of files that ends early names fewer files."""
    table = KvTable(connection, name, bucket_count=1)
    table.write(FIRST)
    _wait_for_snapshots(table)
    folder = f"{name}-{table.table._table.table_id}"
    files = [path for path in server.remote_directory.rglob("*") if folder in str(path) and path.is_file()]
    cut = [path for path in files if path.name != "_METADATA"]
    assert len(cut) > 2
    for path in cut:
        sound = path.read_bytes()
        for size in {0, 1, len(sound) // 2, len(sound) - 1}:
            path.write_bytes(sound[:size])
            with pytest.raises(FlussError, match=f"{path} of a snapshot has {size} bytes instead of {len(sound)}"):
                _rows_of_snapshot(table)
        path.write_bytes(sound)
    assert _rows_of_snapshot(table) == len(FIRST)


def _rows_of_snapshot(table: KvTable) -> int:
    ((bucket, snapshot),) = _snapshots(table).items()
    session = table.table._session
    batches = snapshot_rows.snapshot_batches(session, table.table._table, bucket, snapshot.snapshot_id)
    return sum(batch.num_rows for batch in batches)


def test_leases(connection: FlussConnection, name: str) -> None:
    table = KvTable(connection, name, bucket_count=1)
    table.write(FIRST)
    _wait_for_snapshots(table)
    session = table.table._session
    lease = SnapshotLease(session.cluster, _snapshots(table))
    session.run(lease.acquire())
    assert lease._acquired_at is not None
    session.run(lease.renew())
    session.run(lease.drop())
    session.run(lease.drop())


def test_a_snapshot_that_does_not_exist(server: RestartableServer, connection: FlussConnection, name: str) -> None:
    table = KvTable(connection, name, bucket_count=1)
    session, (bucket,) = table.table._session, _buckets(table)
    table.write([user(1)])  # from then on Apache Fluss's coordinator knows the table by its id
    with pytest.raises(FlussError) as caught:
        list(snapshot_rows.snapshot_batches(session, table.table._table, bucket, 77))
    assert caught.value.error_code == fluss.ErrorCode.KV_SNAPSHOT_NOT_EXIST
    if not server.target.is_apache:  # which leases anything
        with pytest.raises(FlussError, match="superseded"):
            session.run(SnapshotLease(session.cluster, {bucket: KvSnapshot(77, 0)}).acquire())
