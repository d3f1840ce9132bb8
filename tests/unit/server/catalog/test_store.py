"""Every change of the metadata: effect, ids, errors, all or nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import DatabaseDescriptor
from fluss.model.paths import TableBucket
from fluss.server.catalog import Catalog, CatalogStore
from fluss.server.catalog.database_file import FORMAT_VERSION
from fluss.server.catalog.store import LAST_SCHEMA_ID
from tests.support.storage.catalog_files import check_consistent, path_of, plain_table


def _code(call: Callable[[], object]) -> int:
    with pytest.raises(FlussError) as caught:
        call()
    return caught.value.error_code


def test_databases(store: CatalogStore) -> None:
    catalog = Catalog(store)
    store.create_database("db", DatabaseDescriptor("text", {"k": "v"}), 7)
    assert _code(lambda: store.create_database("db", DatabaseDescriptor(), 8)) == 6
    assert _code(lambda: store.alter_database("x", DatabaseDescriptor(), 8)) == 4
    assert _code(lambda: store.drop_database("x", cascade=True)) == 4
    store.alter_database("db", DatabaseDescriptor("new"), 9)
    catalog.refresh()
    entry = catalog.database("db")
    assert entry is not None
    assert (entry.descriptor, entry.created_time, entry.modified_time) == (DatabaseDescriptor("new"), 7, 9)
    store.create_table(path_of("t", "db"), plain_table(), 1)
    assert _code(lambda: store.drop_database("db", cascade=False)) == 5
    store.drop_database("db", cascade=True)
    catalog.refresh()
    assert catalog.database("db") is None
    assert catalog.table(path_of("t", "db")) is None
    assert catalog.table_by_id(0) is None


def test_the_first_database_is_made_once(store: CatalogStore) -> None:
    store.create_database("other", DatabaseDescriptor(), 1)
    store.drop_database("fluss", cascade=True)
    store.create_first_database("fluss", 1)
    assert set(Catalog(store).databases) == {"other"}


def test_table_ids_start_at_zero_and_are_never_reused(store: CatalogStore) -> None:
    assert store.create_table(path_of("t"), plain_table(), 5) == 0
    store.drop_table(path_of("t"))
    assert store.create_table(path_of("t"), plain_table(), 6) == 1
    assert _code(lambda: store.create_table(path_of("t"), plain_table(), 7)) == 8
    assert _code(lambda: store.create_table(path_of("t", "x"), plain_table(), 7)) == 4
    assert store.create_table(path_of("u"), plain_table(), 7) == 2
    assert _code(lambda: store.drop_table(path_of("x"))) == 7


def test_schema_versions(store: CatalogStore) -> None:
    table_id = store.create_table(path_of("t"), plain_table(), 5)
    wider = plain_table(extra_columns=1)
    assert store.add_schema(path_of("t"), table_id, wider) == 2
    entry = Catalog(store).table(path_of("t"))
    assert entry is not None
    assert (entry.schema_id, entry.schema, entry.modified_time) == (2, wider.schema, 5)
    assert entry.schemas == {1: plain_table().schema, 2: wider.schema}
    assert _code(lambda: store.add_schema(path_of("x"), 99, wider)) == 7
    with store.file.transaction() as connection:
        connection.execute("UPDATE tables SET schema_id = ?", (LAST_SCHEMA_ID,))
    assert _code(lambda: store.add_schema(path_of("t"), table_id, wider)) == 56


def test_altered_properties(store: CatalogStore) -> None:
    table_id = store.create_table(path_of("t"), plain_table(), 5)
    altered = replace(plain_table(), properties={"table.log.ttl": "1 h"}, custom_properties={"k": "v"})
    store.alter_table(path_of("t"), table_id, altered, 9)
    entry = Catalog(store).table(path_of("t"))
    assert entry is not None
    assert (entry.descriptor, entry.created_time, entry.modified_time) == (altered, 5, 9)
    assert entry.property("table.log.ttl") == 3_600_000
    assert entry.property("table.log.format") == "ARROW"
    assert _code(lambda: store.alter_table(path_of("x"), 99, altered, 9)) == 7


def test_partitions_all_or_none(store: CatalogStore) -> None:
    catalog = Catalog(store)
    path, table_id = path_of("t"), store.create_table(path_of("t"), plain_table(partitioned=True), 5)
    assert store.create_partitions(path, table_id, ["a", "b"]) == [0, 1]
    assert _code(lambda: store.create_partitions(path, table_id, ["c", "a"])) == 42
    assert _code(lambda: store.drop_partitions(path, table_id, ["a", "x"])) == 36
    assert _code(lambda: store.create_partitions(path, 99, ["a"])) == 7
    catalog.refresh()
    assert list(catalog.buckets()) == [TableBucket(0, partition, bucket) for partition in (0, 1) for bucket in (0, 1)]
    store.drop_partitions(path, table_id, ["a"])
    assert store.create_partitions(path, table_id, ["a"]) == [2]
    catalog.refresh()
    entry = catalog.table(path)
    assert entry is not None
    assert {partition.name: partition.partition_id for partition in entry.partitions.values()} == {"b": 1, "a": 2}
    assert catalog.partition(table_id, 0) is None
    assert catalog.partition(99, 1) is None


def test_writer_ids_and_epochs(store: CatalogStore, open_store: Callable[[], CatalogStore]) -> None:
    other = open_store()
    assert [store.allocate_writer_ids(10), other.allocate_writer_ids(5), store.allocate_writer_ids(1)] == [0, 10, 15]
    assert [store.next_coordinator_epoch(), other.next_coordinator_epoch()] == [0, 1]


def test_a_failed_change_leaves_nothing(store: CatalogStore) -> None:
    before = Catalog(store).change

    def change_and_fail() -> None:
        with store.file.transaction():
            store.file.next_change()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change_and_fail()
    assert not store.file.connection.in_transaction
    assert Catalog(store).change == before


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(FlussError, match="cannot open the catalog"):
        CatalogStore(tmp_path / "catalog.sqlite")


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlussError, match="cannot open the catalog"):
        CatalogStore(tmp_path / "x" / "catalog.sqlite")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "catalog.sqlite") as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    connection.close()
    with pytest.raises(FlussError, match="has format version 3, but this flusspy reads versions up to 2"):
        CatalogStore(tmp_path / "catalog.sqlite")


def test_a_full_disk_changes_nothing_and_says_so(store: CatalogStore) -> None:
    (pages,) = store.file.connection.execute("PRAGMA page_count").fetchone()
    store.file.connection.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for number in range(1000):
            store.create_table(path_of(f"t{number}"), plain_table(), 1)

    with pytest.raises(FlussError, match="no space left") as caught:
        fill()
    assert caught.value.error_code == ErrorCode.DISK_WRITE_LOCKED
    store.file.connection.execute("PRAGMA max_page_count = 1000000")
    store.create_table(path_of("later"), plain_table(), 1)
    check_consistent(store.file.path)


def test_a_locked_file_is_reported_after_a_wait(store: CatalogStore, open_store: Callable[[], CatalogStore]) -> None:
    other = open_store()
    other.file.connection.execute("PRAGMA busy_timeout = 10")
    with store.file.transaction():
        assert _code(lambda: other.allocate_writer_ids(1)) == ErrorCode.STORAGE_EXCEPTION
    assert other.allocate_writer_ids(1) == 0


def test_a_failed_read_is_reported(store: CatalogStore) -> None:
    catalog = Catalog(store)
    store.file.connection.execute("DROP TABLE partitions")
    store.create_database("db", DatabaseDescriptor(), 1)
    with pytest.raises(FlussError, match="cannot read the catalog") as caught:
        catalog.refresh()
    assert caught.value.error_code == ErrorCode.STORAGE_EXCEPTION
    assert not store.file.connection.in_transaction
