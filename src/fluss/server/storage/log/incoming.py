"""Checks of batches that a client sends, before they get an offset."""

from __future__ import annotations

from fluss.codec.log_batch import BatchHeader, CorruptBatch, UnknownMagic, check_crc, iter_batches
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log.scan import offsets_are_sound


def whole_batches(records: memoryview) -> list[tuple[int, BatchHeader]]:
    """Check structure and checksums of all whole batches; a cut-off one at the end does not count."""
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
            text = f"batch at byte {position}: {header.record_count} rows, offset delta {header.last_offset_delta}"
            raise FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION)
    return batches
