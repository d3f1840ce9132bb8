"""The RocksDB store of a bucket: rows, the note about the changelog, scans, snapshots, damage."""

from __future__ import annotations

import shutil
from itertools import chain
from pathlib import Path

import pytest

from fluss.server.storage.kv import limits
from fluss.server.storage.kv.limits import KvResources
from fluss.server.storage.kv.store import Applied, KvStore, StoreDamagedError, put_aside


@pytest.fixture
def resources() -> KvResources:
    return KvResources(1 << 20, 1 << 20)


def test_rows_and_the_note_survive_a_clean_close(tmp_path: Path, resources: KvResources) -> None:
    store = KvStore.open(tmp_path / "kv" / "db", resources)
    assert store.applied == Applied()
    store.write({b"a": b"1", b"b": b"2", b"c": b"3"}, Applied(3, 3, 0, 100))
    store.write({b"b": None, b"c": b"4"}, Applied(5, 2, 100, 20))
    assert store.multi_get([b"c", b"b", b"a", b"x"]) == [b"4", None, b"1", None]
    store.close()
    store = KvStore.open(tmp_path / "kv" / "db", resources)
    assert store.applied == Applied(5, 2, 100, 20)
    assert store.scan() == [(b"a", b"1"), (b"c", b"4")]
    store.close()
    store.close()


def test_the_last_of_several_groups_wins_in_any_write_order(
    tmp_path: Path, resources: KvResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRITE_CHUNK_ROWS", 3)
    monkeypatch.setattr(limits, "SORTED_WRITE_MIN_ROWS", 4)
    store = KvStore.open(tmp_path / "db", resources)
    groups: list[dict[bytes, bytes | None]] = [
        {b"d": b"1", b"c": b"1", b"b": b"1", b"a": b"1", b"e": b"1"},
        {b"c": None, b"b": b"2"},
        {b"x": b"3", b"a": None, b"d": b"3", b"b": b"3"},
    ]
    store.write_all(groups, Applied(11, 4, 0, 0))
    assert store.scan() == [(b"b", b"3"), (b"d", b"3"), (b"e", b"1"), (b"x", b"3")]
    assert store.applied == Applied(11, 4, 0, 0)
    store.close()


def test_rows_not_in_files_are_lost_in_a_crash_with_their_note(
    tmp_path: Path, resources: KvResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRITE_CHUNK_ROWS", 2)
    store = KvStore.open(tmp_path / "db", resources)
    store.write({bytes((65 + number,)): b"old" for number in range(7)}, Applied(7, 7, 0, 70))
    store.flush(wait=True)
    store.write({b"A": None, b"B": b"new"}, Applied(9, 6, 0, 90))
    shutil.copytree(tmp_path / "db", tmp_path / "crashed")
    store.close()
    crashed = KvStore.open(tmp_path / "crashed", resources)
    assert crashed.applied == Applied(7, 7, 0, 70)
    assert len(crashed.scan()) == 7
    crashed.close()


def test_scans_and_snapshots(tmp_path: Path, resources: KvResources) -> None:
    store = KvStore.open(tmp_path / "db", resources)
    rows = {b"\x00": b"0", b"a": b"1", b"ab": b"2", b"b": b"3", b"\xff": b"4"}
    store.write(rows, Applied(5, 5, 0, 0))
    assert dict(store.scan()) == rows
    assert store.scan(b"ab", 2) == [(b"ab", b"2"), (b"b", b"3")]
    assert store.scan_prefix(b"a") == [(b"a", b"1"), (b"ab", b"2")]
    assert store.scan_prefix(b"zz") == []
    view, behind = store.view(), store.view(b"b")
    store.write({b"a": None, b"c": b"5"}, Applied(6, 4, 0, 0))
    store.flush(wait=True)
    assert dict(chain.from_iterable(view.row_lists)) == rows
    assert view.applied.log_offset == 5
    assert [key for key, _ in chain.from_iterable(behind.row_lists)] == [b"b", b"\xff"]
    del view, behind
    assert not store.is_pressed
    store.close()


def test_files_that_are_not_a_store_are_moved_aside(tmp_path: Path, resources: KvResources) -> None:
    directory = tmp_path / "db"
    KvStore.open(directory, resources).close()
    (directory / "CURRENT").write_bytes(b"nonsense")
    with pytest.raises(StoreDamagedError):
        KvStore.open(directory, resources)
    put_aside(directory)
    assert not directory.exists()
    KvStore.open(directory, resources).close()
    put_aside(directory)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["db.damaged"]


def test_an_interrupted_creation_is_started_again(tmp_path: Path, resources: KvResources) -> None:
    (tmp_path / "db.creating").mkdir()
    (tmp_path / "db.creating" / "rocksdict-config.json").write_bytes(b"")
    KvStore.open(tmp_path / "db", resources).close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["db"]


def test_filters_stay_with_open_files(tmp_path: Path, resources: KvResources) -> None:
    """A filter that is larger than its share of the block cache would be read from the file for every few keys."""
    keys = 50_000
    store = KvStore.open(tmp_path / "db", resources)
    store.write({number.to_bytes(4, "big"): b"1" for number in range(keys)}, Applied(keys, keys, 0, 0))
    store.close()
    store = KvStore.open(tmp_path / "db", resources)
    assert store.multi_get([b"none"]) == [None]
    held = store._database.property_int_value("rocksdb.estimate-table-readers-mem") or 0
    assert held >= keys * limits.BLOOM_BITS_PER_KEY // 8
    store.close()


def test_iterators_read_ahead_more_and_more_but_few_large_rows(tmp_path: Path, resources: KvResources) -> None:
    store = KvStore.open(tmp_path / "db", resources)
    small = {b"a%05d" % number: b"v" for number in range(2_000)}
    large = {b"b%05d" % number: bytes(100_000) for number in range(8)}
    store.write(small | large, Applied(1, 2_008))
    sizes = [len(piece) for piece in store.view().row_lists]
    assert sizes[:4] == [1, 2, 4, 8]
    assert max(sizes) == 256
    assert [len(piece) for piece in store.view(b"b").row_lists] == [1, 2, 2, 2, 1]
    store.close()


def test_a_view_with_an_end_skips_deleted_rows_behind_it(tmp_path: Path) -> None:
    """Without it, two hundred thousand deleted rows cost a tenth of a second for one prefix."""
    store = KvStore.open(tmp_path / "db", KvResources())
    try:
        store.write(dict.fromkeys((b"a1", b"a2", b"b1", b"c1"), b"v"), Applied(1))
        store.write({b"b1": None}, Applied(2))
        ends = (b"a2", b"b", b"c", b"c1", None)
        found = [list(chain.from_iterable(store.view(b"a", end).row_lists)) for end in ends]
        assert [[key for key, _ in rows] for rows in found] == [
            [b"a1"],
            [b"a1", b"a2"],
            [b"a1", b"a2"],
            [b"a1", b"a2"],
            [b"a1", b"a2", b"c1"],
        ]
    finally:
        store.close()
