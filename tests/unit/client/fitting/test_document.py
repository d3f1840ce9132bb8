"""The table of docs/values.md, tried cell by cell: Python values and Arrow arrays."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fluss.client.fitting import UnfitTypeError, UnfitValueError, fit_of
from fluss.model import types as t

DOCUMENT = Path(__file__).parents[4] / "docs" / "values.md"
D, UTC = decimal.Decimal, datetime.timezone.utc
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


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_document_has_every_source_and_column() -> None:
    found = cells()
    assert {source for source, _, _ in found} == set(SOURCES)
    assert {column for _, column, _ in found} == set(COLUMNS)
    assert {word for _, _, word in found} == {"taken", "exact", "rounded", "refused"}


@pytest.mark.parametrize(("source", "column", "word"), cells())
def test_the_document_is_right(source: str, column: str, word: str) -> None:
    fits, finer = SOURCES[source]
    for data_type in COLUMNS[column]:
        fit = fit_of(data_type)
        if word == "refused":
            with pytest.raises(UnfitValueError):
                fit.value(fits)
            with pytest.raises(UnfitTypeError):
                fit.array(pa.array([], pa.array([fits]).type))
            continue
        fit.value(fits)
        assert fit.array(pa.array([fits])).to_pylist() != [None]
        if word != "exact":
            if finer is not None:
                fit.value(finer)
        elif (source, data_type) not in WIDEST:
            with pytest.raises(UnfitValueError):
                fit.value(finer)
            with pytest.raises(UnfitValueError):
                fit.array(pa.array([finer]))
