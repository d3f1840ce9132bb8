"""A catalog of the lake that was restored from an older copy: files of the snapshots that it lacks are not removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fluss.lake.maintenance.options import DAY_MS
from fluss.lake.maintenance.service import maintain_if_due, wall_clock_ms
from fluss.lake.tables.iceberg.tables import IcebergFormat
from tests.lake.tables.test_readers import check_all_see
from tests.support.lake.maintenance import Registry, maintenance_of
from tests.support.lake.tables import PEOPLE, TABLE_ID, LakeTableWriter, local_lake, made, people, spec_of


def later() -> int:
    return wall_clock_ms() + 2 * DAY_MS


def catalog_files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*.sqlite*") if path.is_file()]


class Restorable:
    """A lake with one table, and a copy of its catalog from before the newest two rounds."""

    def __init__(self, directory: Path) -> None:
        self.lake = local_lake(directory / "data")
        self.writer = made(self.lake, spec_of(PEOPLE))
        self._rounds(0, 2)
        self.lake.close()
        copy = directory / "copy"
        copy.mkdir()
        originals = {copy / path.name: path for path in catalog_files(directory / "data")}
        assert originals
        for place, original in originals.items():
            shutil.copy2(original, place)
        self._reopen(directory)
        self.newest_id = self._rounds(2, 4)
        self.files = [each.path.removeprefix("file://") for each in self.writer.table.plan_files()]
        self.lake.close()
        self._newest = {original: original.read_bytes() for original in originals.values()}
        for place, original in originals.items():
            shutil.copy2(place, original)
        self._directory = directory
        self._reopen(directory)

    def _reopen(self, directory: Path) -> None:
        self.lake = local_lake(directory / "data")
        self.writer = LakeTableWriter(self.lake, self.writer.spec)

    def _rounds(self, first: int, end: int) -> int:
        for number in range(first, end):
            self.writer.commit(self.writer.write(people(number, 1), start=number))
            self.writer.table = self.writer.table.refreshed()
        snapshot_id = self.writer.table.snapshot_id
        assert snapshot_id is not None
        return snapshot_id

    def restore_newest(self) -> IcebergFormat:
        """Put the newest catalog back."""
        self.lake.close()
        for path, content in self._newest.items():
            path.write_bytes(content)
        self._reopen(self._directory)
        return self.lake

    def all_files_exist(self) -> bool:
        return all(map(os.path.exists, self.files))


@pytest.fixture
def old(tmp_path: Path) -> Restorable:
    old = Restorable(tmp_path)
    assert len(old.writer.table.plan_files()) == 2
    assert len(old.files) == 4
    return old


def registry_with(snapshot_id: int) -> Registry:
    registry = Registry()
    registry.registered.append(snapshot_id)
    return registry


@pytest.mark.parametrize("registry_of", [registry_with, lambda _: Registry()], ids=["registered", "unregistered"])
def test_nothing_of_newer_snapshots_is_removed(old: Restorable, registry_of: Callable[[int], Registry]) -> None:
    registry = registry_of(old.newest_id)
    report = maintain_if_due(old.writer.table, TABLE_ID, {}, registry=registry, clock_ms=later)
    assert old.all_files_exist()
    assert report.orphans is None
    lake = old.restore_newest()
    check_all_see(lake, old.writer, people(0, 4))
    old.lake.close()


def test_an_older_state_is_neither_compacted_nor_registered(old: Restorable) -> None:
    registry = registry_with(old.newest_id)
    properties = {"maintenance.compaction.min-files": "2"}
    old.writer.table.set_properties(properties)
    report = maintain_if_due(old.writer.table, TABLE_ID, {}, registry=registry, clock_ms=later)
    assert registry.registered == [old.newest_id]
    assert f"does not have snapshot {old.newest_id}" in report.errors[0]
    assert report.compaction is None
    assert old.all_files_exist()
    old.lake.close()


def test_a_person_may_remove_them(old: Restorable) -> None:
    jobs = maintenance_of(old.writer, days_later=2)
    plan = jobs.plan_orphans()
    known = {each.path.removeprefix("file://") for each in old.writer.table.plan_files()}
    assert {path.removeprefix("file://") for path in plan.files} >= set(old.files) - known
    assert jobs.remove_orphans(plan).file_count == len(plan.files)
    assert not old.all_files_exist()
    old.lake.close()
