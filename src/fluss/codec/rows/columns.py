"""Encodes Arrow record batches as rows and decodes them: the entry point of the codecs for many rows.

From `COLUMN_WISE_MIN_ROWS` rows on, the column-wise codecs are used: a constant number of array operations per column,
nested types included. For fewer rows, those operations cost more than a loop over the rows. Both ways give the same
bytes and the same arrays; property tests compare them.

>>> from fluss.model.types import IntType, StringType
>>> batch = pa.record_batch([pa.array([300, None]), pa.array(["x", "y"])], ["a", "b"])
>>> [row.hex() for row in encode_rows(batch, [IntType(), StringType()], RowFormat.COMPACTED).to_pylist()]
['00ac020178', '010179']
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import NamedTuple

import pyarrow as pa

from fluss.codec.arrow.types import to_arrow_type
from fluss.codec.buffers import ReadableBuffer, byte_view
from fluss.codec.rows.arrow_values import column_from_values, column_to_values
from fluss.codec.rows.column_buffers import PaddedSource, binary_parts, join
from fluss.codec.rows.compacted import decode_compacted_row, encode_compacted_row
from fluss.codec.rows.decode import decode_compacted_columns, decode_indexed_columns
from fluss.codec.rows.encode import compacted_components, indexed_components
from fluss.codec.rows.indexed import decode_indexed_row, encode_indexed_row
from fluss.codec.rows.values import CorruptRowError, DecodeRow, EncodeRow, RowValueError
from fluss.codec.rows.varint import Int64s
from fluss.model.types import DataType

# Measured on rows of five columns: decoding breaks even at about 25 rows, encoding at about 65.
COLUMN_WISE_MIN_ROWS = 48


class RowFormat(Enum):
    """The row formats of tables, named as in `table.log.format` and `table.kv.format`."""

    COMPACTED = "COMPACTED"
    INDEXED = "INDEXED"


class _Codec(NamedTuple):
    encode_row: EncodeRow
    decode_row: DecodeRow
    components: Callable[[Sequence[pa.Array], Sequence[DataType], int], list[pa.Array]]
    decode_columns: Callable[..., list[pa.Array]]


_CODECS = {
    RowFormat.COMPACTED: _Codec(
        encode_compacted_row, decode_compacted_row, compacted_components, decode_compacted_columns
    ),
    RowFormat.INDEXED: _Codec(encode_indexed_row, decode_indexed_row, indexed_components, decode_indexed_columns),
}


def row_components(batch: pa.RecordBatch, types: Sequence[DataType], row_format: RowFormat) -> list[pa.Array]:
    """Binary arrays that `column_buffers.join` concatenates to the rows of the batch.

    Callers that add more to each row, such as a length, use it to need only one join.
    """
    _check_width(batch, types)
    count = batch.num_rows
    if count < COLUMN_WISE_MIN_ROWS:
        return [_encode_one_by_one(batch, types, row_format)]
    return _CODECS[row_format].components(batch.columns, types, count)


def encode_rows(batch: pa.RecordBatch, types: Sequence[DataType], row_format: RowFormat) -> pa.Array:
    """Encode the rows of a record batch as a binary array; columns are matched by position."""
    components = row_components(batch, types, row_format)
    return components[0] if len(components) == 1 else join(components, batch.num_rows)


def _check_width(batch: pa.RecordBatch, types: Sequence[DataType]) -> None:
    if batch.num_columns != len(types):
        raise RowValueError(f"the table has {len(types)} columns, but the batch has {batch.num_columns}")


def _encode_one_by_one(batch: pa.RecordBatch, types: Sequence[DataType], row_format: RowFormat) -> pa.Array:
    encode_row = _CODECS[row_format].encode_row
    columns = [column_to_values(column, data_type) for column, data_type in zip(batch.columns, types, strict=True)]
    rows = zip(*columns, strict=True) if columns else [()] * batch.num_rows
    return pa.array([encode_row(row, types) for row in rows], pa.binary())


def decode_rows(
    buffer: ReadableBuffer,
    starts: Int64s,
    ends: Int64s,
    types: Sequence[DataType],
    row_format: RowFormat,
    wanted: Collection[int] | None = None,
) -> list[pa.Array]:
    """Decode the rows `buffer[starts[i]:ends[i]]` to Arrow columns; CorruptRowError if a row is invalid.

    Columns whose position is not `wanted` may be returned as all null, which makes decoding of many rows faster.
    """
    if len(starts) >= COLUMN_WISE_MIN_ROWS:
        return _CODECS[row_format].decode_columns(PaddedSource(buffer), starts, ends, types, wanted)
    view, decode_row = byte_view(buffer), _CODECS[row_format].decode_row
    rows: list[list[object]] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if not 0 <= start <= end <= len(view):
            raise CorruptRowError(f"row {len(rows)} has bytes {start}..{end}, outside of the buffer of {len(view)}")
        rows.append(decode_row(view[start:end], types))
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(types)
    return [column_from_values(column, data_type) for column, data_type in zip(columns, types, strict=True)]


def decode_row_array(rows: pa.Array, types: Sequence[DataType], row_format: RowFormat) -> list[pa.Array]:
    """Decode rows, given as a binary array without nulls, to Arrow columns."""
    if rows.null_count:
        raise CorruptRowError(f"a row must not be null, but {rows.null_count} of {len(rows)} are")
    data, offsets = binary_parts(rows)
    return decode_rows(memoryview(data), offsets[:-1], offsets[1:], types, row_format)


def empty_columns(types: Sequence[DataType]) -> list[pa.Array]:
    """Arrow columns of these types that have no rows."""
    return [pa.array([], to_arrow_type(data_type)) for data_type in types]
