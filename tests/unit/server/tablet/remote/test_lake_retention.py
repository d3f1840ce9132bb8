"""Retention with a lake: nothing that the lake lacks expires, and expired partitions end cleanly."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.catalog.lake_records import LakeSnapshotEntry, merged_document
from fluss.server.runtime.handlers import ProduceRequest
from fluss.server.tablet.remote.manifest import record_from_json, record_to_json
from tests.support.harness.tablet import HeldFiles, TabletHarness
from tests.support.servers.log_cluster import COLUMNS, arrow_batch, ids_of
from tools.servers.messages import alter_properties, create_partition, table_document, text_column
from tools.waiting import eventually

LAKE = {"table.datalake.enabled": "true", "table.log.ttl": "1 min"}
MINUTE_MS = 60_000


def tiered(tablet: TabletHarness, bucket: TableBucket, end_offset: int) -> None:
    """The lake has the bucket up to there."""
    document = merged_document(bucket.table_id, {}, {bucket: end_offset})
    entry = LakeSnapshotEntry(end_offset, "file", None, document, None, 0)
    assert tablet.coordinator.catalog.store.lake.register(bucket.table_id, entry, None) is not None


async def write(tablet: TabletHarness, table: int, count: int) -> None:
    for number in range(count):
        answer = await tablet.produce(table, arrow_batch([number]))
        assert not answer.buckets_resp[0].HasField("error_code"), answer


def start_offset(tablet: TabletHarness, table: int) -> int:
    log, _ = tablet.service.registry.find(TableBucket(table, None, 0)).opened()
    return log.local_start_offset


def test_local_segments_wait_for_the_lake(tmp_path: Path) -> None:
    async def run() -> None:
        async with TabletHarness(tmp_path, log_segment_file_size=1) as tablet:
            table = tablet.create_table("t", properties=LAKE)
            bucket = TableBucket(table, None, 0)
            await write(tablet, table, 5)
            tablet.coordinator.now_ms += 2 * MINUTE_MS
            await tablet.service.maintenance.retention_round()
            assert start_offset(tablet, table) == 0
            tiered(tablet, bucket, 3)
            await tablet.service.maintenance.retention_round()
            await eventually(lambda: start_offset(tablet, table) == 3, "what the lake has goes")
            await tablet.service.maintenance.retention_round()
            assert start_offset(tablet, table) == 3
            disabled: dict[str, str | None] = {"table.datalake.enabled": "false"}
            tablet.coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", disabled))
            tablet.service.registry.follow_catalog()
            await tablet.service.maintenance.retention_round()
            await eventually(lambda: start_offset(tablet, table) == 4, "without a lake all sealed segments go")

    asyncio.run(run())


def test_a_clock_that_was_ahead_does_not_stop_retention(tmp_path: Path) -> None:
    """Timestamps of batches never decrease: for batches from the future, the times of files are used."""
    ten_years_ms = 10 * 365 * 24 * 60 * MINUTE_MS

    async def run() -> None:
        async with TabletHarness(tmp_path, log_segment_file_size=1) as tablet:
            table = tablet.create_table("t", properties={"table.log.ttl": "1 min"})
            now_ms = tablet.coordinator.now_ms
            tablet.coordinator.now_ms += ten_years_ms
            await write(tablet, table, 3)
            log, _ = tablet.service.registry.find(TableBucket(table, None, 0)).opened()
            tablet.coordinator.now_ms = now_ms
            await write(tablet, table, 2)
            assert log.newest_timestamp >= now_ms + ten_years_ms
            for segment in log.segments:
                written = now_ms - 2 * MINUTE_MS if segment.base_offset < 3 else now_ms
                os.utime(segment.log_path, (written / 1000, written / 1000))
            await tablet.service.maintenance.retention_round()
            await eventually(lambda: start_offset(tablet, table) == 3, "old files go")
            await tablet.service.maintenance.retention_round()
            assert start_offset(tablet, table) == 3

    asyncio.run(run())


@pytest.mark.parametrize("is_noted", [True, False], ids=["noted", "of an earlier version"])
def test_a_clock_that_was_ahead_does_not_stop_remote_retention(
    tmp_path: Path, is_noted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A segment keeps its times in remote storage; what earlier versions uploaded is as old as its upload."""
    values = {"remote.data.dir": str(tmp_path / "remote")}

    async def run() -> None:
        async with TabletHarness(tmp_path, log_segment_file_size=1, values=values) as tablet:
            table = tablet.create_table("t", properties={"table.log.ttl": "1 min"})
            now_ms = tablet.coordinator.now_ms
            tablet.coordinator.now_ms += 10 * 365 * 24 * 60 * MINUTE_MS
            await write(tablet, table, 4)
            tablet.coordinator.now_ms = now_ms
            log, remote = tablet.service.registry.find(TableBucket(table, None, 0)).opened()
            await eventually(lambda: all(segment.is_indexed for segment in log.sealed_segments()), "complete indexes")
            times = [segment.max_timestamp for segment in log.sealed_segments()]
            for segment in log.sealed_segments():
                written = now_ms - 2 * MINUTE_MS if segment.base_offset < 2 else now_ms
                os.utime(segment.path, (written / 1000, written / 1000))
            await tablet.service.maintenance.remote_round()
            before = remote.record
            assert [segment.start_offset for segment in before.manifest.segments] == [2]
            assert [segment.max_timestamp for segment in before.manifest.segments] == times[2:]
            assert record_from_json(record_to_json(before)) == before
            assert "have timestamps in the future" in caplog.text
            if not is_noted:
                bare = [replace(segment, written_ms=None) for segment in before.manifest.segments]
                remote.record = replace(before, manifest=replace(before.manifest, segments=tuple(bare)))
                for copy in (tmp_path / "data").rglob("remote-log/*.index"):
                    os.utime(copy, (now_ms / 1000, now_ms / 1000))
            tablet.coordinator.now_ms += MINUTE_MS // 2
            await tablet.service.maintenance.remote_round()
            assert len(remote.manifest.segments) == 1
            tablet.coordinator.now_ms += MINUTE_MS
            await tablet.service.maintenance.remote_round()
            assert len(remote.manifest.segments) == 0

    asyncio.run(run())


def test_remote_segments_wait_for_the_lake(tmp_path: Path) -> None:
    values = {"remote.data.dir": str(tmp_path / "remote")}

    async def run() -> None:
        async with TabletHarness(tmp_path, log_segment_file_size=1, values=values) as tablet:
            table = tablet.create_table("t", properties=LAKE)
            bucket = TableBucket(table, None, 0)
            await write(tablet, table, 5)
            log, remote = tablet.service.registry.find(bucket).opened()
            await eventually(lambda: all(segment.is_indexed for segment in log.sealed_segments()), "complete indexes")
            await tablet.service.maintenance.remote_round()
            assert [segment.start_offset for segment in remote.manifest.segments] == [0, 1, 2, 3]
            await eventually(lambda: start_offset(tablet, table) == 3, "local copies of uploaded segments go")
            tablet.coordinator.now_ms += 2 * MINUTE_MS
            await tablet.service.maintenance.remote_round()
            assert len(remote.manifest.segments) == 4, "too old, but in no lake"
            tiered(tablet, bucket, 2)
            await tablet.service.maintenance.remote_round()
            assert [segment.start_offset for segment in remote.manifest.segments] == [2, 3]

    asyncio.run(run())


PARTITIONED = table_document(
    [COLUMNS[0], text_column("d")], partition_key=["d"], bucket_count=1, properties={"table.datalake.enabled": "true"}
)


def produce(tablet: TabletHarness, table: int, records: bytes) -> Awaitable[Any]:
    message = pb.ProduceLogRequest(acks=-1, table_id=table, timeout_ms=10_000)
    message.buckets_req.add(bucket_id=0, partition_id=0, records=b"")
    views = [memoryview(bytearray(records))]
    return tablet.begin(ApiKey.PRODUCE_LOG, ProduceRequest(message, views, lambda: None))


def test_a_closing_partition_accepts_no_rows_and_its_end_is_recorded_when_all_is_on_disk(tmp_path: Path) -> None:
    async def run() -> None:
        files = HeldFiles()
        async with TabletHarness(tmp_path, files=files) as tablet:
            tablet.coordinator.create_table("t", PARTITIONED)
            tablet.coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", d="x"))
            table = int(tablet.coordinator.table_info("t").table_id)
            assert not (await produce(tablet, table, arrow_batch([1, 2]))).buckets_resp[0].HasField("error_code")
            files.syncs.clear()
            on_its_way = produce(tablet, table, arrow_batch([3]))
            await asyncio.sleep(0)
            closing = tablet.coordinator.catalog.store.closing
            closing.close([0], 1)
            refused = (await produce(tablet, table, arrow_batch([4]))).buckets_resp[0]
            assert (refused.error_code, "has expired" in refused.error_message) == (36, True)
            maintenance = tablet.service.maintenance
            await maintenance._follow_catalog()
            assert closing.ends(0) == {}, "a row is not on disk yet"
            files.let_go()
            assert not (await on_its_way).buckets_resp[0].HasField("error_code")
            await maintenance._follow_catalog()
            assert closing.ends(0) == {0: 3}
            request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1 << 20)
            wanted = request.tables_req.add(table_id=table, projection_pushdown_enabled=False)
            wanted.buckets_req.add(partition_id=0, bucket_id=0, fetch_offset=0, max_fetch_bytes=1 << 20)
            answer = await tablet.call(ApiKey.FETCH_LOG, request)
            assert ids_of(answer.tables_resp[0].buckets_resp[0].records) == [1, 2, 3]
            closing.reopen([0])
            assert not (await produce(tablet, table, arrow_batch([5]))).buckets_resp[0].HasField("error_code")

    asyncio.run(run())
