"""The calls of a tiering service have the same answers everywhere.

Apache Fluss takes snapshots of tables without a lake and offsets of rows that do not exist; ours refuses both, so there
the tables have a lake and rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pyarrow as pa
import pytest

import fluss
from fluss.errors import ErrorCode, FlussError
from fluss.lake.coordinator_calls import KEEP_ALL_SNAPSHOTS, FinishedTable, TieringCalls, TieringTable
from fluss.model.paths import TableBucket, TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.support.servers.targets import Target

Made = tuple[TablePath, int]
SCHEMA = pa.schema([("id", pa.int32()), ("dt", pa.string())])


@pytest.fixture
def calls(connection: fluss.FlussConnection) -> TieringCalls:
    return TieringCalls.of(connection)


@pytest.fixture
def make_table(connection: fluss.FlussConnection, table_name: str, target: Target) -> Callable[..., Made]:
    """A table of three buckets with some rows in each; its path and id."""

    def make(partition_keys: list[str] | None = None, *, lake: bool = True) -> Made:
        async def create() -> int:
            admin = connection.get_admin()
            descriptor = fluss.TableDescriptor(
                fluss.Schema(SCHEMA),
                bucket_count=3,
                bucket_keys=["id"],
                partition_keys=partition_keys or None,
                properties={} if target.is_apache or not lake else {"table.datalake.enabled": "true"},
            )
            await admin.create_table(path, descriptor)
            if partition_keys:
                await admin.create_partition(path, {"dt": "x"})
            if not target.is_apache:
                writer = (await connection.get_table(path)).new_append().create_writer()
                writer.write_arrow(pa.table({"id": pa.array(range(100), pa.int32()), "dt": ["x"] * 100}))
                await writer.flush()
            return (await admin.get_table_info(path)).table_id

        path = fluss.TablePath("fluss", table_name)
        return TablePath("fluss", table_name), asyncio.run(create())

    return make


def offsets_of(calls: TieringCalls, path: TablePath, **more: object) -> tuple[int, dict[tuple[int | None, int], int]]:
    found = calls.snapshot(path, **more)  # type: ignore[arg-type]
    assert found is not None
    snapshot = found[1]
    offsets = snapshot.table_buckets_offset.items()
    return snapshot.snapshot_id, {(bucket.partition_id, bucket.bucket_id): offset for bucket, offset in offsets}


def code_of(call: Callable[[], object]) -> int:
    with pytest.raises(FlussError) as caught:
        call()
    return caught.value.error_code


def test_from_prepare_to_the_snapshot(
    connection: fluss.FlussConnection, calls: TieringCalls, make_table: Callable[..., Made]
) -> None:
    path, table_id = make_table()
    assert calls.snapshot(path) is None
    assert calls.snapshot(path, readable=True) is None
    buckets = [TableBucket(table_id, None, number) for number in range(3)]
    first = calls.prepare(table_id, path, {buckets[0]: 10, buckets[2]: 7})
    assert f"/lake/fluss/{path.table_name}-{table_id}/metadata/" in first
    assert first.endswith(".offsets")
    calls.commit(table_id, 100, first)
    assert offsets_of(calls, path) == (100, {(None, 0): 10, (None, 2): 7})
    assert offsets_of(calls, path, readable=True) == offsets_of(calls, path)
    second = calls.prepare(table_id, path, {buckets[1]: 4, buckets[2]: 9})
    calls.commit(table_id, 50, second, earliest_snapshot_id=KEEP_ALL_SNAPSHOTS)
    assert offsets_of(calls, path) == (50, {(None, 0): 10, (None, 1): 4, (None, 2): 9})
    assert offsets_of(calls, path, snapshot_id=100) == (100, {(None, 0): 10, (None, 2): 7})
    third = calls.prepare(table_id, path, {buckets[0]: 11})
    calls.commit(table_id, 70, third)
    assert calls.snapshot(path, 100) is None
    assert calls.snapshot(path, 50) is None
    assert offsets_of(calls, path) == (70, {(None, 0): 11, (None, 1): 4, (None, 2): 9})
    newest = asyncio.run(_newest(connection, path))
    assert newest.snapshot_id == 70
    assert newest.get_bucket_offset(fluss.TableBucket(table_id, 0)) == 11


async def _newest(connection: fluss.FlussConnection, path: TablePath) -> fluss.LakeSnapshot:
    return await connection.get_admin().get_latest_lake_snapshot(path)


async def _leaders(connection: fluss.FlussConnection, path: TablePath) -> None:
    await connection.get_admin().list_offsets(path, [0, 1, 2], fluss.OffsetSpec.latest())


def test_partitions(connection: fluss.FlussConnection, calls: TieringCalls, make_table: Callable[..., Made]) -> None:
    path, table_id = make_table(["dt"])

    async def partition() -> int:
        admin = connection.get_admin()
        (found,) = await admin.list_partition_infos(path)
        return found.partition_id

    partition_id = asyncio.run(partition())
    calls.commit(table_id, 1, calls.prepare(table_id, path, {TableBucket(table_id, partition_id, 1): 5}))
    assert offsets_of(calls, path) == (1, {(partition_id, 1): 5})


def test_what_is_not_there(calls: TieringCalls, make_table: Callable[..., Made]) -> None:
    path, _ = make_table()
    missing = TablePath("fluss", "no_such_table")
    assert code_of(lambda: calls.snapshot(missing)) == ErrorCode.TABLE_NOT_EXIST
    assert code_of(lambda: calls.snapshot(path, 1, readable=True)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert calls.snapshot(path, 12) is None


def test_heartbeats(calls: TieringCalls, make_table: Callable[..., Made]) -> None:
    path, table_id = make_table(lake=False)
    answer = calls.heartbeat()
    assert answer.table is None
    table = TieringTable(table_id, path, 1, answer.coordinator_epoch)
    other = TieringTable(table_id, path, 1, answer.coordinator_epoch + 1)
    errors = calls.heartbeat(tiering=[table]).errors
    assert errors[table].error_code == ErrorCode.TABLE_NOT_EXIST
    for report in ({"tiering": [other]}, {"finished": [FinishedTable(other)]}, {"failed": [other]}):
        errors = calls.heartbeat(**report).errors
        assert errors[other].error_code == ErrorCode.INVALID_COORDINATOR_EXCEPTION


def test_the_form_of_before_0_9(
    connection: fluss.FlussConnection, calls: TieringCalls, make_table: Callable[..., Made], target: Target
) -> None:
    path, table_id = make_table()
    # Apache Fluss's coordinator learns of a new table a moment later, and finds it by its id only then.
    asyncio.run(_leaders(connection, path))
    request = pb.CommitLakeTableSnapshotRequest()
    table = request.tables_req.add(table_id=table_id, snapshot_id=3)
    table.buckets_req.add(bucket_id=0, log_end_offset=4, max_timestamp=1000)
    cluster = connection._session.cluster
    answer = connection._session.run(cluster.call_coordinator(ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT, request))
    assert [(each.table_id, each.error_message) for each in answer.table_resp] == [(table_id, "")]
    assert offsets_of(calls, path) == (3, {(None, 0): 4})


def test_what_a_service_says_is_compared_with_the_table(
    calls: TieringCalls, make_table: Callable[..., Made], target: Target
) -> None:
    if target.is_apache:
        pytest.skip("Apache Fluss believes what tiering services say")
    path, table_id = make_table()
    bucket = TableBucket(table_id, None, 0)
    code = code_of(lambda: calls.prepare(table_id, path, {bucket: 101}))
    assert code == ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION
    assert calls.snapshot(path) is None
