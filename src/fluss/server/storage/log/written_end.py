"""The offset up to which a bucket's log is written, determined by another process from the files alone.

The tablet that leads the bucket may append meanwhile. What it has acknowledged is already in the files, so the result
is never below the acknowledged end; it may be above that end by an append in progress. Checksums are checked as in
recovery, since a wrong number of rows could move the end anywhere; a damaged batch ends the log only if nothing good
follows. The files are only read.
"""

from __future__ import annotations

import mmap
import os

from fluss.codec.batches.log_batch import MIN_HEADER_BYTES
from fluss.codec.batches.log_scan import scan_batches
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.checkpoint import load_checkpoint
from fluss.server.storage.log.segment import Segment, segment_base_offset

# The tablet may remove a segment between the listing and the opening; then there is a next one.
_ATTEMPTS = 5


def written_end(directory: str) -> int:
    """The offset after the last whole batch; 0 for a bucket that was never opened. OSError if it cannot be read."""
    for attempt in range(_ATTEMPTS):
        try:
            return _written_end(directory)
        except FileNotFoundError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _written_end(directory: str) -> int:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return 0
    # Read the checkpoint first, so that the newest segment is the same or a later one.
    checkpoint, _ = load_checkpoint(FileSystem(), directory)
    known_end = 0 if checkpoint is None else checkpoint.recovery_offset
    bases = [base for base in map(segment_base_offset, names) if base is not None]
    if not bases:
        return known_end
    position, offset = 0, max(bases)
    if checkpoint is not None and checkpoint.segment_base_offset == offset:
        position, offset = checkpoint.segment_position, checkpoint.recovery_offset
    return max(known_end, _walk(Segment(directory, max(bases)).log_path, position, offset))


def _walk(path: str, position: int, offset: int) -> int:
    """The offset after the last good batch of a file."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size - position < MIN_HEADER_BYTES:
            return offset
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
            for _, item in scan_batches(content, position, size, offset, 0):
                end = item.next_offset
                offset = end if end >= 0 else offset
    return offset
