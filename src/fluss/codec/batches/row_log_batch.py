"""Encodes Arrow record batches as INDEXED or COMPACTED log batches, and decodes them.

The header is that of every log batch, always V0. The body has one record per row: an int32 length of the rest, one byte
of change type, the row. Unlike in ARROW batches, every record has its change type even if the header marks the batch as
append-only, so it is read from the records.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.log_batch import (
    NO_BATCH_SEQUENCE,
    NO_WRITER_ID,
    BatchHeader,
    CorruptBatch,
    check_change_types,
    encode_batch,
    read_header,
)
from fluss.codec.batches.record_bounds import record_bounds
from fluss.codec.buffers import ReadableBuffer, byte_view
from fluss.codec.rows.column_buffers import binary_parts, fixed_size, join, total_sizes
from fluss.codec.rows.columns import RowFormat, decode_rows, row_components
from fluss.codec.rows.values import CorruptRowError
from fluss.model.schema import Schema

_CHANGE_TYPE_BYTES = 1


def encode_row_batch(
    batch: pa.RecordBatch,
    schema: Schema,
    row_format: RowFormat,
    schema_id: int,
    *,
    writer_id: int = NO_WRITER_ID,
    batch_sequence: int = NO_BATCH_SEQUENCE,
    change_types: bytes | None = None,
) -> bytes:
    """A log batch with the rows of `batch`, whose columns are those of `schema` by position.

    `change_types` (one byte per row) makes it a changelog batch. A batch without rows is only a header.
    """
    count = batch.num_rows
    types = np.zeros(count, np.uint8)
    if change_types is not None:
        check_change_types(change_types, count)
        types = np.frombuffer(change_types, np.uint8)
    body: list[bytes | memoryview] = []
    if count:
        rows = row_components(batch, schema.data_types, row_format)
        lengths = (total_sizes(rows, count) + _CHANGE_TYPE_BYTES).astype(np.int32)
        data, offsets = binary_parts(join([fixed_size(lengths), fixed_size(types), *rows], count))
        body.append(memoryview(data)[int(offsets[0]) : int(offsets[-1])])
    return encode_batch(
        body, count, schema_id, append_only=change_types is None, writer_id=writer_id, batch_sequence=batch_sequence
    )


def decode_row_batch(
    buffer: ReadableBuffer,
    schema: Schema,
    row_format: RowFormat,
    position: int = 0,
    *,
    header: BatchHeader | None = None,
) -> tuple[pa.RecordBatch | None, bytes | None]:
    """The rows and change types of the batch at `position`; CorruptBatch if it is invalid.

    The rows are None if the batch is empty, the change types are None if it has only appends. `schema` is that of the
    batch's schema id. The checksum is not checked.
    """
    if header is None:
        header = read_header(buffer, position)
    view = byte_view(buffer)
    end = position + header.size
    if end > len(view):
        raise CorruptBatch(f"batch at {position} ends at {end}, but the buffer has only {len(view)} bytes")
    body = view[position + header.records_start : end]
    try:
        starts, ends = record_bounds(body, header.record_count, _CHANGE_TYPE_BYTES)
        change_types = np.frombuffer(body, np.uint8)[starts].tobytes() if len(starts) else b""
        check_change_types(change_types, header.record_count)
        if not len(starts):
            return None, None if header.append_only else b""
        columns = decode_rows(body, starts + _CHANGE_TYPE_BYTES, ends, schema.data_types, row_format)
    except CorruptRowError as error:
        raise CorruptBatch(f"{row_format.value} batch at {position}: {error}") from None
    rows = pa.RecordBatch.from_arrays(columns, schema=to_arrow_schema(schema))
    return rows, None if header.append_only and not any(change_types) else change_types
