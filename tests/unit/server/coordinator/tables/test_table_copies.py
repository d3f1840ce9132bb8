"""Copies of the catalog's contents: written when a change is answered, and never ahead of the catalog on disk."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from fluss.model.descriptor import DatabaseDescriptor
from fluss.model.paths import TablePath
from fluss.server.catalog import CatalogStore
from fluss.server.catalog.database_file import COMMITS_COUNTER
from fluss.server.catalog.mark import DATABASES_LIMIT_CHARACTERS, databases_for_mark, read_mark
from fluss.server.catalog.offline_catalog import OfflineCatalog, read_offline_catalog
from fluss.server.coordinator.tables.table_copies import TableCopies
from fluss.server.runtime import time_slices
from fluss.server.storage.directory.table_directories import DROPPED_MARKER_NAME
from fluss.server.storage.directory.table_record import RECORD_FILE_NAME, read_record
from fluss.server.storage.files import FileSystem
from tests.support.storage.catalog_files import path_of, plain_table

PATH = path_of("t")


class Disk(FileSystem):
    """Records the catalog on disk at each moment when a copy got its name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.catalogs: list[OfflineCatalog] = []

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        copy = self._directory / "disk"
        copy.mkdir(exist_ok=True)
        for name in ("catalog.sqlite", "catalog.sqlite-wal"):
            shutil.copy(self._directory / name, copy / name)
        stored = read_offline_catalog(copy / "catalog.sqlite")
        assert stored is not None
        self.catalogs.append(stored)


@pytest.fixture
def store(tmp_path: Path) -> CatalogStore:
    store = CatalogStore(tmp_path / "catalog.sqlite")
    store.create_first_database("fluss", 1)
    return store


def test_every_change_of_a_table_is_copied(tmp_path: Path, store: CatalogStore) -> None:
    TableCopies(tmp_path, store).start()
    table_id = store.create_table(PATH, plain_table(partitioned=True), 5)
    directory = tmp_path / "data" / "fluss" / f"t-{table_id}"
    changes = []

    def record() -> tuple[int, set[int], set[str]]:
        found = read_record(directory)
        assert found is not None
        assert (found.name, found.table_id, found.catalog_id) == ("fluss.t", table_id, store.catalog_id)
        assert found.change == store.file.counter("change")
        changes.append(found.change)
        return found.schema_id, set(found.schemas), set(found.partitions.values())

    assert record() == (1, {1}, set())
    store.create_partitions(PATH, table_id, ["a", "b"])
    assert record() == (1, {1}, {"a", "b"})
    store.drop_partitions(PATH, table_id, ["a"])
    assert record() == (1, {1}, {"b"})
    store.add_schema(PATH, table_id, plain_table(partitioned=True, extra_columns=1))
    assert record() == (2, {1, 2}, {"b"})
    store.alter_table(PATH, table_id, plain_table(partitioned=True, extra_columns=1), 9)
    record()
    assert changes == sorted(set(changes))


def test_the_mark_is_never_ahead_of_the_disk(tmp_path: Path, store: CatalogStore) -> None:
    disk = Disk(tmp_path)
    copies = TableCopies(tmp_path, store, disk)
    copies.start()
    for number in range(5):
        store.create_table(path_of(f"t{number}"), plain_table(), 5)
        copies.close()
        mark = read_mark(tmp_path)
        assert mark is not None
        assert mark.is_original
        assert mark.ahead_of(disk.catalogs[-1].counters) == []
        assert mark.counters["table_id"] == number + 1
    assert len(disk.catalogs) == 6 + 5, "marks and records"
    shutil.copy(tmp_path / "catalog.mark", tmp_path / "disk")
    copied = read_mark(tmp_path / "disk")
    assert copied is not None
    assert not copied.is_original


def test_missing_and_damaged_records_are_written_at_the_start(tmp_path: Path, store: CatalogStore) -> None:
    TableCopies(tmp_path, store).start()
    for name in ("a", "b", "c"):
        store.create_table(TablePath("fluss", name), plain_table(), 5)
    data = tmp_path / "data" / "fluss"
    (data / "a-0" / RECORD_FILE_NAME).unlink()
    content = (data / "b-1" / RECORD_FILE_NAME).read_bytes()
    (data / "b-1" / RECORD_FILE_NAME).write_bytes(content.replace(b'"t', b'"s').replace(b'"b"', b'"x"'))
    untouched = (data / "c-2" / RECORD_FILE_NAME).stat().st_ino
    assert read_record(data / "b-1") is None
    TableCopies(tmp_path, store).start()
    assert [read_record(data / name) is not None for name in ("a-0", "b-1")] == [True, True]
    assert (data / "c-2" / RECORD_FILE_NAME).stat().st_ino == untouched


def test_a_failed_copy_is_retried(tmp_path: Path, store: CatalogStore) -> None:
    copies = TableCopies(tmp_path, store)
    copies.start()
    (tmp_path / "data").write_text("in the way")
    table_id = store.create_table(PATH, plain_table(), 5)
    (tmp_path / "data").unlink()
    store.create_table(path_of("other"), plain_table(), 5)
    assert read_record(tmp_path / "data" / "fluss" / f"t-{table_id}") is not None


def test_the_mark_has_the_databases_and_a_limit(tmp_path: Path, store: CatalogStore) -> None:
    copies = TableCopies(tmp_path, store)
    copies.start()
    store.create_database("shop", DatabaseDescriptor(comment="what we sell"), 1)
    copies.close()
    mark = read_mark(tmp_path)
    assert mark is not None
    assert set(mark.databases) == {"fluss", "shop"}
    assert "what we sell" in str(mark.databases["shop"])
    large = "x" * (DATABASES_LIMIT_CHARACTERS - 2)
    assert databases_for_mark({"a": large, "b": "y"}) == {"a": None, "b": "y"}
    many = databases_for_mark({f"{number:0100}": "z" for number in range(10_000)})
    assert len(many) == DATABASES_LIMIT_CHARACTERS // 100
    assert sum(len(name) + len(text or "") for name, text in many.items()) <= DATABASES_LIMIT_CHARACTERS


def test_marks_of_moving_cursors_read_no_databases(tmp_path: Path, store: CatalogStore) -> None:
    """The mark is written every second while they move; descriptors of databases may have half a megabyte each."""
    copies = TableCopies(tmp_path, store)
    seen: list[str] = []
    copies.start()
    store.create_database("shop", DatabaseDescriptor(comment="what we sell"), 1)
    copies.close()
    store.file.connection.set_trace_callback(seen.append)
    for number in range(3):
        store.producer_offsets.put(f"cursor-{number}", "[]", 10, 1)
        copies.close()
        mark = read_mark(tmp_path)
        assert mark is not None
        assert mark.ahead_of({name: store.file.counter(name) for name in mark.counters}) == []
        assert mark.counters[COMMITS_COUNTER] == store.file.counter(COMMITS_COUNTER)
        assert set(mark.databases) == {"fluss", "shop"}
    assert [text for text in seen if "FROM databases" in text] == []
    store.drop_database("shop", cascade=False)
    copies.close()
    mark = read_mark(tmp_path)
    assert mark is not None
    assert set(mark.databases) == {"fluss"}


def test_all_tables_of_a_database_are_copied_in_time_slices(
    tmp_path: Path, store: CatalogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of them took two seconds, in which the coordinator answered no other request."""
    monkeypatch.setattr(time_slices, "TIME_SLICE_SECONDS", 0.0)
    copies = TableCopies(tmp_path, store)
    copies.start()
    for number in range(20):
        store.create_table(path_of(f"t{number}"), plain_table(), 5)
    directories = [tmp_path / "data" / "fluss" / f"t{number}-{number}" for number in range(20)]

    def comments() -> int:
        records = [read_record(directory) for directory in directories]
        return sum(record is not None and "later" in record.database_descriptor for record in records)

    async def sync() -> int:
        """Return how often other tasks could run."""
        count = 0
        task = asyncio.ensure_future(copies.sync())
        while not task.done():
            await asyncio.sleep(0)
            count += 1
        return count

    store.alter_database("fluss", DatabaseDescriptor(comment="later"), 6)
    assert comments() == 0
    assert asyncio.run(sync()) >= 20
    assert comments() == 20
    store.drop_database("fluss", cascade=True)
    assert not any((directory / DROPPED_MARKER_NAME).exists() for directory in directories)
    assert asyncio.run(sync()) >= 20
    assert all((directory / DROPPED_MARKER_NAME).exists() for directory in directories)
