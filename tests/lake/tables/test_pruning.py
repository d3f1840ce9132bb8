"""Filters leave out files, but never one with a matching row."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.utils.decimal import unscaled_to_decimal

from fluss.codec.filters.predicate import Compound, CompoundFunction, Leaf, LeafFunction, Predicate
from fluss.lake.tables.iceberg.tables import IcebergFormat
from fluss.model.types import (
    BigIntType,
    DateType,
    DecimalType,
    DoubleType,
    IntType,
    StringType,
    TimestampLtzType,
    TimestampType,
)
from tests.support.lake.tables import LakeTableWriter, made, spec_of

COLUMNS = {
    "i": IntType(),
    "b": BigIntType(),
    "s": StringType(),
    "d": DateType(),
    "m": DecimalType(10, 2),
    "m38": DecimalType(38, 4),
    "far": DateType(),
    "later": TimestampType(6),
    "ts": TimestampType(3),
    "ltz": TimestampLtzType(6),
    "ts9": TimestampType(9),
    "f": DoubleType(),
}
MOMENT = dt.datetime(1969, 12, 31, 23, 0)
MOMENT_MILLIS = -3_600_000
# 38 digits, more than Python's decimals keep by default; times after the year 9999, where Python's own types end.
MANY_DIGITS = 12345678901234567890123456789012345678
FAR_DAY = 5_000_000
FAR_MILLIS = 300_000_000_000_000


def row(number: int) -> dict[str, Any]:
    return {
        "i": number,
        "b": number * 10**10,
        "s": f"s{number}",
        "d": dt.date(1970, 1, 1) + dt.timedelta(days=number),
        "m": Decimal(number) / 100,
        "m38": unscaled_to_decimal(MANY_DIGITS + number, 4),
        "far": FAR_DAY + number,
        "later": (FAR_MILLIS + number) * 1000,
        "ts": MOMENT + dt.timedelta(milliseconds=number),
        "ltz": (MOMENT + dt.timedelta(milliseconds=number)).replace(tzinfo=dt.UTC),
        "ts9": MOMENT + dt.timedelta(milliseconds=number),
        "f": float("nan") if number == 5 else float(number),
    }


def literal(name: str, number: int) -> Any:
    """The logical value that `row(number)` has in a column."""
    if name in ("ts", "ltz", "ts9"):
        return (MOMENT_MILLIS + number, 0)
    if name == "later":
        return (FAR_MILLIS + number, 0)
    bases = {"m38": MANY_DIGITS, "far": FAR_DAY}
    return {"s": f"s{number}", "b": number * 10**10, "f": float(number)}.get(name, bases.get(name, 0) + number)


@pytest.fixture(scope="module")
def filled(lake: IcebergFormat) -> LakeTableWriter:
    """Bucket 0 has rows 1 and 2, bucket 1 has 4 and 5, bucket 2 a row of nulls."""
    table_writer = made(lake, spec_of(COLUMNS))
    messages = [table_writer.write([row(1), row(2)], bucket=0), table_writer.write([row(4), row(5)], bucket=1)]
    table_writer.commit(*messages, table_writer.write([dict.fromkeys(COLUMNS)], bucket=2))
    return table_writer


def leaf(filled: LakeTableWriter, function: LeafFunction, name: str, *numbers: int) -> Leaf:
    column = filled.schema.columns[filled.schema.position(name)]
    return Leaf(function, column.column_id, tuple(literal(name, number) for number in numbers))


def planned(filled: LakeTableWriter, predicate: Predicate) -> list[int | None]:
    return [file.bucket_id for file in filled.table.plan_files(schema=filled.schema, predicate=predicate)]


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in ("ts9", "f")])
def test_comparisons_of_every_type_leave_files_out(filled: LakeTableWriter, name: str) -> None:
    function = LeafFunction
    cases = {
        (function.EQUAL, 2): [0],
        (function.EQUAL, 3): [],
        (function.LESS_THAN, 4): [0],
        (function.LESS_OR_EQUAL, 4): [0, 1],
        (function.GREATER_THAN, 2): [1],
        (function.GREATER_OR_EQUAL, 2): [0, 1],
        (function.IN, 1): [0],
    }
    for (each, number), buckets in cases.items():
        assert planned(filled, leaf(filled, each, name, number)) == buckets, (each, number)
    assert planned(filled, leaf(filled, function.IS_NULL, name)) == [2]
    assert planned(filled, leaf(filled, function.IS_NOT_NULL, name)) == [0, 1]


def test_what_the_lake_compares_differently_keeps_all_files(filled: LakeTableWriter) -> None:
    for name, function in itertools.product(("f", "ts9"), (LeafFunction.GREATER_THAN, LeafFunction.EQUAL)):
        assert planned(filled, leaf(filled, function, name, 100)) == [0, 1, 2], "NaN is greater, digits are cut off"
    for function in (LeafFunction.CONTAINS, LeafFunction.ENDS_WITH, LeafFunction.NOT_EQUAL, LeafFunction.NOT_IN):
        assert planned(filled, leaf(filled, function, "s", 9)) == [0, 1, 2]
    assert planned(filled, Leaf(LeafFunction.EQUAL, 0, (None,))) == [0, 1, 2]
    assert planned(filled, Leaf(LeafFunction.EQUAL, 10**6, (1,))) == [0, 1, 2], "a column that is not in the schema"


def test_compounds(filled: LakeTableWriter) -> None:
    one, four = leaf(filled, LeafFunction.EQUAL, "i", 1), leaf(filled, LeafFunction.EQUAL, "s", 4)
    vague = leaf(filled, LeafFunction.CONTAINS, "s", 4)
    assert planned(filled, Compound(CompoundFunction.OR, (one, four))) == [0, 1]
    assert planned(filled, Compound(CompoundFunction.AND, (one, four))) == []
    assert planned(filled, Compound(CompoundFunction.OR, (one, vague))) == [0, 1, 2]
    assert planned(filled, Compound(CompoundFunction.AND, (one, vague))) == [0]
    assert planned(filled, Leaf(LeafFunction.STARTS_WITH, one.column_id + 2, ("s1",))) == [0]
