"""Partition values that are times: units, patterns, zones. Pure functions.

Patterns are those of Java's date formatter, restricted to partition values: the year, then quarter or month, then day,
then hour, down to the unit, each with its full width, with literals between them.
"""

from __future__ import annotations

import calendar
import re
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from fluss.model.names import broken_name_rule

DEFAULT_PATTERNS = {"YEAR": "yyyy", "QUARTER": "yyyyQ", "MONTH": "yyyyMM", "DAY": "yyyyMMdd", "HOUR": "yyyyMMddHH"}
DATE_PATTERN = "yyyy-MM-dd"

_FIELDS_OF_UNIT = {"YEAR": "y", "QUARTER": "yQ", "MONTH": "yM", "DAY": "yMd", "HOUR": "yMdH"}
_FIELD_WIDTH = {"y": 4, "Q": 1, "M": 2, "d": 2, "H": 2}
_MONTHS_OF_UNIT = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_OFFSET_ZONE = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")
_EXAMPLE = datetime(2024, 12, 31, 23)


@dataclass(frozen=True)
class TimePattern:
    """A checked pattern: its fields and literals in order."""

    text: str
    parts: tuple[tuple[bool, str], ...]
    """Pairs in the order of the pattern: (True, letters of a field) or (False, literal)."""

    def format(self, moment: datetime) -> str:
        """Return the partition value of a time, which must be in the table's zone."""
        texts = {
            "y": f"{moment.year:04d}",
            "Q": str((moment.month - 1) // 3 + 1),
            "M": f"{moment.month:02d}",
            "d": f"{moment.day:02d}",
            "H": f"{moment.hour:02d}",
        }
        return "".join(texts[text] if is_field else text for is_field, text in self.parts)

    def matches(self, value: str) -> bool:
        """True if `value` is a valid time in this pattern."""
        expression = "".join(
            f"(?P<{text}>[0-9]{{{_FIELD_WIDTH[text]}}})" if is_field else re.escape(text)
            for is_field, text in self.parts
        )
        match = re.fullmatch(expression, value)
        if match is None:
            return False
        numbers = {name: int(text) for name, text in match.groupdict().items()}
        if not 1 <= numbers.get("Q", 1) <= 4:
            return False
        try:
            datetime(numbers["y"], numbers.get("M", 1), numbers.get("d", 1), numbers.get("H", 0))
        except ValueError:
            return False
        return True


def parse_pattern(unit: str, text: str | None) -> TimePattern:
    """Parse and check a pattern for a time unit; None stands for the unit's default. ValueError if it is invalid."""
    pattern_text = DEFAULT_PATTERNS[unit] if text is None else text
    parts = tuple(_tokens(pattern_text))
    wanted = _FIELDS_OF_UNIT[unit]
    found = "".join(part for is_field, part in parts if is_field)
    if found != wanted:
        example = DEFAULT_PATTERNS[unit]
        raise ValueError(
            f"time format {pattern_text!r} does not match time unit {unit}; it must have the fields of {example!r}, "
            "each once, in this order"
        )
    pattern = TimePattern(pattern_text, parts)
    rule = broken_name_rule(pattern.format(_EXAMPLE))
    if rule is not None:
        raise ValueError(f"time format {pattern_text!r} gives invalid partition values: {rule}")
    return pattern


def _tokens(text: str) -> list[tuple[bool, str]]:
    tokens: list[tuple[bool, str]] = []
    for match in re.finditer(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'])|(')", text):
        quoted, letter, other, lone_quote = match.groups()
        if lone_quote is not None:
            raise ValueError(f"time format {text!r} has an unclosed quote; quotes come in pairs")
        if other is not None and other in "[]{}#":
            raise ValueError(f"time format {text!r} must not contain {other!r}")
        if letter is None:
            literal = other if other is not None else (quoted.replace("''", "'") or "'")
            tokens.append((False, literal))
            continue
        field = "y" if letter == "u" else letter
        if _FIELD_WIDTH.get(field) != len(match[0]):
            raise ValueError(
                f"time format {text!r} has the field {match[0]!r}; allowed are yyyy, Q, MM, dd, HH and text in quotes"
            )
        tokens.append((True, field))
    return tokens


def parse_zone(text: str | None) -> tzinfo | None:
    """Return a time zone by name (`Europe/Berlin`) or offset (`+02:00`, `GMT+8`); None for the zone of the system."""
    if text is None:
        return None
    offset = _OFFSET_ZONE.fullmatch(text)
    if text in ("Z", "UTC", "GMT", "UT"):
        return UTC
    if offset is not None:
        delta = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        if delta > timedelta(hours=18):
            raise ValueError(f"time zone {text!r} must be at most 18 hours from UTC")
        return timezone(delta if offset[1] == "+" else -delta)
    try:
        return zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"unknown time zone {text!r}; use a name like 'Europe/Berlin' (from the system's time zone "
            "database) or an offset like '+02:00'"
        ) from None


def moment_at(now_ms: int, zone: tzinfo | None, unit: str, units_later: int) -> datetime:
    """Return the local time `units_later` units after `now_ms`; OverflowError outside of the calendar's range."""
    try:
        if unit == "HOUR":
            # Hours are added in UTC, so a change of daylight saving time neither skips nor repeats one.
            return datetime.fromtimestamp(now_ms / 1000 + units_later * 3600, zone)
        now = datetime.fromtimestamp(now_ms / 1000, zone)
        if unit == "DAY":
            return now + timedelta(days=units_later)
        months = now.year * 12 + now.month - 1 + units_later * _MONTHS_OF_UNIT[unit]
        year, month = divmod(months, 12)
        day = min(now.day, calendar.monthrange(year, month + 1)[1])
        return now.replace(year=year, month=month + 1, day=day)
    except (ValueError, OSError, IndexError) as error:
        raise OverflowError(f"{units_later} {unit} from now is outside of the calendar's range") from error
