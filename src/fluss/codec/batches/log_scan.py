"""Checks the bytes of a log: which batches are whole, and which ranges between them are damaged.

Pure functions on a buffer. A batch is accepted only if its header is sound, its checksum is right and its base offset
is the expected one; base offset, length and timestamp are outside the checksum, so the chain of offsets guards them.

After a bad batch the scan looks for the next good one, first where the bad batch claims to end, then byte by byte.
The caller interprets the damage: at the end of the newest segment it is a torn write, elsewhere the disk is broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fluss.codec.batches.log_batch import (
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    MIN_HEADER_BYTES,
    NO_WRITER_ID,
    BatchHeader,
    CorruptBatch,
    check_crc,
    read_header,
)
from fluss.codec.buffers import ReadableBuffer

_SEARCH_WINDOW_BYTES = 1 << 20
_MAX_OFFSET_GAP = 2**31


class Damage(NamedTuple):
    """A range of bytes that is not a batch, and the offsets lost with it. `next_offset` is -1 if no batch follows."""

    start: int
    end: int
    first_offset: int
    next_offset: int


def scan_batches(
    buffer: ReadableBuffer, position: int, end: int, expected_offset: int, timestamp: int
) -> Iterator[tuple[int, BatchHeader | Damage]]:
    """Yield every good batch of `buffer[position:end]` and, in between, every damaged range."""
    while position < end:
        header = batch_at(buffer, position, end)
        if header is not None and header.base_offset == expected_offset:
            yield position, header
            position += header.size
            expected_offset = header.next_offset
            timestamp = max(timestamp, header.commit_timestamp)
            continue
        found = find_next_batch(buffer, position, end, expected_offset, timestamp)
        if found is None:
            yield position, Damage(position, end, expected_offset, -1)
            return
        next_position, next_header = found
        yield position, Damage(position, next_position, expected_offset, next_header.base_offset)
        position, expected_offset = next_position, next_header.base_offset


def batch_at(buffer: ReadableBuffer, position: int, end: int) -> BatchHeader | None:
    """The header of the batch at `position` if the batch is whole and its checksum is right."""
    if end - position < MIN_HEADER_BYTES:
        return None
    try:
        header = read_header(buffer, position)
    except CorruptBatch:
        return None
    if position + header.size > end or not (offsets_are_sound(header) or is_filler(header)):
        return None
    if not check_crc(buffer, position, header):
        return None
    return header


def offsets_are_sound(header: BatchHeader) -> bool:
    """True if the batch takes as many offsets as it has rows; a batch without rows takes one."""
    return header.last_offset_delta == (header.record_count - 1 if header.record_count > 0 else 0)


def is_filler(header: BatchHeader) -> bool:
    """True for a batch without rows that the server wrote in place of unused offsets (`reserved_offsets`)."""
    return header.record_count == 0 and header.last_offset_delta > 0 and header.writer_id == NO_WRITER_ID


def find_next_batch(
    buffer: ReadableBuffer, bad_position: int, end: int, expected_offset: int, timestamp: int
) -> tuple[int, BatchHeader] | None:
    """The first good batch after a bad one.

    Its offset and timestamp must not be before those of the last good batch: that distinguishes it from a batch that
    was stored as a value inside a row.
    """

    def accept(position: int) -> BatchHeader | None:
        header = batch_at(buffer, position, end)
        if header is None or header.commit_timestamp < timestamp:
            return None
        return header if expected_offset <= header.base_offset < expected_offset + _MAX_OFFSET_GAP else None

    if end - bad_position >= MIN_HEADER_BYTES:
        claimed_end = bad_position + _claimed_size(buffer, bad_position)
        if bad_position < claimed_end < end:
            header = accept(claimed_end)
            if header is not None:
                return claimed_end, header
    start = bad_position + 1
    while end - start >= MIN_HEADER_BYTES:
        window_end = min(end, start + _SEARCH_WINDOW_BYTES + MIN_HEADER_BYTES)
        for candidate in _candidates(buffer, start, window_end, end, expected_offset):
            header = accept(candidate)
            if header is not None:
                return candidate, header
        start = window_end - MIN_HEADER_BYTES + 1
    return None


def _claimed_size(buffer: ReadableBuffer, position: int) -> int:
    return int.from_bytes(bytes(buffer[position + 8 : position + 12]), "little", signed=True) + LENGTH_PREFIX_BYTES


def _candidates(buffer: ReadableBuffer, start: int, window_end: int, end: int, expected_offset: int) -> Iterator[int]:
    """Positions in the window where a header could start: magic, length and base offset are plausible."""
    window = np.frombuffer(buffer, np.uint8, window_end - start, start)
    places = len(window) - MIN_HEADER_BYTES + 1
    at = np.flatnonzero(window[LENGTH_PREFIX_BYTES : LENGTH_PREFIX_BYTES + places] <= MAGIC_V2)
    sizes = _little_endian(window, at + 8, 4) + LENGTH_PREFIX_BYTES
    at = at[(sizes >= MIN_HEADER_BYTES) & (sizes <= end - start - at)]
    offsets = _little_endian(window, at, 8)
    at = at[(offsets >= expected_offset) & (offsets < expected_offset + _MAX_OFFSET_GAP)]
    for place in at.tolist():
        yield start + place


def _little_endian(window: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
    value = np.zeros(len(at), np.int64)
    for byte in range(width):
        value |= window[at + byte].astype(np.int64) << (8 * byte)
    return value
