"""Decodes COMPACTED and INDEXED rows to Arrow columns, each column for all rows at once.

Rows are slices of one `PaddedSource`, given by their starts and ends. They may be in any order, but ascending order is
faster. Each column is read for all rows with a constant number of array operations. Nested columns are decoded by
`block_decode.py`, which flattens them and calls this module for ROW elements.

Invariant: a position never leaves its row (`advance`), and a row never leaves the source (`check_rows`), so no read
goes past the spare bytes of the source, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fluss.codec.arrow.types import to_arrow_type
from fluss.codec.rows.arrow_columns import (
    NUMPY_OF_ROOT,
    to_big_unscaled,
    to_content,
    to_fixed,
    to_timestamps,
    to_unscaled,
)
from fluss.codec.rows.block_decode import decode_nested
from fluss.codec.rows.column_buffers import PaddedSource, advance, any_null, first_row
from fluss.codec.rows.compacted import VARINT32_ROOTS
from fluss.codec.rows.indexed import LENGTH_BYTES, indexed_header_bytes, indexed_width
from fluss.codec.rows.values import FIXED_STRUCTS, NESTED_ROOTS, TIMESTAMP_ROOTS, CorruptRowError, is_compact
from fluss.codec.rows.varint import MAX_VARINT32_BYTES, MAX_VARINT64_BYTES, Bools, Int64s, read_varint_column
from fluss.model.types import CharType, DataType

if TYPE_CHECKING:
    from fluss.codec.rows.block_decode import DecodeRows
    from fluss.codec.rows.varint import Numbers, UInt64s


def check_rows(source: PaddedSource, starts: Int64s, ends: Int64s) -> None:
    """Raise CorruptRowError unless all rows are inside the source."""
    wrong = (starts < 0) | (ends < starts) | (ends > source.size)
    if wrong.any():
        row = first_row(wrong)
        place = f"bytes {int(starts[row])}..{int(ends[row])}, outside of the buffer of {source.size}"
        raise CorruptRowError(f"row {row} has {place}")


def _nulls_of(source: PaddedSource, starts: Int64s, index: int, data_type: DataType) -> Bools | None:
    """The null mask of column `index`; the null bits of the rows begin at `starts`."""
    nulls = any_null((source.data.take(starts + (index >> 3)) & np.uint8(1 << (index & 7))) != 0)
    if nulls is not None and not data_type.nullable:
        raise CorruptRowError(f"column {index} of type {data_type} is null in row {first_row(nulls)}")
    return nulls


def _check_ends(cursors: Int64s, ends: Int64s) -> None:
    wrong = cursors != ends
    if wrong.any():
        row = first_row(wrong)
        raise CorruptRowError(f"row {row} has {int((ends - cursors)[row])} unexpected bytes after the last column")


def decode_compacted_columns(
    source: PaddedSource,
    starts: Int64s,
    ends: Int64s,
    types: Sequence[DataType],
    wanted: Collection[int] | None = None,
) -> list[pa.Array]:
    """Decode COMPACTED rows to Arrow columns; columns that are not wanted are skipped and returned as nulls."""
    check_rows(source, starts, ends)
    cursors = advance(starts, (len(types) + 7) // 8, ends, "the null bits")
    columns: list[pa.Array] = []
    for index, data_type in enumerate(types):
        nulls = _nulls_of(source, starts, index, data_type)
        if wanted is not None and index not in wanted:
            cursors = _behind_compacted_field(source, cursors, ends, data_type, nulls)
            columns.append(pa.nulls(len(starts), to_arrow_type(data_type)))
            continue
        column, cursors = _compacted_field(source, cursors, ends, data_type, nulls)
        columns.append(column)
    _check_ends(cursors, ends)
    return columns


def _sizes(width: int, nulls: Bools | None) -> Int64s | int:
    if nulls is None:
        return width
    sizes: Int64s = np.where(nulls, 0, width).astype(np.int64)
    return sizes


def _compacted_field(
    source: PaddedSource, cursors: Int64s, ends: Int64s, data_type: DataType, nulls: Bools | None
) -> tuple[pa.Array, Int64s]:
    root = data_type.root

    def varint(max_bytes: int) -> UInt64s:
        nonlocal cursors
        values, sizes = read_varint_column(source.data, source.words, cursors, nulls, max_bytes)
        cursors = advance(cursors, sizes, ends, data_type)
        return values

    if root in VARINT32_ROOTS:
        return to_fixed(varint(MAX_VARINT32_BYTES).astype(np.uint32).view(np.int32), data_type, nulls), cursors
    if root == "BIGINT":
        return to_fixed(varint(MAX_VARINT64_BYTES).view(np.int64), data_type, nulls), cursors
    if root in FIXED_STRUCTS:
        after = advance(cursors, _sizes(FIXED_STRUCTS[root].size, nulls), ends, data_type)
        return to_fixed(load_fixed(source, cursors, data_type), data_type, nulls), after
    if root == "DECIMAL" and is_compact(data_type):
        return to_unscaled(varint(MAX_VARINT64_BYTES).view(np.int64), data_type, nulls), cursors
    if root in TIMESTAMP_ROOTS:
        millis = varint(MAX_VARINT64_BYTES).view(np.int64)
        if is_compact(data_type):
            nanos = np.zeros(len(millis), np.int64)
        else:
            nanos = varint(MAX_VARINT32_BYTES).astype(np.uint32).astype(np.int64)
        return to_timestamps(millis, nanos, data_type, nulls), cursors
    lengths = varint(MAX_VARINT32_BYTES).astype(np.uint32).astype(np.int64)
    after = advance(cursors, lengths, ends, data_type)
    return _content(source, cursors, lengths, data_type, nulls, decode_compacted_columns), after


def _behind_compacted_field(
    source: PaddedSource, cursors: Int64s, ends: Int64s, data_type: DataType, nulls: Bools | None
) -> Int64s:
    """The positions after a field that is not wanted."""
    root = data_type.root

    def behind_varint(max_bytes: int) -> tuple[UInt64s, Int64s]:
        values, sizes = read_varint_column(source.data, source.words, cursors, nulls, max_bytes)
        return values, advance(cursors, sizes, ends, data_type)

    if root in VARINT32_ROOTS:
        return behind_varint(MAX_VARINT32_BYTES)[1]
    if root == "BIGINT" or (root == "DECIMAL" and is_compact(data_type)):
        return behind_varint(MAX_VARINT64_BYTES)[1]
    if root in FIXED_STRUCTS:
        return advance(cursors, _sizes(FIXED_STRUCTS[root].size, nulls), ends, data_type)
    if root in TIMESTAMP_ROOTS:
        return _compacted_field(source, cursors, ends, data_type, nulls)[1]
    lengths, cursors = behind_varint(MAX_VARINT32_BYTES)
    return advance(cursors, lengths.astype(np.uint32).astype(np.int64), ends, data_type)


def load_fixed(source: PaddedSource, cursors: Int64s, data_type: DataType) -> Numbers:
    """The little-endian numbers at the positions `cursors`, in the width of their type."""
    dtype = np.dtype(NUMPY_OF_ROOT[data_type.root])
    if dtype.itemsize == 1:
        return source.data.take(cursors).view(dtype)
    return source.words[cursors].astype(f"<u{dtype.itemsize}").view(dtype)


def _content(
    source: PaddedSource,
    starts: Int64s,
    sizes: Int64s,
    data_type: DataType,
    nulls: Bools | None,
    decode_rows: DecodeRows,
) -> pa.Array:
    if data_type.root in NESTED_ROOTS:
        return decode_nested(source, starts, starts + sizes, data_type, nulls, decode_rows)
    if data_type.root == "DECIMAL":
        return to_big_unscaled(source, starts, sizes, data_type, nulls)
    return to_content(source, starts, sizes, data_type, nulls)


def decode_indexed_columns(
    source: PaddedSource,
    starts: Int64s,
    ends: Int64s,
    types: Sequence[DataType],
    wanted: Collection[int] | None = None,
) -> list[pa.Array]:
    """Decode INDEXED rows to Arrow columns; columns that are not wanted are returned as nulls."""
    check_rows(source, starts, ends)
    cursors = advance(starts, indexed_header_bytes(types), ends, "the header")
    next_length = starts + (len(types) + 7) // 8
    columns: list[pa.Array] = []
    for index, data_type in enumerate(types):
        nulls = _nulls_of(source, starts, index, data_type)
        width = indexed_width(data_type)
        if width is None:
            sizes = source.words[next_length].astype(np.uint32).view(np.int32).astype(np.int64)
            if nulls is not None:
                sizes[nulls] = 0
            next_length = next_length + _sizes(LENGTH_BYTES, nulls)
            if (sizes < 0).any():
                raise CorruptRowError(f"column {index} of row {first_row(sizes < 0)} has a negative length")
        else:
            sizes = np.zeros(len(cursors), np.int64) + _sizes(width, nulls)
        after = advance(cursors, sizes, ends, data_type)
        if wanted is None or index in wanted:
            columns.append(_indexed_field(source, cursors, sizes, data_type, nulls))
        else:
            columns.append(pa.nulls(len(starts), to_arrow_type(data_type)))
        cursors = after
    _check_ends(cursors, ends)
    return columns


def _indexed_field(
    source: PaddedSource, cursors: Int64s, sizes: Int64s, data_type: DataType, nulls: Bools | None
) -> pa.Array:
    root = data_type.root
    if root in FIXED_STRUCTS:
        return to_fixed(load_fixed(source, cursors, data_type), data_type, nulls)
    if root == "DECIMAL" and is_compact(data_type):
        return to_unscaled(source.words[cursors].view(np.int64), data_type, nulls)
    if root in TIMESTAMP_ROOTS:
        millis = source.words[cursors].view(np.int64)
        nanos = np.zeros(len(millis), np.int64)
        if not is_compact(data_type):
            nanos = source.words[cursors + 8].astype(np.uint32).view(np.int32).astype(np.int64)
        if nulls is not None:
            millis[nulls] = 0
            nanos[nulls] = 0
        return to_timestamps(millis, nanos, data_type, nulls)
    if isinstance(data_type, CharType):
        sizes = _without_trailing_zeros(source, cursors, sizes, data_type.length)
    return _content(source, cursors, sizes, data_type, nulls, decode_indexed_columns)


def _without_trailing_zeros(source: PaddedSource, starts: Int64s, sizes: Int64s, width: int) -> Int64s:
    """The sizes of zero-padded values without their padding. With it, all are `width` bytes long, or 0 where null."""
    full = np.flatnonzero(sizes)
    stripped = np.zeros(len(sizes), np.int64)
    if len(full):
        # Find the last byte that is not zero, from the end. All bytes looked at are inside their rows.
        used = source.data.take(starts[full, None] + np.arange(width - 1, -1, -1)) != 0
        stripped[full] = np.where(used.any(axis=1), width - used.argmax(axis=1), 0)
    return stripped
