"""Waiting in tests: for a condition, with one generous deadline for all, and never for a time to pass.

A deadline here says nothing about speed. It only ends a test that would wait forever, so it is far longer than anything
takes on a busy machine. For slower machines `FLUSS_TEST_PATIENCE` is a factor for all deadlines: `FLUSS_TEST_PATIENCE=4
python3 dev.py test`. `wait_until` and `eventually` apply it to the deadlines that they are given. Code that waits by
other means (a subprocess, a future, a thread that is joined) takes its time-out from `patience`.

Nothing outside the standard library is imported: the worker of the pyfluss cases runs in another environment.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

DEADLINE_SECONDS = 60.0
POLL_SECONDS = 0.01
FACTOR = float(os.environ.get("FLUSS_TEST_PATIENCE", "1"))
MAX_SEEN_CHARACTERS = 2000

T = TypeVar("T")


def patience(seconds: float) -> float:
    """A time-out that only ends tests that hang, multiplied by the factor for this machine."""
    return seconds * FACTOR


def wait_until(
    condition: Callable[[], T],
    what: str,
    deadline_seconds: float = DEADLINE_SECONDS,
    *,
    seen: Callable[[], object] | None = None,
) -> T:
    """Call `condition` until its result is true, and return the result.

    After the deadline, AssertionError with `what` and the last result; `seen` describes the state for this message.
    """
    wait = _Wait(what, deadline_seconds, seen)
    while not (answer := condition()):
        wait.check(answer)
        time.sleep(POLL_SECONDS)
    return answer


async def eventually(
    condition: Callable[[], Awaitable[object] | object],
    what: str,
    deadline_seconds: float = DEADLINE_SECONDS,
    *,
    seen: Callable[[], object] | None = None,
) -> None:
    """Wait like `wait_until`, in a coroutine. The condition may be a coroutine too; the loop runs between two calls."""
    wait = _Wait(what, deadline_seconds, seen)
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        wait.check(answer)
        await asyncio.sleep(POLL_SECONDS)


class _Wait:
    """The deadline of one wait, and the text of its failure."""

    def __init__(self, what: str, deadline_seconds: float, seen: Callable[[], object] | None) -> None:
        self._what = what
        self._seen = seen
        self._start = time.monotonic()
        self._seconds = patience(deadline_seconds)

    def check(self, answer: object) -> None:
        """Raise AssertionError if the deadline has passed."""
        passed = time.monotonic() - self._start
        if passed < self._seconds:
            return
        state = f"; last seen: {_short(self._seen())}" if self._seen is not None else ""
        raise AssertionError(f"not within {passed:.1f} s: {self._what}; the last answer: {_short(answer)}{state}")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= MAX_SEEN_CHARACTERS else f"... {text[-MAX_SEEN_CHARACTERS:]}"
