"""The I/O thread: hand-over from threads and event loops, errors, cancelling, ending when idle."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from fluss.client.net import io_thread
from fluss.client.net.io_thread import IoThread
from fluss.errors import ErrorCode, FlussError
from tools.waiting import patience, wait_until

DEADLINE_SECONDS = patience(60.0)


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    """An idle stop that an earlier test left pending does not end the thread in the middle of a test."""
    io = IoThread.acquired()
    yield
    io.release()


async def thread_name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def fail() -> None:
    raise FlussError("broken", 7)


async def forever() -> None:
    await asyncio.Event().wait()


def test_there_is_one_thread_for_all() -> None:
    assert IoThread.shared() is IoThread.shared()
    assert IoThread.shared().run(thread_name()) == "fluss-io"


def test_results_and_errors_reach_a_blocking_caller() -> None:
    io = IoThread.shared()
    with pytest.raises(FlussError, match="broken"):
        io.run(fail())
    with pytest.raises(FlussError) as caught:
        io.run(forever(), timeout=0.02)
    assert caught.value.error_code == ErrorCode.REQUEST_TIME_OUT


def test_results_and_errors_reach_any_event_loop() -> None:
    io = IoThread.shared()

    async def body() -> None:
        assert await io.awaitable(thread_name()) == "fluss-io"
        with pytest.raises(FlussError, match="broken"):
            await io.awaitable(fail())
        assert await asyncio.gather(*(io.awaitable(thread_name()) for _ in range(20))) == ["fluss-io"] * 20

    asyncio.run(body())
    asyncio.run(body())


def test_cancelling_reaches_the_work() -> None:
    io = IoThread.shared()
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await forever()
        finally:
            ended.set()

    async def body() -> None:
        waiting = asyncio.ensure_future(io.awaitable(work()))
        assert await asyncio.to_thread(begun.wait, DEADLINE_SECONDS)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting, 0.05)

    asyncio.run(body())
    assert ended.wait(DEADLINE_SECONDS)
    begun.clear()
    ended.clear()
    future = io.submit(work())
    assert begun.wait(DEADLINE_SECONDS)
    future.cancel()
    assert ended.wait(DEADLINE_SECONDS)
    with pytest.raises(FlussError):
        io.run(work(), timeout=0.05)


def test_work_that_is_cancelled_before_it_begins_is_not_left_running() -> None:
    io = IoThread.shared()
    go_on = threading.Event()
    io.call_soon(go_on.wait, DEADLINE_SECONDS)  # the thread is busy with something else
    never = asyncio.Event()  # kept, so that no work is left out because it was collected

    async def work() -> None:
        await never.wait()

    async def body() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(io.awaitable(work()), 0.02)

    async def running() -> str:
        return str(asyncio.all_tasks())

    asyncio.run(body())
    io.submit(work()).cancel()
    go_on.set()
    wait_until(lambda: work.__qualname__ not in io.run(running()), "nothing waits for it any more")


def test_a_loop_that_is_gone_is_no_problem() -> None:
    io = IoThread.shared()
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()

    async def body() -> None:
        io.awaitable(work())

    asyncio.run(body())
    io.call_soon(gate.set)
    assert io.run(thread_name()) == "fluss-io"


def test_blocking_on_the_own_thread_is_refused() -> None:
    io = IoThread.shared()

    async def body() -> None:
        io.run(thread_name())

    with pytest.raises(FlussError, match="client's I/O thread"):
        io.run(body())


def test_an_awaitable_needs_an_event_loop() -> None:
    with pytest.raises(FlussError, match="requires a running event loop"):
        IoThread.shared().awaitable(thread_name())


def test_an_unused_thread_ends_and_a_new_one_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_thread, "IDLE_STOP_SECONDS", 0.01)
    monkeypatch.setattr(io_thread, "_shared", None)
    first = IoThread.acquired()
    first.acquire()
    first.release()
    assert first.run(thread_name()) == "fluss-io"
    first.release()
    wait_until(lambda: not first._thread.is_alive(), "the thread ends")
    with pytest.raises(FlussError, match="has ended"):
        first.run(thread_name())
    second = IoThread.acquired()
    assert second is not first
    assert second.run(thread_name()) == "fluss-io"
    second.stop()
    assert not second._thread.is_alive()
