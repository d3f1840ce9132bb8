"""The filter never takes an added key for a new one, and seldom a new key for an old one; its memory has a limit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss.server.storage.kv.key_filter import FIRST_LAYER_KEYS, MAX_QUEUED_KEYS, FilterMemory, KeyFilter, hash_keys
from tests.support.runner.lanes import examples

MEGABYTE = 1 << 20


def _array(keys: list[bytes]) -> Any:
    return pa.array(keys, pa.binary())


def _numbered(start: int, end: int) -> list[bytes]:
    return [number.to_bytes(4, "big") for number in range(start, end)]


@given(st.lists(st.lists(st.binary(min_size=1, max_size=20), max_size=8), max_size=8), st.randoms())
@settings(max_examples=examples(50), deadline=None)
def test_added_keys_are_always_found(batches: list[list[bytes]], choice: Any) -> None:
    known, noted = KeyFilter(FilterMemory(MEGABYTE)), set()
    for keys in batches:
        if choice.random() < 0.5:
            known.note(keys)
        else:
            found = known.note_and_find(_array(keys))
            assert found is not None
            assert all(is_found for key, is_found in zip(keys, found, strict=True) if key in noted)
        noted.update(keys)
    found = known.note_and_find(_array(sorted(noted)))
    assert found is not None
    assert found.all()


def test_new_keys_are_seldom_taken_for_old_ones_in_any_layer() -> None:
    known = KeyFilter(FilterMemory(MEGABYTE))
    mistaken = 0
    count = 6 * FIRST_LAYER_KEYS
    for start in range(0, count, 5_000):
        found = known.note_and_find(_array(_numbered(start, start + 5_000)))
        assert found is not None
        mistaken += int(found.sum())
    assert mistaken < count * 0.08
    found = known.note_and_find(_array(_numbered(0, count)))
    assert found is not None
    assert found.all()


def test_keys_of_small_batches_are_added_too() -> None:
    known = KeyFilter(FilterMemory(MEGABYTE))
    keys = _numbered(0, 2 * MAX_QUEUED_KEYS + 7)
    for key in keys:
        known.note([key])
    found = known.note_and_find(_array(keys))
    assert found is not None
    assert found.all()


def test_hashes_depend_on_every_byte_and_not_on_neighbours() -> None:
    keys = [b"a", b"a\0", b"b" * 8, b"b" * 9, b"b" * 8 + b"c", b"x" * 17, b"x" * 16 + b"y"]
    hashes = hash_keys(_array([*keys, b"z", *reversed(keys)])).tolist()
    assert len(set(hashes)) == len(keys) + 1
    assert hashes[: len(keys)] == hashes[: len(keys) : -1]
    assert hash_keys(_array(keys).slice(2, 3)).tolist() == hashes[2:5], "slices are honoured"


def test_without_memory_every_key_may_be_there() -> None:
    memory = FilterMemory(FIRST_LAYER_KEYS * 2)
    known, other = KeyFilter(memory), KeyFilter(memory)
    keys = _numbered(0, 10)
    assert known.note_and_find(_array(keys)) is not None
    assert other.note_and_find(_array(keys)) is None
    assert not other.is_useful
    other.note(keys)
    assert other.note_and_find(_array(keys)) is None
    known.close()
    assert KeyFilter(memory).note_and_find(_array(keys)) is not None, "the memory was given back"
