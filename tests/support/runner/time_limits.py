"""A pytest plug-in: set-up, call and tear-down of a test that hang fail, each by itself, and show where they hung.

Three stages, all counted from the start of a phase:

1. after `STACKS_SECONDS` the stacks of all threads are printed, and the test goes on;
2. after `TEST_LIMIT_SECONDS` they are printed again and `TestHangsError` is raised in the main thread, and again every
   `REPEAT_SECONDS` in case something took the error for its own;
3. after `LAST_RESORT_SECONDS` the process ends: its main thread is in foreign code that never looks at signals.

Stages 1 and 2 run in a signal handler, that is in the main thread between two steps of Python: nothing moves under
them. Stage 3 is `faulthandler` with a thread of its own, which reads stacks while they change and may crash on that;
then the process ends as well.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Generator
from types import FrameType
from typing import TextIO

import pytest

from tools.waiting import patience

# Generous, since it is only there for tests that would never end.
BASE_LIMIT_SECONDS = float(os.environ.get("FLUSS_TEST_LIMIT_SECONDS", "300"))
TEST_LIMIT_SECONDS = patience(BASE_LIMIT_SECONDS)
STACKS_SECONDS = 0.5 * TEST_LIMIT_SECONDS
LAST_RESORT_SECONDS = 1.5 * TEST_LIMIT_SECONDS
REPEAT_SECONDS = 0.1 * TEST_LIMIT_SECONDS
STACK_LINES_PER_THREAD = 25


class TestHangsError(BaseException):
    """A phase of the test ran longer than `TEST_LIMIT_SECONDS`.

    Not an `Exception`: code under test may catch those and try again.
    """

    __test__ = False


_terminal: TextIO = sys.stderr


def pytest_configure() -> None:
    """Keep the real standard error: what goes there during a test is captured otherwise."""
    global _terminal
    _terminal = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")


def pytest_unconfigure() -> None:
    """Nothing is running any more that could hang."""
    if _terminal is not sys.stderr:
        _terminal.close()


def all_stacks() -> str:
    """What every thread of this process does, the main thread last."""
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    parts = []
    for ident, frame in sorted(sys._current_frames().items(), key=lambda item: item[0] == main):
        lines = traceback.format_stack(frame)[-STACK_LINES_PER_THREAD:]
        parts.append(f"--- thread {threads.get(ident, ident)}\n{''.join(lines)}")
    return "\n".join(parts)


def _limited(nodeid: str, phase: str) -> Generator[None, object, object]:
    """The body of the three hooks."""
    begin = time.monotonic()

    def look(number: int, frame: FrameType | None) -> None:
        seconds = time.monotonic() - begin
        print(f"\n{phase} of {nodeid} runs for {seconds:.0f} s\n{all_stacks()}", file=_terminal)
        if seconds >= TEST_LIMIT_SECONDS:
            raise TestHangsError(f"{phase}: no result after {seconds:.0f} s")
        signal.setitimer(signal.ITIMER_REAL, max(TEST_LIMIT_SECONDS - seconds, 0.001), REPEAT_SECONDS)

    previous = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, STACKS_SECONDS, REPEAT_SECONDS)
    faulthandler.dump_traceback_later(LAST_RESORT_SECONDS, exit=True, file=_terminal)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Fixtures that begin."""
    return (yield from _limited(item.nodeid, "set-up"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """The test itself."""
    return (yield from _limited(item.nodeid, "call"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Fixtures that end, also those of the module or the session with its last test."""
    return (yield from _limited(item.nodeid, "tear-down"))
