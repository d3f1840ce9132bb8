"""The JSON form of stream offsets: stable, versioned, small, and refused if it is not ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.errors import FlussError
from fluss.spark.stream.offsets import BucketKey, StreamOffsets


def text(offsets: StreamOffsets) -> str:
    """The JSON that Spark's runner writes."""
    return json.dumps(offsets.to_json())


def test_a_table_without_partitions_is_a_list_by_bucket() -> None:
    offsets = StreamOffsets(7, {(None, 1): 98, (None, 0): 120})
    assert text(offsets) == '{"buckets": [120, 98], "table_id": 7, "version": 1}'


def test_partitions_are_sorted_as_numbers() -> None:
    offsets = StreamOffsets(8, {(100, 0): 3, (31, 1): 98, (31, 0): 120, (100, 1): 0})
    assert text(offsets) == '{"partitions": {"31": [120, 98], "100": [3, 0]}, "table_id": 8, "version": 1}'


def test_a_partitioned_table_without_partitions_has_none() -> None:
    offsets = StreamOffsets(8, {})
    assert text(offsets) == '{"partitions": {}, "table_id": 8, "version": 1}'
    assert StreamOffsets.from_json(offsets.to_json()) == offsets


def test_unread_state_and_lagging_buckets_are_listed_only_while_they_exist() -> None:
    keys = frozenset({(None, 1)})
    offsets = StreamOffsets(7, {(None, 0): 120, (None, 1): 98}, keys, 1785585600000, keys, 5)
    assert text(offsets) == (
        '{"behind": [1], "buckets": [120, 98], "since": 5, "state_time": 1785585600000, "table_id": 7, '
        '"unread_state": [1], "version": 1}'
    )


bucket_counts = st.integers(1, 4)


@st.composite
def stream_offsets(draw: st.DrawFn) -> StreamOffsets:
    partition_ids: list[int | None] = draw(
        st.just([None]) | st.lists(st.integers(0, 1000), unique=True, max_size=4)  # type: ignore[arg-type]
    )
    keys = [(partition_id, bucket) for partition_id in partition_ids for bucket in range(draw(bucket_counts))]
    positions = {key: draw(st.integers(0, 2**63 - 1)) for key in keys}
    chosen = st.frozensets(st.sampled_from(keys)) if keys else st.just(frozenset[BucketKey]())
    pending = draw(chosen)
    state_time_ms = draw(st.integers(0, 2**41)) if pending else None
    since_ms = draw(st.none() | st.integers(0, 2**41))
    return StreamOffsets(draw(st.integers(0, 10**6)), positions, pending, state_time_ms, draw(chosen), since_ms)


def test_the_first_end_has_its_beginning() -> None:
    begin = StreamOffsets(7, {(None, 0): 3}, is_initial=True)
    end = StreamOffsets(7, {(None, 0): 9}, begin=begin)
    assert text(end) == (
        '{"begin": {"buckets": [3], "initial": true, "table_id": 7, "version": 1}, '
        '"buckets": [9], "table_id": 7, "version": 1}'
    )
    assert StreamOffsets.from_json(end.to_json()) == end


@given(stream_offsets(), st.randoms())
def test_offsets_survive_the_checkpoint_and_equal_ones_have_equal_strings(offsets: StreamOffsets, random: Any) -> None:
    written = text(offsets)
    assert StreamOffsets.from_json(json.loads(written)) == offsets
    shuffled = list(offsets.positions.items())
    random.shuffle(shuffled)
    same = StreamOffsets(
        offsets.table_id,
        dict(shuffled),
        frozenset(sorted(offsets.unread_state, key=str)),
        offsets.state_time_ms,
        offsets.behind,
        offsets.since_ms,
    )
    assert text(same) == written
    keys = list(json.loads(written))
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"buckets": [1], "table_id": 7, "version": 3}, "version 3"),
        ({"0": 17}, "version None"),
        ({"table_id": 7, "version": 1}, "cannot be read"),
        ({"buckets": [1], "version": 1}, "cannot be read"),
        ({"buckets": [-1], "table_id": 7, "version": 1}, "cannot be read"),
        ({"buckets": [True], "table_id": 7, "version": 1}, "cannot be read"),
        ({"buckets": ["x"], "table_id": 7, "version": 1}, "cannot be read"),
        ({"partitions": {"US": [1]}, "table_id": 7, "version": 1}, "cannot be read"),
        ({"buckets": [1], "table_id": 7, "unread_state": [0], "version": 1}, "cannot be read"),
        ({"buckets": [1], "table_id": 7, "behind": [5], "version": 1}, "buckets without offsets"),
    ],
)
def test_invalid_offsets_are_refused(document: dict[str, Any], words: str) -> None:
    with pytest.raises(FlussError, match=words):
        StreamOffsets.from_json(document)
