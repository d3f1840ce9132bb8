"""An Arrow batch of the log as the server stores it, for readers that pass it to another process for decoding.

Takes the place of the record batch in `LogRows` if a plan asks for it (`ScanPlan.keep_stored`). Immutable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from fluss.codec.arrow.compression import CompressionKind
from fluss.codec.batches.arrow_batch import decode_message
from fluss.codec.batches.arrow_message import read_message
from fluss.codec.batches.log_batch import BatchHeader, CorruptBatch

# Passing a message on costs about the same for any size; smaller ones are cheaper to decode and combine.
MIN_STORED_BYTES = 16 * 1024
# Java's LZ4 is slow, and cannot read every writer's frames.
_KEPT = (CompressionKind.NONE, CompressionKind.ZSTD)


@dataclass(frozen=True, eq=False)
class StoredBatch:
    """`num_rows` rows of a message, from `start` on."""

    message: memoryview
    arrow_schema: pa.Schema
    rows_in_message: int
    start: int
    num_rows: int

    @property
    def is_whole(self) -> bool:
        """True if these are all rows of the message."""
        return self.num_rows == self.rows_in_message

    def slice(self, start: int, count: int) -> StoredBatch:
        """Some of the rows; nothing is decoded or copied."""
        return replace(self, start=self.start + start, num_rows=max(0, min(count, self.num_rows - start)))

    def decoded(self) -> pa.RecordBatch:
        """Decode the rows. Raises CorruptBatch."""
        view = self.message
        return decode_message(view, 0, len(view), self.arrow_schema, self.rows_in_message).slice(
            self.start, self.num_rows
        )

    def get_total_buffer_size(self) -> int:
        """Bytes in memory, under the same name as in record batches."""
        return len(self.message)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return len(self.message)


def stored_batch(view: memoryview, position: int, header: BatchHeader, arrow_schema: pa.Schema) -> StoredBatch | None:
    """The batch at `position` of the log; None if Arrow must decode it. Raises CorruptBatch."""
    start, end = position + header.records_start, position + header.size
    if not header.append_only or end - start < MIN_STORED_BYTES:
        return None
    message = read_message(view, start, end)
    if message.compression not in _KEPT:
        return None
    count = header.record_count
    if message.row_count != count:
        raise CorruptBatch(f"the message has {message.row_count} rows, but the header of its batch has {count}")
    return StoredBatch(view[start : message.body_start + message.body_length], arrow_schema, count, 0, count)
