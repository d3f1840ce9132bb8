"""Keys at which stores can be split: from samples of keys, and from the files of a real RocksDB."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from fluss.server.storage.kv.limits import KvResources
from fluss.server.storage.kv.split_points import KeySample, split_points_of_files
from fluss.server.storage.kv.store import Applied, KvStore


def sizes(keys: Sequence[bytes], cuts: Sequence[bytes]) -> list[int]:
    """The number of keys in each range."""
    bounds = [b"", *cuts, b"\xff" * 20]
    return [sum(low <= key < high for key in keys) for low, high in pairwise(bounds)]


@pytest.mark.parametrize("count", [1, 2, 10, 1024, 1025, 5000, 100_000])
@pytest.mark.parametrize("pieces", [2, 3, 7])
def test_samples_give_ranges_of_about_the_same_size(count: int, pieces: int) -> None:
    chance = random.Random(count)
    keys = sorted({chance.randbytes(chance.choice((1, 3, 9))) for _ in range(count)})
    sample, left = KeySample(), list(keys)
    while left:
        step = chance.randint(1, 4000)
        sample.add(left[:step])
        del left[:step]
    assert len(sample.keys) <= KeySample.MAX_KEYS
    found = sizes(keys, sample.split_points(pieces))
    assert sum(found) == len(keys)
    if len(keys) >= 100:
        assert len(found) == pieces
        assert max(found) <= 1.05 * len(keys) / pieces + 1


def test_stores_with_at_most_one_key_are_not_split() -> None:
    sample = KeySample()
    assert sample.split_points(4) == []
    sample.add([b"a"])
    assert sample.split_points(4) == []


def test_files_below_the_first_level_give_split_points(tmp_path: Path) -> None:
    store = KvStore.open(tmp_path / "db", KvResources())
    try:
        keys = [number.to_bytes(4, "big") for number in range(40_000)]
        for half in (keys[::2], keys[1::2]):  # two files with the same stretch of keys: one alone would only be moved
            store.write({key: random.Random(key).randbytes(500) for key in half}, Applied(len(keys), len(keys)))
            store.flush(wait=True)
        assert split_points_of_files(store.files(), 4) is None  # files of the first level overlap
        store._database.set_options({"target_file_size_base": str(1024 * 1024)})
        store._database.compact_range(None, None)
        assert len(store.files()) > 10
        cuts = split_points_of_files(store.files(), 4)
        assert cuts is not None
        found = sizes(keys, cuts)
        assert (len(found), sum(found)) == (4, len(keys))
        assert max(found) <= 1.5 * len(keys) / 4
        assert split_points_of_files(store.files(), 1) == []
    finally:
        store.close()


def test_a_level_with_few_of_the_rows_gives_no_split_points() -> None:
    few = [{"level": 1, "start_key": b"a", "end_key": b"m", "size": 10}]
    many = [{"level": 0, "start_key": b"a", "end_key": b"z", "size": 1000}]
    assert split_points_of_files(few + many, 2) is None
    assert split_points_of_files([], 2) is None
