"""Prints numbers, decimals and points in time as Java does, for partition names and Hudi keys.

Python prints some values differently (`1e-05` and `1e+16`, in Java `1.0E-5` and `1.0E16`).
"""

from __future__ import annotations

import datetime
import math

import numpy as np

_EPOCH = datetime.datetime(1970, 1, 1)
_MIN_PLAIN, _MAX_PLAIN = 1e-3, 1e7


def float_text(value: float, single: bool) -> str:
    """The result of Java's `Double.toString`, or of `Float.toString` if `single` is True.

    >>> float_text(1e7, False), float_text(-0.0, False), float_text(5e-324, False), float_text(0.1, True)
    ('1.0E7', '-0.0', '4.9E-324', '0.1')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return sign + "0.0"
    digits, exponent = _shortest(abs(value), single)
    if _MIN_PLAIN <= abs(value) < _MAX_PLAIN:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        whole = digits[: exponent + 1].ljust(exponent + 1, "0")
        return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest(value: float, single: bool) -> tuple[str, int]:
    """The fewest digits that identify the value, and its decimal exponent.

    Java always prints at least two digits: if one is enough, it prints the nearest number of two digits.
    """
    number = np.float32(value) if single else np.float64(value)
    mantissa, _, exponent = np.format_float_scientific(number, unique=True, trim="-").partition("e")
    digits = mantissa.replace(".", "")
    if len(digits) == 1:
        two = f"{float(number):.1e}"
        if type(number)(two) == number:
            mantissa, _, exponent = two.partition("e")
            digits = mantissa.replace(".", "").rstrip("0") or "0"
    return digits, int(exponent)


def decimal_text(unscaled: int, scale: int) -> str:
    """A decimal in plain form, with all digits of its scale.

    >>> decimal_text(-5, 2), decimal_text(1420, 2), decimal_text(7, 0)
    ('-0.05', '14.20', '7')
    """
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)


def instant_of(millis: int) -> datetime.datetime:
    """The UTC date and time, without the fraction of the second; ValueError for years outside 1 to 9999."""
    try:
        return _EPOCH + datetime.timedelta(seconds=millis // 1000)
    except OverflowError:
        raise ValueError(f"{millis} milliseconds since 1970 are outside the years 1 to 9999") from None


def nanos_of_second(millis: int, nanos: int) -> int:
    """The fraction of the second of a point in time, in nanoseconds."""
    return millis % 1000 * 1_000_000 + nanos


def _grouped_fraction(nanos: int) -> str:
    """A fraction of a second as java.time prints it, in groups of three digits; empty if it is zero."""
    if nanos == 0:
        return ""
    text = f".{nanos:09d}"
    while text.endswith("000"):
        text = text[:-3]
    return text


def local_date_time_text(millis: int, nanos: int) -> str:
    """The result of Java's `LocalDateTime.toString`, which omits the seconds if they and the fraction are zero.

    >>> local_date_time_text(0, 0), local_date_time_text(-1, 0)
    ('1970-01-01T00:00', '1969-12-31T23:59:59.999')
    """
    when, fraction = instant_of(millis), nanos_of_second(millis, nanos)
    text = when.isoformat()
    return text + _grouped_fraction(fraction) if when.second or fraction else text[:-3]


def instant_text(millis: int, nanos: int) -> str:
    """The result of Java's `Instant.toString`, which always has seconds and ends in Z."""
    return instant_of(millis).isoformat() + _grouped_fraction(nanos_of_second(millis, nanos)) + "Z"
