"""CRC-32C (Castagnoli), the checksum of every batch."""

from __future__ import annotations

from collections.abc import Iterable

import google_crc32c
import numpy as np

from fluss.codec.buffers import ReadableBuffer


def crc32c(buffer: ReadableBuffer, start: int = 0, end: int | None = None) -> int:
    """The checksum of `buffer[start:end]`, without a copy.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    stop = len(buffer) if end is None else end
    if stop == start:
        return 0  # numpy rejects an empty range at the end of a buffer
    # The library takes bytes and arrays but not memoryviews: an array passes a slice without a copy.
    return int(google_crc32c.value(np.frombuffer(buffer, np.uint8, stop - start, start)))


def crc32c_of_pieces(pieces: Iterable[ReadableBuffer]) -> int:
    """The checksum of the concatenation of `pieces`, without concatenating them."""
    checksum = 0
    for piece in pieces:
        if len(piece):
            checksum = google_crc32c.extend(checksum, np.frombuffer(piece, np.uint8))
    return checksum
