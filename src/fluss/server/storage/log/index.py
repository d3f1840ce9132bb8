"""Sparse indexes of a segment: offset to byte position, and time to offset.

File formats (also of the remote copies of a segment): `.index` holds 8-byte entries, big-endian int32 offset relative
to the segment's base and int32 byte position; `.timeindex` holds 12-byte entries, big-endian int64 timestamp and int32
relative offset. An offset entry has the *last* offset of an append and the position where the append starts, so the
largest entry at or below a target is a safe place from which to walk forward.

`SegmentIndex` is the index of the segment that is being written. It is owned by the loop thread. Entries behind the
committed end are speculative: `mark` and `rollback` take them back. `flushed_*` count the entries that are already in
the index files. Sealed segments are looked up in their files with `position_before` and have no `SegmentIndex`.

An index only saves walking over the segment. A missing, short or damaged one is rebuilt from the segment.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import NamedTuple

import numpy as np

from fluss.codec.buffers import ReadableBuffer

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
_OFFSET_DTYPE = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_DTYPE = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
NO_TIMESTAMP = -1


class IndexMark(NamedTuple):
    """The state of an index before an append."""

    offset_entries: int
    time_entries: int
    bytes_since_entry: int
    max_timestamp: int
    max_timestamp_offset: int


class SegmentIndex:
    """The offset index and the time index of one segment, in memory."""

    __slots__ = (
        "_interval_bytes",
        "bytes_since_entry",
        "flushed_offset_entries",
        "flushed_time_entries",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "positions",
        "time_offsets",
        "timestamps",
    )

    def __init__(self, interval_bytes: int) -> None:
        self._interval_bytes = interval_bytes
        self.offsets = array("i")
        self.positions = array("i")
        self.timestamps = array("q")
        self.time_offsets = array("i")
        self.bytes_since_entry = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = 0
        self.flushed_offset_entries = 0
        self.flushed_time_entries = 0

    def add(self, first: int, last: int, position: int, size: int, timestamp: int) -> None:
        """Add an append of `size` bytes at `position` with relative offsets `first` to `last`."""
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = first
        if self.bytes_since_entry > self._interval_bytes:
            self.offsets.append(last)
            self.positions.append(position)
            self.add_time_entry()
            self.bytes_since_entry = 0
        self.bytes_since_entry += size

    def add_time_entry(self) -> None:
        """Add an entry for the largest timestamp so far, if it grew. Called once more when the segment is sealed."""
        if self.max_timestamp > (self.timestamps[-1] if self.timestamps else NO_TIMESTAMP):
            self.timestamps.append(self.max_timestamp)
            self.time_offsets.append(self.max_timestamp_offset)

    def mark(self) -> IndexMark:
        return IndexMark(
            len(self.offsets),
            len(self.timestamps),
            self.bytes_since_entry,
            self.max_timestamp,
            self.max_timestamp_offset,
        )

    def rollback(self, mark: IndexMark) -> None:
        """Remove every entry since `mark`."""
        assert self.flushed_offset_entries <= mark.offset_entries, "an uncommitted entry reached the index file"
        del self.offsets[mark.offset_entries :]
        del self.positions[mark.offset_entries :]
        del self.timestamps[mark.time_entries :]
        del self.time_offsets[mark.time_entries :]
        self.bytes_since_entry = mark.bytes_since_entry
        self.max_timestamp = mark.max_timestamp
        self.max_timestamp_offset = mark.max_timestamp_offset
        self.flushed_time_entries = min(self.flushed_time_entries, mark.time_entries)

    def position_before(self, relative_offset: int) -> int:
        """The start of an append at or before the one that contains the offset."""
        found = bisect_right(self.offsets, relative_offset)
        return self.positions[found - 1] if found else 0

    def entries_before(self, position: int, relative_offset: int) -> tuple[int, int]:
        """The number of offset entries and of time entries that concern only bytes before `position`."""
        return bisect_left(self.positions, position), bisect_left(self.time_offsets, relative_offset)

    def offset_bytes(self, first: int, end: int) -> bytes:
        entries = np.empty(end - first, _OFFSET_DTYPE)
        entries["offset"] = self.offsets[first:end]
        entries["position"] = self.positions[first:end]
        return entries.tobytes()

    def time_bytes(self, first: int, end: int) -> bytes:
        entries = np.empty(end - first, _TIME_DTYPE)
        entries["timestamp"] = self.timestamps[first:end]
        entries["offset"] = self.time_offsets[first:end]
        return entries.tobytes()

    def load(self, offset_entries: ReadableBuffer, time_entries: ReadableBuffer) -> None:
        """Load entries from files; they count as flushed. Call only on a new index."""
        stored = np.frombuffer(offset_entries, _OFFSET_DTYPE)
        self.offsets.frombytes(stored["offset"].astype(np.int32).tobytes())
        self.positions.frombytes(stored["position"].astype(np.int32).tobytes())
        times = np.frombuffer(time_entries, _TIME_DTYPE)
        self.timestamps.frombytes(times["timestamp"].astype(np.int64).tobytes())
        self.time_offsets.frombytes(times["offset"].astype(np.int32).tobytes())
        self.flushed_offset_entries = len(self.offsets)
        self.flushed_time_entries = len(self.timestamps)
        if self.timestamps:
            self.max_timestamp = self.timestamps[-1]
            self.max_timestamp_offset = self.time_offsets[-1]


def position_before(entries: ReadableBuffer, relative_offset: int) -> int:
    """`SegmentIndex.position_before` on the bytes of an `.index` file, without loading it."""
    low, high = 0, len(entries) // OFFSET_ENTRY.size
    position = 0
    while low < high:
        middle = (low + high) // 2
        offset, candidate = OFFSET_ENTRY.unpack_from(entries, middle * OFFSET_ENTRY.size)
        if offset <= relative_offset:
            low = middle + 1
            position = candidate
        else:
            high = middle
    return int(position)


def offset_before_time(entries: ReadableBuffer, timestamp: int) -> int:
    """The relative offset from which to walk to the first batch at or after `timestamp`, from a `.timeindex` file.

    Only entries strictly before the timestamp count: several appends may share the timestamp of an entry.
    """
    low, high = 0, len(entries) // TIME_ENTRY.size
    relative = 0
    while low < high:
        middle = (low + high) // 2
        time, offset = TIME_ENTRY.unpack_from(entries, middle * TIME_ENTRY.size)
        if time < timestamp:
            low = middle + 1
            relative = offset
        else:
            high = middle
    return int(relative)


def offset_entries_are_sound(entries: ReadableBuffer, segment_bytes: int) -> bool:
    """True if the bytes of an `.index` file can be the index of a segment of this size."""
    if len(entries) % OFFSET_ENTRY.size:
        return False
    stored = np.frombuffer(entries, _OFFSET_DTYPE)
    if not len(stored):
        return True
    offsets, positions = stored["offset"].astype(np.int64), stored["position"].astype(np.int64)
    increasing = bool((np.diff(offsets) > 0).all() and (np.diff(positions) > 0).all())
    return increasing and offsets[0] >= 0 and positions[0] > 0 and bool(positions[-1] < segment_bytes)


def time_entries_are_sound(entries: ReadableBuffer) -> bool:
    """True if the bytes can be a `.timeindex` file: both columns increase."""
    if len(entries) % TIME_ENTRY.size:
        return False
    stored = np.frombuffer(entries, _TIME_DTYPE)
    if not len(stored):
        return True
    growing = bool((np.diff(stored["timestamp"]) > 0).all() and (np.diff(stored["offset"]) > 0).all())
    return growing and bool(stored["offset"][0] >= 0)
