"""Encodes Arrow columns as COMPACTED and INDEXED rows, each column for all rows at once.

Every field becomes one or two binary arrays ("components", e.g. a length and its content), null where the column is
null, and one kernel joins all components row by row. Callers that add more to a row (a record length, a key) add
components of their own before the join. The order of components is the order of the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fluss.codec.rows.arrow_columns import (
    as_column,
    from_big_unscaled,
    from_content,
    from_fixed,
    from_timestamps,
    from_unscaled,
)
from fluss.codec.rows.block_encode import encode_nested
from fluss.codec.rows.column_buffers import first_row, fixed_size, join, null_mask, ragged, sizes_of, varints, zeros
from fluss.codec.rows.compacted import VARINT32_ROOTS
from fluss.codec.rows.indexed import LENGTH_BYTES, indexed_width
from fluss.codec.rows.values import FIXED_STRUCTS, NESTED_ROOTS, TIMESTAMP_ROOTS, RowValueError, is_compact
from fluss.codec.rows.varint import MASK32, Bools, Bytes
from fluss.model.types import CharType, DataType

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss.codec.rows.block_encode import EncodeRows


def encode_compacted_columns(columns: Sequence[pa.Array], types: Sequence[DataType], count: int) -> pa.Array:
    """Encode columns as a binary array of COMPACTED rows."""
    return join(compacted_components(columns, types, count), count)


def encode_indexed_columns(columns: Sequence[pa.Array], types: Sequence[DataType], count: int) -> pa.Array:
    """Encode columns as a binary array of INDEXED rows."""
    return join(indexed_components(columns, types, count), count)


def compacted_components(columns: Sequence[pa.Array], types: Sequence[DataType], count: int) -> list[pa.Array]:
    """The components of COMPACTED rows: null bits, then the fields."""
    bits, masks = _null_bits(columns, types, count)
    components = [fixed_size(bits)]
    for column, data_type, nulls in zip(columns, types, masks, strict=True):
        components += compacted_field(column, data_type, nulls)
    return components


def _null_bits(columns: Sequence[pa.Array], types: Sequence[DataType], count: int) -> tuple[Bytes, list[Bools | None]]:
    if len(columns) != len(types):
        raise RowValueError(f"a row must have {len(types)} columns, got {len(columns)} Arrow columns")
    bits = np.zeros((count, (len(types) + 7) // 8), np.uint8)
    masks: list[Bools | None] = []
    for index, (column, data_type) in enumerate(zip(columns, types, strict=True)):
        nulls = null_mask(column)
        if nulls is not None:
            if not data_type.nullable:
                raise RowValueError(f"column {index} of type {data_type} must not be null; row {first_row(nulls)} is")
            bits[:, index >> 3] |= nulls.astype(np.uint8) << np.uint8(index & 7)
        masks.append(nulls)
    return bits, masks


def compacted_field(column: pa.Array, data_type: DataType, nulls: Bools | None) -> list[pa.Array]:
    """The components of one COMPACTED field; without null bits they are also the field of a compacted key."""
    root = data_type.root
    if root not in NESTED_ROOTS:
        column = as_column(column, data_type)
    if root in VARINT32_ROOTS:
        return [varints(from_fixed(column, data_type).view(np.uint32).astype(np.uint64), nulls)]
    if root == "BIGINT":
        return [varints(from_fixed(column, data_type).view(np.uint64), nulls)]
    if root in FIXED_STRUCTS:
        return [fixed_size(from_fixed(column, data_type), nulls)]
    if root == "DECIMAL" and is_compact(data_type):
        return [varints(from_unscaled(column, data_type).view(np.uint64), nulls)]
    if root in TIMESTAMP_ROOTS:
        millis, nanos = from_timestamps(column)
        whole = [varints(millis.view(np.uint64), nulls)]
        return whole if is_compact(data_type) else [*whole, varints(nanos.view(np.uint64), nulls)]
    content = _content(column, data_type, encode_compacted_columns)
    return [varints(sizes_of(content).view(np.uint64) & np.uint64(MASK32), nulls), content]


def _content(column: pa.Array, data_type: DataType, encode_rows: EncodeRows) -> pa.Array:
    """The bytes of variable-length fields, null where the column is null."""
    if data_type.root in NESTED_ROOTS:
        return encode_nested(column, data_type, encode_rows)
    if data_type.root == "DECIMAL":
        return from_big_unscaled(column, data_type)
    return from_content(column, data_type)


def indexed_components(columns: Sequence[pa.Array], types: Sequence[DataType], count: int) -> list[pa.Array]:
    """The components of INDEXED rows: null bits, packed lengths, then the values."""
    bits, masks = _null_bits(columns, types, count)
    variable = sum(indexed_width(data_type) is None for data_type in types)
    lengths = np.zeros((count, variable), np.int32)
    used = np.zeros(count, np.int64)  # entries of the length list that each row has used so far
    rows = np.arange(count)
    values: list[pa.Array] = []
    for column, data_type, nulls in zip(columns, types, masks, strict=True):
        fields = _indexed_field(column, data_type, nulls)
        values += fields
        if indexed_width(data_type) is None:
            present = rows if nulls is None else np.flatnonzero(~nulls)
            lengths[present, used[present]] = sizes_of(fields[0])[present]
            used[present] += 1
    header = [fixed_size(bits)]
    if variable:
        header.append(ragged(lengths, np.arange(count + 1, dtype=np.int64) * (LENGTH_BYTES * variable)))
    return header + values


def _indexed_field(column: pa.Array, data_type: DataType, nulls: Bools | None) -> list[pa.Array]:
    root = data_type.root
    if root not in NESTED_ROOTS:
        column = as_column(column, data_type)
    if root in FIXED_STRUCTS:
        return [fixed_size(from_fixed(column, data_type), nulls)]
    if root == "DECIMAL" and is_compact(data_type):
        return [fixed_size(from_unscaled(column, data_type), nulls)]
    if root in TIMESTAMP_ROOTS:
        millis, nanos = from_timestamps(column)
        whole = [fixed_size(millis, nulls)]
        return whole if is_compact(data_type) else [*whole, fixed_size(nanos.astype(np.int32), nulls)]
    content = _content(column, data_type, encode_indexed_columns)
    if not isinstance(data_type, CharType):
        return [content]
    padding = data_type.length - sizes_of(content)
    if (padding < 0).any():
        row = first_row(padding < 0)
        size = data_type.length - int(padding[row])
        raise RowValueError(
            f"row {row}: an INDEXED row holds at most {data_type.length} bytes of {data_type}, got {size}"
        )
    return [content, zeros(padding if nulls is None else np.where(nulls, 0, padding))]
