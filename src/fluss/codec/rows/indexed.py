"""Encodes and decodes INDEXED rows, one at a time: `table.log.format` or `table.kv.format` = INDEXED.

A row has null bits, then a list with room for the length of every variable-length column (only columns that are not
null take an entry, and entries are packed to the front), then the values of the columns that are not null.

CHAR(n) and BINARY(n) take n bytes, padded with zeros; a reader strips zero bytes from the end, so it loses zero bytes
at the end of a value. The format requires this.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from fluss.codec.rows.array_block import decode_array, decode_map, encode_array, encode_map
from fluss.codec.rows.values import (
    FIXED_STRUCTS,
    INT64,
    TIMESTAMP_ROOTS,
    CorruptRowError,
    RowValueError,
    check_nanos,
    check_precision,
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
from fluss.model.types import ArrayType, BinaryType, CharType, DataType, MapType, RowType

LENGTH_BYTES = 4
_LENGTH = struct.Struct("<i")
_TIMESTAMP = struct.Struct("<qi")


def indexed_width(data_type: DataType) -> int | None:
    """The width in bytes of a fixed-width column; None for a variable-length one."""
    if data_type.root in FIXED_STRUCTS:
        return FIXED_STRUCTS[data_type.root].size
    if isinstance(data_type, CharType | BinaryType):
        return data_type.length
    if is_compact(data_type):
        return INT64.size
    return _TIMESTAMP.size if data_type.root in TIMESTAMP_ROOTS else None


def indexed_header_bytes(types: Sequence[DataType]) -> int:
    """The number of bytes before the first value, which is the same for all rows of a schema."""
    return (len(types) + 7) // 8 + LENGTH_BYTES * sum(indexed_width(data_type) is None for data_type in types)


def encode_indexed_row(values: Sequence[Any], types: Sequence[DataType]) -> bytes:
    """Encode an INDEXED row from logical values. None is null, and refused in a NOT NULL column."""
    if len(values) != len(types):
        raise RowValueError(f"the row has {len(types)} columns, got {len(values)} values")
    header = bytearray(indexed_header_bytes(types))
    next_length = (len(types) + 7) // 8
    out = bytearray()
    for index, (value, data_type) in enumerate(zip(values, types, strict=True)):
        if value is None:
            if not data_type.nullable:
                raise RowValueError(f"column {index} of type {data_type} must not be null")
            header[index >> 3] |= 1 << (index & 7)
            continue
        content = _content(value, data_type)
        if indexed_width(data_type) is None:
            _LENGTH.pack_into(header, next_length, len(content))
            next_length += LENGTH_BYTES
        out += content
    return bytes(header + out)


def _content(value: object, data_type: DataType) -> bytes:
    root = data_type.root
    if root in FIXED_STRUCTS:
        return pack_fixed(value, data_type)
    if root == "DECIMAL":
        unscaled = checked_unscaled(value, data_type)
        return INT64.pack(unscaled) if is_compact(data_type) else unscaled_to_bytes(unscaled)
    if root in TIMESTAMP_ROOTS:
        millis, nanos = checked_timestamp(value, data_type)
        return INT64.pack(millis) if is_compact(data_type) else _TIMESTAMP.pack(millis, nanos)
    if isinstance(data_type, ArrayType):
        return encode_array(value, data_type, encode_indexed_row)
    if isinstance(data_type, MapType):
        return encode_map(value, data_type, encode_indexed_row)
    if isinstance(data_type, RowType):
        return encode_indexed_row(checked_sequence(value, data_type), [field.data_type for field in data_type.fields])
    content = text_or_bytes(value, data_type)
    if isinstance(data_type, CharType | BinaryType):
        if len(content) > data_type.length:
            raise RowValueError(f"an INDEXED row holds at most {data_type.length} bytes of {data_type}, got {value!r}")
        return content.ljust(data_type.length, b"\0")
    return content


def decode_indexed_row(buffer: bytes | bytearray | memoryview, types: Sequence[DataType]) -> list[object]:
    """Decode an INDEXED row to logical values; CorruptRowError unless the bytes are exactly one row."""
    view = memoryview(buffer).cast("B")
    position = indexed_header_bytes(types)
    if len(view) < position:
        raise CorruptRowError(f"{len(view)} bytes are too few for the header of {position} bytes")
    next_length = (len(types) + 7) // 8
    values: list[Any] = []
    for index, data_type in enumerate(types):
        if view[index >> 3] >> (index & 7) & 1:
            if not data_type.nullable:
                raise CorruptRowError(f"column {index} of type {data_type} must not be null")
            values.append(None)
            continue
        width = indexed_width(data_type)
        if width is None:
            (width,) = _LENGTH.unpack_from(view, next_length)
            next_length += LENGTH_BYTES
        if not 0 <= width <= len(view) - position:
            raise CorruptRowError(f"column {index} has {width} bytes at byte {position}, past the end at {len(view)}")
        values.append(_value(view[position : position + width], data_type))
        position += width
    if position != len(view):
        raise CorruptRowError(f"{len(view) - position} unexpected bytes after the last column")
    return values


def _value(content: memoryview, data_type: DataType) -> object:
    root = data_type.root
    if root in FIXED_STRUCTS:
        return FIXED_STRUCTS[root].unpack(content)[0]
    if root == "DECIMAL":
        if is_compact(data_type):
            return check_precision(INT64.unpack(content)[0], data_type)
        return unscaled_from_bytes(content, data_type)
    if root in TIMESTAMP_ROOTS:
        if is_compact(data_type):
            return INT64.unpack(content)[0], 0
        millis, nanos = _TIMESTAMP.unpack(content)
        return millis, check_nanos(nanos, data_type)
    if isinstance(data_type, ArrayType):
        return decode_array(content, data_type, decode_indexed_row)
    if isinstance(data_type, MapType):
        return decode_map(content, data_type, decode_indexed_row)
    if isinstance(data_type, RowType):
        return decode_indexed_row(content, [field.data_type for field in data_type.fields])
    if isinstance(data_type, CharType | BinaryType):
        content = memoryview(bytes(content).rstrip(b"\0"))
    return from_text_or_bytes(content, data_type)
