"""One segment of a bucket's log: a file of batches, its place in the log, and what is known about its bytes.

Sizes, from left to right in the file:

    0 .. trusted_from      written by an earlier process and not scanned at the start: checked when first read
    .. committed_size      readable: below the high watermark
    .. size                accepted and queued, perhaps written; may be taken back

A segment is *active* (the last one) or *sealed* (it never changes again once it is committed up to `size`). Owned by
the loop thread; the commit thread only uses `base_offset` and `log_path`.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import NamedTuple

from fluss.codec.batches.log_scan import Damage
from fluss.server.storage.log.index import NO_TIMESTAMP, SegmentIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
_NAME_DIGITS = 20


class SegmentInfo(NamedTuple):
    """Description of a sealed segment for other modules, for instance to copy it."""

    path: str
    index_path: str
    time_index_path: str
    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp: int
    # True if its index files are complete. Until the next checkpoint the newest entries are only in memory.
    is_indexed: bool = True


class Segment:
    """A file of batches and its state: sizes, offsets, index, damage."""

    __slots__ = (
        "_stem",
        "base_offset",
        "committed_size",
        "damages",
        "end_offset",
        "index",
        "log_path",
        "max_timestamp",
        "rebuilt_end_offset",
        "rebuilt_end_position",
        "rebuilt_index",
        "sealed",
        "size",
        "stored_entries",
        "trusted_from",
        "verified",
    )

    def __init__(self, directory: str, base_offset: int) -> None:
        self._stem = f"{directory}/{base_offset:0{_NAME_DIGITS}d}"
        self.log_path = self._stem + LOG_SUFFIX
        self.base_offset = base_offset
        self.size = 0
        self.committed_size = 0
        # The offset after the last committed batch; for a sealed segment the base offset of the next one.
        self.end_offset = base_offset
        # The largest committed timestamp; unknown (NO_TIMESTAMP) for a sealed segment until it is first needed.
        self.max_timestamp = NO_TIMESTAMP
        self.sealed = False
        # In memory while the segment is written; None once the index files are complete.
        self.index: SegmentIndex | None = None
        # Numbers of offset and time entries in the complete index files of a sealed segment.
        self.stored_entries: tuple[int, int] | None = None
        self.trusted_from = 0
        self.verified: list[tuple[int, int]] = []
        self.damages: list[Damage] = []
        # Index built by a scan because the segment or its index file had an inconsistency.
        self.rebuilt_index: SegmentIndex | None = None
        self.rebuilt_end_offset = base_offset
        self.rebuilt_end_position = 0

    @property
    def index_path(self) -> str:
        return self._stem + INDEX_SUFFIX

    @property
    def time_index_path(self) -> str:
        return self._stem + TIME_INDEX_SUFFIX

    @property
    def paths(self) -> tuple[str, str, str]:
        return self.log_path, self.index_path, self.time_index_path

    def info(self) -> SegmentInfo:
        return SegmentInfo(
            self.log_path,
            self.index_path,
            self.time_index_path,
            self.base_offset,
            self.end_offset,
            self.committed_size,
            self.max_timestamp,
            self.index is None,
        )

    def damage_at(self, position: int) -> Damage | None:
        """The damaged range that contains a byte position."""
        for damage in self.damages:
            if damage.start <= position < damage.end:
                return damage
        return None

    def next_damage(self, position: int) -> Damage | None:
        """The first damaged range after a byte position."""
        found = [damage for damage in self.damages if damage.start > position]
        return min(found) if found else None

    def is_verified(self, start: int, end: int) -> bool:
        """True if this process has checked every byte of the range."""
        if start >= self.trusted_from:
            return True
        end = min(end, self.trusted_from)
        found = bisect_right(self.verified, (start, self.trusted_from))
        return found > 0 and self.verified[found - 1][1] >= end

    def add_verified(self, start: int, end: int) -> None:
        """Record that a range was checked. Adjacent ranges are merged, so a sequential reader needs one entry."""
        merged = []
        for low, high in self.verified:
            if high < start or low > end:
                merged.append((low, high))
            else:
                start, end = min(start, low), max(end, high)
        merged.append((start, end))
        merged.sort()
        self.verified = merged


def segment_file_name(base_offset: int) -> str:
    """The name of the `.log` file that begins at an offset."""
    return f"{base_offset:0{_NAME_DIGITS}d}{LOG_SUFFIX}"


def segment_base_offset(name: str) -> int | None:
    """The base offset in the name of a `.log` file; None for any other name."""
    stem, suffix = os.path.splitext(name)
    if suffix != LOG_SUFFIX or len(stem) != _NAME_DIGITS or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem)
