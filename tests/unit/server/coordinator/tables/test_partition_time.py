"""Time units, patterns and zones of partition values."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.server.coordinator.tables.partition_time import DEFAULT_PATTERNS, moment_at, parse_pattern, parse_zone

UTC = UTC


def epoch_ms(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc, arg-type]


NIGHT = epoch_ms(2024, 9, 19, 22, 30)


@pytest.mark.parametrize(
    ("unit", "value"),
    [("YEAR", "2024"), ("QUARTER", "20243"), ("MONTH", "202409"), ("DAY", "20240919"), ("HOUR", "2024091922")],
)
def test_default_formats(unit: str, value: str) -> None:
    pattern = parse_pattern(unit, None)
    assert pattern.format(moment_at(NIGHT, UTC, unit, 0)) == value
    assert pattern.matches(value)


@pytest.mark.parametrize(
    ("unit", "text", "value"),
    [
        ("DAY", "yyyy-MM-dd", "2024-09-19"),
        ("DAY", "uuuu_MM_dd", "2024_09_19"),
        ("HOUR", "'h'yyyyMMdd'-'HH", "h20240919-22"),
        ("QUARTER", "yyyy-'Q'Q", "2024-Q3"),
        ("MONTH", "yyyy-MM", "2024-09"),
        ("YEAR", "'y'yyyy", "y2024"),
    ],
)
def test_own_formats(unit: str, text: str, value: str) -> None:
    pattern = parse_pattern(unit, text)
    assert pattern.format(moment_at(NIGHT, UTC, unit, 0)) == value
    assert pattern.matches(value)


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("DAY", ""),
        ("DAY", "yyyyMM"),
        ("DAY", "MMddyyyy"),
        ("DAY", "yyyyMMddHH"),
        ("DAY", "yyMMdd"),
        ("DAY", "yyyyMMMdd"),
        ("DAY", "yyyyMd"),
        ("DAY", "yyyy/MM/dd"),
        ("DAY", "yyyyMM[dd]"),
        ("DAY", "yyyyMMdd'"),
        ("DAY", "yyyyMMdd''"),
        ("DAY", "yyyy MM dd"),
        ("DAY", "yyyyMMddzz"),
        ("DAY", "yyyyyyyyMMdd"),
        ("DAY", "yyyyMMdd'\u00e4'"),
        ("HOUR", "yyyyMMddhh"),
        ("QUARTER", "yyyyMM"),
        ("QUARTER", "yyyyQQ"),
        ("MONTH", "yyyyQ"),
        ("YEAR", "'__'yyyy"),
    ],
)
def test_bad_formats(unit: str, text: str) -> None:
    with pytest.raises(ValueError, match="time format"):
        parse_pattern(unit, text)


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        ("DAY", "20240230"),
        ("DAY", "20241301"),
        ("DAY", "00000101"),
        ("DAY", "2024091"),
        ("DAY", "202409190"),
        ("DAY", "2024\u0660919"),
        ("HOUR", "2024091924"),
        ("QUARTER", "20245"),
        ("QUARTER", "20240"),
        ("YEAR", "24"),
    ],
)
def test_values_that_are_no_time(unit: str, value: str) -> None:
    assert not parse_pattern(unit, None).matches(value)


@pytest.mark.parametrize(
    ("unit", "units", "value"),
    [
        ("YEAR", 1, "2025"),
        ("YEAR", -25, "1999"),
        ("QUARTER", 2, "20251"),
        ("QUARTER", -3, "20234"),
        ("MONTH", 4, "202501"),
        ("MONTH", -9, "202312"),
        ("DAY", 12, "20241001"),
        ("DAY", -19, "20240831"),
        ("HOUR", 2, "2024092000"),
        ("HOUR", -23, "2024091823"),
    ],
)
def test_steps(unit: str, units: int, value: str) -> None:
    assert parse_pattern(unit, None).format(moment_at(NIGHT, UTC, unit, units)) == value


def test_the_last_day_of_a_month() -> None:
    assert moment_at(epoch_ms(2024, 1, 31), UTC, "MONTH", 1).month == 2
    assert moment_at(epoch_ms(2024, 2, 29), UTC, "YEAR", 1).year == 2025
    assert moment_at(epoch_ms(2024, 5, 31), UTC, "QUARTER", -1).month == 2


@pytest.mark.parametrize("units", [10**5, -(10**5), 10**9])
def test_beyond_the_calendar(units: int) -> None:
    for unit in ("YEAR", "QUARTER", "MONTH"):
        with pytest.raises(OverflowError):
            moment_at(NIGHT, UTC, unit, units)
    with pytest.raises(OverflowError):
        moment_at(NIGHT, UTC, "DAY", units * 1000)


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("UTC", 22),
        ("Z", 22),
        ("GMT", 22),
        ("+02:00", 0),
        ("-0330", 19),
        ("GMT+8", 6),
        ("UTC-05:00", 17),
        ("Europe/Berlin", 0),
        ("Asia/Kolkata", 4),
    ],
)
def test_zones(text: str, hour: int) -> None:
    assert moment_at(NIGHT, parse_zone(text), "HOUR", 0).hour == hour


def test_the_systems_zone() -> None:
    assert moment_at(NIGHT, parse_zone(None), "HOUR", 0).hour == datetime.fromtimestamp(NIGHT / 1000).hour


@pytest.mark.parametrize("text", ["", "Mars/Olympus", "+19:00", "../etc/passwd", "/etc/passwd", "+2x"])
def test_bad_zones(text: str) -> None:
    with pytest.raises(ValueError, match="time zone"):
        parse_zone(text)


def test_hours_across_a_clock_change() -> None:
    zone = parse_zone("Europe/Berlin")
    before = epoch_ms(2024, 3, 31, 0, 30)  # 01:30 in Berlin, the clock jumps at 02:00
    pattern = parse_pattern("HOUR", None)
    assert [pattern.format(moment_at(before, zone, "HOUR", hours)) for hours in range(2)] == [
        "2024033101",
        "2024033103",
    ]


@given(
    st.sampled_from(sorted(DEFAULT_PATTERNS)),
    st.integers(0, epoch_ms(2090, 1, 1)),
    st.integers(-50, 50),
    st.integers(1, 50),
)
def test_later_values_sort_later(unit: str, now_ms: int, units: int, more: int) -> None:
    pattern = parse_pattern(unit, None)
    early = pattern.format(moment_at(now_ms, UTC, unit, units))
    late = pattern.format(moment_at(now_ms, UTC, unit, units + more))
    assert early < late
    assert pattern.matches(early)
    assert pattern.matches(late)
