"""Log lines that a peer can cause, limited in number: nobody can fill a disk by sending garbage."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

MAX_LINES_PER_WINDOW = 10
WINDOW_SECONDS = 60.0


class QuietLog:
    """At most `MAX_LINES_PER_WINDOW` lines per kind and window; the next window begins with how many were left out.

    Kinds are literals in our code, so their number is bounded. Used in the event loop's thread only.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._windows: dict[str, list[float]] = {}  # kind -> [start of the window, lines in it]

    def log(
        self, level: int, kind: str, message: str, *arguments: object, exception: BaseException | None = None
    ) -> None:
        """Write the line, or only count it."""
        now = self._clock()
        window = self._windows.get(kind)
        left_out = 0
        if window is None:
            window = self._windows[kind] = [now, 0]
        elif now - window[0] >= WINDOW_SECONDS:
            left_out = max(0, int(window[1]) - MAX_LINES_PER_WINDOW)
            window[0], window[1] = now, 0
        window[1] += 1
        if window[1] > MAX_LINES_PER_WINDOW:
            return
        if left_out:
            self._logger.log(level, "%d more lines like the next one were left out", left_out)
        self._logger.log(level, message, *arguments, exc_info=exception)
