"""Encodes and decodes COMPACTED rows, one at a time: values of primary-key tables, and COMPACTED log records.

A row has null bits (one per column, even for NOT NULL columns), then the fields of the columns that are not null, back
to back. The fields without the null bits are Fluss's encoding of keys. `encode.py` and `decode.py` work column by
column.


>>> from fluss.model.types import IntType, StringType
>>> encode_compacted_row([300, "x"], [IntType(), StringType()]).hex(" ")
'00 ac 02 01 78'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluss.codec.rows.array_block import decode_array, decode_map, encode_array, encode_map
from fluss.codec.rows.values import (
    FIXED_STRUCTS,
    NESTED_ROOTS,
    TIMESTAMP_ROOTS,
    CorruptRowError,
    RowValueError,
    check_nanos,
    check_precision,
    checked_int,
    checked_sequence,
    checked_timestamp,
    checked_unscaled,
    from_text_or_bytes,
    is_compact,
    pack_fixed,
    text_or_bytes,
    unscaled_from_bytes,
    unscaled_to_bytes,
)
from fluss.codec.rows.varint import read_length, read_varint32, read_varint64, write_varint32, write_varint64
from fluss.model.types import ArrayType, DataType, MapType, RowType

VARINT32_ROOTS = frozenset({"INTEGER", "DATE", "TIME_WITHOUT_TIME_ZONE"})


def encode_compacted_row(values: Sequence[Any], types: Sequence[DataType]) -> bytes:
    """Encode a COMPACTED row from logical values. None is null, and refused in a NOT NULL column."""
    if len(values) != len(types):
        raise RowValueError(f"the row has {len(types)} columns, got {len(values)} values")
    out = bytearray((len(types) + 7) // 8)
    for index, (value, data_type) in enumerate(zip(values, types, strict=True)):
        if value is None:
            if not data_type.nullable:
                raise RowValueError(f"column {index} of type {data_type} must not be null")
            out[index >> 3] |= 1 << (index & 7)
        else:
            write_compacted_field(value, data_type, out)
    return bytes(out)


def decode_compacted_row(buffer: bytes | bytearray | memoryview, types: Sequence[DataType]) -> list[object]:
    """Decode a COMPACTED row to logical values; CorruptRowError unless the bytes are exactly one row."""
    view = memoryview(buffer).cast("B")
    position = (len(types) + 7) // 8
    if len(view) < position:
        raise CorruptRowError(f"{len(view)} bytes are too few for the null bits of {len(types)} columns")
    values: list[Any] = []
    for index, data_type in enumerate(types):
        if view[index >> 3] >> (index & 7) & 1:
            if not data_type.nullable:
                raise CorruptRowError(f"column {index} of type {data_type} must not be null")
            values.append(None)
            continue
        value, position = read_compacted_field(view, position, data_type)
        values.append(value)
    if position != len(view):
        raise CorruptRowError(f"{len(view) - position} unexpected bytes after the last column")
    return values


def write_compacted_field(value: object, data_type: DataType, out: bytearray) -> None:
    """Encode a value that is not null as a field, and append its bytes to `out`."""
    root = data_type.root
    if root in VARINT32_ROOTS:
        write_varint32(checked_int(value, data_type, -(2**31), 2**31 - 1), out)
    elif root == "BIGINT":
        write_varint64(checked_int(value, data_type, -(2**63), 2**63 - 1), out)
    elif root in FIXED_STRUCTS:
        out += pack_fixed(value, data_type)
    elif root == "DECIMAL" and is_compact(data_type):
        write_varint64(checked_unscaled(value, data_type), out)
    elif root in TIMESTAMP_ROOTS:
        millis, nanos = checked_timestamp(value, data_type)
        write_varint64(millis, out)
        if not is_compact(data_type):
            write_varint32(nanos, out)
    else:
        content = _content(value, data_type)
        write_varint32(len(content), out)
        out += content


def _content(value: object, data_type: DataType) -> bytes:
    """The content of a variable-length field, without its length."""
    if data_type.root == "DECIMAL":
        return unscaled_to_bytes(checked_unscaled(value, data_type))
    if isinstance(data_type, ArrayType):
        return encode_array(value, data_type, encode_compacted_row)
    if isinstance(data_type, MapType):
        return encode_map(value, data_type, encode_compacted_row)
    if isinstance(data_type, RowType):
        return encode_compacted_row(checked_sequence(value, data_type), [field.data_type for field in data_type.fields])
    return text_or_bytes(value, data_type)


def read_compacted_field(view: memoryview, position: int, data_type: DataType) -> tuple[object, int]:
    """The value of the field at `position` and the position after it."""
    root = data_type.root
    if root in VARINT32_ROOTS:
        return read_varint32(view, position)
    if root == "BIGINT":
        return read_varint64(view, position)
    if root in FIXED_STRUCTS:
        fixed = FIXED_STRUCTS[root]
        if position + fixed.size > len(view):
            raise CorruptRowError(f"a {data_type} at byte {position} runs past the end of the data at {len(view)}")
        return fixed.unpack_from(view, position)[0], position + fixed.size
    if root == "DECIMAL" and is_compact(data_type):
        unscaled, position = read_varint64(view, position)
        return check_precision(unscaled, data_type), position
    if root in TIMESTAMP_ROOTS:
        millis, position = read_varint64(view, position)
        nanos = 0
        if not is_compact(data_type):
            nanos, position = read_varint32(view, position)
        return (millis, check_nanos(nanos, data_type)), position
    length, position = read_length(view, position)
    content = view[position : position + length]
    if root in NESTED_ROOTS:
        return _nested(content, data_type), position + length
    if root == "DECIMAL":
        return unscaled_from_bytes(content, data_type), position + length
    return from_text_or_bytes(content, data_type), position + length


def _nested(content: memoryview, data_type: DataType) -> list[Any]:
    if isinstance(data_type, ArrayType):
        return decode_array(content, data_type, decode_compacted_row)
    if isinstance(data_type, MapType):
        return decode_map(content, data_type, decode_compacted_row)
    assert isinstance(data_type, RowType)
    return decode_compacted_row(content, [field.data_type for field in data_type.fields])
