"""How tests wait: for conditions, with one generous deadline for all, and never for a time to pass.

A deadline here is no statement about speed. It only ends a test that would wait without end, so it is far longer than
anything takes on a busy machine. `FLUSS_TEST_PATIENCE` is a factor for all of them, for machines that are slower still:
`FLUSS_TEST_PATIENCE=4 python3 dev.py test`. The two functions that wait apply it to what they are given; whatever waits
by other means (a subprocess, a future, a thread that is joined) takes its time-out from `patience`.

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
    """A time-out that is only there for tests that hang, made longer or shorter for this machine."""
    return seconds * FACTOR


def wait_until(
    condition: Callable[[], T],
    what: str,
    deadline_seconds: float = DEADLINE_SECONDS,
    *,
    seen: Callable[[], object] | None = None,
) -> T:
    """Ask until the answer is true, and return it; AssertionError says what never came and what was seen instead.

    `seen` describes the state of affairs, where the answer of the condition alone says too little.
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
    """The same in a coroutine; the condition may be one too. The loop runs between two questions."""
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
        """Fail if the time is up."""
        passed = time.monotonic() - self._start
        if passed < self._seconds:
            return
        state = f"; last seen: {_short(self._seen())}" if self._seen is not None else ""
        raise AssertionError(f"not within {passed:.1f} s: {self._what}; the last answer: {_short(answer)}{state}")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= MAX_SEEN_CHARACTERS else f"... {text[-MAX_SEEN_CHARACTERS:]}"
