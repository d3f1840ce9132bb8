"""Unit tests of buffers, leases and eager tasks."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fluss.server.network import eager_tasks
from fluss.server.network.buffers import (
    MAX_POOLED_BUFFER_BYTES,
    MIN_STEP_BYTES,
    TURN_BYTES,
    BufferPool,
    BytesInMemory,
    Lease,
    ReceivedInMemory,
)
from tools.waiting import patience


def test_buffers_are_reused_newest_first_and_the_pool_is_bounded() -> None:
    pool = BufferPool(max_pooled_bytes=1 << 20)
    first, second = pool.take(300_000), pool.take(400_000)
    assert (len(first), len(second)) == (1 << 19, 1 << 19)
    pool.give_back(first)
    pool.give_back(second)
    assert pool.pooled_bytes == 1 << 20
    pool.give_back(pool.take(1 << 20))
    assert pool.pooled_bytes == 1 << 20, "a third buffer did not fit"
    assert pool.take(500_000) is second
    assert pool.take(500_000) is first
    assert pool.pooled_bytes == 0


def test_very_big_buffers_are_not_pooled() -> None:
    pool = BufferPool(max_pooled_bytes=1 << 30)
    buffer = pool.take(MAX_POOLED_BUFFER_BYTES + 1)
    assert len(buffer) == MAX_POOLED_BUFFER_BYTES + 1
    pool.give_back(buffer)
    assert pool.pooled_bytes == 0


def test_only_the_oldest_frame_continues_when_memory_is_full() -> None:
    received = BytesInMemory(100)
    woken: list[int] = []
    received.begin(1)
    received.begin(2)
    received.charge(100)
    assert received.may_continue(1)
    assert not received.may_continue(2)
    received.wait(2, lambda: woken.append(2))
    received.wait(3, lambda: woken.append(3))
    received.end(1)
    assert woken == [2], "now 2 is the oldest"
    received.refund(50)
    assert woken == [2, 3]
    assert not received.has_waiting


def test_early_frames_leave_shares_to_later_ones() -> None:
    received = ReceivedInMemory(100, 40)
    woken: list[int] = []
    received.begin_frame(1, 50)
    received.charge_frame(1, 30)
    received.begin_frame(2, 50)
    received.charge_frame(2, 30)
    assert not received.may_continue(2), "60 are taken, and 2 has its share: a quarter of 40"
    received.begin_frame(3, 50)
    assert received.share_bytes == 6
    assert received.may_continue(3), "it has nothing yet"
    received.charge_frame(3, 6)
    assert not received.may_continue(3)
    received.wait(3, lambda: woken.append(3))
    assert received.may_continue(4), "a small frame of another"
    assert received.may_continue(1), "the oldest ends, so that there is always one that does"
    received.refund(30)
    received.end(2)
    assert woken == [3], "there is room again"
    received.charge(100)
    assert not received.may_continue(4), "the limit holds for all but the oldest"


def test_frames_above_their_share_leave_room_for_ordinary_ones() -> None:
    received = ReceivedInMemory(1000, 400)
    received.begin_frame(0, 500)
    received.charge_frame(0, 500)
    for owner in range(1, 40):
        received.begin_frame(owner, 500)
        while received.may_continue(owner):
            received.charge_frame(owner, 1)
    assert received.bytes == 800, "half of what is shared is free, though each had its share when it came"
    received.begin_frame(40, 1)
    assert received.may_continue(40)
    received.charge(200)
    assert not received.may_continue(40)


def test_frames_receive_a_bounded_number_of_bytes_in_a_turn_of_the_loop() -> None:
    async def run() -> None:
        received = ReceivedInMemory(1 << 30, 1 << 20, asyncio.get_running_loop())
        for owner in range(4):
            received.begin_frame(owner, 100 << 20)
        for owner in range(4):
            taken = 0
            while not received.turn_is_over(taken):
                step = received.step_bytes(owner)
                received.charge_frame(owner, step)
                taken += step
            assert taken == TURN_BYTES // 4
        assert received.turn_is_over(0), "the turn belongs to all of them together"
        assert received.step_bytes(0) == MIN_STEP_BYTES
        await asyncio.sleep(0)
        assert not received.turn_is_over(0)

    asyncio.run(run())


def test_a_lease_ends_once() -> None:
    loop = asyncio.new_event_loop()
    received, pool = BytesInMemory(1000), BufferPool(1 << 20)
    buffer = pool.take(1)
    received.charge(10)
    lease = Lease(loop, received, 10, pool, buffer)
    lease.release()
    lease.release()
    lease.abandon()
    assert (received.bytes, pool.pooled_bytes) == (0, len(buffer))
    loop.close()


def test_an_abandoned_buffer_is_not_reused() -> None:
    loop = asyncio.new_event_loop()
    received, pool = BytesInMemory(1000), BufferPool(1 << 20)
    received.charge(10)
    Lease(loop, received, 10, pool, pool.take(1)).abandon()
    assert (received.bytes, pool.pooled_bytes) == (0, 0)
    loop.close()


def test_a_lease_may_be_released_by_another_thread() -> None:
    async def run() -> int:
        received = BytesInMemory(1000)
        received.charge(10)
        lease = Lease(asyncio.get_running_loop(), received, 10)
        thread = threading.Thread(target=lease.release)
        thread.start()
        await asyncio.get_running_loop().run_in_executor(None, thread.join)
        await asyncio.sleep(0)  # the refund was posted to this loop before the thread ended
        return received.bytes

    assert asyncio.run(asyncio.wait_for(run(), patience(60))) == 0


def test_eager_tasks_run_the_first_part_at_once() -> None:
    seen: list[str] = []

    async def quick() -> int:
        seen.append("quick")
        return 1

    async def slow(gate: asyncio.Future[int]) -> int:
        seen.append("slow begins")
        try:
            value = await asyncio.wait_for(gate, patience(60))
            await asyncio.sleep(0)
        except RuntimeError as error:
            seen.append(str(error))
            return -1
        seen.append("slow ends")
        return value

    async def failing() -> int:
        raise ValueError("no")

    async def run() -> None:
        loop = asyncio.get_running_loop()
        gate: asyncio.Future[int] = loop.create_future()
        broken: asyncio.Future[int] = loop.create_future()
        slow_future = eager_tasks.start_eagerly(slow(gate), loop)
        broken_future = eager_tasks.start_eagerly(slow(broken), loop)
        quick_future = eager_tasks.start_eagerly(quick(), loop)
        failing_future = eager_tasks.start_eagerly(failing(), loop)
        assert seen == ["slow begins", "slow begins", "quick"]
        assert quick_future.done()
        assert quick_future.result() == 1
        assert isinstance(failing_future.exception(), ValueError)
        assert not slow_future.done()
        gate.set_result(5)
        broken.set_exception(RuntimeError("broken"))
        assert await slow_future == 5
        assert await broken_future == -1
        cancelled = eager_tasks.start_eagerly(slow(loop.create_future()), loop)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    asyncio.run(run())
    assert seen[3:5] in (["slow ends", "broken"], ["broken", "slow ends"])
