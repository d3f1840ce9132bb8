"""A remote segment as announced by a server, and the checks that its file matches.

A server announces the place of a segment, its size, and its first and last offset; within a file every batch starts at
the offset where the previous one ended. A file that is shorter, or whose batches skip an offset, would otherwise be
read as if those rows had never existed, and a reader that writes its rows to a lake would make the gap permanent. So
everything announced is checked, and the first mismatch is an error that names the file. No I/O here.
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
        """The segment must not begin after `wanted_offset` (if negative: any), where reading continues."""
        if 0 <= wanted_offset < self.start_offset:
            raise self.fault(
                f"begins at offset {self.start_offset}, but the server named it for offset {wanted_offset}; "
                "no segment has the rows between them"
            )

    def check_size(self, actual_bytes: int) -> None:
        """The file must have all bytes that the server uploaded. Bytes after them are ignored."""
        if actual_bytes < self.size_bytes:
            raise self.fault(f"has {actual_bytes} bytes, but the server announced {self.size_bytes}")
        if self.position > self.size_bytes:
            raise self.fault(
                f"is to be read from byte {self.position}, but the server announced {self.size_bytes} bytes"
            )

    def check_batches(self, piece: memoryview, size: int, wanted_offset: int) -> None:
        """The whole batches at the start of a part must continue the previous ones; the first holds `wanted_offset`."""
        position = 0
        expected = self._next_offset
        while position < size:
            base, length, magic, delta = _FRONT.unpack_from(piece, position)
            if magic >= MAGIC_V2:
                (delta,) = _EPOCH_DELTA.unpack_from(piece, position + _EPOCH_DELTA_POSITION)
            if expected is None and not self.start_offset <= base <= max(wanted_offset, self.start_offset):
                raise self.fault(f"has offset {base}, but the server's index says {wanted_offset} or less")
            if expected is not None and base != expected:
                raise self.fault(f"has offset {base}, expected {expected}")
            expected = base + delta + 1
            position += length + LENGTH_PREFIX_BYTES
        self._next_offset = expected

    def resume_at(self, offset: int) -> None:
        """Continue after damaged bytes that a scan skips and reports: the next batch begins at `offset`."""
        self._next_offset = offset
        self.is_given_up = offset >= self.end_offset

    def check_end(self, left_bytes: int) -> None:
        """After reading everything: no bytes may be left, and the last batch must end where the server said."""
        if left_bytes:
            raise self.fault(f"ends in {left_bytes} bytes that are not a whole batch")
        reached = self.start_offset if self._next_offset is None else self._next_offset
        if reached != self.end_offset:
            raise self.fault(f"ends at offset {reached}, but the server announced offsets up to {self.end_offset}")

    def fault(self, text: str) -> FlussError:
        """The error for a file that is not what was announced."""
        return FlussError(
            f"remote log segment {self.path} {text}: the file is damaged, and no row of it is skipped. Restore it from "
            "a copy, or start to read after it",
            ErrorCode.CORRUPT_RECORD_EXCEPTION,
        )
