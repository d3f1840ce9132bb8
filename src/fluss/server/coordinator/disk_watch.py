"""Says in the log that the disk of the data directory fills up, before writes are refused.

One line when a level is reached, one when there is room again: never one per look.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)

LEVELS_PERCENT = (80, 90, 95)
# A disk that goes up and down around a level would say so every time.
ROOM_AGAIN_PERCENT = 2
CHECK_INTERVAL_MS = 10_000


class DiskWatch:
    """Looks at one disk; the coordinator calls `check` from time to time."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._level = 0

    def check(self) -> None:
        """Compare with the last look."""
        try:
            status = os.statvfs(self._data_dir)
        except OSError as error:
            logger.warning("the disk of %s cannot be looked at: %s", self._data_dir, error)
            return
        usable = status.f_blocks - status.f_bfree + status.f_bavail  # what root alone may use is nobody's room
        self.note(100 - 100 * status.f_bavail / max(usable, 1), status.f_bavail * status.f_frsize)

    def note(self, used_percent: float, free_bytes: int) -> None:
        """The disk is so full now."""
        level = max((each for each in LEVELS_PERCENT if used_percent >= each), default=0)
        if level > self._level:
            logger.warning(
                "the disk of %s is %.0f %% full, %d MB are left: make room, or shorten table.log.ttl. Writes are "
                "refused when it is full; nothing is lost",
                self._data_dir,
                used_percent,
                free_bytes // 1_000_000,
            )
        elif level < self._level and used_percent < self._level - ROOM_AGAIN_PERCENT:
            logger.info("the disk of %s is %.0f %% full: there is room again", self._data_dir, used_percent)
        else:
            return
        self._level = level
