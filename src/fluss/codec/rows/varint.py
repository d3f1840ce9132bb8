"""Encodes and decodes the variable-length integers of rows and keys, one at a time or for whole columns.

Base 128, lowest group first, never zigzag: a negative number is its 32-bit or 64-bit pattern, so -1 takes 5 or 10
bytes. Writers emit the shortest form. Readers accept longer forms of up to 5 or 10 bytes, as Apache Fluss does.

The column functions process all rows at once, with a fixed number of array operations.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fluss.codec.rows.values import CorruptRowError

MAX_VARINT32_BYTES = 5
MAX_VARINT64_BYTES = 10
MASK32 = 0xFFFFFFFF
MASK64 = 0xFFFFFFFFFFFFFFFF

Int64s: TypeAlias = npt.NDArray[np.int64]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Bools: TypeAlias = npt.NDArray[np.bool_]
# The type of its elements follows from a column type at run time.
Numbers: TypeAlias = npt.NDArray[Any]

_U = np.uint64
_CONTINUE_BITS = _U(0x8080808080808080)
# A number of k bytes is at least 2**(7 * (k - 1)).
_SIZE_LIMITS = np.array([1 << (7 * count) for count in range(1, MAX_VARINT64_BYTES)], np.uint64)


def write_varint32(value: int, out: bytearray) -> None:
    """Append an int32 or a length to `out` in its shortest form."""
    _write(value & MASK32, out)


def write_varint64(value: int, out: bytearray) -> None:
    """Append an int64 to `out` in its shortest form.

    >>> out = bytearray(); write_varint64(-1, out); out.hex()
    'ffffffffffffffffff01'
    """
    _write(value & MASK64, out)


def _write(value: int, out: bytearray) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_unsigned(view: memoryview, position: int, max_bytes: int) -> tuple[int, int]:
    """Read the number at `position`, not yet cut to 32 or 64 bits; return it and the position after it."""
    value = shift = 0
    for current in range(position, min(position + max_bytes, len(view))):
        byte = view[current]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, current + 1
        shift += 7
    if position + max_bytes > len(view):
        raise CorruptRowError(
            f"a variable-length integer at byte {position} runs past the end of the data at {len(view)}"
        )
    raise CorruptRowError(f"a variable-length integer at byte {position} has more than {max_bytes} bytes")


def read_varint32(view: memoryview, position: int) -> tuple[int, int]:
    """Read a signed int32; return it and the position after it."""
    value, position = read_unsigned(view, position, MAX_VARINT32_BYTES)
    value &= MASK32
    return value - (1 << 32) if value >> 31 else value, position


def read_varint64(view: memoryview, position: int) -> tuple[int, int]:
    """Read a signed int64; return it and the position after it."""
    value, position = read_unsigned(view, position, MAX_VARINT64_BYTES)
    value &= MASK64
    return value - (1 << 64) if value >> 63 else value, position


def read_length(view: memoryview, position: int) -> tuple[int, int]:
    """Read a length in bytes; return it and the position after it. CorruptRowError if fewer bytes follow."""
    length, position = read_varint32(view, position)
    if not 0 <= length <= len(view) - position:
        raise CorruptRowError(f"a length of {length} at byte {position} runs past the end of the data at {len(view)}")
    return length, position


def read_varint_column(
    data: Bytes, words: UInt64s, cursors: Int64s, nulls: Bools | None, max_bytes: int
) -> tuple[UInt64s, Int64s]:
    """The numbers at all positions and their sizes in bytes; both are 0 where null.

    `words[i]` are the eight bytes from `i` on; both arrays reach ten bytes past every position (`PaddedSource`).
    Numbers are not yet truncated to 32 bits. Most columns have small numbers, so one byte each is a fast path.
    """
    first = data.take(cursors)
    if nulls is not None:
        first[nulls] = 0  # A null has no bytes: its position is that of the next field, which must not be read.
    if not (first > 0x7F).any():
        sizes = np.ones(len(cursors), np.int64)
        if nulls is not None:
            sizes[nulls] = 0
        return first.astype(np.uint64), sizes
    value = words[cursors]
    stops = ~value & _CONTINUE_BITS
    lowest = stops & (~stops + _U(1))  # the bit that marks the last byte; 0 if that is not among these eight bytes
    sizes = (np.bitwise_count(lowest - _U(1)).astype(np.int64) + 1) >> 3
    value &= (lowest << _U(1)) - _U(1)
    value = (value & _U(0x007F007F007F007F)) | ((value & _U(0x7F007F007F007F00)) >> _U(1))
    value = (value & _U(0x00003FFF00003FFF)) | ((value & _U(0x3FFF00003FFF0000)) >> _U(2))
    value = (value & _U(0x000000000FFFFFFF)) | ((value & _U(0x0FFFFFFF00000000)) >> _U(4))
    long = np.flatnonzero(stops == 0)
    if len(long):
        ninth, tenth = data.take(cursors[long] + 8), data.take(cursors[long] + 9)
        value[long] |= (ninth & np.uint8(0x7F)).astype(np.uint64) << _U(56)
        has_tenth = ninth > 0x7F
        value[long] |= np.where(has_tenth, tenth & np.uint8(0x7F), 0).astype(np.uint64) << _U(63)
        sizes[long] = 9 + has_tenth + (has_tenth & (tenth > 0x7F))
    if nulls is not None:
        value[nulls] = 0
        sizes[nulls] = 0
    if (sizes > max_bytes).any():
        row = int(np.flatnonzero(sizes > max_bytes)[0])
        raise CorruptRowError(f"a variable-length integer in row {row} has more than {max_bytes} bytes")
    return value, sizes


def varint_bytes(values: UInt64s) -> tuple[Bytes, Int64s]:
    """Encode all numbers back to back; return the bytes and the size of each number."""
    if not len(values):
        return np.empty(0, np.uint8), np.empty(0, np.int64)
    largest = int(np.max(values))
    if largest <= 0x7F:
        return values.astype(np.uint8), np.ones(len(values), np.int64)
    width = max(1, (largest.bit_length() + 6) // 7)
    sizes = np.searchsorted(_SIZE_LIMITS, values, side="right").astype(np.int64) + 1
    shifts = np.arange(width, dtype=np.uint64) * _U(7)
    groups: Bytes = (values[:, None] >> shifts).astype(np.uint8) & np.uint8(0x7F)
    columns = np.arange(width)
    groups |= (columns < (sizes - 1)[:, None]).astype(np.uint8) << np.uint8(7)
    return groups[columns < sizes[:, None]], sizes
