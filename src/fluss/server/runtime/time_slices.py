"""Long work of one request in turns, so that others are served between them.

Some requests mean much work: a thousand prefixes, each with rows. How long a part of it takes is not known before, so
the clock is looked at between the parts. All in the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fluss.server.runtime.long_work import TIME_SLICE_SECONDS


class TimeSlices:
    """The turns of one request; the first begins now."""

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or asyncio.get_running_loop().time
        self._until = self._clock() + TIME_SLICE_SECONDS

    async def yield_if_over(self) -> None:
        """Between two parts: let the event loop run, if this turn has lasted long enough."""
        if self._clock() >= self._until:
            await asyncio.sleep(0)
            self._until = self._clock() + TIME_SLICE_SECONDS
