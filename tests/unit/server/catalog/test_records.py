"""ACLs, run-time options, tags and records that expire."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from fluss.errors import FlussError
from fluss.server.catalog import Catalog, CatalogStore, records
from fluss.server.catalog.database_file import COMMITS_COUNTER
from fluss.server.catalog.mark import MARKED_COUNTERS
from fluss.server.catalog.records import Acl

ACL = Acl(4, "fluss.t", "User", "alice", "*", 3, 2)


def test_acls_options_and_tags_reach_other_processes(
    store: CatalogStore, open_store: Callable[[], CatalogStore]
) -> None:
    other = Catalog(open_store())
    store.acls.add([ACL, ACL])
    store.settings.change_config({"datalake.format": "paimon", "x": "1"})
    store.settings.change_tags({0: 1})
    assert other.refresh()
    assert (other.acls, other.cluster_config, other.server_tags) == (
        (ACL,),
        {"datalake.format": "paimon", "x": "1"},
        {0: 1},
    )
    store.acls.remove([ACL])
    store.settings.change_config({"x": None, "missing": None})
    store.settings.change_tags({0: None})
    assert other.refresh()
    assert (other.acls, other.cluster_config, other.server_tags) == ((), {"datalake.format": "paimon"}, {})


def test_unchanged_sections_are_not_read_again(store: CatalogStore) -> None:
    catalog = Catalog(store)
    store.acls.add([ACL])
    catalog.refresh()
    before = catalog.acls
    store.settings.change_config({"x": "1"})
    catalog.refresh()
    assert catalog.acls is before


def test_the_number_of_acls_is_bounded(store: CatalogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "ACL_LIMIT_ROWS", 2)
    with pytest.raises(FlussError, match="exceed the limit of 2"):
        store.acls.add(ACL._replace(principal_name=str(number)) for number in range(3))
    assert store.acls.all() == []


def test_records_expire(store: CatalogStore) -> None:
    offsets = store.producer_offsets
    offsets.put("p", "[1]", 100, 0)
    offsets.put("q", "[2]", 200, 0)
    assert offsets.get("p", 99) == ("[1]", 100)
    assert offsets.get("p", 100) is None
    assert offsets.all(150) == {"q": "[2]"}
    offsets.purge(100)
    assert offsets.get("p", 0) is None
    offsets.delete("q")
    offsets.delete("q")
    assert offsets.all(0) == {}


def test_expired_records_make_room_for_new_ones(store: CatalogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "EXPIRING_RECORDS_LIMIT_ROWS", 1)
    leases = store.kv_snapshot_leases
    leases.put("a", "[]", 10, 0)
    with pytest.raises(FlussError, match="is full: its limit is 1 entries"):
        leases.put("b", "[]", 20, 5)
    leases.put("b", "[]", 20, 10)
    assert leases.all(10) == {"b": "[]"}


def test_a_catalog_from_before_snapshots_gets_their_table(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    CatalogStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE kv_snapshots")
    store = CatalogStore(path)
    assert store.kv_snapshots.latest(0, None) == {}
    store.close()


def test_every_commit_is_counted(store: CatalogStore) -> None:
    """The mark has this counter, so a catalog that lost a cursor, a lease or a lake snapshot is recognised as old."""

    def commits() -> int:
        return store.file.counter(COMMITS_COUNTER)

    assert COMMITS_COUNTER in MARKED_COUNTERS
    writes: list[Callable[[], object]] = [
        lambda: store.producer_offsets.put("cursor", "{}", 10, 1),
        lambda: store.kv_snapshot_leases.put("lease", "{}", 10, 1),
        lambda: store.kv_snapshot_leases.delete("lease"),
        lambda: store.acls.add([ACL]),
    ]
    for write in writes:
        before = commits()
        write()
        assert commits() == before + 1
    before = commits()
    store.lake.forget_prepared([])
    assert commits() == before, "nothing was written"


def test_a_damaged_value_is_an_error_that_names_the_file(store: CatalogStore) -> None:
    store.producer_offsets.put("p", "[1]", 100, 0)
    store.file.connection.execute("UPDATE producer_offsets SET offsets = CAST(x'5bff5d' AS TEXT)")
    with pytest.raises(FlussError, match=f"cannot read the catalog {store.file.path}: .*UTF-8.*; check the disk"):
        store.producer_offsets.get("p", 0)
