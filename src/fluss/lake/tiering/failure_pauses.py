"""Tables whose rounds fail are paused before the next round, twice as long after every failure in a row.

Most failures last: a lake that is unreachable, an invalid property. A failing round costs as much as a successful one,
so the same error is not provoked over and over. A successful round ends the pause. Any thread may use this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 300.0


class FailingTables:
    """The pauses of failing tables, by table id.

    >>> failing = FailingTables(clock=lambda: 0.0)
    >>> [failing.failed(7) for _ in range(8)]
    [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    >>> failing.went_well(7)
    >>> failing.seconds_left(7)
    0.0
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pauses: dict[int, float] = {}
        self._until: dict[int, float] = {}

    def failed(self, table_id: int) -> float:
        """Record a failed round; return how long the table is paused now."""
        with self._lock:
            pause = min(self._pauses.get(table_id, FIRST_PAUSE_SECONDS / 2) * 2, LONGEST_PAUSE_SECONDS)
            self._pauses[table_id] = pause
            self._until[table_id] = self._clock() + pause
            return pause

    def went_well(self, table_id: int) -> None:
        """Record a successful round, or that the table was dropped."""
        with self._lock:
            self._pauses.pop(table_id, None)
            self._until.pop(table_id, None)

    def seconds_left(self, *table_ids: int) -> float:
        """The time until the first of these tables is no longer paused; 0 if one is not."""
        with self._lock:
            now = self._clock()
            return max(min((self._until.get(each, now) - now for each in table_ids), default=0.0), 0.0)
