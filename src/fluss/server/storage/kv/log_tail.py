"""Reading the log files of a bucket from an offset on, before the log is in use.

The readers of an open log belong to the loop; a replay runs in the thread that opens the bucket, and reads the files
itself. Up to the end of the log it checks every batch, and that each begins where the one before it ended. A damaged or
missing batch ends the replay with an error, because the batches behind it would be applied to a wrong state.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import NamedTuple

from fluss.codec.batches.log_batch import BatchHeader, CorruptBatch, check_crc, read_header
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.segment import Segment, segment_file_name


class TailBatch(NamedTuple):
    """One batch of the log and its position in a segment."""

    view: memoryview
    position: int
    header: BatchHeader
    segment_base: int

    @property
    def end_position(self) -> int:
        return self.position + self.header.size


def read_tail(log: BucketLog, offset: int, segment_base: int, position: int) -> Iterator[TailBatch]:
    """All batches from `offset` on. The first one should be at `position` of its segment; else it is searched for."""
    if offset >= log.log_end_offset:
        return
    expected = offset
    for segment in log.segments:
        if segment.end_offset <= offset or not segment.committed_size:
            continue
        start = position if segment.base_offset == segment_base else 0
        for batch in _read_segment(segment, offset, start):
            if batch.header.base_offset != expected and (expected != offset or batch.header.base_offset > offset):
                raise _missing(log, segment, expected, batch.header.base_offset)
            expected = batch.header.next_offset
            yield batch
    if expected < log.log_end_offset:
        raise _missing(log, log.segments[-1], expected, log.log_end_offset)


def _read_segment(segment: Segment, offset: int, start: int) -> Iterator[TailBatch]:
    with open(segment.log_path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), segment.committed_size, access=mmap.ACCESS_READ)
    view = memoryview(mapped)
    position = start if _begins_at(view, start, offset) else 0
    while position < segment.committed_size:
        try:
            header = read_header(view, position)
        except CorruptBatch as error:
            raise _damaged(segment, position, str(error)) from error
        if header.next_offset > offset:
            if not check_crc(view, position, header):
                raise _damaged(segment, position, "wrong checksum")
            yield TailBatch(view, position, header, segment.base_offset)
        position += header.size


def _begins_at(view: memoryview, position: int, offset: int) -> bool:
    try:
        return read_header(view, position).base_offset == offset
    except CorruptBatch:
        return False


def _missing(log: BucketLog, segment: Segment, first: int, after: int) -> FlussError:
    """The error for missing offsets, with the files between which they must have been."""
    before = log.segment_of(first)
    text = (
        f"the changelog lacks offsets {first} to {after - 1}: {before.log_path} or one of the files up to "
        f"{segment.log_path} is damaged, truncated or missing ({segment_file_name(_end_of(before))} if a whole segment "
        "is missing), so rows cannot be rebuilt from it; restore the files from a copy"
    )
    return FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION)


def _end_of(segment: Segment) -> int:
    """The offset after the last batch of the file, at which the next file begins."""
    end = segment.base_offset
    if segment.committed_size:
        for batch in _read_segment(segment, segment.base_offset, 0):
            end = batch.header.next_offset
    return end


def _damaged(segment: Segment, position: int, what: str) -> FlussError:
    text = (
        f"the changelog is damaged in {segment.log_path} at byte {position} ({what}), so rows cannot be rebuilt from "
        "it; restore the file from a copy"
    )
    return FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION)
