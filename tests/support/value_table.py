"""The table of docs/values.md, and what to try for each of its cells."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fluss.errors import FlussError
from fluss.model import types as t

DOCUMENT = Path(__file__).parents[2] / "docs" / "values.md"
D, UTC = decimal.Decimal, datetime.UTC
MIDNIGHT = datetime.datetime(2026, 1, 1)
MOMENT = datetime.datetime(2026, 1, 1, 1, 2, 3, 456_789)

COLUMNS: dict[str, list[t.DataType]] = {
    "BOOLEAN": [t.BooleanType()],
    "integers": [t.TinyIntType(), t.SmallIntType(), t.IntType(), t.BigIntType()],
    "FLOAT": [t.FloatType()],
    "DOUBLE": [t.DoubleType()],
    "DECIMAL": [t.DecimalType(6, 2)],
    "CHAR, STRING": [t.CharType(2), t.StringType()],
    "BINARY, BYTES": [t.BinaryType(2), t.BytesType()],
    "DATE": [t.DateType()],
    "TIME": [t.TimeType(3)],
    "TIMESTAMP": [t.TimestampType(3)],
    "TIMESTAMP_LTZ": [t.TimestampLtzType(3)],
}
# A value that fits wherever the kind does, and one that fits nowhere exactly but in the widest columns.
SOURCES: dict[str, tuple[Any, Any]] = {
    "bool": (True, None),
    "int": (5, 10**18 + 1),
    "float": (5.0, 1.999),
    "decimal": (D("5.00"), D("1.999")),
    "text": ("ab", "abc"),
    "bytes": (b"ab", b"abc"),
    "date": (datetime.date(2026, 1, 1), None),
    "time": (datetime.time(1, 2, 3), datetime.time(1, 2, 3, 456_789)),
    "timestamp": (MIDNIGHT, MOMENT),
    "zoned timestamp": (MIDNIGHT.replace(tzinfo=UTC), MOMENT.replace(tzinfo=UTC)),
    "duration": (datetime.timedelta(1), None),
}
# Columns that hold whatever the kind has.
WIDEST = {("int", t.BigIntType()), ("text", t.StringType()), ("bytes", t.BytesType())}


def cells() -> list[tuple[str, str, str]]:
    lines = DOCUMENT.read_text().splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("| source |"))
    heads = _split(lines[start])[1:]
    rows = [_split(line) for line in lines[start + 2 : lines.index("", start)]]
    return [(row[0], head, word) for row in rows for head, word in zip(heads, row[1:], strict=True)]


def differences(way: str) -> dict[tuple[str, str], str]:
    """Where a way in does something else than the table says, by source and column."""
    lines = DOCUMENT.read_text().splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("| way in |"))
    rows = [_split(line) for line in lines[start + 2 : lines.index("", start)]]
    return {
        (source, column): word
        for name, sources, columns, word in rows
        if name == way
        for source in sources.split(" or ")
        for column in columns.split(" or ")
    }


def tried(convert: Callable[[t.DataType, Any], Any], source: str, column: str, word: str) -> None:
    """A way in does what `word` says; it raises FlussError for what it refuses."""
    fits, finer = SOURCES[source]
    for data_type in COLUMNS[column]:
        if word == "refused":
            with pytest.raises(FlussError):
                convert(data_type, fits)
            continue
        assert convert(data_type, fits) is not None
        if word == "exact" and (source, data_type) not in WIDEST:
            with pytest.raises(FlussError):
                convert(data_type, finer)
        elif finer is not None:
            assert convert(data_type, finer) is not None


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
