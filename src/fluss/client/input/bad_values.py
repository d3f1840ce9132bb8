"""Finding the value of an array that does not fit, and showing it. Only used for errors, so it may be slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from fluss.client.fitting import UnfitValueError
from fluss.client.fitting.base import MAX_SHOWN_CHARACTERS, shown


def first_bad_row(array: pa.Array, check: Callable[[pa.Array], object]) -> int | None:
    """The first row for which `check` raises, found by bisection; None if no single row is at fault."""
    low, high = 0, len(array)
    try:
        array.validate()
    except pa.ArrowException:
        return None  # the array itself is invalid and must not be read
    if _is_bad(array, 0, 0, check):
        return _row_of_bad_entry(array, check) if pa.types.is_dictionary(array.type) else None
    while high - low > 1:
        middle = (low + high) // 2
        if _is_bad(array, low, middle, check):
            high = middle
        else:
            low = middle
    return low if high > low and _is_bad(array, low, high, check) else None


def _row_of_bad_entry(array: pa.Array, check: Callable[[pa.Array], object]) -> int | None:
    """The first row that has the first bad entry of a dictionary."""
    entry = first_bad_row(array.dictionary, check)
    row: int = -1 if entry is None else array.indices.index(entry).as_py()
    return None if row < 0 else row


def _is_bad(array: pa.Array, low: int, high: int, check: Callable[[pa.Array], object]) -> bool:
    part = array.slice(low, high - low)
    if pa.types.is_nested(array.type) or pa.types.is_dictionary(array.type):
        # For a slice, the whole child would be checked.
        part = taken(array, low, high)
    try:
        check(part)
    except (UnfitValueError, pa.ArrowException):
        return True
    return False


def taken(array: pa.Array, low: int, high: int) -> pa.Array:
    """A copy of these rows alone, if Arrow can copy values of this type."""
    try:
        return array.take(pa.array(range(low, high), pa.int64()))
    except pa.ArrowException:  # views and runs
        return array.slice(low, high - low)


def shown_scalar(array: pa.Array, row: int) -> str:
    """A value of an array for an error, also if Python has no type for it."""
    try:
        value = _value(array.slice(row, 1))
    except (ValueError, OverflowError, AttributeError, pa.ArrowException):  # e.g. run-end encoded
        value = array.type
    return shown(value)


def _value(array: pa.Array) -> Any:
    """The only value of an array; bytes for a string that is not UTF-8, a number for an invalid time."""
    kind, scalar = array.type, array[0]
    if not scalar.is_valid:
        return None
    if isinstance(kind, pa.BaseExtensionType):
        return _value(array.storage)
    if pa.types.is_dictionary(kind):
        return _value(array.dictionary.slice(array.indices[0].as_py(), 1))
    if pa.types.is_struct(kind):
        return {kind.field(index).name: _value(array.field(index)) for index in range(kind.num_fields)}
    if isinstance(scalar, pa.ListScalar):  # all kinds of lists, and maps
        count = min(len(scalar.values), MAX_SHOWN_CHARACTERS)
        values = [_value(scalar.values.slice(index, 1)) for index in range(count)]
        return [tuple(pair.values()) for pair in values] if pa.types.is_map(kind) else values
    try:
        value = scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes()
    except (ValueError, OverflowError):
        return _number(array)
    # Python has no invalid times: it would show the time of another day.
    return value if not pa.types.is_time(kind) or pa.scalar(value, kind).equals(scalar) else _number(array)


def _number(array: pa.Array) -> object:
    return array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())[0].as_py()
