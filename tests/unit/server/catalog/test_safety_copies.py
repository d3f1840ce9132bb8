"""Copies of the catalog: made while it is in use, when something has changed, and bounded in number."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fluss.server.catalog import Catalog, CatalogStore
from fluss.server.catalog.database_file import FORMAT_VERSION, LATER_TABLE_NAMES
from fluss.server.catalog.offline_catalog import read_offline_catalog
from fluss.server.catalog.safety_copies import (
    COPIES_LIMIT,
    COPY_INTERVAL_SECONDS,
    UNFINISHED_SECONDS,
    SafetyCopies,
    copy_before_upgrade,
    list_copies,
    make_copy,
)
from tests.support.storage.catalog_files import check_consistent, path_of, plain_table


@pytest.fixture
def store(tmp_path: Path) -> CatalogStore:
    store = CatalogStore(tmp_path / "catalog.sqlite")
    store.create_first_database("fluss", 1)
    return store


def test_a_copy_has_everything_up_to_its_moment(tmp_path: Path, store: CatalogStore) -> None:
    store.create_table(path_of("a"), plain_table(), 1)
    copy = make_copy(tmp_path)
    store.create_table(path_of("b"), plain_table(), 1)
    assert not list(tmp_path.glob("*.tmp*"))
    catalog = read_offline_catalog(copy)
    assert catalog is not None
    assert set(catalog.tables) == {0}
    moved = tmp_path / "moved.sqlite"
    copy.rename(moved)
    assert [str(entry.path) for entry in check_consistent(moved).tables()] == ["fluss.a"]


def test_copies_are_made_when_something_changed_and_time_has_passed(tmp_path: Path, store: CatalogStore) -> None:
    async def body() -> None:
        copies, now = SafetyCopies(tmp_path, store.file), time.time()
        await copies.copy_if_due(now)
        assert list_copies(tmp_path) == []  # there is nothing to lose yet
        store.create_table(path_of("a"), plain_table(), 1)
        await copies.copy_if_due(now)
        assert len(list_copies(tmp_path)) == 1
        store.create_table(path_of("b"), plain_table(), 1)
        await copies.copy_if_due(now + 1)
        assert len(list_copies(tmp_path)) == 1  # too soon
        await copies.copy_if_due(now + COPY_INTERVAL_SECONDS + 10)
        assert len(list_copies(tmp_path)) == 2
        _make_older(list_copies(tmp_path)[0])
        await copies.copy_if_due(now)
        assert len(list_copies(tmp_path)) == 2  # nothing has changed since

    asyncio.run(body())


def _make_older(path: Path) -> None:
    os.utime(path, (time.time() - 2 * COPY_INTERVAL_SECONDS,) * 2)


def test_only_the_newest_copies_are_kept(tmp_path: Path, store: CatalogStore) -> None:
    upgrade = make_copy(tmp_path, before_upgrade=True)
    made = [make_copy(tmp_path) for _ in range(COPIES_LIMIT + 2)]
    assert list_copies(tmp_path) == [*made[::-1][:COPIES_LIMIT], upgrade]


def test_copies_can_be_made_at_the_same_time(tmp_path: Path, store: CatalogStore) -> None:
    """One removed the unfinished file of the other, which failed with a "disk I/O error"."""
    for number in range(20):
        store.create_table(path_of(f"t{number}"), plain_table(), 1)
    with ThreadPoolExecutor(4) as threads:
        for copy in threads.map(make_copy, [tmp_path] * 40):
            assert copy.suffix == ".sqlite"
    assert len(list_copies(tmp_path)) == COPIES_LIMIT
    assert not list(tmp_path.glob("*.tmp*"))


def test_an_unfinished_copy_is_removed_when_it_is_old(tmp_path: Path, store: CatalogStore) -> None:
    names = ["catalog.copy.tmp", "catalog.copy-1-2.tmp", "catalog.copy-1-2.tmp-journal", "catalog.copy-3-4.tmp"]
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.write_bytes(b"half a copy")
    for path in paths[:3]:
        os.utime(path, (time.time() - UNFINISHED_SECONDS - 10,) * 2)
    make_copy(tmp_path)
    assert [path.exists() for path in paths] == [False, False, False, True]


def test_a_copy_made_while_the_clock_was_ahead_does_not_stay_the_newest(tmp_path: Path, store: CatalogStore) -> None:
    """A repair used that copy, and every second of changes made another copy."""

    async def body() -> None:
        ahead = make_copy(tmp_path).rename(tmp_path / "catalog.copy-20990101T000000.000000Z.sqlite")
        os.utime(ahead, (time.time() + 10_000_000,) * 2)
        copies, now = SafetyCopies(tmp_path, store.file), time.time()
        for number in range(5):
            store.create_table(path_of(f"t{number}"), plain_table(), 1)
            await copies.copy_if_due(now + number)
        assert len(list_copies(tmp_path)) == 2
        stored = read_offline_catalog(list_copies(tmp_path)[0])
        assert stored is not None
        assert set(stored.tables) == {0}
        for _ in range(COPIES_LIMIT):
            make_copy(tmp_path)
        assert not ahead.exists()

    asyncio.run(body())


def test_a_copy_before_an_upgrade(tmp_path: Path, store: CatalogStore) -> None:
    store.create_table(path_of("a"), plain_table(), 1)
    copy_before_upgrade(tmp_path, LATER_TABLE_NAMES, FORMAT_VERSION)
    assert list_copies(tmp_path) == []  # it has the current format
    store.file.connection.execute("DROP TABLE drops")
    store.close()
    copy_before_upgrade(tmp_path, LATER_TABLE_NAMES, FORMAT_VERSION)
    (copy,) = list_copies(tmp_path)
    stored = read_offline_catalog(copy)
    assert stored is not None
    assert set(stored.tables) == {0}
    store = CatalogStore(tmp_path / "catalog.sqlite")
    assert len(list(Catalog(store).tables())) == 1
    copy_before_upgrade(tmp_path, LATER_TABLE_NAMES, FORMAT_VERSION)
    assert list_copies(tmp_path) == [copy]


def test_without_space_no_copy_is_made_and_one_line_is_logged(
    tmp_path: Path, store: CatalogStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.create_table(path_of("a"), plain_table(), 1)
    monkeypatch.setattr("fluss.server.storage.files.FileSystem.free_bytes", lambda self, path: 1000)

    async def body() -> None:
        copies = SafetyCopies(tmp_path, store.file)
        with caplog.at_level(logging.WARNING):
            await copies.copy_if_due(time.time())
            await copies.copy_if_due(time.time())

    asyncio.run(body())
    assert list_copies(tmp_path) == []
    assert len(caplog.records) == 1
