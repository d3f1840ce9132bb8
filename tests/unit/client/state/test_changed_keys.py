"""A set of changed keys tells rows apart as a Python set does, whatever way it compares them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.client.state import changed_keys
from fluss.client.state.changed_keys import ChangedKeys

EDGES = st.sampled_from([-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1])
CLOSE = st.integers(-50, 50)


def check(changed: list[Any], pieces: list[list[Any]], key_type: pa.DataType) -> None:
    keys = ChangedKeys(pa.array(changed, key_type))
    masks = keys.unchanged([pa.array(piece, key_type) for piece in pieces])
    assert [mask.to_pylist() for mask in masks] == [[key not in changed for key in piece] for piece in pieces]


@given(
    changed=st.lists(st.one_of(CLOSE, EDGES), min_size=1, max_size=20),
    pieces=st.lists(st.lists(st.one_of(CLOSE, EDGES), max_size=20), min_size=1, max_size=4),
)
def test_whole_numbers(changed: list[int], pieces: list[list[int]]) -> None:
    check(changed, pieces, pa.int64())


@given(changed=st.lists(EDGES, min_size=1, max_size=3), pieces=st.lists(st.lists(EDGES), min_size=1, max_size=3))
def test_numbers_at_the_ends_of_the_range(changed: list[int], pieces: list[list[int]]) -> None:
    check(changed, pieces, pa.int64())


@given(
    changed=st.lists(st.integers(-128, 127), min_size=1),
    pieces=st.lists(st.lists(st.integers(-128, 127)), min_size=1, max_size=3),
)
def test_narrow_numbers(changed: list[int], pieces: list[list[int]]) -> None:
    check(changed, pieces, pa.int8())


@given(
    changed=st.lists(st.text(max_size=2), min_size=1),
    pieces=st.lists(st.lists(st.text(max_size=2)), min_size=1, max_size=4),
)
def test_texts(changed: list[str], pieces: list[list[str]]) -> None:
    check(changed, pieces, pa.string())


@pytest.mark.parametrize(("key_type", "sizes"), [(pa.int64(), [3, 5]), (pa.string(), [8])], ids=["flags", "hashes"])
def test_batches_are_grouped_where_sets_are_hashed(key_type: pa.DataType, sizes: list[int]) -> None:
    keys = ChangedKeys(pa.array([1, 2], pa.int64()).cast(key_type))
    batches = [pa.record_batch({"k": pa.array(range(count), pa.int64())}) for count in (3, 0, 5)]
    assert [sum(batch.num_rows for batch in group) for group in keys.groups(batches)] == sizes


def test_large_groups_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_keys, "MAX_COMPARED_ROWS", 10)
    keys = ChangedKeys(pa.array([str(number) for number in range(100)]))
    batches = [pa.record_batch({"k": pa.array(range(4), pa.int64())}) for _ in range(7)]
    assert [len(group) for group in keys.groups(batches)] == [3, 3, 1]
