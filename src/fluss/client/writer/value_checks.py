"""Does a Python value fit a column? One checker per data type.

A checker takes a value that is not None and returns the value to store: the same one, or its plain form (a NumPy
number becomes an int, a nested list is copied, so that later changes by the caller do not reach rows that wait). What
does not fit raises `UnfitValueError`, whose text says why; the caller adds column and type.

This is the slow and complete way. The generated row function (`row_function.py`) accepts the common exact types
itself and comes here for everything else, so both must agree: `fast_condition` gives the source text of what is
accepted there, and a property test holds it against the checker.

Digits finer than the column's precision are cut off for times and timestamps, and rounded half up for decimals, as
the Java client does. Not in key columns, which are checked as `exact`: times that differ only in such digits would
become one key, so they are refused. A timestamp with time zone does not fit a TIMESTAMP column; one without fits
TIMESTAMP_LTZ and means UTC.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fluss.lazy_imports import import_lock
from fluss.model.types import (
    BinaryType,
    DataType,
    DecimalType,
    TimestampLtzType,
    TimestampType,
    TimeType,
)

Checker = Callable[[Any], Any]

# Longer texts and bytes leave the fast path, where their size is counted.
LONG_VALUE_BYTES = 1024

INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
TEXT_ROOTS = ("CHAR", "STRING")
TIMESTAMP_ROOTS = ("TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE")
# The largest double that rounds to a finite float32.
MAX_FLOAT32 = math.nextafter(float.fromhex("0x1.ffffffp127"), 0)
# What an int64 of nanoseconds holds, in whole microseconds.
MIN_NANOSECOND_DATETIME = datetime.datetime(1677, 9, 21, 0, 12, 43, 145225)
MAX_NANOSECOND_DATETIME = datetime.datetime(2262, 4, 11, 23, 47, 16, 854775)

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_UTC = datetime.timezone.utc
_INT32, _INT64 = range(-(2**31), 2**31), range(-(2**63), 2**63)
_UNIT_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DECIMALS = decimal.Context(prec=80, rounding=decimal.ROUND_HALF_UP)


class UnfitValueError(ValueError):
    """The value does not fit; the text is the reason, without column and type."""


def check_value(data_type: DataType, *, exact: bool = False) -> Checker:
    """The checker for values of a type; an exact one refuses times of which the column would cut digits off."""
    with import_lock:
        from fluss.client.writer.nested_values import nested_checker

    root = data_type.root
    if root in INTEGER_BITS:
        limit = 1 << INTEGER_BITS[root] - 1
        return lambda value: _integer(value, limit)
    if root in ("FLOAT", "DOUBLE"):
        limit_float = MAX_FLOAT32 if root == "FLOAT" else math.inf
        return lambda value: _float(value, limit_float)
    if root in TEXT_ROOTS:
        return _text
    if isinstance(data_type, BinaryType):
        length = data_type.length
        return lambda value: _fixed_bytes(value, length)
    if isinstance(data_type, DecimalType):
        precision, scale = data_type.precision, data_type.scale
        quantum = decimal.Decimal(1).scaleb(-scale)
        return lambda value: _decimal(value, precision, scale, quantum)
    if isinstance(data_type, TimeType):
        return _time_checker(time_unit(data_type.precision), exact)
    if isinstance(data_type, (TimestampType, TimestampLtzType)):
        return _timestamp_checker(time_unit(data_type.precision), isinstance(data_type, TimestampLtzType), exact)
    plain: dict[str, Checker] = {"BOOLEAN": _boolean, "BYTES": _bytes, "DATE": _date}
    return plain.get(root) or nested_checker(data_type)


def time_unit(precision: int) -> str:
    """The Arrow unit of a TIME or TIMESTAMP column."""
    return ("s", "ms", "us", "ns")[(precision + 2) // 3]


def fast_condition(data_type: DataType, name: str, *, exact: bool = False) -> str | None:
    """Source of an expression: variable `name` is stored as it is. None = every value goes through the checker.

    May use: `date`, `datetime`, `Decimal`, `encodable`, `min_ns`, `max_ns`.
    """
    root = data_type.root
    if root in INTEGER_BITS:
        limit = 1 << INTEGER_BITS[root] - 1
        return f"type({name}) is int and {-limit} <= {name} <= {limit - 1}"
    if root == "DOUBLE":
        return f"type({name}) is float"
    if root == "FLOAT":
        return f"type({name}) is float and {-MAX_FLOAT32!r} <= {name} <= {MAX_FLOAT32!r}"
    if root in TEXT_ROOTS:
        return f"type({name}) is str and len({name}) <= {LONG_VALUE_BYTES} and ({name}.isascii() or encodable({name}))"
    if root == "BYTES":
        return f"type({name}) is bytes and len({name}) <= {LONG_VALUE_BYTES}"
    if isinstance(data_type, BinaryType):
        fits = data_type.length <= LONG_VALUE_BYTES
        return f"type({name}) is bytes and len({name}) == {data_type.length}" if fits else None
    if root == "BOOLEAN":
        return f"type({name}) is bool"
    if root == "DATE":
        return f"type({name}) is date"
    if isinstance(data_type, (TimestampType, TimestampLtzType)):
        unit = time_unit(data_type.precision)
        naive = f"type({name}) is datetime and {name}.tzinfo is None"
        if unit == "ns":
            return f"{naive} and min_ns <= {name} <= max_ns"
        if unit == "ms" and exact:
            return f"{naive} and not {name}.microsecond % 1000"
        return naive if unit in ("ms", "us") else None
    return None


def is_encodable(text: str) -> bool:
    """Whether a text has a UTF-8 form: halves of surrogate pairs have none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def value_bytes(value: Any) -> int:
    """Roughly how much memory a stored value of variable length takes."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, (list, tuple)):
        return 16 + sum(map(value_bytes, value))
    if isinstance(value, dict):
        return 16 + sum(map(value_bytes, value.values()))
    return 8


def _boolean(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise UnfitValueError("it is not a bool")


def _integer(value: Any, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise UnfitValueError("it is not an int")
    number = int(value)
    if not -limit <= number < limit:
        raise UnfitValueError(f"it is outside {-limit} to {limit - 1}")
    return number


def _float(value: Any, limit: float) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (float, int, np.floating, np.integer)):
        raise UnfitValueError("it is not a float")
    try:
        number = float(value)
    except OverflowError:
        raise UnfitValueError("it is too large") from None
    if abs(number) > limit and not math.isinf(number):
        raise UnfitValueError("it is too large for 32 bits")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UnfitValueError("it is not a str")
    if not value.isascii() and not is_encodable(value):
        raise UnfitValueError("it has half of a surrogate pair, which UTF-8 cannot hold")
    return value if type(value) is str else str.__str__(value)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise UnfitValueError("it is not bytes")
    return value if type(value) is bytes else bytes(value)


def _fixed_bytes(value: Any, length: int) -> bytes:
    content = _bytes(value)
    if len(content) != length:
        raise UnfitValueError(f"it has {len(content)} bytes, not exactly {length}")
    return content


def _decimal(value: Any, precision: int, scale: int, quantum: decimal.Decimal) -> decimal.Decimal:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        value = decimal.Decimal(int(value))
    if not isinstance(value, decimal.Decimal):
        raise UnfitValueError("it is not a decimal.Decimal (or an int)")
    if not value.is_finite():
        raise UnfitValueError("it is not a finite number")
    too_long = UnfitValueError(f"it has more than {precision - scale} digits before the point")
    if value.adjusted() > precision:
        raise too_long
    rounded = _DECIMALS.quantize(value, quantum)
    if rounded and rounded.adjusted() + scale >= precision:
        raise too_long
    return rounded


def _date(value: Any) -> datetime.date:
    if isinstance(value, np.datetime64):
        value = value.astype("M8[us]").item()
    if isinstance(value, datetime.datetime):
        if value.time() != datetime.time() or value.tzinfo is not None:
            raise UnfitValueError("it has a time of day; use its date()")
        return value.date()
    if not isinstance(value, datetime.date):
        raise UnfitValueError("it is not a datetime.date")
    return value


def _time_checker(unit: str, exact: bool) -> Checker:
    """Times are stored as numbers of their unit: `columns.py` makes the array from those."""

    def check(value: Any) -> int:
        if not isinstance(value, datetime.time):
            raise UnfitValueError("it is not a datetime.time")
        if value.tzinfo is not None:
            raise UnfitValueError("it has a time zone, the column has none")
        if exact:
            _check_exact(value.microsecond * 1000, unit)
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        if unit == "s":
            return seconds
        if unit == "ms":
            return seconds * 1000 + value.microsecond // 1000
        micros = seconds * 1_000_000 + value.microsecond
        return micros if unit == "us" else micros * 1000

    return check


def _check_exact(nanos: int, unit: str) -> None:
    """Raise when a unit cannot hold these parts of a second."""
    if nanos % _UNIT_NANOS[unit]:
        raise UnfitValueError(f"it has digits finer than the column's, which counts in {unit}; a key is not cut off")


def _timestamp_checker(unit: str, has_zone: bool, exact: bool) -> Checker:
    def check(value: Any) -> Any:
        moment, nanos = _moment(value, has_zone)
        if exact:
            _check_exact(moment.microsecond * 1000 + nanos, unit)
        if unit == "s":
            # From whole milliseconds towards zero, as Java divides.
            millis = (moment - _EPOCH) // datetime.timedelta(milliseconds=1)
            seconds = abs(millis) // 1000
            return _EPOCH + datetime.timedelta(seconds=seconds if millis >= 0 else -seconds)
        if unit == "ns":
            if not MIN_NANOSECOND_DATETIME <= moment <= MAX_NANOSECOND_DATETIME:
                raise UnfitValueError("nanoseconds since 1970 reach only from 1677 to 2262")
            return (moment - _EPOCH) // _MICROSECOND * 1000 + nanos if nanos else moment
        return moment

    return check


def _moment(value: Any, has_zone: bool) -> tuple[datetime.datetime, int]:
    """The value as a datetime without zone, and the nanoseconds that pandas adds to one."""
    nanos = 0
    if isinstance(value, np.datetime64):
        count = value.astype("M8[ns]").astype(np.int64).item()
        if np.isnat(value) or np.datetime64(count, "ns") != value:
            raise UnfitValueError("it is not a time that nanoseconds can hold")
        value, nanos = value.astype("M8[us]").item(), count % 1000
    if not isinstance(value, datetime.datetime):
        raise UnfitValueError("it is not a datetime.datetime")
    if type(value) is not datetime.datetime:  # pandas.Timestamp counts nanoseconds as well
        if value != value:
            raise UnfitValueError("it is not a time (NaT)")
        nanos = getattr(value, "nanosecond", nanos)
        value = datetime.datetime(
            value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, value.tzinfo
        )
    if value.tzinfo is not None:
        if not has_zone:
            raise UnfitValueError("it has a time zone, the column has none")
        try:
            value = value.astimezone(_UTC).replace(tzinfo=None)
        except OverflowError:
            raise UnfitValueError("in UTC it is outside the years 1 to 9999") from None
    return value, nanos
