"""Long work in steps: one time slice per iteration of the event loop, shared in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fluss.server.runtime.long_work import TIME_SLICE_SECONDS, LongWork
from tests.support.harness.event_loop import in_event_loop


class Steps:
    """Work whose steps take half a time slice each, by its own clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done: list[str] = []

    def of(self, name: str, count: int) -> Iterator[None]:
        for _ in range(count):
            self.now += TIME_SLICE_SECONDS / 2
            self.done.append(name)
            yield


async def rounds_until(steps: Steps, count: int) -> list[int]:
    """Return how many steps were done after each iteration of the event loop."""
    seen = []
    while len(steps.done) < count:
        await asyncio.sleep(0)
        seen.append(len(steps.done))
    return seen


@in_event_loop
async def test_an_iteration_of_the_loop_has_one_time_slice_for_all_work() -> None:
    steps = Steps()
    work = LongWork(lambda: steps.now)
    work.start(steps.of("a", 5))
    work.start(steps.of("b", 3))
    assert steps.done == []
    assert await rounds_until(steps, 8) == [2, 4, 6, 7, 8]
    assert "".join(steps.done) == "aabbaaba"


@in_event_loop
async def test_finished_work_does_not_use_the_time_slice_of_the_next() -> None:
    steps = Steps()
    work = LongWork(lambda: steps.now)
    for name in "abc":
        work.start(steps.of(name, 1))
    assert await rounds_until(steps, 3) == [1, 2, 3]


@in_event_loop
async def test_failed_work_does_not_affect_other_work(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> Iterator[None]:
        yield
        raise ValueError("a defect")

    steps = Steps()
    work = LongWork(lambda: steps.now)
    work.start(fails())
    work.start(steps.of("a", 1))
    await rounds_until(steps, 1)
    assert "a defect" in caplog.text
