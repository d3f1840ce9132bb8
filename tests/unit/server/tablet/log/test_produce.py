"""Acknowledgement, order, buffers and back-pressure of writes, on a disk that the test controls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fluss.errors import ErrorCode
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.tablet.buckets import write_requests
from tests.support.harness.tablet import HeldFiles, TabletHarness
from tests.support.servers.log_cluster import arrow_batch, ids_of
from tests.support.storage.faulty_files import FaultyFiles
from tools.servers.messages import path
from tools.waiting import eventually


def results(answer: Any) -> list[tuple[int, int]]:
    """(error code, base offset) per bucket."""
    return [(item.error_code, item.base_offset if item.HasField("base_offset") else -9) for item in answer.buckets_resp]


def test_acks_all_waits_for_the_disk_and_readers_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = HeldFiles()
        async with TabletHarness(tmp_path, files=files) as tablet:
            table = tablet.create_table("t")
            assert results(await tablet.produce(table, arrow_batch([0]))) == [(0, 0)]
            files.syncs.clear()
            written = tablet.produce(table, arrow_batch([1]), acks=1)
            durable = tablet.produce(table, arrow_batch([2]))
            assert results(await written) == [(0, 1)]
            assert not asyncio.ensure_future(durable).done()
            found = await tablet.fetch(table)
            assert ids_of(found.records) == [0]
            assert found.high_watermark == 1
            files.let_go()
            assert results(await durable) == [(0, 2)]
            await eventually(lambda: tablet.releases == 3, "all buffers are given back")
            assert ids_of((await tablet.fetch(table)).records) == [0, 1, 2]

    asyncio.run(scenario())


def test_a_timeout_is_a_result_of_the_bucket_and_the_data_stays(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = HeldFiles()
        async with TabletHarness(tmp_path, files=files) as tablet:
            table = tablet.create_table("t")
            await tablet.produce(table, arrow_batch([0]))
            files.syncs.clear()
            answer = await tablet.produce(table, arrow_batch([1]), timeout_ms=30)
            assert results(answer) == [(ErrorCode.REQUEST_TIME_OUT, -9)]
            assert "30 ms" in answer.buckets_resp[0].error_message
            files.let_go()
            found = await tablet.fetch(table, 1, min_bytes=1, max_wait_ms=5000)
            assert ids_of(found.records) == [1]

    asyncio.run(scenario())


def test_a_bucket_that_is_being_opened_keeps_order_and_blocks_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = HeldFiles()
        async with TabletHarness(tmp_path, files=files) as tablet:
            other = tablet.create_table("other")
            await tablet.produce(other, arrow_batch([0]))
            table = tablet.create_table("t")
            files.listings.clear()
            waiting = [
                tablet.produce(table, arrow_batch([number], writer_id=5, batch_sequence=number)) for number in range(4)
            ]
            fetching = asyncio.ensure_future(tablet.fetch(table, 0, min_bytes=1, max_wait_ms=5000))
            assert results(await tablet.produce(other, arrow_batch([1]))) == [(0, 1)]
            assert not any(asyncio.ensure_future(item).done() for item in waiting)
            files.let_go()
            assert [results(await item) for item in waiting] == [[(0, number)] for number in range(4)]
            assert ids_of((await fetching).records)[0] == 0

    asyncio.run(scenario())


def test_a_drop_while_opening_and_while_writing(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = HeldFiles()
        async with TabletHarness(tmp_path, files=files) as tablet:
            table = tablet.create_table("t")
            files.listings.clear()
            waiting = tablet.produce(table, arrow_batch([0]))
            drop(tablet, "t")
            tablet.service.registry.follow_catalog()
            assert results(await waiting) == [(21, -9)]
            assert tablet.releases == 1
            files.let_go()
            directory = tmp_path / "data" / "fluss"
            await eventually(lambda: not list(directory.glob("t-*")), "the directory is gone")
            again = tablet.create_table("t")
            await tablet.produce(again, arrow_batch([0]))
            files.syncs.clear()
            under_way = tablet.produce(again, arrow_batch([1]))
            drop(tablet, "t")
            tablet.service.registry.follow_catalog()
            assert results(await tablet.produce(again, arrow_batch([2]))) == [(21, -9)]
            files.let_go()
            assert results(await under_way)[0][0] in (0, 21)
            await eventually(lambda: not list(directory.glob("t-*")), "the directory is gone")
            await eventually(lambda: tablet.releases == 4, "all buffers are given back")

    asyncio.run(scenario())


def drop(tablet: TabletHarness, name: str) -> None:
    request = pb.DropTableRequest(table_path=path(name), ignore_if_not_exists=False)
    tablet.coordinator.call(ApiKey.DROP_TABLE, request)


def test_a_full_disk_is_code_70_and_temporary(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FaultyFiles(tmp_path)
        async with TabletHarness(tmp_path, files=files) as tablet:
            table = tablet.create_table("t")
            await tablet.produce(table, arrow_batch([0]))
            files.free_space_bytes = 0
            answer = await tablet.produce(table, arrow_batch([1]))
            assert answer.buckets_resp[0].error_code == ErrorCode.DISK_WRITE_LOCKED
            assert ids_of((await tablet.fetch(table)).records) == [0]
            files.free_space_bytes = None
            assert results(await tablet.produce(table, arrow_batch([2]))) == [(0, 1)]
            assert ids_of((await tablet.fetch(table)).records) == [0, 2]
            assert tablet.releases == 3

    asyncio.run(scenario())


def test_a_failed_sync_stops_the_bucket_with_26_and_others_continue(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = FaultyFiles(tmp_path)
        async with TabletHarness(tmp_path, files=files) as tablet:
            table, other = tablet.create_table("t"), tablet.create_table("other")
            await tablet.produce(table, arrow_batch([0]))
            await tablet.produce(other, arrow_batch([0]))
            files.failing_syncs.add(f"t-{table}/")
            assert results(await tablet.produce(table, arrow_batch([1]))) == [(26, -9)]
            files.failing_syncs.clear()
            assert results(await tablet.produce(table, arrow_batch([2]))) == [(26, -9)]
            assert ids_of((await tablet.fetch(table)).records) == [0]
            assert results(await tablet.produce(other, arrow_batch([1]))) == [(0, 1)]

    asyncio.run(scenario())


def test_writes_wait_in_order_while_the_commit_thread_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        files = HeldFiles()
        async with TabletHarness(tmp_path, files=files) as tablet:
            table = tablet.create_table("t")
            await tablet.produce(table, arrow_batch([0]))
            batch = arrow_batch([1], padding=2000)
            committer = tablet.service.committer
            monkeypatch.setattr(committer, "max_queued_bytes", 3 * len(batch))
            # Three fit the queue, nine wait for room, one more is too much.
            monkeypatch.setattr(write_requests, "MAX_DEFERRED_BYTES", 9 * len(batch) + 100)
            files.syncs.clear()
            await tablet.produce(table, arrow_batch([0]), acks=1)
            waiting = [tablet.produce(table, arrow_batch([number], padding=2000)) for number in range(12)]
            refused = tablet.produce(table, batch)
            assert committer.queued_bytes < 6 * len(batch)
            files.let_go()
            offsets = [results(await item)[0] for item in waiting]
            assert offsets == [(0, number + 2) for number in range(12)]
            assert results(await refused) == [(ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION, -9)]
            await eventually(lambda: tablet.releases == 15, "all buffers are given back")

    asyncio.run(scenario())


def test_a_request_without_buckets_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = tablet.create_table("t")
            assert results(await tablet.produce(table)) == []
            assert tablet.releases == 1

    asyncio.run(scenario())


def test_buckets_of_other_tablets_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path, tablets=2) as tablet:
            table = tablet.create_table("t", bucket_count=2)
            codes = [code for code, _ in results(await tablet.produce(table, arrow_batch([0]), arrow_batch([1])))]
            assert sorted(codes) == [0, 12]
            assert (await tablet.fetch(table, bucket=codes.index(12))).error_code == 12

    asyncio.run(scenario())
