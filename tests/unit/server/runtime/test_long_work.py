"""Work in steps: one turn each time the event loop comes round, and everybody has one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fluss.server.runtime.long_work import TIME_SLICE_SECONDS, LongWork
from tests.support.event_loop import in_event_loop


class Steps:
    """Work that takes half a turn for each step, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done: list[str] = []

    def of(self, name: str, count: int) -> Iterator[None]:
        for _ in range(count):
            self.now += TIME_SLICE_SECONDS / 2
            self.done.append(name)
            yield


async def rounds_until(steps: Steps, count: int) -> list[int]:
    """How many steps were done after each round of the event loop."""
    seen = []
    while len(steps.done) < count:
        await asyncio.sleep(0)
        seen.append(len(steps.done))
    return seen


@in_event_loop
async def test_a_round_of_the_loop_has_one_turn_whoever_waits() -> None:
    steps = Steps()
    work = LongWork(lambda: steps.now)
    work.start(steps.of("a", 5))
    work.start(steps.of("b", 3))
    assert steps.done == []
    assert await rounds_until(steps, 8) == [2, 4, 6, 7, 8]
    assert "".join(steps.done) == "aabbaaba"


@in_event_loop
async def test_work_that_is_done_within_its_turn_does_not_take_the_next_one_along() -> None:
    steps = Steps()
    work = LongWork(lambda: steps.now)
    for name in "abc":
        work.start(steps.of(name, 1))
    assert await rounds_until(steps, 3) == [1, 2, 3]


@in_event_loop
async def test_work_that_fails_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> Iterator[None]:
        yield
        raise ValueError("a defect")

    steps = Steps()
    work = LongWork(lambda: steps.now)
    work.start(fails())
    work.start(steps.of("a", 1))
    await rounds_until(steps, 1)
    assert "a defect" in caplog.text
