"""SCAN_KV: whole scans as of one moment, the rules of the calls, limits, expiry, buckets that are closed."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluss.codec.batches.value_batch import decode_value_batch
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.apis.authorizer import Authorizer
from fluss.server.runtime.handlers import RequestContext
from fluss.server.tablet.buckets.access import TableAccess
from fluss.server.tablet.kv import kv_reads
from fluss.server.tablet.kv.kv_scan import ScanKvApi, ScanLimits
from tests.support.harness.event_loop import in_event_loop
from tests.support.harness.kv_tablet import KvTable
from tests.support.harness.tablet import TabletHarness
from tools.servers.messages import path
from tools.waiting import eventually

TEN_ROWS = [(number, "x" * 20, number) for number in range(10)]


async def first(table: KvTable, size: int = 1 << 20, limit: int | None = None, **more: Any) -> Any:
    """Open a scan of bucket 0."""
    request = pb.ScanKvRequest(call_seq_id=0, batch_size_bytes=size)
    request.bucket_scan_req.table_id = table.table_id
    request.bucket_scan_req.bucket_id = 0
    if limit is not None:
        request.bucket_scan_req.limit = limit
    request.MergeFrom(pb.ScanKvRequest(**more))
    return await table.tablet.call(ApiKey.SCAN_KV, request)


async def following(table: KvTable, scanner_id: bytes, sequence: int | None, size: int | None = 100) -> Any:
    """The next batch."""
    request = pb.ScanKvRequest(scanner_id=scanner_id, call_seq_id=sequence, batch_size_bytes=size)
    return await table.tablet.call(ApiKey.SCAN_KV, request)


def ids(table: KvTable, answer: Any) -> list[int]:
    """The keys of the rows of an answer."""
    assert not answer.HasField("error_code"), answer
    reader = table.rules.format.reader
    return [reader.row(value)[0] for value in decode_value_batch(answer.records).to_pylist()]


@in_event_loop
async def test_a_scan_sees_one_moment(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*TEN_ROWS)
        answer = await first(table, size=100)
        assert (answer.has_more_results, answer.log_offset) == (True, 10)
        assert len(answer.scanner_id) == 36
        await table.upsert((3, "new", 0), (100, "new", 0))
        await table.put(("delete", (9, None, None)))
        seen, sequence = ids(table, answer), 0
        assert seen
        while answer.has_more_results:
            sequence += 1
            answer = await following(table, answer.scanner_id, sequence)
            assert not answer.HasField("log_offset")
            assert ids(table, answer)
            seen += ids(table, answer)
        assert seen == list(range(10))
        closed = await following(table, answer.scanner_id, sequence + 1)
        assert closed.error_code == ErrorCode.UNKNOWN_SCANNER_ID
        assert not table.local.waiters
        now = await first(table)
        assert (ids(table, now), now.has_more_results, now.log_offset) == ([*range(9), 100], False, 14)


@in_event_loop
async def test_an_empty_bucket_has_no_scanner(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        answer = await first(table)
        assert (answer.has_more_results, answer.log_offset) == (False, 0)
        assert not answer.HasField("scanner_id")
        assert not answer.HasField("records")
        await table.upsert((1, "a", 1))
        await table.put(("delete", (1, None, None)))
        assert (await first(table)).log_offset == 2


@in_event_loop
async def test_limits_of_rows_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_reads, "STEP_ROWS", 2)
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*TEN_ROWS)
        whole = await first(table, limit=7)
        assert (ids(table, whole), whole.has_more_results) == (list(range(7)), False)
        assert ids(table, await first(table, limit=0)) == list(range(10))
        one = await first(table, size=1, limit=2)
        assert (ids(table, one), one.has_more_results) == ([0], True)
        two = await following(table, one.scanner_id, 1, 1)
        assert (ids(table, two), two.has_more_results) == ([1], False)


@in_event_loop
async def test_invalid_calls(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*TEN_ROWS)
        invalid = ErrorCode.INVALID_SCAN_REQUEST
        nothing = await tablet.call(ApiKey.SCAN_KV, pb.ScanKvRequest(call_seq_id=0, batch_size_bytes=1))
        assert nothing.error_code == invalid
        assert (await first(table, scanner_id=b"x")).error_code == invalid
        assert (await first(table, close_scanner=True)).error_code == invalid
        assert (await first(table, size=0)).error_code == invalid
        assert (await first(table, call_seq_id=1)).error_code == invalid
        assert (await following(table, b"never there", 1)).error_code == ErrorCode.UNKNOWN_SCANNER_ID
        for sequence, size in ((0, 100), (2, 100), (None, 100), (1, None), (1, 0)):
            scanner_id = (await first(table, size=100)).scanner_id
            assert (await following(table, scanner_id, sequence, size)).error_code == invalid
            # Every error ends the scan.
            assert (await following(table, scanner_id, 1)).error_code == ErrorCode.UNKNOWN_SCANNER_ID
        log_table = KvTable(tablet, tablet.create_table("log"))
        assert (await first(log_table)).error_code == ErrorCode.NON_PRIMARY_KEY_TABLE_EXCEPTION
        gone = await first(KvTable(tablet, 99))
        assert gone.error_code == ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION
        assert not table.local.waiters


@in_event_loop
async def test_closing(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*TEN_ROWS)
        scanner_id = (await first(table, size=100)).scanner_id
        for _ in range(2):
            request = pb.ScanKvRequest(scanner_id=scanner_id, close_scanner=True)
            answer = await tablet.call(ApiKey.SCAN_KV, request)
            assert answer == pb.ScanKvResponse(has_more_results=False)
        assert (await following(table, scanner_id, 1)).error_code == ErrorCode.UNKNOWN_SCANNER_ID
        assert not table.local.waiters


@in_event_loop
async def test_one_call_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_reads, "STEP_ROWS", 1)
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*TEN_ROWS)
        scanner_id = (await first(table, size=100)).scanner_id
        one, other = await asyncio.gather(following(table, scanner_id, 1, 1000), following(table, scanner_id, 1, 1000))
        assert other.error_code == ErrorCode.INVALID_SCAN_REQUEST
        assert one.error_code == ErrorCode.UNKNOWN_SCANNER_ID
        assert not table.local.waiters


@in_event_loop
async def test_the_number_of_scans_is_limited(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path, kv_scanner_max_per_server=9) as tablet:
        table, other = KvTable.create(tablet), KvTable.create(tablet, "other")
        for each in (table, other):
            await each.upsert(*TEN_ROWS)
        open_scans = [await first(table, size=100) for _ in range(8)]
        assert (await first(table, size=100)).error_code == ErrorCode.TOO_MANY_SCANNERS
        assert (await first(other, size=100)).has_more_results
        assert (await first(other, size=100)).error_code == ErrorCode.TOO_MANY_SCANNERS
        await tablet.call(ApiKey.SCAN_KV, pb.ScanKvRequest(scanner_id=open_scans[0].scanner_id, close_scanner=True))
        assert (await first(table, size=100)).has_more_results


@in_event_loop
async def test_idle_scans_expire(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*TEN_ROWS)
        scans = [await first(table, size=100) for _ in range(8)]
        tablet.coordinator.now_ms += ScanLimits().idle_ms
        assert (await following(table, scans[0].scanner_id, 1, 1)).has_more_results
        tablet.coordinator.now_ms += 1
        expired = await following(table, scans[1].scanner_id, 1)
        assert expired.error_code == ErrorCode.SCANNER_EXPIRED
        assert (await following(table, scans[0].scanner_id, 2, 1)).has_more_results
        assert (await first(table, size=100)).has_more_results
        assert len(table.local.waiters) == 2
        tablet.coordinator.now_ms += 2 * ScanLimits().idle_ms + 1
        assert (await following(table, scans[2].scanner_id, 1)).error_code == ErrorCode.UNKNOWN_SCANNER_ID
        assert not table.local.waiters


@in_event_loop
async def test_a_timer_closes_idle_scans(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*TEN_ROWS)
        api = ScanKvApi(
            kv_reads.KvReads(tablet.service.registry, _everything_allowed(tablet)),
            lambda: tablet.coordinator.now_ms,
            ScanLimits(sweep_interval_ms=1),
        )
        request = pb.ScanKvRequest(call_seq_id=0, batch_size_bytes=10)
        request.bucket_scan_req.table_id, request.bucket_scan_req.bucket_id = table.table_id, 0
        await api.scan_kv(RequestContext(ApiKey.SCAN_KV), request)
        assert api.open_scanners == 1
        tablet.coordinator.now_ms += ScanLimits().idle_ms + 1
        await eventually(lambda: not api.open_scanners, "the idle scan is closed")
        assert not table.local.waiters


def _everything_allowed(tablet: TabletHarness) -> Any:
    return TableAccess(Authorizer(tablet.coordinator.config, tablet.coordinator.tablet_catalog))


@in_event_loop
async def test_a_dropped_table_ends_its_scans(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*TEN_ROWS)
        local = table.local
        scanner_id = (await first(table, size=100)).scanner_id
        request = pb.DropTableRequest(table_path=path("t"), ignore_if_not_exists=False)
        tablet.coordinator.call(ApiKey.DROP_TABLE, request)
        answer = await following(table, scanner_id, 1)
        assert answer.error_code == ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION
        assert not local.waiters
        assert (await following(table, scanner_id, 1)).error_code == ErrorCode.UNKNOWN_SCANNER_ID


@in_event_loop
async def test_a_store_with_open_scans_can_be_closed_and_opened_again(tmp_path: Path) -> None:
    for expected in (0, 10):
        async with TabletHarness(tmp_path) as tablet:
            if not expected:
                table = KvTable.create(tablet)
                await table.upsert(*TEN_ROWS)
            else:
                table = KvTable(tablet, int(tablet.coordinator.table_info("t").table_id))
            assert (await first(table, size=100)).has_more_results


def damage_the_middle(directory: Path) -> None:
    (file,) = directory.rglob("*.sst")
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    file.write_bytes(content)


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Objects must be released at once, not when the collector happens to run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collection")
@in_event_loop
async def test_a_damaged_file_is_an_error_and_not_a_short_scan(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        chance = random.Random(1)
        await table.upsert(*[(number, chance.randbytes(40).hex(), number) for number in range(5000)])
    damage_the_middle(tmp_path)
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable(tablet, int(tablet.coordinator.table_info("t").table_id))
        scan = await first(table, size=10 << 20)
        assert scan.error_code == ErrorCode.KV_STORAGE_EXCEPTION
        assert not table.local.waiters
        # The rows are rebuilt from the changelog.
        scan = await _first_that_works(tablet, table, size=10 << 20)
        assert sorted(ids(table, scan)) == list(range(5000))


async def _first_that_works(tablet: TabletHarness, table: KvTable, **more: int) -> pb.ScanKvResponse:
    """The first answer of a scan, as soon as the bucket is open again."""
    answers: list[pb.ScanKvResponse] = []

    async def works() -> bool:
        tablet.coordinator.now_ms += 1000
        answers.append(await first(table, **more))
        return not answers[-1].HasField("error_code")

    await eventually(works, "a scan that works", seen=lambda: answers[-1])
    return answers[-1]


@in_event_loop
async def test_a_store_that_fails_ends_its_scans(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*TEN_ROWS)
        scans = [(await first(table, size=100)).scanner_id for _ in range(2)]
        table.kv.store.failure = FlussError("no luck", ErrorCode.KV_STORAGE_EXCEPTION)
        refused = await first(table)
        assert refused.error_code == ErrorCode.KV_STORAGE_EXCEPTION
        answer = await following(table, scans[0], 1)
        assert answer.error_code == ErrorCode.KV_STORAGE_EXCEPTION
        assert ids(table, await _first_that_works(tablet, table)) == list(range(10))
        # The bucket is open again, but the scan had lost its moment.
        assert (await following(table, scans[1], 1)).HasField("error_code")


class Account:
    """Counts bytes like a connection for which answers are built."""

    def __init__(self) -> None:
        self.collected_bytes = 0
        self.asked = 0

    def collected(self, owner: int, size: int) -> None:
        self.collected_bytes += size

    async def room(self, owner: int) -> None:
        self.asked += 1


@in_event_loop
async def test_rows_count_while_they_are_collected(tmp_path: Path) -> None:
    """Two hundred scans of 10 MB each must not be in memory before they are counted."""
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*[(number, "x" * 100_000, number) for number in range(10)])
        account = Account()
        request = pb.ScanKvRequest(call_seq_id=0, batch_size_bytes=1 << 20)
        request.bucket_scan_req.table_id = table.table_id
        request.bucket_scan_req.bucket_id = 0
        answer = await tablet.call(ApiKey.SCAN_KV, request, answers=account)
        assert len(ids(table, answer)) == 10
        assert account.collected_bytes >= 1_000_000
        assert account.asked
