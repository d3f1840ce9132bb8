"""Logical values of row fields: the input of the row, key and array encoders and the output of the decoders.

| type | logical value |
| --- | --- |
| BOOLEAN, integers, FLOAT, DOUBLE | bool, int, float |
| CHAR, STRING / BINARY, BYTES | str / bytes |
| DECIMAL(p, s) | unscaled int: value * 10**s |
| DATE / TIME | int days since 1970-01-01 / int milliseconds of the day |
| TIMESTAMP, TIMESTAMP_LTZ | tuple (milliseconds since 1970, nanoseconds within the millisecond, 0..999999) |
| ARRAY / MAP / ROW | list / list of (key, value) pairs / list |

Nulls are None. Pure functions, no state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from fluss.model.types import DataType, DecimalType, TimestampLtzType, TimestampType

NANOS_PER_MILLI = 1_000_000
MAX_DECIMAL_BYTES = 16
MAX_TIME_MILLIS = 86_400_000 - 1

EncodeRow: TypeAlias = Callable[[Sequence[object], Sequence[DataType]], bytes]
DecodeRow: TypeAlias = Callable[[memoryview, Sequence[DataType]], list[object]]


class RowValueError(ValueError):
    """Raised for a value that does not fit the type of its column; nothing was encoded."""


class CorruptRowError(ValueError):
    """Raised for bytes that are not a valid row, array, map or key of the given types."""


# The types that have a fixed width in array slots and INDEXED rows. COMPACTED rows use this form for some of them.
FIXED_STRUCTS: dict[str, struct.Struct] = {
    "BOOLEAN": struct.Struct("<?"),
    "TINYINT": struct.Struct("<b"),
    "SMALLINT": struct.Struct("<h"),
    "INTEGER": struct.Struct("<i"),
    "BIGINT": struct.Struct("<q"),
    "FLOAT": struct.Struct("<f"),
    "DOUBLE": struct.Struct("<d"),
    "DATE": struct.Struct("<i"),
    "TIME_WITHOUT_TIME_ZONE": struct.Struct("<i"),
}
INT64 = struct.Struct("<q")
UINT32_PAIR = struct.Struct("<II")

NESTED_ROOTS = frozenset({"ARRAY", "MAP", "ROW"})
TEXT_ROOTS = frozenset({"CHAR", "STRING"})
BYTES_ROOTS = frozenset({"BINARY", "BYTES"})
TIMESTAMP_ROOTS = frozenset({"TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE"})


def is_compact(data_type: DataType) -> bool:
    """True for a DECIMAL that fits an int64 and a TIMESTAMP stored as milliseconds alone; False for any other type."""
    return isinstance(data_type, DecimalType | TimestampType | TimestampLtzType) and data_type.is_compact


def pack_fixed(value: object, data_type: DataType) -> bytes:
    """Encode a fixed-width value, little-endian, in the width of its type."""
    if (data_type.root == "BOOLEAN") != isinstance(value, bool):
        raise RowValueError(f"{data_type} cannot hold {value!r}")
    try:
        return FIXED_STRUCTS[data_type.root].pack(value)
    except (struct.error, OverflowError, TypeError) as error:
        raise RowValueError(f"{data_type} cannot hold {value!r}: {error}") from None


def text_or_bytes(value: object, data_type: DataType) -> bytes:
    """Encode a CHAR, STRING, BINARY or BYTES value as bytes."""
    if data_type.root in TEXT_ROOTS:
        if not isinstance(value, str):
            raise RowValueError(f"{data_type} cannot hold {value!r}; pass a str")
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RowValueError(f"{data_type} cannot hold {value!r}: {error}") from None
    if not isinstance(value, bytes | bytearray | memoryview):
        raise RowValueError(f"{data_type} cannot hold {value!r}; pass bytes")
    return bytes(value)


def from_text_or_bytes(view: memoryview, data_type: DataType) -> str | bytes:
    """Decode the bytes of a CHAR, STRING, BINARY or BYTES value."""
    if data_type.root in TEXT_ROOTS:
        try:
            return str(view, "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptRowError(f"{data_type} holds bytes that are not UTF-8: {error}") from None
    return bytes(view)


def checked_int(value: object, data_type: DataType, low: int, high: int) -> int:
    """Return `value` if it is an int in the range of its type; otherwise, or for a bool, raise RowValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RowValueError(f"{data_type} cannot hold {value!r}")
    return value


def checked_unscaled(value: object, data_type: DataType) -> int:
    """Return the unscaled int of a DECIMAL if its digits fit the precision; otherwise raise RowValueError."""
    assert isinstance(data_type, DecimalType)
    limit = 10**data_type.precision - 1
    return checked_int(value, data_type, -limit, limit)


def checked_timestamp(value: object, data_type: DataType) -> tuple[int, int]:
    """Return the (milliseconds, nanoseconds) pair of a TIMESTAMP or TIMESTAMP_LTZ if it is valid; else raise."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise RowValueError(f"{data_type} cannot hold {value!r}: pass a (milliseconds, nanoseconds) pair")
    millis = checked_int(value[0], data_type, -(2**63), 2**63 - 1)
    return millis, checked_int(value[1], data_type, 0, NANOS_PER_MILLI - 1)


def check_nanos(nanos: int, data_type: DataType) -> int:
    """Return nanoseconds read from bytes if they are within a millisecond; otherwise raise CorruptRowError."""
    if not 0 <= nanos < NANOS_PER_MILLI:
        raise CorruptRowError(f"{data_type} has {nanos} nanoseconds within a millisecond; 0 to 999999 are possible")
    return nanos


def unscaled_to_bytes(unscaled: int) -> bytes:
    """The shortest big-endian two's complement form of a number: 0 -> 00, 128 -> 00 80, -1 -> ff.

    >>> unscaled_to_bytes(128).hex(), unscaled_to_bytes(-129).hex()
    ('0080', 'ff7f')
    """
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def unscaled_from_bytes(view: memoryview, data_type: DataType) -> int:
    """The inverse of `unscaled_to_bytes`; longer forms of the same number are accepted up to 16 bytes."""
    if not 1 <= len(view) <= MAX_DECIMAL_BYTES:
        raise CorruptRowError(f"{data_type} holds {len(view)} bytes; 1 to {MAX_DECIMAL_BYTES} are possible")
    return check_precision(int.from_bytes(view, "big", signed=True), data_type)


def check_precision(unscaled: int, data_type: DataType) -> int:
    """Return an unscaled int read from bytes if its digits fit the precision; otherwise raise CorruptRowError."""
    assert isinstance(data_type, DecimalType)
    if abs(unscaled) >= 10**data_type.precision:
        raise CorruptRowError(f"{data_type} has a number of more than {data_type.precision} digits: {unscaled}")
    return unscaled


def map_pairs(value: object, data_type: DataType) -> Sequence[tuple[object, object]]:
    """The (key, value) pairs of a MAP given as a mapping or as pairs; order is kept."""
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Sequence):
        raise RowValueError(f"{data_type} cannot hold {value!r}")
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise RowValueError(f"{data_type} needs (key, value) pairs, got {pair!r}")
    return pairs


def checked_sequence(value: object, data_type: DataType) -> Sequence[object]:
    """Return the elements of an ARRAY or the fields of a ROW as a sequence; RowValueError if there is none."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise RowValueError(f"{data_type} cannot hold {value!r}")
    return value
