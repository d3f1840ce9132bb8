"""The in-memory view: an incremental refresh gives the same result as reading everything again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss.errors import FlussError
from fluss.model.descriptor import DatabaseDescriptor
from fluss.model.paths import TableBucket, TablePath
from fluss.server.apis.placement import leader_of
from fluss.server.catalog import Catalog, CatalogStore, database_file
from fluss.server.catalog.records import Acl
from tests.support.runner.lanes import examples
from tests.support.storage.catalog_files import path_of, plain_table


def contents(catalog: Catalog) -> dict[str, object]:
    """Return everything a view shows, in a comparable form."""
    return {
        "databases": dict(catalog.databases),
        "tables": {entry.table_id: entry for entry in catalog.tables()},
        "by path": {entry.path: catalog.table(entry.path) for entry in catalog.tables()},
        "buckets": sorted(catalog.buckets()),
        "acls": set(catalog.acls),
        "config": dict(catalog.cluster_config),
        "tags": dict(catalog.server_tags),
        "change": catalog.change,
    }


def test_refresh_tells_whether_something_changed(store: CatalogStore, open_store: Callable[[], CatalogStore]) -> None:
    mine, other = Catalog(store), Catalog(open_store())
    assert not mine.refresh()
    assert not other.refresh()
    store.create_table(path_of("t"), plain_table(), 1)
    assert mine.refresh()
    assert other.refresh()
    assert not other.refresh()
    # A commit without effect on readers is no change.
    store.allocate_writer_ids(5)
    assert not mine.refresh()
    assert not other.refresh()


def test_two_views_on_one_store(store: CatalogStore) -> None:
    first, second = Catalog(store), Catalog(store)
    store.create_table(path_of("t"), plain_table(), 1)
    assert first.refresh()
    assert second.refresh()
    assert contents(first) == contents(second)


def test_drop_and_recreate_between_two_refreshes(store: CatalogStore) -> None:
    catalog = Catalog(store)
    table_id = store.create_table(path_of("t"), plain_table(partitioned=True), 1)
    store.create_partitions(path_of("t"), table_id, ["a"])
    catalog.refresh()
    store.drop_table(path_of("t"))
    new_id = store.create_table(path_of("t"), plain_table(partitioned=True), 2)
    store.create_partitions(path_of("t"), new_id, ["a"])
    catalog.refresh()
    entry = catalog.table(path_of("t"))
    assert entry is not None
    assert (entry.table_id, entry.partitions["a"].partition_id) == (new_id, 1)
    assert catalog.table_by_id(table_id) is None
    assert catalog.partition_by_id(0) is None
    assert contents(catalog) == contents(Catalog(store))


def test_a_kept_entry_sees_new_partitions_and_keeps_its_schema(store: CatalogStore) -> None:
    catalog = Catalog(store)
    table_id = store.create_table(path_of("t"), plain_table(partitioned=True), 1)
    catalog.refresh()
    old = catalog.table_by_id(table_id)
    assert old is not None
    store.create_partitions(path_of("t"), table_id, ["a"])
    store.add_schema(path_of("t"), table_id, plain_table(partitioned=True, extra_columns=1))
    catalog.refresh()
    new = catalog.table_by_id(table_id)
    assert new is not None
    assert (list(old.partitions), old.schema_id) == (["a"], 1)
    assert (list(new.partitions), new.schema_id) == (["a"], 2)


def test_a_reader_behind_the_pruned_tombstones_reads_everything(
    store: CatalogStore, open_store: Callable[[], CatalogStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_file, "TOMBSTONE_LIMIT_ROWS", 3)
    catalog = Catalog(open_store())
    for number in range(10):
        store.create_table(path_of(f"t{number}"), plain_table(), 1)
    catalog.refresh()
    for number in range(9):
        store.drop_table(path_of(f"t{number}"))
    (left,) = store.file.connection.execute("SELECT count(*) FROM tombstones").fetchone()
    assert left == 3
    catalog.refresh()
    assert [entry.path.table_name for entry in catalog.tables()] == ["t9"]
    assert contents(catalog) == contents(Catalog(store))


def test_directories(store: CatalogStore) -> None:
    catalog = Catalog(store)
    store.create_table(path_of("t"), plain_table(), 1)
    table_id = store.create_table(path_of("u"), plain_table(partitioned=True), 1)
    store.create_partitions(path_of("u"), table_id, ["2024$EU", "x" * 401])
    catalog.refresh()
    assert catalog.directory(TableBucket(0, None, 1)) == Path("data/fluss/t-0/log-1")
    assert catalog.directory(TableBucket(1, 0, 0)) == Path("data/fluss/u-1/2024$EU-p0/log-0")
    assert catalog.directory(TableBucket(1, 1, 0)).parent.name == "x" * 200 + "-p1"
    with pytest.raises(KeyError):
        catalog.directory(TableBucket(9, None, 0))


@pytest.mark.parametrize(
    ("bucket", "exists"),
    [
        (TableBucket(0, None, 1), True),
        (TableBucket(0, None, 2), False),
        (TableBucket(0, None, -1), False),
        (TableBucket(0, 0, 0), False),
        (TableBucket(1, 0, 0), True),
        (TableBucket(1, None, 0), False),
        (TableBucket(1, 7, 0), False),
        (TableBucket(9, None, 0), False),
    ],
)
def test_which_buckets_exist(store: CatalogStore, bucket: TableBucket, exists: bool) -> None:
    store.create_table(path_of("t"), plain_table(), 1)
    store.create_partitions(path_of("u"), store.create_table(path_of("u"), plain_table(partitioned=True), 1), ["a"])
    assert Catalog(store).has_bucket(bucket) is exists


def test_leaders_are_spread_and_pure() -> None:
    assert [leader_of(TableBucket(5, None, bucket), 3) for bucket in range(4)] == [2, 0, 1, 2]
    assert [leader_of(TableBucket(0, partition, 0), 2) for partition in range(3)] == [0, 1, 0]
    assert leader_of(TableBucket(7, 9, 3), 1) == 0


_names = st.sampled_from(["a", "b", "c"])
_steps = st.one_of(
    st.tuples(st.just("create database"), _names, _names),
    st.tuples(st.just("drop database"), _names, _names),
    st.tuples(st.just("create table"), _names, _names),
    st.tuples(st.just("drop table"), _names, _names),
    st.tuples(st.just("add schema"), _names, _names),
    st.tuples(st.just("create partition"), _names, _names),
    st.tuples(st.just("drop partition"), _names, _names),
    st.tuples(st.just("acl"), _names, _names),
    st.tuples(st.just("config"), _names, _names),
    st.tuples(st.just("refresh"), _names, _names),
)


def _do(store: CatalogStore, step: str, first: str, second: str) -> None:
    path = TablePath(first, second)
    entry = Catalog(store).table(path)
    table_id = -1 if entry is None else entry.table_id
    if step == "create database":
        store.create_database(first, DatabaseDescriptor(second), 1)
    elif step == "drop database":
        store.drop_database(first, cascade=True)
    elif step == "create table":
        store.create_table(path, plain_table(partitioned=True), 1)
    elif step == "drop table":
        store.drop_table(path)
    elif step == "add schema" and entry is not None:
        store.add_schema(path, table_id, plain_table(partitioned=True, extra_columns=entry.schema_id))
    elif step == "create partition":
        store.create_partitions(path, table_id, [second, first + "x"])
    elif step == "drop partition":
        store.drop_partitions(path, table_id, [second])
    elif step == "acl":
        store.acls.add([Acl(3, first, "User", second, "*", 2, 2)])
    elif step == "config":
        store.settings.change_config({first: second if first != second else None})
        store.settings.change_tags({0: len(second)})


@settings(max_examples=examples(40))
@given(st.lists(_steps, max_size=30))
def test_incremental_equals_full(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str]]) -> None:
    file = tmp_path_factory.mktemp("catalog") / "catalog.sqlite"
    store, other = CatalogStore(file), CatalogStore(file)
    try:
        store.file.connection.execute("PRAGMA synchronous = OFF")  # speed; durability has its own tests
        own_view, foreign_view = Catalog(store), Catalog(other)
        for step in steps:
            if step[0] == "refresh":
                own_view.refresh()
                foreign_view.refresh()
                continue
            with contextlib.suppress(FlussError):  # not every step is possible at every time
                _do(store, *step)
        own_view.refresh()
        foreign_view.refresh()
        assert contents(own_view) == contents(foreign_view) == contents(Catalog(store))
    finally:
        store.close()
        other.close()
