"""Encodes and decodes array and map blocks and their slots, one value at a time.

A block is a fixed part of slots followed by a variable part. A slot has a small value itself, up to seven bytes of a
string "inline" (with the length in its last byte), or a pointer (length, offset) into the variable part, whose entries
start at multiples of eight bytes. Arrays have narrow slots for small types; ALIGNED rows have eight bytes per column.

All row formats share this layout; only ROW elements differ, so both directions take the row function of the
enclosing format. The column-wise counterparts are in `block_encode.py` and `block_decode.py`.

A hostile block may point many slots at one entry and so cause far more work than it has bytes. `SlotReader` therefore
limits the entries of a block, taken together, to as many bytes as the block has.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from fluss.codec.rows.values import (
    BYTES_ROOTS,
    FIXED_STRUCTS,
    INT64,
    MAX_DECIMAL_BYTES,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    UINT32_PAIR,
    CorruptRowError,
    DecodeRow,
    EncodeRow,
    RowValueError,
    check_nanos,
    check_precision,
    checked_sequence,
    checked_timestamp,
    checked_unscaled,
    from_text_or_bytes,
    is_compact,
    map_pairs,
    pack_fixed,
    text_or_bytes,
    unscaled_from_bytes,
    unscaled_to_bytes,
)
from fluss.model.types import ArrayType, DataType, MapType, RowType

_COUNT = struct.Struct("<i")
COUNT_BYTES = 4
_CANONICAL_NAN = math.nan  # encoded as 7fc00000 (FLOAT) and 7ff8000000000000 (DOUBLE)
SLOT_BYTES = 8
MAX_INLINE_BYTES = 7
INLINE_MARK = 0x80


def round_up_to_8(size: int) -> int:
    return (size + 7) & ~7


def slot_width(data_type: DataType) -> int:
    """The number of bytes that the slot of an element takes in an array block."""
    fixed = FIXED_STRUCTS.get(data_type.root)
    return fixed.size if fixed else SLOT_BYTES


class SlotWriter:
    """Makes the slots of one block in the order of its elements, and collects its variable part."""

    def __init__(self, variable_start: int, encode_row: EncodeRow) -> None:
        self.variable = bytearray()
        self._variable_start = variable_start
        self._encode_row = encode_row

    def slot(self, value: object, data_type: DataType) -> bytes:
        """The slot of a value that is not null, in the width of its type; longer content goes to the variable part."""
        root = data_type.root
        if root in FIXED_STRUCTS:
            return pack_fixed(value, data_type)
        if root in TEXT_ROOTS or root in BYTES_ROOTS:
            content = text_or_bytes(value, data_type)
            if len(content) <= MAX_INLINE_BYTES:
                return content.ljust(MAX_INLINE_BYTES, b"\0") + bytes((INLINE_MARK | len(content),))
            return self._pointer(content, len(content))
        if root == "DECIMAL":
            unscaled = checked_unscaled(value, data_type)
            if is_compact(data_type):
                return INT64.pack(unscaled)
            content = unscaled_to_bytes(unscaled)
            return self._pointer(content.ljust(MAX_DECIMAL_BYTES, b"\0"), len(content))
        if root in TIMESTAMP_ROOTS:
            millis, nanos = checked_timestamp(value, data_type)
            if is_compact(data_type):
                return INT64.pack(millis)
            return self._pointer(INT64.pack(millis), nanos)
        content = self._nested(value, data_type)
        return self._pointer(content, len(content))

    def _pointer(self, content: bytes, low_word: int) -> bytes:
        offset = self._variable_start + len(self.variable)
        self.variable += content.ljust(round_up_to_8(len(content)), b"\0")
        return UINT32_PAIR.pack(low_word, offset)

    def _nested(self, value: object, data_type: DataType) -> bytes:
        if isinstance(data_type, ArrayType):
            return encode_array(value, data_type, self._encode_row)
        if isinstance(data_type, MapType):
            return encode_map(value, data_type, self._encode_row)
        assert isinstance(data_type, RowType)
        return self._encode_row(checked_sequence(value, data_type), [field.data_type for field in data_type.fields])


class SlotReader:
    """Reads the slots of one block. `_unread` is the number of bytes that entries not yet read may have in total."""

    def __init__(self, block: memoryview, decode_row: DecodeRow) -> None:
        self._block = block
        self._decode_row = decode_row
        self._unread = len(block)

    def value(self, position: int, data_type: DataType) -> Any:
        """The value of the slot at `position`, which the caller has checked to be inside the block."""
        root, block = data_type.root, self._block
        fixed = FIXED_STRUCTS.get(root)
        if fixed is not None:
            return fixed.unpack_from(block, position)[0]
        if is_compact(data_type):
            number: int = INT64.unpack_from(block, position)[0]
            return check_precision(number, data_type) if root == "DECIMAL" else (number, 0)
        low, offset = UINT32_PAIR.unpack_from(block, position)
        if root in TEXT_ROOTS or root in BYTES_ROOTS:
            mark = block[position + MAX_INLINE_BYTES]
            if mark >= INLINE_MARK:
                if mark > INLINE_MARK + MAX_INLINE_BYTES:
                    raise CorruptRowError(f"an inline {data_type} cannot have {mark - INLINE_MARK} bytes")
                return from_text_or_bytes(block[position : position + mark - INLINE_MARK], data_type)
            return from_text_or_bytes(self._entry(offset, low), data_type)
        if root in TIMESTAMP_ROOTS:
            return INT64.unpack(self._entry(offset, 8))[0], check_nanos(low, data_type)
        if root == "DECIMAL":
            return unscaled_from_bytes(self._entry(offset, low), data_type)
        return self._nested(self._entry(offset, low), data_type)

    def _entry(self, offset: int, length: int) -> memoryview:
        if offset + length > len(self._block):
            raise CorruptRowError(f"a slot points to bytes {offset}..{offset + length} of {len(self._block)}")
        self._unread -= length
        if self._unread < 0:
            raise CorruptRowError("the slots of a block point to more bytes than the block has")
        return self._block[offset : offset + length]

    def _nested(self, content: memoryview, data_type: DataType) -> object:
        if isinstance(data_type, ArrayType):
            return decode_array(content, data_type, self._decode_row)
        if isinstance(data_type, MapType):
            return decode_map(content, data_type, self._decode_row)
        assert isinstance(data_type, RowType)
        return self._decode_row(content, [field.data_type for field in data_type.fields])


def array_header_bytes(count: int) -> int:
    """The number of bytes before the first slot: the count, and the null bits in words of four bytes."""
    return COUNT_BYTES + 4 * ((count + 31) // 32)


def encode_array(value: object, data_type: ArrayType, encode_row: EncodeRow) -> bytes:
    """Encode an ARRAY as a block, whose size is a multiple of eight bytes."""
    return _encode_elements(checked_sequence(value, data_type), data_type.element, data_type, encode_row)


def decode_array(block: memoryview, data_type: ArrayType, decode_row: DecodeRow) -> list[object]:
    """Decode an array block to the list of its elements."""
    return _decode_elements(block, data_type.element, decode_row)


def encode_map(value: object, data_type: MapType, encode_row: EncodeRow) -> bytes:
    """Encode a MAP as a block: size of the key block, key block, value block. The order of the pairs is kept."""
    pairs = map_pairs(value, data_type)
    keys = _encode_elements([pair[0] for pair in pairs], data_type.key.not_null(), data_type, encode_row)
    values = _encode_elements([pair[1] for pair in pairs], data_type.value, data_type, encode_row)
    return _COUNT.pack(len(keys)) + keys + values


def decode_map(block: memoryview, data_type: MapType, decode_row: DecodeRow) -> list[tuple[object, object]]:
    """Decode a map block to the list of its (key, value) pairs."""
    if len(block) < COUNT_BYTES:
        raise CorruptRowError(f"a map block of {len(block)} bytes is too short")
    (key_bytes,) = _COUNT.unpack_from(block)
    if not 0 <= key_bytes <= len(block) - COUNT_BYTES:
        raise CorruptRowError(f"a map block of {len(block)} bytes cannot hold {key_bytes} bytes of keys")
    keys = _decode_elements(block[COUNT_BYTES : COUNT_BYTES + key_bytes], data_type.key.not_null(), decode_row)
    values = _decode_elements(block[COUNT_BYTES + key_bytes :], data_type.value, decode_row)
    if len(keys) != len(values):
        raise CorruptRowError(f"a map block has {len(keys)} keys, but {len(values)} values")
    return list(zip(keys, values, strict=True))


def _encode_elements(values: Any, element: DataType, owner: DataType, encode_row: EncodeRow) -> bytes:
    header, width = array_header_bytes(len(values)), slot_width(element)
    fixed = bytearray(round_up_to_8(header + len(values) * width))
    _COUNT.pack_into(fixed, 0, len(values))
    writer = SlotWriter(len(fixed), encode_row)
    is_float = element.root in ("FLOAT", "DOUBLE")
    for index, value in enumerate(values):
        if value is None:
            if not element.nullable:
                raise RowValueError(f"element {index} of {owner} is null, but {element} is NOT NULL")
            fixed[COUNT_BYTES + (index >> 3)] |= 1 << (index & 7)
            continue
        if is_float and value != value:  # Arrays, unlike rows, store one canonical NaN.
            value = _CANONICAL_NAN
        position = header + index * width
        fixed[position : position + width] = writer.slot(value, element)
    return bytes(fixed + writer.variable)


def _decode_elements(block: memoryview, element: DataType, decode_row: DecodeRow) -> list[object]:
    if len(block) < COUNT_BYTES:
        raise CorruptRowError(f"an array block of {len(block)} bytes is too short")
    (count,) = _COUNT.unpack_from(block)
    width = slot_width(element)
    if count < 0 or array_header_bytes(count) + count * width > len(block):
        raise CorruptRowError(f"an array block of {len(block)} bytes cannot hold {count} elements of {width} bytes")
    header, reader = array_header_bytes(count), SlotReader(block, decode_row)
    values: list[Any] = []
    for index in range(count):
        if block[COUNT_BYTES + (index >> 3)] >> (index & 7) & 1:
            if not element.nullable:
                raise CorruptRowError(f"element {index} of an array of {element} must not be null")
            values.append(None)
        else:
            values.append(reader.value(header + index * width, element))
    return values
