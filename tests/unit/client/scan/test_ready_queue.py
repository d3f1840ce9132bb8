"""The queue between threads: limits, positions, errors, bounds, waiting."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

from fluss.client.decode.decoder import Decoded
from fluss.client.decode.log_rows import LogRows
from fluss.client.scan import ready_queue
from fluss.client.scan.ready_queue import ReadyQueue
from fluss.client.scan.subscription import Subscription
from fluss.errors import FlussError
from fluss.values.basic import TableBucket
from tools.waiting import patience


def subscription(bucket: int = 0) -> Subscription:
    return Subscription(TableBucket(1, bucket), 0)


def step(owner: Subscription, first: int, count: int, *, next_offset: int | None = None, size: int = 100) -> Decoded:
    batch = pa.RecordBatch.from_arrays([pa.array(range(first, first + count))], ["id"])
    return Decoded(LogRows(owner.bucket, batch, first, 0), first + count if next_offset is None else next_offset, size)


def ids(taken: list[LogRows]) -> list[int]:
    return [value for rows in taken for value in rows.rows.column(0).to_pylist()]


@pytest.fixture
def room() -> list[int]:
    return []


@pytest.fixture
def queue(room: list[int]) -> ReadyQueue:
    return ReadyQueue(lambda: room.append(1))


def test_rows_come_in_order_and_move_the_position(queue: ReadyQueue) -> None:
    one = subscription()
    queue.put(one, [step(one, 0, 5), step(one, 5, 5, next_offset=12)])
    assert ids(queue.take(7)) == list(range(7))
    assert one.position == 7
    assert ids(queue.take(7)) == [7, 8, 9]
    assert one.position == 12
    assert queue.take(7) == []


def test_updates_are_not_split(queue: ReadyQueue) -> None:
    one = subscription()
    batch = pa.RecordBatch.from_arrays([pa.array([0, 1, 2])], ["id"])
    queue.put(one, [Decoded(LogRows(one.bucket, batch, 0, 0, bytes((2, 3, 1))), 3, 1)])
    assert ids(queue.take(1)) == [0, 1]
    assert ids(queue.take(1)) == [2]


def test_errors_come_after_the_rows_before_them(queue: ReadyQueue, room: list[int]) -> None:
    one, two = subscription(), subscription(1)
    one.waits_for_user = True
    queue.put(one, [step(one, 0, 2), Decoded(None, 2, error=FlussError("broken", 14))])
    queue.put(two, [step(two, 0, 1)])
    assert ids(queue.take(100)) == [0, 1]
    with pytest.raises(FlussError, match="broken"):
        queue.take(100)
    assert not one.waits_for_user
    assert room == [1]
    assert ids(queue.take(100)) == [0]


def test_ended_subscriptions_are_dropped(queue: ReadyQueue) -> None:
    one, two = subscription(), subscription(1)
    queue.put(one, [step(one, 0, 2), Decoded(None, 2, error=FlussError("broken", 14))])
    queue.put(two, [step(two, 5, 1)])
    one.active = False
    queue.put(one, [step(one, 2, 2)])
    assert ids(queue.take()) == [5]
    queue.recount()
    assert queue._ready_bytes == 0


def test_room_is_reported_once_when_half_is_free(
    queue: ReadyQueue, room: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_queue, "MAX_READY_BYTES", 10_000)
    one = subscription()
    for number in range(10):
        assert queue.has_room()
        queue.put(one, [step(one, number, 1, size=488)])
    assert not queue.has_room()
    for taken in range(5):
        assert room == []
        assert ids(queue.take(1)) == [taken]
    assert ids(queue.take(1)) == [5]
    assert room == [1]
    assert queue.has_room()


def test_a_large_step_is_counted_down_as_it_is_taken(queue: ReadyQueue) -> None:
    one = subscription()
    queue.put(one, [step(one, 0, 100, size=10_000)])
    for _ in range(9):
        queue.take(10)
    assert queue._ready_bytes <= 1_000 + ready_queue.STEP_OVERHEAD_BYTES
    queue.take(10)
    assert queue._ready_bytes == 0


def test_bounded_takes_stop_at_the_end_and_leave_the_rest(queue: ReadyQueue) -> None:
    one, two = subscription(), subscription(1)
    one.stop_offset, two.stop_offset = 3, 4
    queue.put(one, [step(one, 0, 5)])
    queue.put(two, [step(two, 0, 2)])
    assert ids(queue.take_bounded()) == [0, 1, 2, 0, 1]
    assert (one.position, one.is_finished, two.is_finished) == (3, True, False)
    queue.put(one, [step(one, 5, 1)])
    queue.put(two, [Decoded(None, 4)])
    assert queue.take_bounded() == []
    assert two.is_finished
    one.stop_offset = two.stop_offset = None
    queue.recount()
    assert ids(queue.take()) == [3, 4, 5]
    assert one.position == 6


def test_bounded_takes_of_filtered_rows(queue: ReadyQueue) -> None:
    one = subscription()
    one.stop_offset = 10
    batch = pa.RecordBatch.from_arrays([pa.array([1, 12])], ["id"])
    queue.put(one, [Decoded(LogRows(one.bucket, batch, 0, 0, None, np.array([1, 12])), 20, 1)])
    assert ids(queue.take_bounded()) == [1]
    assert one.is_finished
    one.stop_offset = None
    assert ids(queue.take()) == [12]
    assert one.position == 20


def test_waiters_are_called_once(queue: ReadyQueue) -> None:
    one = subscription()
    calls: list[int] = []
    assert queue.take(1, lambda: calls.append(1)) == []
    queue.put(one, [step(one, 0, 1)])
    queue.put(one, [step(one, 1, 1)])
    assert calls == [1]

    def forgotten() -> None:
        calls.append(2)

    queue.take()
    queue.take(1, forgotten)
    queue.forget(forgotten)
    queue.forget(forgotten)
    queue.wake()
    assert calls == [1]


def test_threads_lose_and_repeat_nothing(queue: ReadyQueue) -> None:
    per_bucket, buckets = 2_000, 3
    owners = [subscription(number) for number in range(buckets)]
    seen: dict[int, list[int]] = {number: [] for number in range(buckets)}
    lock = threading.Lock()
    finished = threading.Event()

    def produce(owner: Subscription) -> None:
        for first in range(0, per_bucket, 10):
            queue.put(owner, [step(owner, first, 10)])

    def consume() -> None:
        while not finished.is_set():
            arrived = threading.Event()
            with lock:  # what two takes return must be noted in their order
                taken = queue.take(7, arrived.set)
                for rows in taken:
                    seen[rows.bucket.bucket_id] += rows.rows.column(0).to_pylist()
                if all(len(found) == per_bucket for found in seen.values()):
                    finished.set()
            if not taken:
                arrived.wait(0.01)

    threads = [threading.Thread(target=produce, args=(owner,)) for owner in owners]
    threads += [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(60))
    assert finished.is_set()
    assert all(found == list(range(per_bucket)) for found in seen.values())
