"""Reading a bucket log: choosing the segment and the end of a read, and refusing offsets outside the log.

A read never crosses a segment, never passes the high watermark and never copies: it returns slices of mappings, which
stay valid as long as they are referenced, even if the segment is removed. Owned by the loop thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from fluss.codec.batches.log_batch import BatchHeader, CorruptBatch, read_header
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log.reader import FoundBatch, SegmentReader
from fluss.server.storage.log.segment import Segment, SegmentInfo

if TYPE_CHECKING:
    from fluss.server.storage.log.bucket_log import BucketLog

# The bytes checked at a time while batches that an earlier process wrote are returned one by one.
_CHECK_AHEAD_BYTES = 1024 * 1024


class ReadRange(NamedTuple):
    """Stored bytes. The last batch may be incomplete; `first_batch_offset` is -1 if there was nothing to read."""

    view: memoryview
    first_batch_offset: int
    segment_base_offset: int
    position: int


_NOTHING = ReadRange(memoryview(b""), -1, -1, 0)


class LogReads:
    """The reading half of a bucket log."""

    def __init__(self, log: BucketLog) -> None:
        self._log = log
        self._reader = SegmentReader(log.committer.files, log.committer.open_segments, log.options.index_interval_bytes)

    def read(self, offset: int, max_bytes: int, whole_first_batch: bool) -> ReadRange:
        """At most `max_bytes` from the batch that contains `offset`, up to the high watermark or the segment's end.

        With `whole_first_batch` the first batch is complete even if it is larger than `max_bytes`. FlussError 19
        outside the local log, 14 if the batch is damaged. Empty at or above the high watermark.
        """
        segment = self._segment(offset)
        if segment is None:
            return _NOTHING
        found = self._reader.find(segment, offset)
        end = min(segment.committed_size, found.position + max_bytes)
        if whole_first_batch:
            end = max(end, found.position + found.header.size)
        end = self._reader.check(segment, found, end)
        view = found.view[found.position - found.origin : end - found.origin]
        return ReadRange(view, found.header.base_offset, segment.base_offset, found.position)

    def read_batches(self, offset: int) -> Iterator[tuple[memoryview, int, BatchHeader]]:
        """Yield (buffer, position in it, header) of whole batches; stops at the high watermark or the segment's end.

        Raises the errors of `read` for the first batch. A damaged batch further on ends the iteration.
        """
        segment = self._segment(offset)
        if segment is None:
            return
        found = self._reader.find(segment, offset)
        # Later commits may move the end; only what was readable at the call is returned.
        stop = segment.committed_size
        position, header = found.position, found.header
        checked = position
        while True:
            if position + header.size > checked:
                ahead = min(stop, position + max(header.size, _CHECK_AHEAD_BYTES))
                checked = self._reader.check(segment, FoundBatch(found.view, found.origin, position, header), ahead)
            if position + header.size > checked:
                return
            yield found.view, position - found.origin, header
            position += header.size
            if position >= stop or segment.damage_at(position) is not None:
                return
            try:
                header = read_header(found.view, position - found.origin)
            except CorruptBatch:
                # The next read of that offset scans the segment and reports the damage.
                return

    def offset_for_timestamp(self, timestamp: int) -> int | None:
        """The base offset of the first committed batch at or after a timestamp; None if there is none.

        Timestamps never decrease along the log, so the segment is found by bisection.
        """
        segments = [segment for segment in self._log.segments if segment.committed_size]
        low, high = 0, len(segments)
        while low < high:
            middle = (low + high) // 2
            if self._reader.max_timestamp(segments[middle]) < timestamp:
                low = middle + 1
            else:
                high = middle
        for segment in segments[low:]:
            found = self._reader.first_at_or_after(segment, timestamp)
            if found is not None:
                return found
        return None

    def sealed_segments(self) -> list[SegmentInfo]:
        result = []
        for segment in self._log.segments:
            if not segment.sealed or segment.committed_size < segment.size:
                break
            self._reader.max_timestamp(segment)
            result.append(segment.info())
        return result

    def _segment(self, offset: int) -> Segment | None:
        log = self._log
        if log.is_closed:
            raise FlussError(
                f"bucket {log.directory} is closed; refresh the metadata and retry", ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        if not log.local_start_offset <= offset <= log.log_end_offset:
            raise FlussError(
                f"offset {offset} is outside the local log, which has offsets {log.local_start_offset} to"
                f" {log.high_watermark}; continue at one of those",
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION,
            )
        return log.segment_of(offset) if offset < log.high_watermark else None
