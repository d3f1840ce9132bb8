"""Crashes at every step of a snapshot: no wrong snapshot is offered, and the next start leaves no file behind.

There is a crash point before each operation on remote storage, the record, the catalog and the checkpoint; from the
chosen point on, every operation fails. The files are in memory if the system has a place for that: power loss is tested
elsewhere, and this test syncs thousands of times.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fluss.server.tablet.snapshot_rounds as rounds
from fluss.server.catalog.kv_snapshot_records import KvSnapshotRecords
from fluss.server.storage.kv.checkpoint import checkpoint_directory
from fluss.server.storage.remote_store import RemoteStore
from fluss.server.tablet.kv_snapshots.bucket_snapshots import BucketSnapshots
from tests.support.harness.kv_tablet import KvTable
from tests.support.harness.tablet import TabletHarness
from tests.support.storage.snapshot_files import SNAPSHOTS_ON, needed_files, registered, remote_files, snapshot_items

MEMORY = Path("/dev/shm")
OPTIONS = {**SNAPSHOTS_ON, "kv_snapshot_num_retained": 1}
STEPS = (
    (RemoteStore, "upload"),
    (RemoteStore, "write"),
    (RemoteStore, "delete"),
    (BucketSnapshots, "_commit"),
    (KvSnapshotRecords, "register"),
    (rounds, "finish_checkpoint"),
    (rounds, "remove_checkpoint"),
)
SNAPSHOTS = 2
OFFSETS = {50: 1, 149: 2}
"""How often the rows were changed before an offset: 50 inserts, then each time 49 updates and an insert."""


class Power:
    """Fails after a number of crash points."""

    def __init__(self, points: int) -> None:
        self.left = points
        self.passed = 0

    def point(self) -> None:
        """Count a crash point; raise if it is the chosen one or a later one."""
        if self.left <= 0:
            raise OSError("the power is off")
        self.left -= 1
        self.passed += 1

    def wrapped(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """A step with a crash point before it."""

        def run(*arguments: Any) -> Any:
            self.point()
            return step(*arguments)

        return run


def _version(number: int) -> list[tuple[int, str, int]]:
    return [(key, f"version {number}", number) for key in range(number, number + 50)]


async def _until_power_fails(directory: Path, power: Power) -> int:
    """Take snapshots of changing rows; returns how often the rows were changed."""
    async with TabletHarness(directory, **OPTIONS) as tablet:
        table = KvTable.create(tablet)
        for number in range(SNAPSHOTS):
            await table.upsert(*_version(number))
            await tablet.service.snapshots.round(at_once=True)
            if power.left <= 0:
                return number + 1
    return SNAPSHOTS


async def _check(directory: Path, versions: int) -> None:
    """Check that each registered snapshot is complete, and that the next one leaves no other files."""
    expected = {row[0]: row for number in range(versions) for row in _version(number)}
    async with TabletHarness(directory, **OPTIONS) as tablet:
        table = KvTable(tablet, 0)
        await table.put()
        assert table.rows() == list(expected.values())
        for snapshot in registered(tablet, table):
            items = await asyncio.to_thread(snapshot_items, snapshot, directory / "copy")
            reached = {row[0]: row for number in range(OFFSETS[snapshot.log_offset]) for row in _version(number)}
            assert [tuple(table.rules.format.reader.row(value)) for value in items.values()] == list(reached.values())
        await tablet.service.snapshots.round()  # the first visit cleans up
        kept = registered(tablet, table)
        assert await asyncio.to_thread(remote_files, directory / "remote") == needed_files(kept)
        assert not checkpoint_directory(table.kv.store.directory).exists()
        await tablet.service.snapshots.round(at_once=True)
        (newest,) = registered(tablet, table)
        assert newest.log_offset == table.kv.applied_offset
        assert await asyncio.to_thread(snapshot_items, newest, directory / "copy") == dict(table.kv.store.scan())
        assert await asyncio.to_thread(remote_files, directory / "remote") == needed_files([newest])


def _powered_runs(directory: Path) -> int:
    """One run for each crash point; returns how many there are."""
    points = 0
    while True:
        power = Power(points)
        place = directory / str(points)
        place.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in STEPS:
                patch.setattr(owner, name, power.wrapped(getattr(owner, name)))
            versions = asyncio.run(_until_power_fails(place, power))
        asyncio.run(_check(place, versions))
        shutil.rmtree(place)
        if power.left > 0:
            return points
        points += 1


def test_a_crash_at_every_step() -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="fluss-faults-") as directory:
        assert _powered_runs(Path(directory)) > 20, "the power failed at every point of two snapshots"
