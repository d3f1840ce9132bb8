"""Finding and reading committed batches inside one segment.

Steps of a read: sparse index -> walk over headers to the batch that contains the offset -> a slice of the mapping.
Bytes that this process has neither received nor scanned are checked (checksum, chain of offsets) when they are read for
the first time. Any inconsistency leads to one full scan of the segment, which finds all damage and builds a new index;
after that, reads of damaged batches get error 14, and everything around them stays readable.

Owned by the loop thread.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from fluss.codec.batches.log_batch import BatchHeader, CorruptBatch, check_crc, read_header
from fluss.codec.batches.log_scan import Damage, scan_batches
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log import index as index_format
from fluss.server.storage.log.index import SegmentIndex
from fluss.server.storage.log.open_segments import OpenSegment, OpenSegments
from fluss.server.storage.log.segment import Segment, segment_file_name

_logger = logging.getLogger(__name__)


class FoundBatch(NamedTuple):
    """A batch at `position` of a segment; `view` has its bytes and begins at `origin` of the segment."""

    view: memoryview
    origin: int
    position: int
    header: BatchHeader


class SegmentReader:
    """Finds and checks batches in the segments of one bucket."""

    def __init__(self, files: FileSystem, open_segments: OpenSegments, index_interval_bytes: int) -> None:
        self._files = files
        self._open_segments = open_segments
        self._index_interval_bytes = index_interval_bytes

    def find(self, segment: Segment, offset: int) -> FoundBatch:
        """The committed batch that contains `offset`; FlussError 14 if it is damaged."""
        if not segment.committed_size:  # the file was emptied or is missing
            raise corrupt(segment, 0, segment.base_offset, segment.end_offset)
        opened = self._open_segments.get(segment)
        found = self._walk(segment, opened, offset)
        if found is None:
            self.rescan(segment)
            found = self._walk(segment, opened, offset)
            if found is None:
                raise corrupt(segment, segment.committed_size, offset, segment.end_offset)
        if segment.sealed:
            opened.advise(found.position)
        return found

    def check(self, segment: Segment, found: FoundBatch, end: int) -> int:
        """Verify bytes before they are returned to a reader; returns the end of the good ones, at most `end`."""
        if not segment.is_verified(found.position, end) and not self._verify(segment, found, end):
            self.rescan(segment)
        if segment.damages:
            damage = segment.damage_at(found.position)
            if damage is not None:
                raise corrupt(segment, damage.start, damage.first_offset, damage.next_offset)
            behind = segment.next_damage(found.position)
            if behind is not None:
                return min(end, behind.start)
        return end

    def max_timestamp(self, segment: Segment) -> int:
        """The largest committed timestamp: that of the last batch, because timestamps never decrease in a bucket."""
        if segment.max_timestamp == index_format.NO_TIMESTAMP and segment.committed_size:
            try:
                segment.max_timestamp = self.find(segment, segment.end_offset - 1).header.commit_timestamp
            except FlussError:
                # The last batch is damaged: use the newest good one instead.
                batches = self.scan(segment)
                segment.max_timestamp = max((header.commit_timestamp for _, header in batches), default=0)
        return segment.max_timestamp

    def scan(self, segment: Segment) -> list[tuple[int, BatchHeader]]:
        """Every good committed batch, found by a scan of all bytes."""
        view = self._open_segments.get(segment).whole()
        items = scan_batches(view, 0, segment.committed_size, segment.base_offset, 0)
        return [(position, item) for position, item in items if isinstance(item, BatchHeader)]

    def first_at_or_after(self, segment: Segment, timestamp: int) -> int | None:
        """The base offset of the first committed batch whose timestamp is at least `timestamp`."""
        position = self._position_before_time(segment, timestamp)
        view, origin = self._open_segments.get(segment).window(position)
        while position < segment.committed_size:
            damage = segment.damage_at(position)
            if damage is not None:
                position = damage.end
                continue
            try:
                header = read_header(view, position - origin)
            except CorruptBatch:
                batches = self.scan(segment)
                return next((header.base_offset for _, header in batches if header.commit_timestamp >= timestamp), None)
            if header.commit_timestamp >= timestamp:
                return header.base_offset
            position += header.size
        return None

    def rescan(self, segment: Segment) -> None:
        """Scan all committed bytes, record the damage and build a new index."""
        if segment.rebuilt_index is not None and segment.rebuilt_end_position >= segment.trusted_from:
            return
        view = self._open_segments.get(segment).whole()
        rebuilt = SegmentIndex(self._index_interval_bytes)
        damages: list[Damage] = []
        for position, item in scan_batches(view, 0, segment.committed_size, segment.base_offset, 0):
            if isinstance(item, Damage):
                damages.append(item if item.next_offset >= 0 else item._replace(next_offset=segment.end_offset))
            else:
                add_to_index(rebuilt, segment.base_offset, position, item)
        for damage in damages:
            if damage not in segment.damages:
                log_damage(segment, damage)
        segment.damages = damages
        segment.rebuilt_index = rebuilt
        segment.rebuilt_end_position = segment.committed_size
        segment.rebuilt_end_offset = segment.end_offset
        segment.trusted_from = 0

    def _walk(self, segment: Segment, opened: OpenSegment, offset: int) -> FoundBatch | None:
        """Walk forward from the index; None if the bytes are inconsistent."""
        position = self._position_before(segment, opened, offset)
        view, origin = opened.window(position)
        while position < segment.committed_size:
            damage = segment.damage_at(position) if segment.damages else None
            if damage is not None:
                if offset < damage.next_offset:
                    raise corrupt(segment, damage.start, damage.first_offset, damage.next_offset)
                position = damage.end
                continue
            try:
                header = read_header(view, position - origin)
            except CorruptBatch:
                return None
            if header.base_offset > offset or position + header.size > segment.committed_size:
                return None
            if offset <= header.last_offset:
                return FoundBatch(view, origin, position, header)
            position += header.size
        return None

    def _position_before(self, segment: Segment, opened: OpenSegment, offset: int) -> int:
        relative = offset - segment.base_offset
        rebuilt = segment.rebuilt_index
        if rebuilt is not None and offset < segment.rebuilt_end_offset:
            return rebuilt.position_before(relative)
        if segment.index is not None:
            position = segment.index.position_before(relative)
            if rebuilt is not None and position < segment.rebuilt_end_position:
                return rebuilt.position_before(relative)
            return position
        if opened.index_entries is None and not self._load_index(segment, opened):
            self.rescan(segment)
            assert segment.rebuilt_index is not None
            return segment.rebuilt_index.position_before(relative)
        assert opened.index_entries is not None
        return index_format.position_before(opened.index_entries, relative)

    def _load_index(self, segment: Segment, opened: OpenSegment) -> bool:
        """Load the index file of a sealed segment; False unless it exists and is sound and complete."""
        try:
            entries = opened.load_index()
        except OSError:
            return False
        if not index_format.offset_entries_are_sound(entries, segment.committed_size):
            return False
        if self._index_is_short(segment, opened, index_format.position_before(entries, 2**31)):
            return False
        opened.index_entries = entries
        return True

    def _index_is_short(self, segment: Segment, opened: OpenSegment, position: int) -> bool:
        """True if entries are missing at the end: several batches are more than the interval behind the last entry."""
        view, origin = opened.window(position)
        limit = position + self._index_interval_bytes
        behind_limit = 0
        while position < segment.committed_size and behind_limit < 3:
            try:
                header = read_header(view, position - origin)
            except CorruptBatch:
                return True
            position += header.size
            behind_limit += position > limit and header.size <= self._index_interval_bytes
        return behind_limit >= 3

    def _position_before_time(self, segment: Segment, timestamp: int) -> int:
        opened = self._open_segments.get(segment)
        memory = segment.rebuilt_index or segment.index
        if memory is not None:
            entries = memory.time_bytes(0, len(memory.timestamps))
        else:
            try:
                entries = self._files.read_file(segment.time_index_path)
            except OSError:
                return 0
            if not index_format.time_entries_are_sound(entries):
                return 0
        offset = segment.base_offset + index_format.offset_before_time(entries, timestamp)
        if not segment.base_offset <= offset < segment.end_offset:
            return 0
        return self._position_before(segment, opened, offset)

    def _verify(self, segment: Segment, found: FoundBatch, end: int) -> bool:
        """Check the batches from the found one up to `end`; True if all are good."""
        position, expected = found.position, found.header.base_offset
        stop = min(end, segment.trusted_from)
        while position < stop:
            if segment.damage_at(position) is not None:
                break
            try:
                header = read_header(found.view, position - found.origin)
            except CorruptBatch:
                return False
            if header.base_offset != expected or not check_crc(found.view, position - found.origin, header):
                return False
            position += header.size
            expected = header.next_offset
        segment.add_verified(found.position, position)
        return True


def add_to_index(index: SegmentIndex, base_offset: int, position: int, header: BatchHeader) -> None:
    """Add a batch to an index as an append of its own."""
    index.add(
        header.base_offset - base_offset,
        header.last_offset - base_offset,
        position,
        header.size,
        header.commit_timestamp,
    )


class DamagedLogError(FlussError):
    """Error 14 for bytes of a segment that are not a valid batch; readers may continue at `next_offset`."""

    next_offset = -1


def corrupt(segment: Segment, position: int, first_offset: int, next_offset: int) -> DamagedLogError:
    """The error for a damaged batch. A file that ends too early was truncated, or the file after it is missing."""
    ends_early = position >= segment.committed_size and first_offset > segment.base_offset
    hint = f" (the end; {segment_file_name(first_offset)} may be missing)" if ends_early else ""
    error = DamagedLogError(
        f"damaged batch in {segment.log_path} at byte {position}{hint}: offsets {first_offset} to {next_offset - 1}"
        f" cannot be read; restore the file from a copy or continue from offset {next_offset}",
        ErrorCode.CORRUPT_RECORD_EXCEPTION,
    )
    error.next_offset = next_offset
    return error


def log_damage(segment: Segment, damage: Damage) -> None:
    _logger.error(
        "damaged batch in %s at byte %d (%d bytes): offsets %d to %d cannot be read, everything around them can",
        segment.log_path,
        damage.start,
        damage.end - damage.start,
        damage.first_offset,
        damage.next_offset - 1,
    )
