"""Limits and settings of bucket logs. Every limit has its unit in its name."""

from __future__ import annotations

import resource
from dataclasses import dataclass

# Positions and relative offsets in index files are int32.
MAX_SEGMENT_BYTES = 2**31 - 1
MAX_RELATIVE_OFFSET = 2**31 - 1
# The last batches of a writer that are recognised as duplicates: clients keep at most this many in flight.
DUPLICATE_WINDOW_BATCHES = 5
# A group of the commit thread: larger groups save syncs, smaller ones answer sooner.
MAX_GROUP_BYTES = 32 * 1024 * 1024
# Added to the bytes of each queued append, for the objects around it.
APPEND_OVERHEAD_BYTES = 512
# Threads that sync files beside the commit thread when a group touches several files.
MAX_SYNC_HELPERS = 3
# The maximum number of files that the commit thread keeps open for appending, and of segments that readers keep mapped
# (up to three descriptors each). At most an eighth of the process's limit of open files: the rest is for connections.
MAX_OPEN_FILES = 4096
MIN_OPEN_FILES = 16
# Appends leave this much of the disk free: without it, nothing could be dropped, expired or checkpointed either.
RESERVED_FREE_BYTES = 8 * 1024 * 1024
# A short tail that is not mapped yet is read with one pread instead of a new mapping.
MAX_PREAD_BYTES = 64 * 1024
# The bytes of a sealed segment that the kernel is asked to read ahead of a reader.
READ_AHEAD_BYTES = 8 * 1024 * 1024


def open_files_limit() -> int:
    """The number of files that may stay open for appending, and of segments that may stay mapped for reading."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return MAX_OPEN_FILES
    return max(MIN_OPEN_FILES, min(MAX_OPEN_FILES, soft_limit // 8))


@dataclass(frozen=True)
class LogOptions:
    """Settings of one bucket log."""

    segment_bytes: int = 1024 * 1024 * 1024
    index_interval_bytes: int = 4096
    # The recovery point is at most this far behind, so a start scans at most about this much per bucket.
    checkpoint_bytes: int = 32 * 1024 * 1024
    checkpoint_interval_ms: int = 30_000
    writer_expiration_ms: int = 7 * 24 * 3600 * 1000
    max_writers_per_bucket: int = 50_000
    # Appends are refused, as on a full disk, when they would leave less than this.
    reserved_free_bytes: int = 0

    def __post_init__(self) -> None:
        for name in ("segment_bytes", "index_interval_bytes", "checkpoint_bytes", "max_writers_per_bucket"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than zero, got {getattr(self, name)!r}")

    @property
    def roll_bytes(self) -> int:
        """The size at which a segment is rolled. Only a single append that is larger may exceed it."""
        return min(self.segment_bytes, MAX_SEGMENT_BYTES)
