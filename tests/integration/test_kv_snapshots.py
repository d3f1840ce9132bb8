"""Snapshots of primary-key tables: what they contain, what is uploaded, kept and deleted, and how they are found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fluss.codec.batches.kv_batch import encode_kv_batch
from fluss.codec.keys.encoding import encode_key
from fluss.codec.rows.compacted import encode_compacted_row
from fluss.model.paths import TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.runtime.handlers import ProduceRequest
from fluss.server.tablet.buckets.kv_rules import KvRules
from tests.support.harness.kv_tablet import KvTable
from tests.support.harness.tablet import TabletHarness
from tests.support.storage.snapshot_files import (
    SNAPSHOTS_ON,
    database_items,
    lease,
    needed_files,
    read_metadata,
    registered,
    remote_files,
    sizes_on_disk,
    snapshot_items,
)
from tools.servers.messages import create_partition, drop_partition, path
from tools.waiting import eventually

Body = Callable[[TabletHarness, KvTable], Awaitable[None]]


def _run(directory: Path, body: Body, **overrides: Any) -> None:
    async def main() -> None:
        async with TabletHarness(directory, **{**SNAPSHOTS_ON, **overrides}) as tablet:
            await body(tablet, KvTable.create(tablet))

    asyncio.run(main())


def _remote(tablet: TabletHarness) -> Path:
    return tablet.directory / "remote"


async def _snapshot(tablet: TabletHarness) -> None:
    await tablet.service.snapshots.round(at_once=True)


def test_a_snapshot_is_the_rows_of_one_moment(tmp_path: Path) -> None:
    async def body(tablet: TabletHarness, table: KvTable) -> None:
        await table.upsert(*[(number, "x", number) for number in range(100)])
        await table.put(("delete", (7, None, None)), ("put", (8, "eight", 8)))
        expected = dict(table.kv.store.scan())
        await _snapshot(tablet)
        await table.upsert((8, "later", 9), (1000, "later", 0))
        (snapshot,) = registered(tablet, table)
        assert snapshot.log_offset == 103
        assert snapshot.row_count == 99
        assert snapshot_items(snapshot, tmp_path / "copy") == expected
        assert b"" not in expected

        document = read_metadata(snapshot.metadata_path)
        assert list(document) == [
            "version", "table_id", "bucket_id", "snapshot_id", "snapshot_location", "kv_snapshot_handle", "log_offset",
            "row_count",
        ]  # fmt: skip
        location = f"{_remote(tablet)}/kv/fluss/t-{table.table_id}/0/snap-0"
        assert document["snapshot_location"] == location
        handles = document["kv_snapshot_handle"]
        shared, private = handles["shared_file_handles"], handles["private_file_handles"]
        assert all(item["local_path"].endswith(".sst") for item in shared)
        assert {item["local_path"].partition("-")[0] for item in private} == {"CURRENT", "MANIFEST", "OPTIONS"}
        assert all(Path(item["kv_file_handle"]["path"]).parent.name == "shared" for item in shared)
        assert all(item["kv_file_handle"]["path"].startswith(location + "/") for item in private)
        sizes = [item["kv_file_handle"]["size"] for item in shared + private]
        assert sizes == sizes_on_disk([item["kv_file_handle"]["path"] for item in shared + private])
        assert handles["snapshot_incremental_size"] == sum(sizes)

    _run(tmp_path, body)


def test_only_new_files_are_uploaded_and_superseded_ones_deleted(tmp_path: Path) -> None:
    async def body(tablet: TabletHarness, table: KvTable) -> None:
        await table.upsert(*[(number, "x" * 100, number) for number in range(3000)])
        await _snapshot(tablet)
        (first,) = registered(tablet, table)
        for number in range(2):  # not so often that files are compacted
            await table.upsert((number, "changed", number))
            await _snapshot(tablet)
            newest, older = registered(tablet, table)
            assert newest.snapshot_id == older.snapshot_id + 1 == number + 1
            assert remote_files(_remote(tablet)) == needed_files([newest, older])
            assert newest.uploaded_bytes < first.uploaded_bytes / 2
            assert newest.shared[0] == first.shared[0], "the large file is there once"
        assert snapshot_items(newest, tmp_path / "copy") == dict(table.kv.store.scan())

        await _snapshot(tablet)
        assert registered(tablet, table) == [newest, older], "nothing was written since"
        assert not list(table.kv.store.directory.parent.glob("checkpoint"))

    _run(tmp_path, body)


@pytest.mark.parametrize("removed", [["kv-0/db"], ["log-0/kv-snapshots"], ["kv-0/db", "log-0/kv-snapshots"]])
def test_files_of_another_store_are_not_taken_for_uploaded_ones(tmp_path: Path, removed: list[str]) -> None:
    """A store that was created again numbers its files from the beginning again."""

    async def first_body(tablet: TabletHarness, table: KvTable) -> None:
        await table.upsert(*[(number, "x" * 50, number) for number in range(200)])
        await _snapshot(tablet)

    async def second_body() -> None:
        async with TabletHarness(tmp_path, **SNAPSHOTS_ON) as tablet:
            table = KvTable(tablet, 0)
            (first,) = registered(tablet, table)
            await table.upsert((1, "new", 1))
            await _snapshot(tablet)
            newest, older = registered(tablet, table)
            assert older == first
            assert {file.path for file in newest.files}.isdisjoint({file.path for file in first.files})
            assert snapshot_items(newest, tmp_path / "copy") == dict(table.kv.store.scan())
            assert remote_files(_remote(tablet)) == needed_files([newest, older])

    _run(tmp_path, first_body)
    for kind in removed:
        (found,) = tmp_path.glob(f"data/*/*/{kind}")
        found.rename(tmp_path / found.name)
    asyncio.run(second_body())


def test_leased_snapshots_stay(tmp_path: Path) -> None:
    async def body(tablet: TabletHarness, table: KvTable) -> None:
        for number in range(2):
            await table.upsert((number, "x", number))
            await _snapshot(tablet)
        rows_of_first = snapshot_items(registered(tablet, table)[1], tmp_path / "copy")
        assert not lease(tablet, "reader", table, 0).unavailable_snapshots
        (missing,) = lease(tablet, "other", table, 77).unavailable_snapshots
        assert [(item.bucket_id, item.snapshot_id) for item in missing.bucket_snapshots] == [(0, 77)]
        for number in range(3):
            await table.upsert((number, "y", number))
            await _snapshot(tablet)
        assert [snapshot.snapshot_id for snapshot in registered(tablet, table)] == [4, 3, 0]
        assert snapshot_items(registered(tablet, table)[2], tmp_path / "copy") == rows_of_first
        listed = tablet.coordinator.call(
            ApiKey.LIST_KV_SNAPSHOTS, pb.ListKvSnapshotsRequest(table_id=table.table_id)
        ).active_snapshots
        assert [(item.bucket_id, item.snapshot_id) for item in listed] == [(0, 0), (0, 3), (0, 4)]

        tablet.coordinator.now_ms += 1001
        await _snapshot(tablet)  # nothing was written, but the lease is over
        kept = registered(tablet, table)
        assert [snapshot.snapshot_id for snapshot in kept] == [4, 3]
        assert remote_files(_remote(tablet)) == needed_files(kept)

    _run(tmp_path, body)


def test_what_readers_are_told(tmp_path: Path) -> None:
    async def body(tablet: TabletHarness, table: KvTable) -> None:
        request = pb.GetLatestKvSnapshotsRequest(table_path=path("t"))
        (bucket,) = tablet.coordinator.call(ApiKey.GET_LATEST_KV_SNAPSHOTS, request).latest_snapshots
        assert not bucket.HasField("snapshot_id")
        assert not bucket.HasField("log_offset")
        await table.upsert((1, "x", 1), (2, "y", 2))
        await _snapshot(tablet)
        await table.upsert((1, "later", 1))
        for tablet_answers in (False, True):
            answer = tablet.coordinator.call(ApiKey.GET_LATEST_KV_SNAPSHOTS, request, tablet=tablet_answers)
            (bucket,) = answer.latest_snapshots
            assert (bucket.snapshot_id, bucket.log_offset) == (0, 2)
        wanted = pb.GetKvSnapshotMetadataRequest(table_id=table.table_id, bucket_id=0, snapshot_id=bucket.snapshot_id)
        metadata = tablet.coordinator.call(ApiKey.GET_KV_SNAPSHOT_METADATA, wanted, tablet=True)
        assert metadata.log_offset == 2
        files = {file.local_file_name: file.remote_path for file in metadata.snapshot_files}
        values = database_items(files, tmp_path / "copy").values()
        assert [table.rules.format.reader.row(value) for value in values] == [[1, "x", 1], [2, "y", 2]]
        wanted.snapshot_id = 5
        tablet.coordinator.refuses(41, ApiKey.GET_KV_SNAPSHOT_METADATA, wanted)

    _run(tmp_path, body)


def test_a_dropped_table_takes_its_snapshots_along(tmp_path: Path) -> None:
    async def body(tablet: TabletHarness, table: KvTable) -> None:
        await table.upsert((1, "x", 1))
        await _snapshot(tablet)
        lease(tablet, "reader", table, 0)
        assert remote_files(_remote(tablet))
        request = pb.DropTableRequest(table_path=path("t"), ignore_if_not_exists=False)
        tablet.coordinator.call(ApiKey.DROP_TABLE, request)
        tablet.service.registry.follow_catalog()
        await eventually(lambda: not (_remote(tablet) / "kv").exists(), "snapshots are gone")
        assert registered(tablet, table) == []

    _run(tmp_path, body)


def test_a_table_that_was_dropped_while_its_tablet_was_down(tmp_path: Path) -> None:
    async def first(tablet: TabletHarness, table: KvTable) -> None:
        await table.upsert((1, "x", 1))
        await _snapshot(tablet)
        tablet.coordinator.catalog.store.drop_table(TablePath("fluss", "t"))

    async def second() -> None:
        async with TabletHarness(tmp_path, **SNAPSHOTS_ON) as tablet:
            assert remote_files(_remote(tablet))
            await tablet.service.registry.remove_dropped_files()
            assert not remote_files(_remote(tablet))

    _run(tmp_path, first)
    asyncio.run(second())


def test_a_catalog_that_is_older_than_the_bucket_deletes_no_snapshots(tmp_path: Path) -> None:
    """It does not have the newest snapshots, which says nothing about them: their objects stay."""

    async def first(tablet: TabletHarness, table: KvTable) -> None:
        await table.upsert((1, "x", 1))
        await _snapshot(tablet)
        tablet.coordinator.catalog.store.file.connection.execute("DELETE FROM kv_snapshots")

    async def second() -> None:
        async with TabletHarness(tmp_path, **SNAPSHOTS_ON) as tablet:
            before = remote_files(_remote(tablet))
            assert before
            await tablet.service.registry.open_existing()
            await eventually(lambda: list(tablet.service.registry.open_buckets()), "the bucket is open")
            await _snapshot(tablet)
            await _snapshot(tablet)
            assert before < remote_files(_remote(tablet))

    _run(tmp_path, first)
    asyncio.run(second())


def test_a_snapshot_is_never_ahead_of_the_disk(tmp_path: Path) -> None:
    """Rows that a power loss may still take from the changelog are brought to the disk first."""

    async def body(tablet: TabletHarness, table: KvTable) -> None:
        await table.upsert((1, "x", 1))
        log, _ = table.local.opened()
        assert log.durable_offset == 0
        await _snapshot(tablet)
        (snapshot,) = registered(tablet, table)
        assert snapshot.log_offset == log.durable_offset == 1

    _run(tmp_path, body, log_flush="os")


COLUMNS = (
    {"name": "id", "data_type": {"type": "INTEGER", "nullable": False}},
    {"name": "day", "data_type": {"type": "STRING", "nullable": False}},
)


def test_partitions(tmp_path: Path) -> None:
    async def main() -> None:
        async with TabletHarness(tmp_path, **SNAPSHOTS_ON) as tablet:
            table_id = tablet.create_table(
                "p", columns=COLUMNS, primary_key=["id", "day"], partition_key=["day"], bucket_count=2
            )
            coordinator = tablet.coordinator
            for day in ("a", "b"):
                coordinator.call(ApiKey.CREATE_PARTITION, create_partition("p", day=day))
            tablet.service.registry.follow_catalog()
            entry = tablet.service.registry.table(table_id)
            assert entry is not None
            partitions = {name: entry.partitions[name].partition_id for name in ("a", "b")}
            await _put_partition(tablet, table_id, partitions["a"])
            await _put_partition(tablet, table_id, partitions["b"])
            await _snapshot(tablet)
            latest = pb.GetLatestKvSnapshotsRequest(table_path=path("p"), partition_name="b")
            answer = coordinator.call(ApiKey.GET_LATEST_KV_SNAPSHOTS, latest)
            assert answer.partition_id == partitions["b"]
            assert [(item.bucket_id, item.HasField("snapshot_id")) for item in answer.latest_snapshots] == [
                (0, True), (1, False),
            ]  # fmt: skip
            wanted = pb.GetKvSnapshotMetadataRequest(
                table_id=table_id, partition_id=partitions["b"], bucket_id=0, snapshot_id=0
            )
            files = coordinator.call(ApiKey.GET_KV_SNAPSHOT_METADATA, wanted).snapshot_files
            assert all(f"/kv/fluss/p-{table_id}/b-p{partitions['b']}/0/" in file.remote_path for file in files)
            coordinator.call(ApiKey.DROP_PARTITION, drop_partition("p", day="b"))
            tablet.service.registry.follow_catalog()
            await eventually(lambda: not any(Path(file.remote_path).exists() for file in files), "its files are gone")
            coordinator.refuses(41, ApiKey.GET_KV_SNAPSHOT_METADATA, wanted)
            assert remote_files(_remote(tablet)), "those of the other partition stay"

    asyncio.run(main())


async def _put_partition(tablet: TabletHarness, table_id: int, partition_id: int) -> None:
    """One row into bucket 0 of a partition."""
    entry = tablet.service.registry.table(table_id)
    assert entry is not None
    table_format = KvRules(entry).format
    types = table_format.schema.data_types
    key = encode_key([1], types[:1], table_format.key_encoding)
    batch = encode_kv_batch([key], [encode_compacted_row([1, "a"], types)], 1)
    message = pb.PutKvRequest(acks=-1, table_id=table_id, timeout_ms=10_000)
    message.buckets_req.add(partition_id=partition_id, bucket_id=0, records=b"")
    request = ProduceRequest(message, [memoryview(bytearray(batch))], lambda: None)
    (answer,) = (await tablet.begin(ApiKey.PUT_KV, request, api_version=2)).buckets_resp
    assert not answer.HasField("error_code"), answer


@pytest.mark.parametrize("values", [{}, {"remote.data.dir": "x"}])
def test_snapshots_need_a_word_in_the_configuration(tmp_path: Path, values: dict[str, str]) -> None:
    async def body(tablet: TabletHarness, table: KvTable) -> None:
        await table.upsert((1, "x", 1))
        await _snapshot(tablet)
        assert len(registered(tablet, table)) == len(values)

    _run(tmp_path, body, values=values)
