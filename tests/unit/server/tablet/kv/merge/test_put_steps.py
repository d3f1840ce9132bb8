"""Puts of many records are merged in parts and stored in steps, with the result of a put done at once."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from fluss.codec.crc import crc32c
from fluss.errors import ErrorCode
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.runtime import long_work
from fluss.server.storage.kv import limits
from fluss.server.tablet.kv import put
from fluss.server.tablet.kv.merge.put_steps import PartSizes
from tests.support.harness.kv_tablet import COLUMNS, HeldStore, KvTable, replayed
from tests.support.harness.tablet import TabletHarness
from tools.servers.messages import path
from tools.waiting import eventually

ENGINES: dict[str, dict[str, Any]] = {
    "last_row": {},
    "without old rows": {"table.changelog.image": "WAL"},
    "first_row": {"table.merge-engine": "first_row"},
    "versioned": {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "score"},
    "aggregation": {"table.merge-engine": "aggregation"},
}
PARTS = (1, 7, 100)


def _merge_at_once(monkeypatch: pytest.MonkeyPatch, records: int) -> None:
    for name in ("WHOLE_ROWS", "MERGED_ROWS"):
        monkeypatch.setattr(put, name, PartSizes(records, records))


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten records are many, and every step is a turn of its own."""
    _merge_at_once(monkeypatch, 10)
    monkeypatch.setattr(limits, "STORED_AT_ONCE_ROWS", 10)
    monkeypatch.setattr(limits, "SORTED_AT_ONCE_MAX_ROWS", 100)
    monkeypatch.setattr(limits, "WRITE_CHUNK_ROWS", 5)
    monkeypatch.setattr(long_work, "TIME_SLICE_SECONDS", 1e-9)


def rows(*keys: int, name: str = "a") -> list[tuple[str, tuple[Any, ...]]]:
    return [("put", (key, name, key)) for key in keys]


def puts(choice: random.Random, deletes: float) -> list[list[tuple[str, tuple[Any, ...]]]]:
    """Some batches, with keys that are repeated within a batch and in later ones."""
    return [
        [
            ("delete" if choice.random() < deletes else "put", (choice.randrange(40), f"{turn}.{place}", place % 5))
            for place in range(choice.choice((5, 70, 150)))
        ]
        for turn in range(6)
    ]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("targets", [(), (0, 2)], ids=["whole", "partial"])
def test_parts_give_the_same_result_as_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, targets: tuple[int, ...]
) -> None:
    if targets and engine in ("first_row", "versioned"):
        pytest.skip("these engines take no partial updates")
    choice = random.Random(5)
    batches = puts(choice, 0.0 if engine in ("first_row", "versioned", "aggregation") else 0.3)

    async def outcome(records_at_once: int) -> Any:
        _merge_at_once(monkeypatch, records_at_once)
        directory = tmp_path / str(records_at_once)
        directory.mkdir()
        async with TabletHarness(directory) as tablet:
            columns = [
                *COLUMNS[:2],
                {**COLUMNS[2], **({"agg_function": {"type": "sum"}} if engine == "aggregation" else {})},
            ]
            table = KvTable.create(tablet, columns=columns, properties=ENGINES[engine])
            answers = [table.send(table.batch(records), targets=targets) for records in batches]
            for answer in answers:
                assert not (await answer).buckets_resp[0].HasField("error_code")
            return await table.changelog(), table.state(), table.kv.row_count

    whole = asyncio.run(outcome(1_000))
    for records_at_once in PARTS:
        assert asyncio.run(outcome(records_at_once)) == whole


def test_others_are_served_between_the_steps(tmp_path: Path, small_steps: None) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((0, "a", 0))
            answer = asyncio.ensure_future(_settled(table.send(table.batch(rows(*range(200))))))
            rounds = 0
            while not answer.done():
                rounds += 1
                await asyncio.sleep(0)
            # Twenty parts to merge, forty steps to store.
            assert rounds >= 60
            assert len(table.rows()) == 200

    asyncio.run(scenario())


async def _until_between_states(table: KvTable) -> None:
    rounds = 0
    while not table.kv.is_between_states:
        rounds += 1
        await asyncio.sleep(0)


async def _settled(answer: Awaitable[Any]) -> Any:
    return await answer


def test_puts_of_the_bucket_keep_their_order_and_others_do_not_wait(tmp_path: Path, small_steps: None) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table, other = KvTable.create(tablet), KvTable.create(tablet, "other")
            await table.upsert((0, "z", 0))
            await other.upsert((0, "z", 0))
            done: list[str] = []

            async def note(name: str, answer: Awaitable[Any]) -> None:
                assert not (await answer).buckets_resp[0].HasField("error_code")
                done.append(name)

            large = table.send(table.batch(rows(*range(300), name="large"), writer_id=7, sequence=0))
            small = table.send(table.batch(rows(5, name="small"), writer_id=7, sequence=1))
            again = table.send(table.batch(rows(*range(300), name="large"), writer_id=7, sequence=0))
            beside = other.send(other.batch(rows(5, name="beside")))
            noted = [("large", large), ("small", small), ("again", again), ("beside", beside)]
            await asyncio.gather(*[note(name, answer) for name, answer in noted])
            assert done[0] == "beside"
            assert set(done[1:]) == {"large", "small", "again"}
            assert table.rows()[5] == (5, "small", 5)
            changes = await table.changelog()
            assert len(changes) == 1 + 299 + 2 + 2, "the repeated batch was not put again"
            assert replayed(changes, table.key) == table.state()

    asyncio.run(scenario())


def test_an_inserting_lookup_waits_for_the_put(tmp_path: Path, small_steps: None) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((0, "z", 0))
            large = table.send(table.batch(rows(*range(300))))
            request = pb.LookupRequest(table_id=table.table_id, insert_if_not_exists=True, acks=-1)
            request.buckets_req.add(bucket_id=0, keys=[table.key((299, "", 0)), table.key((999, "", 0))])
            await tablet.call(ApiKey.LOOKUP, request, api_version=1)
            await large
            changes = await table.changelog()
            assert [change.row for change in changes if change.row[0] == 299] == [(299, "a", 299)]
            assert replayed(changes, table.key) == table.state()
            assert (999, None, None) in table.rows()

    asyncio.run(scenario())


def test_a_put_fails_when_its_table_is_dropped(tmp_path: Path, small_steps: None) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((0, "z", 0))
            answer = table.send(table.batch(rows(*range(300))))
            behind = table.send(table.batch(rows(1)))
            await asyncio.sleep(0)
            tablet.coordinator.call(
                ApiKey.DROP_TABLE, pb.DropTableRequest(table_path=path("t"), ignore_if_not_exists=False)
            )
            tablet.service.registry.follow_catalog()
            for result in (await answer, await behind):
                code = result.buckets_resp[0].error_code
                assert code == ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION

    asyncio.run(scenario())


def test_a_put_fails_with_the_earlier_one_that_it_depends_on(tmp_path: Path, small_steps: None) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((0, "z", 0))
            answer = table.send(table.batch(rows(*range(300))))
            await asyncio.sleep(0)
            table.kv.failed_puts += 1  # as when the disk takes one that was under way no more
            result = (await answer).buckets_resp[0]
            assert result.error_code == ErrorCode.KV_STORAGE_EXCEPTION
            assert "earlier put" in result.error_message
            assert table.rows() == [(0, "z", 0)]
            assert not (await table.put(*rows(*range(300)))).HasField("error_code")

    asyncio.run(scenario())


def test_a_damaged_record_in_a_later_part_changes_nothing(tmp_path: Path, small_steps: None) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((0, "z", 0))
            batch = bytearray(table.batch(rows(*range(50))))
            batch[-1] |= 0x80  # the number of the last row goes on behind its end
            repair_checksum(batch)
            result = (await table.send(bytes(batch))).buckets_resp[0]
            assert result.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
            assert table.rows() == [(0, "z", 0)]
            assert len(await table.changelog()) == 1

    asyncio.run(scenario())


def repair_checksum(batch: bytearray) -> None:
    """Set the correct checksum."""
    batch[5:9] = crc32c(batch, 9, len(batch)).to_bytes(4, "little")


def test_rows_are_shown_when_all_are_stored(tmp_path: Path, small_steps: None, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((0, "z", 0))
            held = HeldStore(monkeypatch)
            large = asyncio.ensure_future(_settled(table.send(table.batch(rows(*range(100))))))
            await _until_between_states(table)
            small = asyncio.ensure_future(_settled(table.send(table.batch(rows(1, name="later")))))
            request = pb.ScanKvRequest(call_seq_id=0, batch_size_bytes=1 << 20)
            request.bucket_scan_req.CopyFrom(pb.PbScanReqForBucket(table_id=table.table_id, bucket_id=0))
            scan = asyncio.ensure_future(tablet.call(ApiKey.SCAN_KV, request))
            log = table.kv.log
            await eventually(lambda: log.held is not None and log.held.append_count == 2, "both are held")
            assert log.high_watermark == 1
            assert not any(waiting.done() for waiting in (large, small, scan))
            assert table.kv.applied_offset == 1
            held.may_go_on = True
            for answer in (await large, await small):
                assert not answer.buckets_resp[0].HasField("error_code")
            assert (await scan).log_offset in (log.log_end_offset - 2, log.log_end_offset)
            assert table.kv.applied_offset == log.high_watermark == log.log_end_offset
            assert table.rows()[1] == (1, "later", 1)

    asyncio.run(scenario())


def test_a_stop_stores_what_is_held(tmp_path: Path, small_steps: None) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable.create(tablet)
            await table.upsert((0, "z", 0))
            answer = asyncio.ensure_future(_settled(table.send(table.batch(rows(*range(500))))))
            await _until_between_states(table)
        assert not (await answer).buckets_resp[0].HasField("error_code")
        async with TabletHarness(tmp_path) as tablet:
            table = KvTable(tablet, table.table_id)
            await table.upsert((0, "again", 0))
            assert len(table.rows()) == 500
            assert replayed(await table.changelog(), table.key) == table.state()
            assert table.kv.row_count == 500

    asyncio.run(scenario())


def test_a_crash_between_two_steps_loses_nothing(tmp_path: Path, small_steps: None) -> None:
    crashed = tmp_path / "crashed"

    async def scenario() -> None:
        directory = tmp_path / "data"
        directory.mkdir()
        async with TabletHarness(directory) as tablet:
            table = KvTable.create(tablet)
            await table.put(*rows(*range(0, 500, 3), name="old"))
            answer = table.send(table.batch([*rows(*range(500)), *[("delete", (key, "", 0)) for key in range(50)]]))
            await _until_between_states(table)
            table.kv.store.flush(wait=True)  # the first rows are in files, the note is not
            shutil.copytree(directory, crashed)
            await answer
            whole = table.state(), table.kv.row_count, await table.changelog()
        async with TabletHarness(crashed) as tablet:
            table = KvTable(tablet, table.table_id)
            assert await table.changelog() == whole[2]
            assert (table.state(), table.kv.row_count) == whole[:2]

    asyncio.run(scenario())
