"""Long work of a process in steps: one time slice of about ten milliseconds per iteration of the event loop.

`time_slices` is for the work of a single request. `LongWork` is for work that one request can start many times, such as
puts into a hundred buckets: if each were a task, other requests would wait for a time slice of every one of them. Here
all work waits in one queue, and only the first item gets a time slice between two polls of the sockets; then it goes to
the end of the queue.

Work is an iterator, each step of which should take a few milliseconds and handle its own errors. Everything runs in the
event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator

TIME_SLICE_SECONDS = 0.01
_logger = logging.getLogger(__name__)


class LongWork:
    """The queue of long work; one per process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: deque[Iterator[None]] = deque()

    def start(self, work: Iterator[None]) -> None:
        """Queue work, which starts soon; work that takes one time slice finishes in the order of arrival."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        # Work stays in the queue until its time slice is over, so that `start`, called meanwhile, schedules no second
        # turn.
        work = self._waiting[0]
        until = self._clock() + TIME_SLICE_SECONDS
        is_done = False
        try:
            next(work)
            while self._clock() < until:
                next(work)
        except StopIteration:
            is_done = True
        except Exception:
            _logger.exception("long work failed and was given up")
            is_done = True
        self._waiting.popleft()
        if not is_done:
            self._waiting.append(work)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
