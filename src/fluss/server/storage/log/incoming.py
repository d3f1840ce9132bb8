"""Checks of batches from clients before they are given offsets."""

from __future__ import annotations

from struct import Struct

from fluss.codec.batches.log_batch import (
    LENGTH_POSITION,
    LENGTH_PREFIX_BYTES,
    MIN_HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    UnknownMagic,
    check_crc,
    iter_batches,
)
from fluss.codec.batches.log_scan import offsets_are_sound
from fluss.errors import ErrorCode, FlussError

MAX_BATCHES_OF_A_WRITE = 4_096
_LENGTH = Struct("<i")


def check_batch_count(records: memoryview) -> None:
    """Raise FlussError 10 for more batches than one write may have; clients send one.

    Every batch is checked on the event loop, so their number is limited. It is counted by their length fields.
    """
    if len(records) <= MAX_BATCHES_OF_A_WRITE * MIN_HEADER_BYTES:
        return
    count, position, end, length_at = 0, 0, len(records) - MIN_HEADER_BYTES, _LENGTH.unpack_from
    while position <= end and count <= MAX_BATCHES_OF_A_WRITE:
        position += LENGTH_PREFIX_BYTES + max(0, length_at(records, position + LENGTH_POSITION)[0])
        count += 1
    if count > MAX_BATCHES_OF_A_WRITE:
        raise FlussError(
            f"a write has more than {MAX_BATCHES_OF_A_WRITE} batches for one bucket; put more rows into each batch",
            ErrorCode.RECORD_TOO_LARGE_EXCEPTION,
        )


def whole_batches(records: memoryview) -> list[tuple[int, BatchHeader]]:
    """Check the structure and checksums of all whole batches; an incomplete one at the end is ignored."""
    try:
        batches = list(iter_batches(records))
    except UnknownMagic as error:
        raise FlussError(str(error), ErrorCode.UNKNOWN_SERVER_ERROR) from error
    except CorruptBatch as error:
        raise FlussError(str(error), ErrorCode.CORRUPT_RECORD_EXCEPTION) from error
    for position, header in batches:
        if not check_crc(records, position, header):
            raise FlussError(f"wrong checksum of the batch at byte {position}", ErrorCode.CORRUPT_RECORD_EXCEPTION)
        if not offsets_are_sound(header):
            text = (
                f"invalid header of the batch at byte {position}: {header.record_count} rows do not match the last "
                f"offset delta {header.last_offset_delta}"
            )
            raise FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION)
    return batches
