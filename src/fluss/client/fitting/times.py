"""DATE, TIME, TIMESTAMP and TIMESTAMP_LTZ.

A column holds the digits of its unit: whole seconds (precision 0), milliseconds (1 to 3), microseconds (4 to 6) or
nanoseconds (7 to 9). Finer digits are refused, or cut off towards the past if the rules say so.
"""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.fitting.base import CONVERT, Fit, FitRules, UnfitTypeError, UnfitValueError, any_true
from fluss.codec.arrow.convert import cut, relabelled
from fluss.model.types import DataType, TimestampLtzType, TimestampType, TimeType

# The range of an int64 of nanoseconds, in whole microseconds.
MIN_NANOSECOND_DATETIME = datetime.datetime(1677, 9, 21, 0, 12, 43, 145225)
MAX_NANOSECOND_DATETIME = datetime.datetime(2262, 4, 11, 23, 47, 16, 854775)

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_UTC = datetime.UTC
_UNIT_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_UNITS_IN_WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
# Rows store milliseconds, while Arrow's TIMESTAMP(0) has seconds.
_MAX_ROW_SECONDS = (2**63 - 1) // 1000
_MAX_DAYS = 2**31 - 1
_DAY_SECONDS = 86_400
_FEWER_DIGITS = "it needs a column with fewer digits of a second"
_BEYOND_DATETIME64 = (
    "it is outside the years 1 to 9999, or finer than nanoseconds: round it first, or write it as Arrow"
)
_BEYOND_YEARS = "it is outside the years 1 to 9999: write it as Arrow"


class DateFit(Fit):
    """Dates, and midnights without time zone, the form of a date in NumPy and pandas."""

    def value(self, value: object) -> datetime.date:
        nanos = 0
        if isinstance(value, np.datetime64):
            value, nanos = _numpy_moment(value)
        if isinstance(value, datetime.datetime):
            moment, more = _plain_datetime(value)
            if nanos or more or moment.time() != datetime.time() or moment.tzinfo is not None:
                raise UnfitValueError("it has a time of day, or a zone; use its date()")
            return moment.date()
        if not isinstance(value, datetime.date):
            raise UnfitValueError(f"it is not a datetime.date: {CONVERT}")
        return value

    def condition(self, name: str) -> str:
        return f"type({name}) is date"

    def _converted(self, array: pa.Array) -> pa.Array:
        source = array.type
        if pa.types.is_timestamp(source) and source.tz is None:
            if any_true(_is_beyond(array, _MAX_DAYS * _DAY_SECONDS * 1_000_000_000 // _UNIT_NANOS[source.unit])):
                raise UnfitValueError("it is out of range for a date: it needs a column of type TIMESTAMP")
            days = array.cast(pa.date32())
            if not days.cast(source).equals(array):
                raise UnfitValueError("it has a time of day: cast the column to date32 first")
            return days
        return array.cast(pa.date32()) if pa.types.is_date(source) else self._refuse_type(source)

    def _reason(self, source: pa.DataType, error: Exception) -> str:
        return "it is not a whole number of days, or out of range: correct it first"


class _DigitsFit(Fit):
    """The common part of TIME and TIMESTAMP: a unit, and the treatment of finer digits."""

    def __init__(self, data_type: DataType, rules: FitRules) -> None:
        super().__init__(data_type, rules)
        self.unit: str = self.arrow_type.unit

    def _kept_nanos(self, nanos: int) -> int:
        """Nanoseconds in the unit of the column; finer digits are cut off or refused."""
        extra = nanos % _UNIT_NANOS[self.unit]
        if extra and not self.rules.truncates:
            raise UnfitValueError(self._too_fine())
        return nanos - extra

    def _too_fine(self) -> str:
        return (
            f"it has digits finer than the {_UNITS_IN_WORDS[self.unit]} that the column holds: {self.rules.digits_hint}"
        )

    def _in_unit(self, array: pa.Array) -> pa.Array:
        return cut(array, self.unit) if self.rules.truncates else array.cast(self.arrow_type)

    def _reason(self, source: pa.DataType, error: Exception) -> str:
        return (
            self._too_fine()
            if "lose data" in str(error)
            else f"it is out of range for {self.arrow_type}: {_FEWER_DIGITS}"
        )


class TimeFit(_DigitsFit):
    """Times of the day. Values are held as numbers of the unit, from which `row_columns.py` makes arrays."""

    def __init__(self, data_type: TimeType, rules: FitRules) -> None:
        super().__init__(data_type, rules)
        self._column_nanos = _UNIT_NANOS[self.unit]
        self.looks_closer = rules.row_format is not None and self.unit in ("us", "ns")
        if self.looks_closer:
            self.unit = "ms"

    def value(self, value: object) -> int:
        if not isinstance(value, datetime.time):
            raise UnfitValueError(f"it is not a datetime.time: {CONVERT}")
        if value.tzinfo is not None:
            raise UnfitValueError("it has a time zone, but the column has none: remove the zone")
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        nanos = self._kept_nanos(value.microsecond * 1000)
        return (seconds * 1_000_000_000 + nanos) // self._column_nanos

    def _converted(self, array: pa.Array) -> pa.Array:
        if not pa.types.is_time(array.type):
            return self._refuse_type(array.type)
        if not self.looks_closer:
            return self._in_unit(array)
        # Primary-key tables and row logs: the column has more digits than are stored.
        millis = cut(array, "ms") if self.rules.truncates else array.cast(pa.time32("ms"))
        return array if array.type == self.arrow_type and not self.rules.truncates else millis.cast(self.arrow_type)

    def _reason(self, source: pa.DataType, error: Exception) -> str:
        return self._too_fine()


class TimestampFit(_DigitsFit):
    """TIMESTAMP accepts no zones. TIMESTAMP_LTZ takes the instant of a zoned time; a time without zone is UTC."""

    def __init__(self, data_type: TimestampType | TimestampLtzType, rules: FitRules) -> None:
        super().__init__(data_type, rules)
        self._has_zone = isinstance(data_type, TimestampLtzType)
        self.looks_closer = rules.row_format is not None and self.unit == "s"

    def value(self, value: object) -> object:
        if isinstance(value, np.datetime64):
            moment, nanos = _numpy_moment(value)
        else:
            moment, nanos = _moment(value, self._has_zone)
        kept = self._kept_nanos(moment.microsecond * 1000 + nanos)
        nanos = kept % 1000
        if kept // 1000 != moment.microsecond:
            moment = moment.replace(microsecond=kept // 1000)
        if self.unit == "ns":
            if not MIN_NANOSECOND_DATETIME <= moment <= MAX_NANOSECOND_DATETIME:
                raise UnfitValueError(f"nanoseconds since 1970 only cover 1677 to 2262: {_FEWER_DIGITS}")
            return (moment - _EPOCH) // _MICROSECOND * 1000 + nanos if nanos else moment
        return moment

    def condition(self, name: str) -> str:
        naive = f"type({name}) is datetime and {name}.tzinfo is None"
        more = {
            "ns": f"min_ns <= {name} <= max_ns",
            "us": "",
            "ms": f"not {name}.microsecond % 1000",
            "s": f"not {name}.microsecond",
        }[self.unit]
        return f"{naive} and {more}" if more else naive

    def _converted(self, array: pa.Array) -> pa.Array:
        source = array.type
        if not pa.types.is_timestamp(source):
            return self._refuse_type(source)
        if source.tz is not None and not self._has_zone:
            self._refuse_type(source)
        array = self._in_unit(relabelled(array, self.arrow_type.tz) if self._has_zone else array)
        if self.looks_closer and any_true(_is_beyond(array, _MAX_ROW_SECONDS)):
            raise UnfitValueError("it is out of range for milliseconds, which rows store: correct it first")
        return array

    def _refuse_type(self, source: pa.DataType) -> pa.Array:
        if pa.types.is_timestamp(source):
            raise _zone_error(f"the Arrow type is {source}")
        return super()._refuse_type(source)


def _is_beyond(array: pa.Array, limit: int) -> pa.Array:
    """True where a number of units since 1970 exceeds the limit in size. `pc.abs` would return -2**63 unchanged."""
    numbers, limit = array.cast(pa.int64()), min(limit, 2**63 - 1)
    return pc.or_(pc.greater(numbers, limit), pc.less(numbers, -limit))


def _zone_error(what: str) -> UnfitValueError:
    return UnfitTypeError(f"{what}, and the column has no time zone: make it TIMESTAMP_LTZ, or remove the zone")


def _numpy_moment(value: np.datetime64) -> tuple[datetime.datetime, int]:
    """A datetime64 as a datetime, and its nanoseconds below a microsecond."""
    if np.isnat(value):
        raise UnfitValueError("it is not a time (NaT): write None")
    nanos = 0
    try:
        # NumPy does not detect every overflow, so the value is converted there and back.
        micros = value.astype("M8[us]")
        if micros.astype(value.dtype) != value:
            counted = value.astype("M8[ns]")
            if counted.astype(value.dtype) != value:
                raise UnfitValueError(_BEYOND_DATETIME64)
            nanos = int(counted.astype(np.int64)) % 1000
    except OverflowError:
        raise UnfitValueError(_BEYOND_DATETIME64) from None
    moment = micros.item()
    if not isinstance(moment, datetime.datetime):
        raise UnfitValueError(_BEYOND_YEARS)
    return moment, nanos


def _moment(value: object, has_zone: bool) -> tuple[datetime.datetime, int]:
    """The value as a datetime without zone, and its nanoseconds below a microsecond, which pandas has."""
    if not isinstance(value, datetime.datetime):
        raise UnfitValueError(f"it is not a datetime.datetime: {CONVERT}")
    value, nanos = _plain_datetime(value)
    if value.tzinfo is not None:
        if not has_zone:
            raise UnfitValueError(
                "it has a time zone, but the column has none: make it TIMESTAMP_LTZ, or remove the zone"
            )
        if value.utcoffset() is None:  # Python would use the zone of this machine
            raise UnfitValueError("its time zone has no UTC offset: use a zone that has one")
        try:
            value = value.astimezone(_UTC).replace(tzinfo=None)
        except OverflowError:
            raise UnfitValueError("in UTC it is outside the years 1 to 9999: write it as Arrow") from None
    return value, nanos


def _plain_datetime(value: datetime.datetime) -> tuple[datetime.datetime, int]:
    """A value of a datetime subclass as a plain datetime, and its nanoseconds below a microsecond, which pandas has."""
    if type(value) is datetime.datetime:
        return value, 0
    if value != value:
        raise UnfitValueError("it is not a time (NaT): write None")
    parts = (value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
    try:
        plain = datetime.datetime(*parts, value.tzinfo, fold=value.fold)
    except ValueError:  # pandas has a wider range of years
        raise UnfitValueError(_BEYOND_YEARS) from None
    return plain, getattr(value, "nanosecond", 0)


def time_fit(data_type: DataType, rules: FitRules) -> Fit:
    """The fit of one of these types."""
    if isinstance(data_type, TimeType):
        return TimeFit(data_type, rules)
    if isinstance(data_type, (TimestampType, TimestampLtzType)):
        return TimestampFit(data_type, rules)
    return DateFit(data_type, rules)
