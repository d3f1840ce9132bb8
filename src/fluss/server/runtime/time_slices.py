"""Long work of one request in time slices, so that other requests are served in between.

Some requests need much work: a thousand prefixes, each with rows. How long a part takes is not known in advance, so the
clock is checked between parts. Everything runs in the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fluss.server.runtime.long_work import TIME_SLICE_SECONDS


class TimeSlices:
    """The time slices of one request; the first begins now."""

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or asyncio.get_running_loop().time
        self._until = self._clock() + TIME_SLICE_SECONDS

    async def yield_if_over(self) -> None:
        """Let the event loop run if the time slice is over; called between two parts of the work."""
        if self._clock() >= self._until:
            await asyncio.sleep(0)
            self._until = self._clock() + TIME_SLICE_SECONDS
