"""Texts of durations, sizes, booleans, numbers, enumerations."""

from __future__ import annotations

import pytest

from fluss.model.option_values import (
    enum_parser,
    parse_boolean,
    parse_duration_ms,
    parse_int,
    parse_long,
    parse_memory_size,
)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("7 d", 604_800_000),
        ("1day", 86_400_000),
        ("2 DAYS", 172_800_000),
        ("1h", 3_600_000),
        ("2 hours", 7_200_000),
        ("3 min", 180_000),
        ("3m", 180_000),
        ("4 minutes", 240_000),
        ("5 s", 5000),
        ("5 sec", 5000),
        ("5secs", 5000),
        ("0ms", 0),
        (" 100 milliseconds ", 100),
        ("1500 \u00b5s", 1),
        ("2500 micros", 2),
        ("999999 ns", 0),
        ("3000000 nanoseconds", 3),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1 d", "1.5 h", "1 fortnight", "1 d 2 h", "99999999999999999999 d"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("120b", 120),
        ("7 bytes", 7),
        ("7", 7),
        ("4k", 4096),
        ("4 KB", 4096),
        ("1 kibibytes", 1024),
        ("64mb", 67_108_864),
        ("1g", 1 << 30),
        ("2 tebibytes", 2 << 40),
    ],
)
def test_memory_sizes(text: str, size: int) -> None:
    assert parse_memory_size(text) == size


@pytest.mark.parametrize("text", ["", "mb", "-1b", "1.5mb", "1 pb", "9999999999 tb"])
def test_bad_memory_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="memory size"):
        parse_memory_size(text)


def test_booleans() -> None:
    assert [parse_boolean(text) for text in ("true", "TRUE", "False")] == [True, True, False]
    with pytest.raises(ValueError, match="use true or false"):
        parse_boolean("yes")


@pytest.mark.parametrize("text", ["", "1.0", "x", "1 2", "2147483648", "-2147483649"])
def test_bad_int(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|range"):
        parse_int(text)


def test_numbers_at_their_limits() -> None:
    assert parse_int("-2147483648") == -(2**31)
    assert parse_int("+7") == 7
    assert parse_long("9223372036854775807") == 2**63 - 1
    with pytest.raises(ValueError, match="out of range"):
        parse_long("9223372036854775808")


def test_enumerations_have_one_spelling() -> None:
    parse = enum_parser(("ARROW", "first_row"))
    assert (parse("arrow"), parse("FIRST_ROW")) == ("ARROW", "first_row")
    with pytest.raises(ValueError, match="'x' is not allowed; use one of ARROW, first_row"):
        parse("x")
