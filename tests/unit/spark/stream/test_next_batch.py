"""Where the next micro-batch ends, and what counts as lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.spark.stream.data_loss import Loss
from fluss.spark.stream.limits import Limits
from fluss.spark.stream.next_batch import TableView, advance, find_losses, lag, receded_to
from fluss.spark.stream.offsets import BucketKey, StreamOffsets

NO_LIMITS = Limits()


def at(*offsets: int, **more: Any) -> StreamOffsets:
    """Offsets of buckets of a table without partitions."""
    return StreamOffsets(7, {(None, bucket): offset for bucket, offset in enumerate(offsets)}, **more)


def view(*latest: int, earliest: tuple[int, ...] = ()) -> TableView:
    return TableView(
        {(None, bucket): offset for bucket, offset in enumerate(latest)},
        {(None, bucket): offset for bucket, offset in enumerate(earliest)},
    )


def test_all_existing_rows() -> None:
    assert advance(at(0, 5), view(10, 5), NO_LIMITS, {}) == at(10, 5)


def test_nothing_new_is_the_start_itself() -> None:
    start = at(10, 5, behind=frozenset({(None, 1)}), since_ms=3)
    assert advance(start, view(10, 5), NO_LIMITS, {}) is start
    assert advance(start, view(8, 5), NO_LIMITS, {}) is start  # waits for a log that is recovering


def test_rows_left_by_a_limit_are_noted() -> None:
    end = advance(at(0, 0), view(100, 3), Limits(max_rows=10), {})
    assert end == at(7, 3, behind=frozenset({(None, 0)}))


def test_the_first_end_has_its_beginning_and_later_ones_do_not() -> None:
    begin = at(0, is_initial=True)
    first = advance(begin, view(5), NO_LIMITS, {})
    assert first == at(5, begin=begin)
    assert advance(first, view(9), NO_LIMITS, {}) == at(9)
    assert advance(first, view(5), NO_LIMITS, {}) is first


def test_new_partitions_begin_at_zero_and_dropped_ones_are_removed() -> None:
    start = StreamOffsets(7, {(1, 0): 5, (2, 0): 9})
    table = TableView({(2, 0): 9, (3, 0): 4})
    assert advance(start, table, NO_LIMITS, {}) == StreamOffsets(7, {(2, 0): 9, (3, 0): 4})
    limited = advance(start, table, Limits(max_rows=3), {})
    assert limited == StreamOffsets(7, {(2, 0): 9, (3, 0): 3}, behind=frozenset({(3, 0)}))


def test_expired_rows_are_not_counted_against_the_limit() -> None:
    assert advance(at(0), view(1000, earliest=(900,)), Limits(max_rows=10), {}).positions == {(None, 0): 910}


def test_state_comes_first_and_moves_no_offset() -> None:
    keys = frozenset({(None, 0), (None, 1)})
    start = at(10, 20, unread_state=keys, state_time_ms=5)
    assert advance(start, view(15, 20), NO_LIMITS, {}) == at(10, 20, behind=frozenset({(None, 0)}))
    first = advance(start, view(15, 20), Limits(max_rows=12), {})
    assert first.unread_state == {(None, 1)}
    assert first.state_time_ms == 5
    second = advance(first, view(15, 20), Limits(max_bytes=1), {})
    assert second.unread_state == frozenset()
    assert advance(second, view(15, 20), NO_LIMITS, {}) == at(15, 20)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 60)), min_size=1, max_size=5),
    st.integers(1, 30),
)
def test_batches_meet_and_reach_the_end(buckets: list[tuple[int, int, int]], max_rows: int) -> None:
    """Whatever the positions: batches never go back or pass the end, and finally reach it."""
    start = at(*(position for position, _, _ in buckets))
    earliest = tuple(min(begin, latest) for _, begin, latest in buckets)
    table = view(*(latest for _, _, latest in buckets), earliest=earliest)
    position = start
    for turn in range(1000):
        end = advance(position, table, Limits(max_rows=max_rows), {}, turn)
        for key in end.positions:
            assert end.positions[key] >= position.positions[key]
        if end == position:
            break
        position = end
    for key, latest in table.latest.items():
        reached = position.positions[key]
        expired = reached < table.earliest[key]
        assert reached >= latest or (expired and table.earliest[key] == latest)


# ---- losses ----

PARTITION: BucketKey = (4, 0)


@pytest.mark.parametrize(
    ("start", "table", "last_seen", "losses"),
    [
        (at(5), view(9, earliest=(5,)), {}, []),
        (at(5), view(9, earliest=(6,)), {}, [Loss("expired", (None, 0), 5, 6)]),
        (at(5), view(3), {}, [Loss("receded", (None, 0), 5, 3)]),
        (at(5), view(9), {}, []),  # its beginning was not requested
        (StreamOffsets(7, {PARTITION: 5}), TableView({}), {PARTITION: 5}, []),
        (StreamOffsets(7, {PARTITION: 5}), TableView({}), {PARTITION: 6}, [Loss("dropped", PARTITION, 5, 6)]),
        (StreamOffsets(7, {PARTITION: 5}), TableView({}), {}, []),  # after a restart; it was not behind
        (
            StreamOffsets(7, {PARTITION: 5}, behind=frozenset({PARTITION})),
            TableView({}),
            {},
            [Loss("dropped", PARTITION, 5, None)],
        ),
        (
            StreamOffsets(7, {PARTITION: 5}, frozenset({PARTITION}), 1),
            TableView({}),
            {PARTITION: 5},
            [Loss("dropped", PARTITION, 5, 5)],
        ),
        (StreamOffsets(7, {}), TableView({PARTITION: 9}, {PARTITION: 2}), {}, [Loss("expired", PARTITION, 0, 2)]),
        (at(5, unread_state=frozenset({(None, 0)}), state_time_ms=1), view(9, earliest=(7,)), {}, []),
    ],
)
def test_what_is_lost(
    start: StreamOffsets, table: TableView, last_seen: dict[BucketKey, int], losses: list[Loss]
) -> None:
    assert find_losses(start, table, last_seen) == losses


def test_continuing_where_a_log_ends_now() -> None:
    start = at(5, 9)
    assert receded_to(start, [Loss("receded", (None, 0), 5, 3)]) == at(3, 9)
    assert receded_to(start, []) is start


def test_lag_is_the_rows_after_the_end() -> None:
    assert lag(at(5, 9), view(12, 8)) == {(None, 0): 7, (None, 1): 0}
