"""Which filters are taken and which are left to Spark, and the keys from equalities."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    Not,
    StringContains,
)

from fluss.model.schema import Column, Schema
from fluss.model.types import (
    ArrayType,
    BigIntType,
    DateType,
    DecimalType,
    DoubleType,
    IntType,
    RowField,
    RowType,
    StringType,
    TimestampType,
    TimeType,
    TinyIntType,
)
from fluss.spark.read.partition_pruning import matching, readable_columns
from fluss.spark.read.pushdown import MAX_LOOKUP_KEYS, push
from fluss.values.basic import PartitionInfo, PartitionSpec

COLUMNS = {
    "id": BigIntType(),
    "tiny": TinyIntType(),
    "x": DoubleType(),
    "name": StringType(),
    "price": DecimalType(10, 2),
    "day": DateType(),
    "nanos": TimestampType(9),
    "millis": TimestampType(3),
    "clock": TimeType(3),
    "tags": ArrayType(StringType()),
    "point": RowType((RowField("a", IntType()),)),
}
SCHEMA = Schema(
    tuple(Column(name, data_type, column_id=number) for number, (name, data_type) in enumerate(COLUMNS.items()))
)
NAN = float("nan")

TAKEN: list[Filter] = [
    EqualTo(("id",), 3),
    EqualNullSafe(("id",), None),
    Not(EqualNullSafe(("id",), 3)),
    GreaterThan(("x",), 1.5),
    In(("name",), ("a", None, "b")),
    Not(In(("id",), (1, 2))),
    IsNull(("tags",)),
    IsNotNull(("nanos",)),
    EqualTo(("price",), Decimal("1.50")),
    LessThan(("day",), datetime.date(2026, 1, 1)),
    EqualTo(("millis",), datetime.datetime(2026, 1, 1)),
    Not(StringContains(("name",), "x")),
]
REFUSED: list[Filter] = [
    EqualTo(("point", "a"), 3),
    EqualTo(("x",), NAN),
    LessThan(("x",), NAN),
    In(("x",), (1.0, NAN)),
    Not(In(("id",), (1, None))),
    In(("id",), (None,)),
    EqualTo(("tiny",), 1000),
    EqualTo(("price",), Decimal("1.005")),
    EqualTo(("nanos",), datetime.datetime(2026, 1, 1)),
    EqualTo(("millis",), datetime.datetime(2026, 1, 1, microsecond=1)),
    EqualTo(("clock",), datetime.time(1)),
    EqualTo(("tags",), ["a"]),
    EqualTo(("missing",), 1),
    EqualTo(("_log_offset",), 1),
]


@pytest.mark.parametrize("each", TAKEN, ids=repr)
def test_taken(each: Filter) -> None:
    pushed = push([each], SCHEMA, SCHEMA.column_names)
    assert pushed.refused == ()
    assert pushed.predicate is not None


@pytest.mark.parametrize("each", REFUSED, ids=repr)
def test_left_to_spark(each: Filter) -> None:
    pushed = push([each], SCHEMA, SCHEMA.column_names)
    assert pushed.refused == (each,)
    assert pushed.refused[0] is each, "Spark knows its filters by identity"
    assert pushed.predicate is None


def test_a_filter_on_a_column_that_is_not_read_is_left_to_spark() -> None:
    assert push([EqualTo(("id",), 3)], SCHEMA, ["name"]).refused == (EqualTo(("id",), 3),)


def keys(names: list[str], *filters: Filter) -> Any:
    return push(filters, SCHEMA, SCHEMA.column_names).keys(names)


def test_equalities_become_keys() -> None:
    assert keys(["id"], IsNotNull(("id",)), EqualTo(("id",), 3)) == [(3,)]
    assert keys(["id", "name"], In(("id",), (1, 2, 1, None)), EqualTo(("name",), "a")) == [(1, "a"), (2, "a")]
    assert keys(["id"], EqualTo(("id",), 3), EqualTo(("id",), 4)) == []
    assert keys(["id"], In(("id",), (1, 2)), In(("id",), (2, 3))) == [(2,)]


def test_open_columns_ranges_and_floats_give_no_keys() -> None:
    assert keys(["id", "name"], EqualTo(("id",), 3)) is None
    assert keys(["id"], GreaterThan(("id",), 3)) is None
    assert keys(["x"], EqualTo(("x",), 0.0)) is None, "0.0 and -0.0 are equal, but two keys"
    assert keys(["id"], In(("id",), tuple(range(MAX_LOOKUP_KEYS + 1)))) is None
    assert keys([], EqualTo(("id",), 3)) is None


def partition(number: int, **values: str) -> PartitionInfo:
    return PartitionInfo(number, "$".join(values.values()), PartitionSpec(values))


def chosen(partitions: list[PartitionInfo], *filters: Filter) -> list[int]:
    pushed = push(filters, SCHEMA, SCHEMA.column_names)
    return [each.partition_id for each in matching(partitions, pushed.predicate, SCHEMA)]


def test_partitions_are_chosen_by_the_type_of_their_column() -> None:
    days = [partition(number, day=f"2026-01-0{number}") for number in range(1, 6)]
    assert chosen(days, GreaterThan(("day",), datetime.date(2026, 1, 3))) == [4, 5]
    numbers = [partition(number, id=str(number)) for number in (2, 10, 33)]
    assert chosen(numbers, LessThan(("id",), 11)) == [2, 10], "as numbers, not as strings"
    assert chosen(numbers) == [2, 10, 33]
    assert chosen(numbers, IsNull(("id",))) == []
    two = [partition(1, name="a", id="1"), partition(2, name="b", id="1"), partition(3, name="a", id="2")]
    assert chosen(two, EqualTo(("name",), "a"), Not(EqualTo(("id",), 2))) == [1]


def test_a_partition_whose_name_cannot_be_read_is_kept() -> None:
    assert chosen([partition(1, id="seven")], EqualTo(("id",), 3)) == [1]
    assert readable_columns(SCHEMA, ["name", "x", "millis", "day"]) == ["name", "day"]
