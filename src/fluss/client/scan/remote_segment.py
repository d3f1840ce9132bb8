"""What a server has said about a remote segment, and whether the file keeps to it.

A server announces where a segment lies, its size, and the offsets from its start to its end; within a file every batch
starts at the offset where the one before it ended. A file that is shorter, or whose batches leave an offset out, would
otherwise be read as if those rows had never been: whoever reads to the end, and whoever writes what it read into a
lake, would take the hole for the truth. So everything announced is checked, and the first thing that is wrong is an
error which names the file. No I/O here.
"""

from __future__ import annotations

from struct import Struct

from fluss.client.net.remote_files import segment_path
from fluss.codec.batches.log_batch import LENGTH_PREFIX_BYTES, MAGIC_V2
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb

# base offset, length, magic, and the offset delta where magic 0 and 1 have it
_FRONT = Struct("<qib15xi")
_EPOCH_DELTA = Struct("<i")
_EPOCH_DELTA_POSITION = 32


class RemoteSegment:
    """One announced segment, checked while it is read from `position` on. Used by one thread."""

    def __init__(self, tablet_directory: str, described: pb.PbRemoteLogSegment, position: int) -> None:
        self.start_offset = described.remote_log_start_offset
        self.end_offset = described.remote_log_end_offset
        self.size_bytes = described.segment_size_in_bytes
        self.path = segment_path(tablet_directory, described.remote_log_segment_id, self.start_offset)
        self.position = position
        self.is_given_up = False
        self._next_offset: int | None = None if position else self.start_offset

    def check_order(self, wanted_offset: int) -> None:
        """Reading goes on at `wanted_offset` (negative: wherever the log begins): the segment must reach back to it."""
        if 0 <= wanted_offset < self.start_offset:
            raise self.fault(
                f"begins at offset {self.start_offset}, but the server named it for offset {wanted_offset}; the rows "
                "between them are in no segment"
            )

    def check_size(self, actual_bytes: int) -> None:
        """The file must have all that the server uploaded. What was written behind that is nobody's."""
        if actual_bytes < self.size_bytes:
            raise self.fault(f"has {actual_bytes} bytes, but the server announced {self.size_bytes}")
        if self.position > self.size_bytes:
            raise self.fault(
                f"is to be read from byte {self.position}, but the server announced {self.size_bytes} bytes"
            )

    def check_batches(self, piece: memoryview, size: int, wanted_offset: int) -> None:
        """The whole batches at the start of a piece must continue those before; the first holds `wanted_offset`."""
        position = 0
        expected = self._next_offset
        while position < size:
            base, length, magic, delta = _FRONT.unpack_from(piece, position)
            if magic >= MAGIC_V2:
                (delta,) = _EPOCH_DELTA.unpack_from(piece, position + _EPOCH_DELTA_POSITION)
            if expected is None and not self.start_offset <= base <= max(wanted_offset, self.start_offset):
                raise self.fault(f"has offset {base} where the server's index says {wanted_offset} or less")
            if expected is not None and base != expected:
                raise self.fault(f"has offset {base} where {expected} follows")
            expected = base + delta + 1
            position += length + LENGTH_PREFIX_BYTES
        self._next_offset = expected

    def resume_at(self, offset: int) -> None:
        """A scan goes on behind what cannot be read, and names it: the next batch begins at `offset`."""
        self._next_offset = offset
        self.is_given_up = offset >= self.end_offset

    def check_end(self, left_bytes: int) -> None:
        """Everything was read: nothing may be left over, and the last batch ends where the server said."""
        if left_bytes:
            raise self.fault(f"ends in {left_bytes} bytes that are no whole batch")
        reached = self.start_offset if self._next_offset is None else self._next_offset
        if reached != self.end_offset:
            raise self.fault(f"ends at offset {reached}, but the server announced offsets up to {self.end_offset}")

    def fault(self, text: str) -> FlussError:
        """The error for a file that is not what was announced."""
        return FlussError(
            f"remote log segment {self.path} {text}: the file is damaged, and no row of it is skipped. Restore it from "
            "a copy, or begin to read behind it",
            ErrorCode.CORRUPT_RECORD_EXCEPTION,
        )
