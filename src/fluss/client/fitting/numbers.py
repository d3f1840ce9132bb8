"""BOOLEAN, the integers, FLOAT, DOUBLE and DECIMAL."""

from __future__ import annotations

import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.fitting.base import (
    CONVERT,
    Fit,
    FitRules,
    UnfitValueError,
    any_true,
    is_floating,
    widened,
)
from fluss.model.types import DataType, DecimalType

INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
# The largest double that rounds to a finite float32.
MAX_FLOAT32 = math.nextafter(float.fromhex("0x1.ffffffp127"), 0)
# Enough digits for every integer and decimal of Arrow during rescaling.
_WIDE_DIGITS = 76
_MAX_INTEGER_DIGITS = 20
# Digits of the shortest form of a double, plus one for those just below the last digit of a column.
_MAX_FLOAT_DIGITS = 18


class BooleanFit(Fit):
    """True and false; numbers are refused."""

    def value(self, value: object) -> bool:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        raise UnfitValueError("it is not a bool: write value != 0 if a number means one")

    def condition(self, name: str) -> str:
        return f"type({name}) is bool"

    def _converted(self, array: pa.Array) -> pa.Array:
        return array if pa.types.is_boolean(array.type) else self._refuse_type(array.type)


class IntegerFit(Fit):
    """Whole numbers, also in the form of floats or decimals."""

    def __init__(self, data_type: DataType, rules: FitRules) -> None:
        super().__init__(data_type, rules)
        self._limit = 1 << INTEGER_BITS[data_type.root] - 1

    def value(self, value: Any) -> int:
        if not _is_integer(value):
            value = _whole(value)
        number = int(value)
        if not -self._limit <= number < self._limit:
            raise UnfitValueError(f"it is {self._outside()}")
        return number

    def condition(self, name: str) -> str:
        return f"type({name}) is int and {-self._limit} <= {name} <= {self._limit - 1}"

    def _converted(self, array: pa.Array) -> pa.Array:
        source = array.type
        if pa.types.is_integer(source) or is_floating(source) or pa.types.is_decimal(source):
            return widened(array).cast(self.arrow_type)
        return self._refuse_type(source)

    def _outside(self) -> str:
        return f"outside {-self._limit} to {self._limit - 1}: it needs a column of a larger type"

    def _reason(self, source: pa.DataType, error: Exception) -> str:
        whole = "" if pa.types.is_integer(source) else "not a whole number, or "
        return f"it is {whole}{self._outside()}"


def _is_integer(value: object) -> bool:
    """True for integers; NumPy's durations, which it counts among them, are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


def _whole(value: object) -> object:
    """An int from a float or decimal that is whole; pandas turns integers with gaps into floats."""
    if isinstance(value, (float, np.floating)) and math.isfinite(value) and value == int(value):
        return value
    if isinstance(value, decimal.Decimal) and value.is_finite() and value.adjusted() < 40 and value == int(value):
        return value
    if isinstance(value, (float, np.floating, decimal.Decimal)):
        raise UnfitValueError("it is not a whole number: round it first")
    raise UnfitValueError(f"it is not an int: {CONVERT}")


class FloatFit(Fit):
    """FLOAT and DOUBLE. A double is rounded to the nearest float; an integer must be the same number afterwards."""

    def __init__(self, data_type: DataType, rules: FitRules) -> None:
        super().__init__(data_type, rules)
        self._is_single = data_type.root == "FLOAT"
        self._limit = MAX_FLOAT32 if self._is_single else math.inf

    def value(self, value: Any) -> float:
        if not isinstance(value, (float, np.floating)) and not _is_integer(value):
            raise UnfitValueError(f"it is not a float: {CONVERT}")
        try:
            number = float(value)
        except OverflowError:
            raise UnfitValueError("it is too large: it needs a column of type DECIMAL") from None
        if abs(number) > self._limit and not math.isinf(number):
            raise UnfitValueError(_TOO_LARGE_FOR_FLOAT)
        if isinstance(value, np.longdouble) and number != value and value == value:
            raise UnfitValueError("it has more digits than 64 bits can hold: pass a float to have it rounded")
        if not isinstance(value, (float, np.floating)):
            stored = float(np.float32(number)) if self._is_single else number
            if int(stored) != int(value):
                raise UnfitValueError(f"the nearest number that the column can hold is {stored!r}: {_AS_FLOAT}")
        return number

    def condition(self, name: str) -> str:
        if self._is_single:
            return f"type({name}) is float and {-MAX_FLOAT32!r} <= {name} <= {MAX_FLOAT32!r}"
        return f"type({name}) is float"

    def _converted(self, array: pa.Array) -> pa.Array:
        if pa.types.is_integer(array.type):
            return self._of_integers(array)
        if not is_floating(array.type):
            return self._refuse_type(array.type)
        array = widened(array)
        result = array.cast(self.arrow_type)
        if self._is_single and any_true(pc.and_not(pc.is_inf(result), pc.is_inf(array))):
            raise UnfitValueError(_TOO_LARGE_FOR_FLOAT)
        return result

    def _of_integers(self, array: pa.Array) -> pa.Array:
        try:
            return array.cast(self.arrow_type)
        except pa.ArrowInvalid:  # more than 24 or 53 bits; some of these numbers are still exact floats
            result = array.cast(self.arrow_type, safe=False)
        numbers = np.asarray(array.fill_null(0))
        floats = np.asarray(result.fill_null(0)).astype(np.float64)
        inside = floats < 2.0 ** (64 if numbers.dtype == np.uint64 else 63)
        if not (inside & (np.where(inside, floats, 0).astype(numbers.dtype) == numbers)).all():
            raise UnfitValueError(f"the column cannot hold it exactly: {_AS_FLOAT}")
        return result


_TOO_LARGE_FOR_FLOAT = "it is too large for 32 bits: it needs a column of type DOUBLE"
_NOT_FINITE = "it is not a finite number: write a null, or make the column DOUBLE"
_AS_FLOAT = "pass a float to have it rounded"


class DecimalFit(Fit):
    """Decimals, integers, and floats by their shortest form, as long as no digit is lost."""

    def __init__(self, data_type: DecimalType, rules: FitRules) -> None:
        super().__init__(data_type, rules)
        self._scale = data_type.scale
        self._before_point = data_type.precision - data_type.scale
        self._quantum = decimal.Decimal(1).scaleb(-data_type.scale)
        traps = [decimal.InvalidOperation] if rules.truncates else [decimal.InvalidOperation, decimal.Inexact]
        # One call checks both: more digits than `prec` are an invalid operation, digits that get lost are inexact.
        self._context = decimal.Context(prec=data_type.precision, rounding=decimal.ROUND_FLOOR, traps=traps)

    def value(self, value: Any) -> decimal.Decimal:
        if not isinstance(value, decimal.Decimal):
            value = _as_decimal(value)
        if not value.is_finite():
            raise UnfitValueError(_NOT_FINITE)
        try:
            return self._context.quantize(value, self._quantum)
        except decimal.Inexact:
            raise UnfitValueError(self._too_fine()) from None
        except decimal.InvalidOperation:
            raise UnfitValueError(self._too_large()) from None

    def _too_large(self) -> str:
        return f"it has more than {self._before_point} digits before the point: it needs a column with more of them"

    def _too_fine(self) -> str:
        return f"it has more than {self._scale} digits after the point: {self.rules.digits_hint}"

    def _converted(self, array: pa.Array) -> pa.Array:
        source = array.type
        if pa.types.is_integer(source):
            wide = pa.decimal256(_MAX_INTEGER_DIGITS + self._scale, self._scale)
            return array.cast(wide).cast(self.arrow_type)
        if is_floating(source):
            return self._of_floats(array)
        if not pa.types.is_decimal(source):
            return self._refuse_type(source)
        if self.rules.truncates and source.scale > self._scale:
            wide = pa.decimal256(min(_WIDE_DIGITS, source.precision + 1), source.scale)
            array = pc.round(array.cast(wide), ndigits=self._scale, round_mode="down")
        return self._rescaled(array)

    def _rescaled(self, array: pa.Array) -> pa.Array:
        """Cast by way of 256 bits if needed: casts to a larger scale do not detect an overflow of 128 bits."""
        digits = array.type.precision - array.type.scale + self._scale
        if digits <= self.arrow_type.precision:
            return array.cast(self.arrow_type)
        if digits <= _WIDE_DIGITS:
            return array.cast(pa.decimal256(digits, self._scale)).cast(self.arrow_type)
        result = array.cast(self.arrow_type)
        if not result.cast(array.type).equals(array):
            raise UnfitValueError(self._too_large())
        return result

    def _of_floats(self, array: pa.Array) -> pa.Array:
        """Convert through strings. Arrow's cast of a string checks neither end: 5e-324 became 0, and 5e16 2.87 in
        DECIMAL(38, 30), where 128 bits are too few for the digits."""
        numbers = widened(array)
        if any_true(pc.and_(pc.is_finite(numbers), pc.greater_equal(pc.abs(numbers), float(10**self._before_point)))):
            raise UnfitValueError(self._too_large())
        if self.rules.truncates:
            return self._cut_floats(array, numbers)
        if any_true(pc.and_(pc.less(pc.abs(numbers), float(self._quantum) / 2), pc.not_equal(numbers, 0.0))):
            raise UnfitValueError(self._too_fine())
        return _spelled(array).cast(self.arrow_type)

    def _cut_floats(self, array: pa.Array, numbers: pa.Array) -> pa.Array:
        """Cut off digits: 256 bits hold every digit, except for numbers far below the last digit of the column."""
        is_small = pc.less(pc.abs(numbers), float(self._quantum) / 2)
        spelled = pc.if_else(is_small, "0", _spelled(array))
        scale = self._scale + _MAX_FLOAT_DIGITS
        exact = spelled.cast(pa.decimal256(self._before_point + 1 + scale, scale))
        cut = self._rescaled(pc.round(exact, ndigits=self._scale, round_mode="down"))
        is_below = pc.and_(is_small, pc.less(numbers, 0.0))
        return pc.if_else(is_below, pa.scalar(-self._quantum, self.arrow_type), cut) if any_true(is_below) else cut

    def _reason(self, source: pa.DataType, error: Exception) -> str:
        text = str(error)
        if "data loss" in text:
            return self._too_fine()
        if "not a valid" in text:
            return _NOT_FINITE
        return self._too_large()


def _spelled(array: pa.Array) -> pa.Array:
    """The shortest forms of floats, which differ for 16, 32 and 64 bits."""
    if pa.types.is_float16(array.type):
        return pa.array([None if each is None else str(np.float16(each)) for each in array.to_pylist()], pa.string())
    return array.cast(pa.string())


def _as_decimal(value: Any) -> decimal.Decimal:
    if _is_integer(value):
        return decimal.Decimal(int(value))
    if isinstance(value, (float, np.floating)):
        return decimal.Decimal(str(value))  # the shortest form, also of a 32-bit float
    raise UnfitValueError(f"it is not a decimal.Decimal, an int or a float: {CONVERT}")
