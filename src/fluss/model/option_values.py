"""Parsers of option values: durations, memory sizes, booleans, numbers and enumerations.

Every function takes a string as a user wrote it and raises a ValueError that states what is wrong with it. Table
properties, server options and client options share these functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_NANOSECONDS_PER_MILLISECOND = 1_000_000

_DURATION_UNITS: dict[str, int] = {
    name: nanoseconds
    for names, nanoseconds in (
        (("d", "day", "days"), 86_400_000_000_000),
        (("h", "hour", "hours"), 3_600_000_000_000),
        (("min", "m", "minute", "minutes"), 60_000_000_000),
        (("s", "sec", "secs", "second", "seconds"), 1_000_000_000),
        (("ms", "milli", "millis", "millisecond", "milliseconds"), 1_000_000),
        # The micro sign and the Greek letter mu look alike, and both are used.
        (("\u00b5s", "\u03bcs", "micro", "micros", "microsecond", "microseconds"), 1_000),
        (("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
    )
    for name in names
}

_MEMORY_UNITS: dict[str, int] = {
    name: size
    for names, size in (
        (("", "b", "bytes"), 1),
        (("k", "kb", "kibibytes"), 1024),
        (("m", "mb", "mebibytes"), 1024**2),
        (("g", "gb", "gibibytes"), 1024**3),
        (("t", "tb", "tebibytes"), 1024**4),
    )
    for name in names
}

_NUMBER_AND_UNIT = re.compile(r"([0-9]+)\s*([^0-9\s]*)")


def _split(text: str, what: str) -> tuple[int, str]:
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a {what}; give a whole number followed by a unit")
    return int(match[1]), match[2].lower()


def parse_duration_ms(text: str) -> int:
    """The number of milliseconds of a duration such as `7 d` or `100ms`; fractions of a millisecond are cut off.

    >>> parse_duration_ms("3 min")
    180000
    """
    number, unit = _split(text, "duration")
    if not unit:
        raise ValueError(f"duration {text!r} has no unit; use one of d, h, min, s, ms, ns")
    if unit not in _DURATION_UNITS:
        raise ValueError(f"duration {text!r} has the unknown unit {unit!r}; use one of d, h, min, s, ms, ns")
    milliseconds = number * _DURATION_UNITS[unit] // _NANOSECONDS_PER_MILLISECOND
    if milliseconds > INT64_MAX:
        raise ValueError(f"duration {text!r} is too long; the longest is {INT64_MAX} ms")
    return milliseconds


def parse_memory_size(text: str) -> int:
    """The number of bytes of a size such as `64mb`. Units are powers of 1024; a number without a unit counts bytes.

    >>> parse_memory_size("4k")
    4096
    """
    number, unit = _split(text, "memory size")
    if unit not in _MEMORY_UNITS:
        raise ValueError(f"memory size {text!r} has the unknown unit {unit!r}; use one of b, kb, mb, gb, tb")
    size = number * _MEMORY_UNITS[unit]
    if size > INT64_MAX:
        raise ValueError(f"memory size {text!r} is too large; the largest is {INT64_MAX} bytes")
    return size


def parse_boolean(text: str) -> bool:
    """Parse `true` or `false`, in any case."""
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"{text!r} is not a boolean; use true or false")
    return lowered == "true"


def parse_int(text: str) -> int:
    """Parse a whole number of 32 bits."""
    return _whole_number(text, INT32_MAX)


def parse_long(text: str) -> int:
    """Parse a whole number of 64 bits."""
    return _whole_number(text, INT64_MAX)


def _whole_number(text: str, highest: int) -> int:
    if re.fullmatch(r"[+-]?[0-9]+", text) is None:
        raise ValueError(f"{text!r} is not a whole number; use digits only, such as 4")
    number = int(text)
    if not -highest - 1 <= number <= highest:
        raise ValueError(f"{text!r} is out of range; the largest value is {highest}")
    return number


def parse_text(text: str) -> str:
    """Return the string unchanged: every string is allowed."""
    return text


def enum_parser(values: Sequence[str]) -> Callable[[str], str]:
    """A parser that accepts `values` in any case and returns the spelling given here."""
    by_lower = {value.lower(): value for value in values}

    def parse(text: str) -> str:
        try:
            return by_lower[text.lower()]
        except KeyError:
            raise ValueError(f"{text!r} is not allowed; use one of {', '.join(values)}") from None

    return parse
