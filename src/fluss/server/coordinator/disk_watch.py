"""Logs that the disk of the data directory is filling up, before writes are refused.

It logs one line when a level is reached and one when there is space again, not one per check.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)

LEVELS_PERCENT = (80, 90, 95)
# The usage must fall this far below a level before the level counts as left. Otherwise a disk whose usage varies around
# a level would log a line each time.
ROOM_AGAIN_PERCENT = 2
CHECK_INTERVAL_MS = 10_000


class DiskWatch:
    """Watches one disk; the coordinator calls `check` regularly."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._level = 0

    def check(self) -> None:
        """Log a line if the level has changed since the last check."""
        try:
            status = os.statvfs(self._data_dir)
        except OSError as error:
            logger.warning("cannot check the disk of %s: %s", self._data_dir, error)
            return
        usable = status.f_blocks - status.f_bfree + status.f_bavail  # space that is reserved for root is not free
        self.note(100 - 100 * status.f_bavail / max(usable, 1), status.f_bavail * status.f_frsize)

    def note(self, used_percent: float, free_bytes: int) -> None:
        """Log a line if the usage has reached another level than the one that was logged last."""
        level = max((each for each in LEVELS_PERCENT if used_percent >= each), default=0)
        if level > self._level:
            logger.warning(
                "the disk of %s is %.0f %% full, %d MB are left: free some space, or lower table.log.ttl. Writes are "
                "refused when it is full; nothing is lost",
                self._data_dir,
                used_percent,
                free_bytes // 1_000_000,
            )
        elif level < self._level and used_percent < self._level - ROOM_AGAIN_PERCENT:
            logger.info("the disk of %s is %.0f %% full: there is enough space again", self._data_dir, used_percent)
        else:
            return
        self._level = level
