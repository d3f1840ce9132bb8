"""Requests that name buckets repeatedly: each counts once, and long work lets other requests run in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import kv_range_api_pb2 as range_pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.runtime import long_work, time_slices
from fluss.server.runtime.handlers import ProduceRequest
from fluss.server.runtime.long_work import TIME_SLICE_SECONDS
from fluss.server.runtime.time_slices import TimeSlices
from fluss.server.storage.log import incoming
from fluss.server.tablet.buckets import write_requests
from fluss.server.tablet.buckets.requested_buckets import MAX_BUCKETS_OF_UNKNOWN_TABLE
from fluss.server.tablet.log.fetch import MAX_TABLES_OF_A_FETCH
from tests.support.harness.event_loop import in_event_loop
from tests.support.harness.kv_tablet import KvTable
from tests.support.harness.tablet import TabletHarness
from tests.support.servers.log_cluster import arrow_batch, ids_of

TIMES = 1_000
ROW = (1, "a", 2)


def test_a_log_bucket_is_answered_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = tablet.create_table("t", bucket_count=2)
            await tablet.produce(table, arrow_batch([0]))
            request = pb.ListOffsetsRequest(table_id=table, follower_server_id=-1, offset_type=1)
            request.bucket_id.extend([1, 0] * TIMES)
            answer = await tablet.call(ApiKey.LIST_OFFSETS, request)
            assert [(item.bucket_id, item.offset) for item in answer.buckets_resp] == [(1, 0), (0, 1)]
            stats = pb.GetTableStatsRequest(table_id=table, buckets_req=[{"bucket_id": 0}] * TIMES)
            answer = await tablet.call(ApiKey.GET_TABLE_STATS, stats)
            assert [item.row_count for item in answer.buckets_resp] == [1]

    asyncio.run(scenario())


def test_more_buckets_than_a_table_has_are_refused_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            for table in (tablet.create_table("t"), 99):
                few, many = range(5), range(MAX_BUCKETS_OF_UNKNOWN_TABLE + 5)
                request = pb.ListOffsetsRequest(table_id=table, follower_server_id=-1, offset_type=1, bucket_id=few)
                answer = await tablet.call(ApiKey.LIST_OFFSETS, request)
                assert len(answer.buckets_resp) == 5, "each has its own error"
                request.bucket_id[:] = many
                with pytest.raises(FlussError, match="can have; refresh") as raised:
                    await tablet.call(ApiKey.LIST_OFFSETS, request)
                assert raised.value.error_code == ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION

    asyncio.run(scenario())


def test_a_bucket_is_fetched_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = tablet.create_table("t")
            await tablet.produce(table, arrow_batch([7]))
            request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20)
            bucket = {"bucket_id": 0, "fetch_offset": 0, "max_fetch_bytes": 1 << 20}
            for _ in range(2):
                request.tables_req.add(table_id=table, projection_pushdown_enabled=False, buckets_req=[bucket] * TIMES)
            answer = await tablet.call(ApiKey.FETCH_LOG, request)
            assert [len(item.buckets_resp) for item in answer.tables_resp] == [1, 0]
            assert ids_of(answer.tables_resp[0].buckets_resp[0].records) == [7]

    asyncio.run(scenario())


def test_a_fetch_with_too_many_tables_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20)
            for _ in range(MAX_TABLES_OF_A_FETCH + 1):
                request.tables_req.add(table_id=1, projection_pushdown_enabled=False)
            with pytest.raises(FlussError, match="tables, at most") as raised:
                await tablet.call(ApiKey.FETCH_LOG, request)
            assert raised.value.error_code == ErrorCode.CORRUPT_MESSAGE

    asyncio.run(scenario())


def test_a_write_names_a_bucket_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = tablet.create_table("t", bucket_count=2)
            await tablet.produce(table, arrow_batch([7]))
            twice = write_request(table, [1, 0, 1])
            with pytest.raises(FlussError, match="names a bucket twice") as raised:
                await tablet.begin(ApiKey.PRODUCE_LOG, twice)
            assert raised.value.error_code == ErrorCode.CORRUPT_MESSAGE
            many = write_request(table, range(2 + MAX_BUCKETS_OF_UNKNOWN_TABLE + 1))
            with pytest.raises(FlussError, match="can have; refresh") as raised:
                await tablet.begin(ApiKey.PRODUCE_LOG, many)
            assert raised.value.error_code == ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION
            assert ids_of((await tablet.fetch(table)).records) == [7], "nothing was written"

    asyncio.run(scenario())


def test_writes_to_many_buckets_are_taken_up_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table, other = tablet.create_table("t", bucket_count=40), tablet.create_table("other")
            await tablet.begin(ApiKey.PRODUCE_LOG, write_request(table, range(40)))
            await tablet.produce(other, arrow_batch([1]))
            monkeypatch.setattr(write_requests, "TAKEN_AT_ONCE_BUCKETS", 2)
            monkeypatch.setattr(long_work, "TIME_SLICE_SECONDS", 0.0)
            first = tablet.begin(ApiKey.PRODUCE_LOG, write_request(table, range(40), 1))
            behind = tablet.begin(ApiKey.PRODUCE_LOG, write_request(table, [39], 2))
            beside = tablet.produce(other, arrow_batch([2]))
            log_of = [tablet.service.registry.find(TableBucket(table, None, number)).opened()[0] for number in (0, 39)]
            taken = []
            while log_of[1].log_end_offset < 3:
                taken.append((log_of[0].log_end_offset, log_of[1].log_end_offset))
                await asyncio.sleep(0)
            assert len(taken) >= 20, "two buckets at a time"
            for answer in (await first, await behind, await beside):
                assert not any(result.HasField("error_code") for result in answer.buckets_resp)
            assert ids_of((await tablet.fetch(table, bucket=39)).records) == [0, 1, 2]

    asyncio.run(scenario())


def test_a_write_with_too_many_batches_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "MAX_BATCHES_OF_A_WRITE", 3)

    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = tablet.create_table("t")
            answer = await tablet.produce(table, arrow_batch([1]) * 4)
            assert answer.buckets_resp[0].error_code == ErrorCode.RECORD_TOO_LARGE_EXCEPTION
            answer = await tablet.produce(table, arrow_batch([1]) * 3)
            assert not answer.buckets_resp[0].HasField("error_code")
            assert ids_of((await tablet.fetch(table)).records) == [1, 1, 1]

    asyncio.run(scenario())


def write_request(table: int, buckets: Iterable[int], value: int = 0) -> ProduceRequest:
    """A batch of one row for each bucket."""
    message = pb.ProduceLogRequest(acks=-1, table_id=table, timeout_ms=10_000)
    for bucket in buckets:
        message.buckets_req.add(bucket_id=bucket, records=b"")
    views = [memoryview(bytearray(arrow_batch([value]))) for _ in message.buckets_req]
    return ProduceRequest(message, views, lambda: None)


@in_event_loop
async def test_turns_end_with_their_time() -> None:
    now = 0.0
    work, steps = TimeSlices(lambda: now), 0

    async def others() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(others())
    await work.yield_if_over()
    assert steps == 0, "the turn has just begun"
    now += TIME_SLICE_SECONDS
    await work.yield_if_over()
    assert steps == 1
    await work.yield_if_over()
    assert steps == 1, "the next turn has just begun"
    beside.cancel()


@pytest.mark.parametrize("key", [ApiKey.LOOKUP, ApiKey.PREFIX_LOOKUP, ApiKey.SPLIT_KV])
def test_other_requests_are_served_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: ApiKey) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            await table.upsert(ROW)
            monkeypatch.setattr(time_slices, "TIME_SLICE_SECONDS", 0.0)  # Every part is a turn of its own.
            seen = await loop_steps_during(tablet, key, many_parts(key, table))
            assert seen >= 20

    asyncio.run(scenario())


def many_parts(key: ApiKey, table: KvTable) -> Any:
    """A request with twenty parts."""
    if key is ApiKey.SPLIT_KV:
        buckets = [{"bucket_id": number} for number in range(20)]
        return range_pb.SplitKvRequest(table_id=table.table_id, piece_bytes=1, buckets_req=buckets)
    if key is ApiKey.LOOKUP:
        one = {"bucket_id": 0, "keys": [table.key(ROW)]}
        return pb.LookupRequest(table_id=table.table_id, buckets_req=[one] * 20)
    one = {"bucket_id": 0, "keys": [table.key(ROW)] * 20}
    return pb.PrefixLookupRequest(table_id=table.table_id, buckets_req=[one])


async def loop_steps_during(tablet: TabletHarness, key: ApiKey, request: Any) -> int:
    """The number of rounds of the event loop while the request was served."""
    answer = asyncio.ensure_future(tablet.call(key, request, api_version=1 if key is not ApiKey.SPLIT_KV else 0))
    steps = 0
    while not answer.done():
        steps += 1
        await asyncio.sleep(0)
    await answer
    return steps
