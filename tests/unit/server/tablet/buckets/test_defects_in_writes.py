"""An unexpected exception in the middle of a write ends only that write, and no caller hangs."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss.errors import ErrorCode
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.catalog import Catalog
from fluss.server.runtime import long_work
from fluss.server.runtime.handlers import ProduceRequest
from fluss.server.runtime.long_work import LongWork
from fluss.server.storage.kv import limits
from fluss.server.storage.kv.prewrite import PreWriteBuffer
from fluss.server.storage.log.checkpointer import Checkpointer
from fluss.server.storage.log.held_commits import HeldCommits
from fluss.server.tablet.buckets import write_requests
from fluss.server.tablet.kv import put
from fluss.server.tablet.kv.merge.put_steps import PartSizes
from tests.support.harness.kv_tablet import HeldStore, KvTable
from tests.support.harness.tablet import HeldFiles, TabletHarness
from tests.support.servers.log_cluster import arrow_batch, ids_of
from tools.waiting import eventually, patience

BUCKETS = 10
LARGE = range(50)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows are many, and every step is a turn of its own."""
    monkeypatch.setattr(write_requests, "TAKEN_AT_ONCE_BUCKETS", 2)
    for name in ("WHOLE_ROWS", "MERGED_ROWS"):
        monkeypatch.setattr(put, name, PartSizes(10, 10))
    monkeypatch.setattr(limits, "STORED_AT_ONCE_ROWS", 10)
    monkeypatch.setattr(limits, "WRITE_CHUNK_ROWS", 5)
    monkeypatch.setattr(long_work, "TIME_SLICE_SECONDS", 1e-9)


class Fault:
    """Makes chosen calls of a method fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: Exception) -> None:
        self.is_due: Callable[..., bool] = lambda *_: False
        whole = getattr(owner, name)

        def method(*arguments: Any) -> Any:
            if self.is_due(*arguments):
                raise error
            return whole(*arguments)

        monkeypatch.setattr(owner, name, method)

    def comes_with(self, call: int, concerns: Callable[..., bool] = lambda *_: True) -> None:
        """Fail one of the next matching calls; 0 is the very next one."""
        left = iter([*[False] * call, True])
        self.is_due = lambda *arguments: concerns(*arguments) and next(left, False)


def write_of(table: int, buckets: range, released: list[int]) -> ProduceRequest:
    message = pb.ProduceLogRequest(acks=-1, table_id=table, timeout_ms=10_000)
    for bucket in buckets:
        message.buckets_req.add(bucket_id=bucket, records=b"")
    views = [memoryview(bytearray(arrow_batch([bucket]))) for bucket in buckets]
    return ProduceRequest(message, views, lambda: released.append(table))


def large_batch(table: KvTable) -> bytes:
    """A batch that is merged and stored in steps."""
    return table.batch([("put", (key, "a", 0)) for key in LARGE])


async def answered(answer: Awaitable[Any]) -> list[Any]:
    """The results of the buckets, with a time limit."""
    found = await asyncio.wait_for(answer, patience(30.0))
    return list(found.buckets_resp)


def codes(results: list[Any]) -> list[int]:
    return [result.error_code if result.HasField("error_code") else 0 for result in results]


def test_a_defect_in_one_bucket_does_not_affect_others_or_later_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table, released = tablet.create_table("t", bucket_count=BUCKETS), list[int]()
            fault = Fault(monkeypatch, Catalog, "has_bucket", MemoryError("no memory for a bucket"))
            fault.is_due = lambda _, bucket: bucket.bucket_id == 5
            large = tablet.begin(ApiKey.PRODUCE_LOG, write_of(table, range(BUCKETS), released))
            behind = tablet.begin(ApiKey.PRODUCE_LOG, write_of(table, range(1), released))
            expected = [0] * BUCKETS
            expected[5] = ErrorCode.UNKNOWN_SERVER_ERROR
            assert codes(results := await answered(large)) == expected
            assert "no memory for a bucket" in results[5].error_message
            assert codes(await answered(behind)) == [0]
            assert released == [table] * 2, "receive buffers are given back"
            assert ids_of((await tablet.fetch(table, bucket=9)).records) == [9]

    asyncio.run(scenario())


def test_a_bucket_whose_opening_cannot_start_is_opened_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            snapshots = type(tablet.coordinator.tablet_catalog.store.kv_snapshots)
            fault = Fault(monkeypatch, snapshots, "of_bucket", sqlite3.OperationalError("disk I/O error"))
            for is_broken in (True, False):  # A round of snapshots asks the catalog too, and may come first.
                fault.is_due = lambda *_, answer=is_broken: answer
                [result] = await answered(table.send(table.batch([("put", (1, "a", 1))]), acks=1))
                assert result.error_code == ErrorCode.STORAGE_EXCEPTION
                assert "disk I/O error" in result.error_message
            tablet.coordinator.now_ms += 60_000
            assert not (await table.upsert((1, "a", 1))).HasField("error_code")

    asyncio.run(scenario())


def test_a_put_that_cannot_be_finished_does_not_block_later_ones(tmp_path: Path) -> None:
    def defect() -> None:
        raise RuntimeError("the buffer cannot be given back")

    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((0, "z", 0))
            message = pb.PutKvRequest(acks=1, table_id=table.table_id, timeout_ms=10_000)
            message.buckets_req.add(bucket_id=0, records=b"")
            records = memoryview(bytearray(large_batch(table)))
            tablet.begin(ApiKey.PUT_KV, ProduceRequest(message, [records], defect), api_version=2)
            behind = table.send(table.batch([("put", (1, "b", 1))]))
            inserting = pb.LookupRequest(table_id=table.table_id, insert_if_not_exists=True, acks=-1)
            inserting.buckets_req.add(bucket_id=0, keys=[table.key((999, "", 0))])
            lookup = tablet.call(ApiKey.LOOKUP, inserting, api_version=1)
            assert codes(await answered(behind)) == [0]
            await asyncio.wait_for(lookup, patience(30.0))

    asyncio.run(scenario())


@pytest.mark.parametrize("call", [0, 1])
def test_puts_whose_rows_cannot_be_stored_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    async def scenario() -> None:
        disk = HeldFiles()
        async with TabletHarness(tmp_path, files=disk) as tablet:
            table, other = KvTable.create(tablet), KvTable.create(tablet, "other")
            await table.upsert((0, "z", 0))
            await other.upsert((0, "z", 0))
            log = table.kv.log
            fault = Fault(monkeypatch, PreWriteBuffer, "up_to", MemoryError("no memory for rows"))
            disk.syncs.clear()
            first = other.send(other.batch([("put", (1, "b", 1))]))
            large = table.send(large_batch(table))
            await eventually(lambda: log.log_end_offset > len(LARGE), "merged and appended")
            beside = other.send(other.batch([("put", (2, "b", 1))]))
            fault.comes_with(call, lambda buffer, *_: any(put.append.log is log for put in buffer.puts))
            disk.let_go()
            [failed] = await answered(large)
            assert failed.HasField("error_code")
            assert "no memory for rows" in failed.error_message
            assert codes([*await answered(first), *await answered(beside)]) == [0, 0]
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable(tablet, table.table_id)
            await table.upsert((0, "again", 0))
            assert len(table.rows()) == len(LARGE), "they were in the changelog already"

    asyncio.run(scenario())


def test_puts_with_failing_steps_are_answered_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((0, "z", 0))
            store = HeldStore(monkeypatch)
            log = table.kv.log
            large = table.send(large_batch(table))
            await eventually(lambda: table.kv.is_between_states, "it is being stored")
            behind = table.send(table.batch([("put", (1, "b", 1))]))
            await eventually(lambda: log.held is not None and log.held.append_count == 2, "both are held")
            fault = Fault(monkeypatch, PreWriteBuffer, "take_up_to", MemoryError("no memory at all"))
            fault.is_due = lambda *_: True
            store.may_go_on = True
            for answer in (large, behind):
                [failed] = await answered(answer)
                assert failed.error_code in (ErrorCode.STORAGE_EXCEPTION, ErrorCode.KV_STORAGE_EXCEPTION)
            later = table.send(table.batch([("put", (1, "c", 1))]))
            assert codes(await answered(later)) != [0], "the bucket does not go on as if nothing had been"
            fault.is_due = lambda *_: False
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable(tablet, table.table_id)
            await table.upsert((0, "again", 0))
            assert table.rows()[1] == (1, "b", 1)

    asyncio.run(scenario())


def test_a_failing_sync_report_delays_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path, log_flush="interval", log_flush_interval_ms=1) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((0, "z", 0))
            store = HeldStore(monkeypatch)
            log = table.kv.log
            held: list[Any] = []
            holds_synced = HeldCommits.holds_synced

            def noted(commits: HeldCommits, last: Any) -> bool:
                held.append(last)
                return holds_synced(commits, last)

            monkeypatch.setattr(HeldCommits, "holds_synced", noted)
            large = table.send(large_batch(table))
            await eventually(lambda: table.kv.is_between_states and held, "a sync was reported meanwhile")
            fault = Fault(monkeypatch, Checkpointer, "note_synced", MemoryError("no memory for a note"))
            fault.comes_with(0)
            store.may_go_on = True
            assert codes(await answered(large)) == [0]
            assert codes(await answered(table.send(large_batch(table)))) == [0]
            assert log.high_watermark == log.log_end_offset

    asyncio.run(scenario())


def test_all_long_work_shares_its_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = set[LongWork]()
    start = LongWork.start

    def noted(work: LongWork, steps: Iterator[None]) -> None:
        queues.add(work)
        start(work, steps)

    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            logs, keyed = tablet.create_table("t", bucket_count=BUCKETS), KvTable.create(tablet, "keyed")
            monkeypatch.setattr(LongWork, "start", noted)
            await keyed.upsert((0, "z", 0))
            append = tablet.begin(ApiKey.PRODUCE_LOG, write_of(logs, range(BUCKETS), []))
            await answered(keyed.send(large_batch(keyed)))
            await answered(append)

    asyncio.run(scenario())
    assert len(queues) == 1, "each has a turn of its own in every round of the event loop"
