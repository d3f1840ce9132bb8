"""Cutting micro-batches into tasks: no row twice or left out, few tasks for few rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fluss.spark.stream.offsets import BucketKey, StreamOffsets
from fluss.spark.stream.tasks import MAX_SHARED_TASK_ROWS, plan_tasks


def offsets(*numbers: int, partition_id: int | None = None) -> StreamOffsets:
    return StreamOffsets(7, {(partition_id, bucket): number for bucket, number in enumerate(numbers)})


def test_few_rows_share_a_task_and_many_do_not() -> None:
    many = MAX_SHARED_TASK_ROWS
    tasks = plan_tasks(offsets(0, 0, 0, 0), offsets(5, 0, many, 7), None)
    assert [[each.key[1] for each in task.ranges] for task in tasks] == [[0, 3], [2]]
    assert all(task.table_id == 7 and task.state is None for task in tasks)


def test_new_partitions_begin_at_zero_and_dropped_ones_are_left_out() -> None:
    start = StreamOffsets(7, {(1, 0): 3, (2, 0): 3})
    end = StreamOffsets(7, {(2, 0): 3, (3, 0): 4})
    (task,) = plan_tasks(start, end, None, {3: "wed"})
    assert [(each.key, each.start, each.stop) for each in task.ranges] == [((3, 0), 0, 4)]
    assert task.partition_names == {3: "wed"}


def test_state_is_one_task_per_bucket_at_the_offset_of_the_start() -> None:
    keys = frozenset({(None, 0), (None, 1), (None, 2)})
    start = StreamOffsets(7, {(None, 0): 4, (None, 1): 5, (None, 2): 6}, keys, 99)
    end = StreamOffsets(7, start.positions, frozenset({(None, 2)}), 99)
    tasks = plan_tasks(start, end, None)
    assert [task.state for task in tasks] == [((None, 0), 4), ((None, 1), 5)]
    assert {task.state_time_ms for task in tasks} == {99}


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 60_000)), min_size=1, max_size=8),
    st.none() | st.integers(1, 30_000),
)
def test_every_offset_is_in_exactly_one_task(buckets: list[tuple[int, int]], max_rows: int | None) -> None:
    start = offsets(*(first for first, _ in buckets))
    end = offsets(*(first + count for first, count in buckets))
    covered: dict[BucketKey, list[tuple[int, int]]] = {}
    for task in plan_tasks(start, end, max_rows):
        keys = [each.key for each in task.ranges]
        assert len(set(keys)) == len(keys), "a bucket is in a task once"
        for each in task.ranges:
            assert max_rows is None or each.rows <= max_rows
            covered.setdefault(each.key, []).append((each.start, each.stop))
        if max_rows is not None:
            assert sum(each.rows for each in task.ranges) <= max(max_rows, 1)
    for bucket, (first, count) in enumerate(buckets):
        pieces = sorted(covered.get((None, bucket), []))
        position = first
        for begin, stop in pieces:
            assert begin == position
            assert stop > begin
            position = stop
        assert position == first + count
