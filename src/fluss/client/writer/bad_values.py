"""Which value of an array does not fit, and how to show it. Only used when something is wrong, so it may take time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from fluss.client.fitting import UnfitValueError
from fluss.client.fitting.base import shown


def first_bad_row(array: Any, check: Callable[[Any], Any]) -> int | None:
    """The first row for which `check` raises, found by halving; None if no single row is at fault."""
    low, high = 0, len(array)
    try:
        array.validate()
    except pa.ArrowException:
        return None  # the array itself is broken: nobody should look into it
    while high - low > 1:
        middle = (low + high) // 2
        if _is_bad(array, low, middle, check):
            high = middle
        else:
            low = middle
    return low if high > low and _is_bad(array, low, high, check) else None


def _is_bad(array: Any, low: int, high: int, check: Callable[[Any], Any]) -> bool:
    part = array.slice(low, high - low)
    if pa.types.is_nested(array.type) or pa.types.is_dictionary(array.type):
        # Of a slice the whole child would be looked at.
        part = taken(array, low, high)
    try:
        check(part)
    except (UnfitValueError, pa.ArrowException):
        return True
    return False


def taken(array: Any, low: int, high: int) -> Any:
    """These rows without what is around them, as far as Arrow can copy values of this type."""
    try:
        return array.take(pa.array(range(low, high), pa.int64()))
    except pa.ArrowException:  # views and runs
        return array.slice(low, high - low)


def shown_scalar(array: Any, row: int) -> str:
    """A value of an array for an error; also one that Python has nothing for."""
    scalar = array[row]
    try:
        value = scalar.as_py()
    except (ValueError, OverflowError, UnicodeDecodeError, pa.ArrowException):
        value = _raw(array.slice(row, 1))
    return shown(value)


def _raw(array: Any) -> Any:
    """The bytes of a text that is no UTF-8, the number of a time that is none."""
    for raw_type in (pa.binary(), pa.large_binary(), pa.int64(), pa.int32()):
        try:
            return array.view(raw_type)[0].as_py()
        except (ValueError, pa.ArrowException):
            continue
    return array.type
