"""Rows of Arrow batches as Python values: a column at a time, then one dict per row.

`column_values` turns a column into a list in the fastest way for its type (measured: Arrow's own conversion is 10 to
50 times slower for dates and times, and fails for nanoseconds). `row_maker` generates a generator function for
a list of column names, so that the loop over rows has no inner loop over columns.

Python has no nanoseconds: TIME and TIMESTAMP values are truncated to microseconds. Arrow access
(`poll_arrow`, `to_arrow`) keeps them.
"""

from __future__ import annotations

import datetime
import decimal
import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.errors import FlussError
from fluss.generated_code import define
from fluss.values.basic import ChangeType

if TYPE_CHECKING:
    import numpy.typing as npt

    from fluss.codec.rows.varint import Bools, Numbers

MAX_GENERATED_FUNCTIONS = 256
LONG_TEXT_BYTES = 48

_EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_COMPACT_DECIMAL_DIGITS = 18
_CHANGE_TYPES = tuple(ChangeType)


class ScanRecord:
    """A row of the log, with its offset, time and change type."""

    __slots__ = ("change_type", "offset", "row", "timestamp")

    offset: int
    timestamp: int
    change_type: ChangeType
    row: dict[str, Any]

    def __init__(self, offset: int, timestamp: int, change_type: ChangeType, row: dict[str, Any]) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.change_type = change_type
        self.row = row

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScanRecord):
            return NotImplemented
        return (self.offset, self.timestamp, self.change_type, self.row) == (
            other.offset,
            other.timestamp,
            other.change_type,
            other.row,
        )

    __hash__ = None  # type: ignore[assignment]  # it holds a dict

    def __repr__(self) -> str:
        kind = self.change_type.short_string()
        return f"ScanRecord(offset={self.offset}, timestamp={self.timestamp}, change_type={kind}, row={self.row})"


class UnreadableRecord(ScanRecord):
    """A row with a value that Python cannot hold, such as a date before the year 1. Its `row` raises the reason."""

    __slots__ = ("_error",)

    def __init__(self, offset: int, timestamp: int, change_type: ChangeType, error: FlussError) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.change_type = change_type
        self._error = error

    @property
    def row(self) -> dict[str, Any]:  # type: ignore[override]
        """Raise the error of the value."""
        raise self._error

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None

    def __repr__(self) -> str:
        kind = self.change_type.short_string()
        return f"ScanRecord(offset={self.offset}, timestamp={self.timestamp}, change_type={kind}, {self._error})"


# ---- columns ----


def column_values(column: pa.Array) -> list[Any]:
    """The values of an Arrow array as Python objects, None for nulls."""
    maker = _maker(column.type)
    if maker is None:
        result: list[Any] = column.to_pylist()
        return result
    values = maker(column)
    if column.null_count:
        for index in np.flatnonzero(_null_mask(column)).tolist():
            values[index] = None
    return values


def _null_mask(column: pa.Array) -> Bools:
    return column.is_null().to_numpy(zero_copy_only=False)


@functools.lru_cache(maxsize=MAX_GENERATED_FUNCTIONS)
def _maker(arrow_type: pa.DataType) -> Callable[[pa.Array], list[object]] | None:
    """The function that turns a column into Python values; None if Arrow's own is best. Nulls may become any value."""
    types = pa.types
    if types.is_int64(arrow_type) or types.is_float64(arrow_type):
        return lambda column: _raw(column, arrow_type.to_pandas_dtype()).tolist()
    if types.is_string(arrow_type):
        return _texts
    if types.is_date32(arrow_type):
        return _dates
    if types.is_timestamp(arrow_type):
        return functools.partial(_timestamps, unit=arrow_type.unit, zoned=arrow_type.tz is not None)
    if types.is_time(arrow_type):
        return functools.partial(_times, unit=arrow_type.unit, width=arrow_type.bit_width)
    if types.is_decimal128(arrow_type) and arrow_type.precision <= _COMPACT_DECIMAL_DIGITS:
        return functools.partial(_decimals, scale=arrow_type.scale)
    if types.is_map(arrow_type):
        return _maps
    if types.is_list(arrow_type):
        return _lists
    if types.is_struct(arrow_type):
        return _structs
    return None


def _raw(column: pa.Array, dtype: npt.DTypeLike) -> Numbers:
    """The value buffer of a fixed-width column as an array; values under nulls are arbitrary."""
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros(len(column), dtype)
    return np.frombuffer(buffer, dtype)[column.offset : column.offset + len(column)]


def _texts(column: pa.Array) -> list[object]:
    """Strings as Python objects: long ones are faster one by one through NumPy, short ones by Arrow."""
    offsets = np.frombuffer(column.buffers()[1] or b"\0\0\0\0", np.int32)
    first, last = column.offset, column.offset + len(column)
    if last < len(offsets) and offsets[last] - offsets[first] >= LONG_TEXT_BYTES * len(column):
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    return column.to_pylist()


def _without_nulls(raw: Numbers, column: pa.Array) -> Numbers:
    """Zero where the column is null: the bytes there may be out of range."""
    if column.null_count:
        raw = np.where(_null_mask(column), raw.dtype.type(0), raw)
    return raw


def _check_range(raw: Numbers, unit: str, arrow_type: pa.DataType) -> None:
    """Raise outside the years 1 to 9999 of Python's calendar, for which NumPy would return plain numbers."""
    low, high = _RANGES[unit]
    if len(raw) and not (raw.min() >= low and raw.max() <= high):
        raise _out_of_range(arrow_type)


_LAST_MOMENT = np.datetime64("9999-12-31T23:59:59.999999")
_RANGES = {
    unit: (
        np.datetime64("0001-01-01").astype(f"M8[{unit}]").astype(np.int64),
        _LAST_MOMENT.astype(f"M8[{unit}]").astype(np.int64),
    )
    for unit in ("D", "s", "ms", "us")
}


def _out_of_range(arrow_type: pa.DataType) -> FlussError:
    return FlussError(
        f"a value of type {arrow_type} is outside the years 1 to 9999 that Python's datetime can hold; "
        "read the table as Arrow (create_record_batch_log_scanner)"
    )


def _dates(column: pa.Array) -> list[object]:
    raw = _without_nulls(_raw(column, np.int32), column)
    _check_range(raw, "D", column.type)
    return raw.astype("M8[D]").tolist()  # type: ignore[no-any-return]


def _timestamps(column: pa.Array, *, unit: str, zoned: bool) -> list[object]:
    raw = _without_nulls(_raw(column, np.int64), column)
    if unit == "ns":
        raw, unit = raw // 1_000, "us"
    _check_range(raw, unit, column.type)
    if not zoned:
        return raw.view(f"M8[{unit}]").tolist()  # type: ignore[no-any-return]
    epoch = _EPOCH_UTC
    return [epoch + delta for delta in raw.view(f"m8[{unit}]").tolist()]


def _times(column: pa.Array, *, unit: str, width: int) -> list[object]:
    raw = _without_nulls(_raw(column, np.int32 if width == 32 else np.int64), column).astype(np.int64)
    if unit == "ns":
        raw, unit = raw // 1_000, "us"
    return [moment.time() for moment in raw.view(f"M8[{unit}]").tolist()]


def _decimals(column: pa.Array, *, scale: int) -> list[object]:
    low = _raw_decimal_low(column)
    if not scale:
        return list(map(decimal.Decimal, low))
    make = decimal.Decimal
    return [make(number).scaleb(-scale) for number in low]


def _raw_decimal_low(column: pa.Array) -> list[int]:
    """The low halves, which hold the whole number if it has at most 18 digits."""
    buffer = column.buffers()[1]
    if buffer is None:
        return [0] * len(column)
    low: list[int] = np.frombuffer(buffer, np.int64)[2 * column.offset : 2 * (column.offset + len(column)) : 2].tolist()
    return low


# ---- nested columns: inner columns first, then split by the offsets ----


def _bounds(column: pa.Array) -> tuple[list[int], int]:
    """Offsets of the rows, shifted to start at zero, and the position of the first value."""
    offsets = np.frombuffer(column.buffers()[1] or b"\0\0\0\0", np.int32)[
        column.offset : column.offset + len(column) + 1
    ]
    if len(offsets) == 0:
        offsets = np.zeros(len(column) + 1, np.int32)
    return (offsets - offsets[0]).tolist(), int(offsets[0])


def _lists(column: pa.Array) -> list[object]:
    bounds, first = _bounds(column)
    values = column_values(column.values.slice(first, bounds[-1]))
    return [values[start:stop] for start, stop in pairwise(bounds)]


def _maps(column: pa.Array) -> list[object]:
    """Lists of (key, value) pairs, as in pyfluss and Arrow: keys may be lists or rows, which no dict can hold."""
    bounds, first = _bounds(column)
    keys = column_values(column.keys.slice(first, bounds[-1]))
    items = column_values(column.items.slice(first, bounds[-1]))
    return [list(zip(keys[start:stop], items[start:stop], strict=True)) for start, stop in pairwise(bounds)]


def _structs(column: pa.Array) -> list[object]:
    names = [column.type.field(index).name for index in range(column.type.num_fields)]
    if not names:
        return [{} for _ in range(len(column))]
    children = [column_values(column.field(index)) for index in range(len(names))]
    return [dict(zip(names, values, strict=True)) for values in zip(*children, strict=True)]


# ---- rows ----

RowMaker = Callable[[int, int, ChangeType, Sequence[list[object]]], Iterator[ScanRecord]]


@functools.lru_cache(maxsize=MAX_GENERATED_FUNCTIONS)
def row_maker(
    names: tuple[str, ...],
) -> tuple[Callable[..., Iterator[ScanRecord]], Callable[..., Iterator[ScanRecord]]]:
    """Two generators for rows with these columns: consecutive offsets and one change type, or a list of each.

    Called as `plain(offset, timestamp, change_type, columns)` and `listed(offsets, timestamp, change_types, columns)`.
    """
    variables = [f"v{index}" for index in range(len(names))]
    row = ", ".join(f"{name!r}: {variable}" for name, variable in zip(names, variables, strict=True))
    unpacked = ", ".join(variables)
    source = (
        "def plain(offset, timestamp, change_type, columns):\n"
        f"    for {unpacked}, in zip(*columns):\n"
        f"        yield Record(offset, timestamp, change_type, {{{row}}})\n"
        "        offset += 1\n"
        "def listed(offsets, timestamp, change_types, columns):\n"
        f"    for offset, change_type, {unpacked} in zip(offsets, change_types, *columns):\n"
        f"        yield Record(offset, timestamp, change_type, {{{row}}})\n"
    )
    scope: dict[str, Any] = {"Record": ScanRecord}
    define(source, scope, "rows of a table")  # names are quoted by repr; nothing else comes from users
    return scope["plain"], scope["listed"]


def change_type_list(codes: bytes) -> list[ChangeType]:
    """The change types in the bytes of a batch."""
    return [_CHANGE_TYPES[code] for code in codes]


def valid_mask(mask: pa.Array) -> pa.Array:
    """A filter's mask, with null as false."""
    return pc.fill_null(mask, False) if mask.null_count else mask
