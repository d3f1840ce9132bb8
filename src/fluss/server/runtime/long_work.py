"""Long work of a process in steps: one turn of about ten milliseconds each time the event loop comes round.

`time_slices` is for a request that works alone. This is for work that one request can begin many times over, such as
puts into a hundred buckets: were each of them a task of its own, others would wait for a turn of every one of them.
Here all wait in one queue, and only the first has a turn between two looks at the sockets; then it goes to the end.

Work is an iterator, each step of which should take a few milliseconds. It deals with its own errors. All in the event
loop's thread.
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
    """See the module text. One per process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: deque[Iterator[None]] = deque()

    def start(self, work: Iterator[None]) -> None:
        """Do the work, beginning soon; in the order of arrival, as far as it is done in one turn."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        # It stays in the queue until its turn is over: whatever is started meanwhile needs no turn of its own.
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
            _logger.exception("work in steps failed")
            is_done = True
        self._waiting.popleft()
        if not is_done:
            self._waiting.append(work)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
