"""Sharing a micro-batch among its buckets: fair, within the limit, never stuck."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.spark.stream.limits import Limits, take
from fluss.spark.stream.offsets import BucketKey


def key(bucket: int) -> BucketKey:
    return (None, bucket)


backlogs = st.dictionaries(st.integers(0, 20).map(key), st.integers(0, 10_000), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("waiting", "limit", "taken"),
    [
        ([100, 4], 10, [6, 4]),
        ([100, 100], 10, [5, 5]),
        ([100, 100, 100], 10, [3, 3, 4]),
        ([0, 100, 0], 10, [0, 10, 0]),
        ([3, 2], 10, [3, 2]),
        ([0, 0], 10, [0, 0]),
    ],
)
def test_equal_shares_and_unused_parts_go_to_the_others(waiting: list[int], limit: int, taken: list[int]) -> None:
    rows = take({key(index): count for index, count in enumerate(waiting)}, Limits(max_rows=limit), {}, turn=2)
    assert sum(rows.values()) == sum(taken)
    assert sorted(rows.values()) == sorted(taken)
    assert all(rows[key(index)] == count for index, count in enumerate(taken) if waiting[index] < limit // 2)


def test_bytes_are_shared_not_rows() -> None:
    sizes = {key(0): 1000.0, key(1): 10.0}
    rows = take({key(0): 1000, key(1): 1000}, Limits(max_bytes=20_000), sizes)
    assert rows == {key(0): 10, key(1): 1000}  # 10 kB each; bucket 1 has no more than that


def test_both_limits_apply() -> None:
    sizes = {key(0): 100.0, key(1): 100.0}
    assert sum(take({key(0): 50, key(1): 50}, Limits(max_rows=10, max_bytes=500), sizes).values()) == 5
    assert sum(take({key(0): 50, key(1): 50}, Limits(max_rows=4, max_bytes=50_000), sizes).values()) == 4


def test_a_row_larger_than_the_limit_is_read_alone() -> None:
    assert take({key(0): 5, key(1): 0}, Limits(max_bytes=10), {key(0): 1e6, key(1): 1e6}) == {key(0): 1, key(1): 0}


def test_buckets_take_turns_when_there_are_more_of_them_than_rows() -> None:
    served: Counter[BucketKey] = Counter()
    for turn in range(10):
        served.update(take({key(index): 1000 for index in range(10)}, Limits(max_rows=3), {}, turn))
    assert set(served) == {key(index) for index in range(10)}
    assert max(served.values()) == min(served.values()) == 3


@given(backlogs, st.integers(1, 20_000), st.integers(0, 100))
def test_rows_are_never_more_than_the_limit_nor_fewer_than_possible(
    waiting: dict[BucketKey, int], limit: int, turn: int
) -> None:
    rows = take(waiting, Limits(max_rows=limit), {}, turn)
    assert rows.keys() == waiting.keys()
    assert all(0 <= rows[each] <= waiting[each] for each in waiting)
    assert sum(rows.values()) == min(limit, sum(waiting.values()))
    # Fair: a bucket that got less than another one, by more than rounding, got all its rows.
    most = max(rows.values())
    assert all(rows[each] >= most - 1 or rows[each] == waiting[each] for each in waiting)


@given(backlogs, st.integers(1, 1_000_000), st.floats(1, 5000))
def test_bytes_are_never_more_than_the_limit_unless_it_is_one_row(
    waiting: dict[BucketKey, int], limit: int, size: float
) -> None:
    rows = take(waiting, Limits(max_bytes=limit), dict.fromkeys(waiting, size))
    total = sum(rows.values())
    assert total * size <= limit * (1 + 1e-9) or total == 1
    assert total >= 1 or not any(waiting.values())


def test_without_limits_everything_is_taken() -> None:
    assert take({key(0): 10**9}, Limits(), {}) == {key(0): 10**9}
    assert not Limits().is_set
    assert Limits(max_bytes=1).is_set
