"""Partition values between servers and the Java classes."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from fluss.errors import FlussError
from fluss.model import types
from fluss.model.schema import Column
from fluss.spark.convert.partition_json import texts_from_json, values_to_json
from fluss.spark.options.parsing import NanosAs


def table_by(data_type: types.DataType) -> Any:
    """The needed parts of a table that is partitioned by one column."""
    schema = SimpleNamespace(columns=[Column("p", data_type, None)])
    return SimpleNamespace(schema=schema, partition_keys=["p"], table_path="d.t")


@pytest.mark.parametrize(
    ("data_type", "nanos_as", "from_java", "text", "to_java"),
    [
        (types.StringType(), "microseconds", "eu", "eu", "eu"),
        (types.BooleanType(), "microseconds", True, "true", True),
        (types.BigIntType(), "microseconds", 2**63 - 1, "9223372036854775807", 2**63 - 1),
        (types.FloatType(), "microseconds", 0.1, "0_1", "0.1"),
        (types.DoubleType(), "microseconds", "NaN", "NaN", "NaN"),
        (types.DoubleType(), "microseconds", "-Infinity", "-Inf", "-Infinity"),
        (types.BytesType(), "microseconds", "+/8=", "fbff", "+/8="),
        (types.DateType(), "microseconds", -1, "1969-12-31", -1),
        (types.TimeType(3), "microseconds", 45_005_250_000_000, "12-30-05_250", 45_005_250_000_000),
        (types.TimestampType(6), "microseconds", -1, "1969-12-31-23-59-59_999999", -1),
        (types.TimestampType(6), "bigint", 1_500_001, "1970-01-01-00-00-01_500001", 1_500_001),
        (types.TimestampType(9), "microseconds", 1_500_001, "1970-01-01-00-00-01_500001", 1_500_001),
        (types.TimestampLtzType(9), "bigint", 1_500_000_001, "1970-01-01-00-00-01_500000001", 1_500_000_001),
    ],
)
def test_values_survive_a_round_trip(
    data_type: types.DataType, nanos_as: NanosAs, from_java: Any, text: str, to_java: Any
) -> None:
    info = table_by(data_type)
    assert texts_from_json(info, {"p": from_java}, nanos_as) == {"p": text}
    values = values_to_json(info, {"p": text}, nanos_as)
    assert json.loads(json.dumps(values, allow_nan=False)) == [to_java]


def test_digits_that_spark_cannot_hold_are_cut_on_the_way_to_it() -> None:
    info = table_by(types.TimestampType(9))
    assert values_to_json(info, {"p": "1970-01-01-00-00-01_500000001"}, "microseconds") == [1_500_000]


def test_values_that_a_partition_cannot_have_are_errors() -> None:
    with pytest.raises(FlussError, match=r"'p' of d\.t: a partition value must not be null"):
        texts_from_json(table_by(types.IntType()), {"p": None}, "microseconds")
    with pytest.raises(FlussError, match="partitions have times in milliseconds"):
        texts_from_json(table_by(types.TimeType(6)), {"p": 1_000}, "microseconds")
    with pytest.raises(
        FlussError, match=r"a partition of d\.t cannot be converted for Spark: 'many' is not a partition value"
    ):
        values_to_json(table_by(types.IntType()), {"p": "many"}, "microseconds")
