"""SPLIT_KV and SCAN_KV_RANGE: ranges that have every row once, cached samples, refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fluss.codec.batches.value_batch import decode_value_batch
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import kv_range_api_pb2 as range_pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.storage.kv.split_points import KeySample
from fluss.server.tablet.kv import kv_reads, kv_split
from tests.support.harness.event_loop import in_event_loop
from tests.support.harness.kv_tablet import KvTable
from tests.support.harness.tablet import TabletHarness
from tools.servers.messages import path

ROWS = [(number, "x" * 20, number) for number in range(1000)]


async def split(table: KvTable, *, piece_bytes: int = 1 << 40, piece_rows: int | None = None, bucket: int = 0) -> Any:
    request = range_pb.SplitKvRequest(table_id=table.table_id, piece_bytes=piece_bytes, piece_rows=piece_rows)
    request.buckets_req.add(bucket_id=bucket)
    (answer,) = (await table.tablet.call(ApiKey.SPLIT_KV, request)).buckets_resp
    return answer


async def scanned(table: KvTable, first_key: bytes | None, end_key: bytes | None, size: int = 1000) -> list[int]:
    """The ids in a range, in the order in which they are returned."""
    request = range_pb.ScanKvRangeRequest(batch_size_bytes=size, first_key=first_key, end_key=end_key)
    request.bucket_scan_req.table_id, request.bucket_scan_req.bucket_id = table.table_id, 0
    answer = await table.tablet.call(ApiKey.SCAN_KV_RANGE, request)
    found: list[int] = []
    sequence = 0
    reader = table.rules.format.reader
    while True:
        assert not answer.HasField("error_code"), answer
        if answer.HasField("records"):
            found += [reader.row(value)[0] for value in decode_value_batch(answer.records).to_pylist()]
        if not answer.has_more_results:
            return found
        sequence += 1
        following = pb.ScanKvRequest(scanner_id=answer.scanner_id, call_seq_id=sequence, batch_size_bytes=size)
        answer = await table.tablet.call(ApiKey.SCAN_KV, following)


@in_event_loop
async def test_ranges_have_every_row_once(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*ROWS)
        answer = await split(table, piece_rows=200)
        cuts = list(answer.first_keys)
        assert (len(cuts), answer.log_offset) == (4, 1000)
        assert cuts == sorted(cuts)
        pieces = [await scanned(table, *bounds) for bounds in zip([None, *cuts], [*cuts, None], strict=True)]
        assert [len(piece) for piece in pieces] == [200] * 5
        whole = await scanned(table, None, None)
        assert [number for piece in pieces for number in piece] == whole
        assert sorted(whole) == list(range(1000))
        assert await scanned(table, cuts[1], cuts[1]) == []
        assert await scanned(table, cuts[1], cuts[0]) == []
        assert not table.local.waiters


@in_event_loop
async def test_sizes(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        assert list((await split(table, piece_bytes=1)).first_keys) == []  # nothing is there
        await table.upsert(*ROWS)
        assert list((await split(table)).first_keys) == []
        stored = table.kv.store.stored_bytes
        assert len((await split(table, piece_bytes=stored // 4 + 1)).first_keys) == 3
        many = await split(table, piece_bytes=1)
        assert 900 < len(many.first_keys) < kv_split.MAX_RANGES
        for piece_bytes, piece_rows in ((0, None), (-1, None), (1, 0), (1, -1)):
            request = range_pb.SplitKvRequest(table_id=table.table_id, piece_bytes=piece_bytes, piece_rows=piece_rows)
            with pytest.raises(FlussError) as caught:
                await tablet.call(ApiKey.SPLIT_KV, request)
            assert caught.value.error_code == ErrorCode.INVALID_SCAN_REQUEST


@in_event_loop
async def test_a_sample_serves_until_a_quarter_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[KeySample] = []

    class Counted(KeySample):
        def __init__(self) -> None:
            super().__init__()
            taken.append(self)

    monkeypatch.setattr(kv_split, "KeySample", Counted)
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*ROWS)
        for _ in range(3):
            await split(table, piece_rows=100)
        await table.upsert(*((2000 + number, "", 0) for number in range(250)))
        await split(table, piece_rows=100)
        assert len(taken) == 1
        await table.upsert((5000, "", 0))
        await split(table, piece_rows=100)
        assert len(taken) == 2


@in_event_loop
async def test_large_stores_are_split_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_split, "SAMPLED_BYTES", 0)
    monkeypatch.setattr(kv_split, "split_points_of_files", lambda files, pieces: [b"\x81"] if files else None)
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*ROWS)
        assert len((await split(table, piece_rows=200)).first_keys) == 4  # there is no file yet
        table.kv.store.flush(wait=True)
        assert list((await split(table, piece_rows=200)).first_keys) == [b"\x81"]


@in_event_loop
async def test_buckets_that_cannot_be_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_reads, "STEP_ROWS", 10)
    monkeypatch.setattr(kv_split, "STEP_ROWS", 10)
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*ROWS)
        assert (await split(table, bucket=7)).error_code == ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION
        asked = asyncio.ensure_future(split(table, piece_rows=100))
        local = table.local
        for _ in range(10):
            if not local.waiters:
                await asyncio.sleep(0)
        assert local.waiters, "the keys are being looked at"
        request = pb.DropTableRequest(table_path=path("t"), ignore_if_not_exists=False)
        tablet.coordinator.call(ApiKey.DROP_TABLE, request)
        tablet.service.registry.follow_catalog()
        answer = await asked
        assert answer.error_code, "the table went away while its keys were looked at"
        assert not answer.first_keys
        assert not local.waiters


@in_event_loop
async def test_no_time_left_to_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert(*ROWS)
        monkeypatch.setattr(kv_split, "SAMPLING_SECONDS", 0.0)
        assert list((await split(table, piece_rows=200)).first_keys) == []
        monkeypatch.setattr(kv_split, "SAMPLING_SECONDS", 3.0)
        cuts = list((await split(table, piece_rows=200)).first_keys)
        assert len(cuts) == 4
        monkeypatch.setattr(kv_split, "SAMPLING_SECONDS", 0.0)
        assert list((await split(table, piece_rows=200)).first_keys) == cuts, "the sample is remembered"
