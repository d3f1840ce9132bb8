"""Stores that are restored from snapshots, changelogs that expire behind snapshots, and replays."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import Awaitable, Callable
from glob import glob
from pathlib import Path
from typing import Any

import pytest

from fluss.server.tablet.buckets.local_bucket import BROKEN_RETRY_MS, BucketState
from tests.recovery.test_full_disk import disk, fill
from tests.support.harness.kv_tablet import KvTable
from tests.support.harness.tablet import TabletHarness
from tests.support.storage.snapshot_files import SNAPSHOTS_ON, needed_files, registered, remote_files
from tools.waiting import eventually

__all__ = ["disk"]
ROWS = 200
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _info_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fluss")


def _run(directory: Path, body: Callable[[TabletHarness, KvTable], Awaitable[Any]], **overrides: Any) -> Any:
    """Run a body on table 0, which is created if it is missing, with its bucket open."""
    directory.mkdir(exist_ok=True)

    async def main() -> Any:
        async with TabletHarness(directory, **{**SNAPSHOTS_ON, **overrides}) as tablet:
            exists = tablet.coordinator.catalog.table_by_id(0) is not None
            table = KvTable(tablet, 0) if exists else KvTable.create(tablet, properties={"table.log.ttl": "1h"})
            await table.put()
            return await body(tablet, table)

    return asyncio.run(main())


def _bucket(directory: Path, kind: str) -> Path:
    (found,) = directory.glob(f"data/*/*/{kind}-0")
    return found


async def _write(table: KvTable, number: int) -> None:
    await table.upsert(*[(key, "text" * 5, number) for key in range(ROWS)])


async def _two_snapshots_and_a_tail(tablet: TabletHarness, table: KvTable) -> list[Any]:
    for number in range(2):
        await _write(table, number)
        await tablet.service.snapshots.round(at_once=True)
    await table.put(("delete", (5, None, None)), ("put", (1000, "tail", 1)))
    return table.rows()


async def _rows(tablet: TabletHarness, table: KvTable) -> list[Any]:
    assert table.kv.row_count == len(table.rows())
    return table.rows()


def _replayed(caplog: pytest.LogCaptureFixture) -> list[tuple[int, int]]:
    """The number of rows and the first offset of every replay since the log was cleared."""
    found = [re.search(r"replayed (\d+) changelog rows from offset (\d+)", line) for line in caplog.messages]
    return [(int(match[1]), int(match[2])) for match in found if match]


def _damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def test_after_a_crash_only_the_tail_is_replayed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    crashed = tmp_path / "crashed"

    async def body(tablet: TabletHarness, table: KvTable) -> list[Any]:
        for number in range(5):
            await _write(table, number)
        table.kv.store.flush(wait=True)
        await table.upsert((1, "tail", 1), (2, "tail", 2))
        await asyncio.to_thread(shutil.copytree, tmp_path / "live", crashed)
        return table.rows()

    expected = _run(tmp_path / "live", body)
    caplog.clear()
    assert _run(crashed, _rows) == expected
    # An update is two rows of the changelog; the empty put that opened the bucket has an offset too.
    assert _replayed(caplog) == [(4, 1 + ROWS + 4 * 2 * ROWS)]


@pytest.mark.parametrize("lost", ["db", "all", "damaged", "in the middle of a restore"])
def test_a_store_is_restored_and_only_the_tail_replayed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    expected = _run(tmp_path, _two_snapshots_and_a_tail)
    directory = _bucket(tmp_path, "kv")
    if lost == "damaged":
        (directory / "db.is-damaged").touch()
    else:
        shutil.rmtree(directory if lost == "all" else directory / "db")
    if lost == "in the middle of a restore":
        (directory / "db.restored").mkdir()
        (directory / "db.restored" / "CURRENT").write_text("half a file")
    caplog.clear()
    assert _run(tmp_path, _rows) == expected
    assert _replayed(caplog) == [(2, 1 + 3 * ROWS)]
    assert sorted(path.name for path in directory.iterdir()) == ["db", *["db.damaged"] * (lost == "damaged")]


def test_a_damaged_snapshot_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body(tablet: TabletHarness, table: KvTable) -> tuple[list[Any], list[set[str]]]:
        rows = await _two_snapshots_and_a_tail(tablet, table)
        return rows, [{file.path for file in snapshot.files} for snapshot in registered(tablet, table)]

    expected, (newest, older) = _run(tmp_path, body)
    _damage(Path(min(newest - older)))
    shutil.rmtree(_bucket(tmp_path, "kv"))
    caplog.clear()
    assert _run(tmp_path, _rows) == expected
    assert "differs from the uploaded file" in caplog.text
    assert _replayed(caplog) == [(2 * ROWS + 2, 1 + ROWS)]

    for name in older:
        Path(name).unlink()
    shutil.rmtree(_bucket(tmp_path, "kv"))
    caplog.clear()
    assert _run(tmp_path, _rows) == expected, "the changelog has everything"
    assert _replayed(caplog) == [(3 * ROWS + 2, 0)]


def test_changelogs_expire_only_behind_snapshots(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body(tablet: TabletHarness, table: KvTable) -> list[Any]:
        log, _ = table.local.opened()
        await _write(table, 0)
        tablet.coordinator.now_ms += 2 * HOUR_MS
        await tablet.service.maintenance.retention_round()
        assert log.local_start_offset == 0, "without a snapshot everything is needed"
        await tablet.service.snapshots.round(at_once=True)
        for number in range(1, 4):
            await _write(table, number)
        tablet.coordinator.now_ms += 2 * HOUR_MS
        await tablet.service.maintenance.retention_round()
        (snapshot,) = registered(tablet, table)
        assert 0 < log.local_start_offset <= snapshot.log_offset == 1 + ROWS
        for number in range(4, 6):
            await _write(table, number)
            await tablet.service.snapshots.round(at_once=True)
        tablet.coordinator.now_ms += 2 * HOUR_MS
        await tablet.service.maintenance.retention_round()
        oldest = registered(tablet, table)[-1]
        assert 1 + ROWS < log.local_start_offset <= oldest.log_offset < log.log_end_offset
        await table.put(("delete", (5, None, None)))
        return table.rows()

    small: dict[str, Any] = {"log_segment_file_size": 2000}
    expected = _run(tmp_path, body, **small)
    for _ in range(2):
        shutil.rmtree(_bucket(tmp_path, "kv"))
        caplog.clear()
        assert _run(tmp_path, _rows, **small) == expected
        assert [rows for rows, _ in _replayed(caplog)] == [1]


def test_a_bucket_waits_for_its_snapshots(tmp_path: Path) -> None:
    """The changelog begins after offset 0, the store is lost, and remote storage is unreachable: the bucket waits."""

    async def first(tablet: TabletHarness, table: KvTable) -> list[Any]:
        for number in range(3):
            await _write(table, number)
        await tablet.service.snapshots.round(at_once=True)
        tablet.coordinator.now_ms += 2 * HOUR_MS
        await tablet.service.maintenance.retention_round()
        return table.rows()

    small: dict[str, Any] = {"log_segment_file_size": 2000}
    expected = _run(tmp_path, first, **small)
    shutil.rmtree(_bucket(tmp_path, "kv"))
    remote, away = tmp_path / "remote", tmp_path / "away"
    remote.rename(away)

    async def second() -> None:
        async with TabletHarness(tmp_path, **SNAPSHOTS_ON, **small) as tablet:
            table = KvTable(tablet, 0)
            answer = await table.put()
            assert answer.error_code == 26
            assert "no snapshot is available" in answer.error_message
            await asyncio.to_thread(away.rename, remote)
            tablet.coordinator.now_ms += BROKEN_RETRY_MS
            assert not (await table.put()).HasField("error_code")
            assert table.rows() == expected

    asyncio.run(second())


def test_a_changelog_in_remote_storage(tmp_path: Path) -> None:
    """Uploaded segments are deleted locally, up to the offset of the snapshot."""

    async def body(tablet: TabletHarness, table: KvTable) -> None:
        log, remote = table.local.opened()
        for number in range(4):
            await _write(table, number)
        await eventually(lambda: all(segment.is_indexed for segment in log.sealed_segments()), "complete indexes")
        for _ in range(3):
            await tablet.service.maintenance.remote_round()
        assert remote.manifest.end_offset > 0
        assert log.local_start_offset == 0
        await tablet.service.snapshots.round(at_once=True)
        await table.upsert((1, "tail", 1))
        await tablet.service.maintenance.remote_round()
        (snapshot,) = registered(tablet, table)
        assert 0 < log.local_start_offset <= snapshot.log_offset
        answer = await tablet.fetch(table.table_id, 1)
        assert answer.remote_log_fetch_info.remote_log_segments

    _run(tmp_path, body, log_segment_file_size=2000, values={"remote.data.dir": "given"})


@pytest.mark.parametrize("fault", ["is a file", "is away"])
def test_failures_of_remote_storage_do_not_affect_writers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    remote = tmp_path / "remote"

    async def body(tablet: TabletHarness, table: KvTable) -> None:
        await _write(table, 0)
        await tablet.service.snapshots.round(at_once=True)
        before = registered(tablet, table)
        await asyncio.to_thread(_break, remote, fault)
        for number in range(1, 4):
            await _write(table, number)
            await tablet.service.snapshots.round(at_once=True)
        assert registered(tablet, table) == before
        lines = [line for line in caplog.messages if "failed and will be retried" in line]
        assert len(lines) == 1
        assert lines[0].startswith("snapshot of bucket 0 of fluss.t failed")
        await asyncio.to_thread(_repair, remote)
        await tablet.service.snapshots.round(at_once=True)
        newest, older = registered(tablet, table)
        assert [older] == before
        assert newest.log_offset == 1 + 7 * ROWS
        assert await asyncio.to_thread(remote_files, remote) == needed_files([newest, older])

    _run(tmp_path, body)


def test_a_full_remote_disk_does_not_affect_writers(
    tmp_path: Path, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(tablet: TabletHarness, table: KvTable) -> None:
        await _write(table, 0)
        await tablet.service.snapshots.round(at_once=True)
        before = registered(tablet, table)
        await asyncio.to_thread(fill, disk / "filler")
        await _write(table, 1)
        await tablet.service.snapshots.round(at_once=True)
        assert registered(tablet, table) == before
        (line,) = [line for line in caplog.messages if "failed and will be retried" in line]
        assert "No space left" in line
        (disk / "filler").unlink()
        await tablet.service.snapshots.round(at_once=True)
        kept = registered(tablet, table)
        assert [snapshot.log_offset for snapshot in kept] == [1 + 3 * ROWS, 1 + ROWS]
        assert await asyncio.to_thread(remote_files, disk) == needed_files(kept)

    _run(tmp_path / "server", body, remote_data_dir=str(disk))


def _break(remote: Path, fault: str) -> None:
    remote.rename(remote.with_name("saved"))
    remote.write_text("not a directory")
    if fault == "is away":
        remote.unlink()
        remote.symlink_to("/proc/1/nowhere")


def _repair(remote: Path) -> None:
    remote.unlink()
    remote.with_name("saved").rename(remote)


def test_snapshots_ahead_of_a_changelog_that_lost_its_end_are_removed(tmp_path: Path) -> None:
    """Power was lost and the disk had not synced: neither the store nor a snapshot may bring lost rows back."""

    async def first(tablet: TabletHarness, table: KvTable) -> list[Any]:
        await _write(table, 0)
        await tablet.service.snapshots.round(at_once=True)
        return table.rows()

    async def second(tablet: TabletHarness, table: KvTable) -> None:
        await table.upsert((1, "lost", 1))
        await tablet.service.snapshots.round(at_once=True)
        assert len(registered(tablet, table)) == 2

    async def third(tablet: TabletHarness, table: KvTable) -> list[Any]:
        await tablet.service.snapshots.round()
        assert [snapshot.snapshot_id for snapshot in registered(tablet, table)] == [0]
        return table.rows()

    expected = _run(tmp_path, first)
    saved = tmp_path / "saved"
    shutil.copytree(_bucket(tmp_path, "log"), saved)
    _run(tmp_path, second)
    log = _bucket(tmp_path, "log")
    shutil.rmtree(log)
    shutil.copytree(saved, log)
    assert _run(tmp_path, third) == expected


def test_a_drop_during_an_upload_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(tablet: TabletHarness, table: KvTable) -> None:
        await _write(table, 0)
        snapshots = table.local.snapshots
        assert snapshots is not None
        upload = snapshots._upload

        def slow(*arguments: Any) -> int:
            result = upload(*arguments)
            asyncio.run_coroutine_threadsafe(_drop(tablet), loop).result()
            return result

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(snapshots, "_upload", slow)
        await tablet.service.snapshots.round(at_once=True)
        # Not with Path.glob, which fails when a directory goes while it looks.
        await eventually(lambda: not glob(f"{tmp_path}/remote/kv/*/*"), "nothing is left in remote storage")
        await eventually(lambda: not glob(f"{tmp_path}/data/*/*"), "nothing is left on disk")

    _run(tmp_path, body)


async def _drop(tablet: TabletHarness) -> None:
    store = tablet.coordinator.catalog.store
    entry = tablet.coordinator.catalog.table_by_id(0)
    if entry is not None:
        store.drop_table(entry.path)
        tablet.coordinator.catalog.refresh()
        local = next(iter(tablet.service.registry._buckets.values()))
        tablet.service.registry.follow_catalog()
        assert local.state is BucketState.GONE
