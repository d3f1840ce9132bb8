"""Limits of staged appends. Every limit has its unit in its name."""

from __future__ import annotations

import threading
from dataclasses import dataclass

# Bytes of requests that wait for a staging thread. Above this, senders have to wait.
MAX_QUEUED_BYTES = 64 * 1024 * 1024
STAGING_THREADS = 4


@dataclass(frozen=True)
class StagingLimits:
    """The limits of one tablet: how many bytes may be staged, and for how long."""

    expiration_ms: int
    max_bucket_bytes: int
    max_tablet_bytes: int
    reserved_free_bytes: int


class StagedBytes:
    """The bytes of all staged files of a tablet; counted by the staging threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.total = 0

    def add(self, size: int) -> None:
        """Count bytes; `size` is negative if they are removed."""
        with self._lock:
            self.total += size
            assert self.total >= 0, "more staged bytes were removed than added"
