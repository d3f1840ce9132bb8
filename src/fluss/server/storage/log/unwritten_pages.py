"""Detection of pages of a segment that were never written: they are all zeros. Pure functions on a buffer."""

from __future__ import annotations

from struct import Struct

import numpy as np

from fluss.codec.batches.log_batch import LENGTH_PREFIX_BYTES
from fluss.codec.buffers import ReadableBuffer

PAGE_BYTES = 4096
_BASE_OFFSET = Struct("<q")


def has_unwritten_page(buffer: ReadableBuffer, start: int, end: int, expected_offset: int) -> bool:
    """True if a page between two batch boundaries may never have been written: it is all zeros.

    On a file system that records what was written, such a page is a hole, but copies (`cp`, `tar`, `rsync`) and network
    file systems have real zeros instead. Rows may contain such pages too: do not apply this to bytes that were synced.
    """
    first, last = -(-start // PAGE_BYTES), end // PAGE_BYTES
    if first < last:
        pages = np.frombuffer(buffer, np.uint8, (last - first) * PAGE_BYTES, first * PAGE_BYTES)
        if not pages.reshape(-1, PAGE_BYTES).any(axis=1).all():
            return True
    return starts_unwritten(buffer, start, end, expected_offset)


def starts_unwritten(buffer: ReadableBuffer, start: int, end: int, expected_offset: int) -> bool:
    """True if the bytes from a batch boundary to the end of its page are the zeros of a page that was not rewritten.

    A group of writes starts in a page whose beginning is already on disk. If power fails before the new content of that
    page is written, the page keeps its old content: zeros behind the old end. No batch starts with these zeros, because
    its base offset or at least its length is not zero.
    """
    page_end = min((start // PAGE_BYTES + 1) * PAGE_BYTES, end)
    size = page_end - start
    if any(bytes(buffer[start:page_end])):
        return False
    return size >= LENGTH_PREFIX_BYTES or any(_BASE_OFFSET.pack(expected_offset)[:size])
