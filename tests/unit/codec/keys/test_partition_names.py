"""Partition names and the texts of values, as Java prints them."""

from __future__ import annotations

import math
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.codec.keys.java_strings import decimal_text, float_text, instant_text, local_date_time_text
from fluss.codec.keys.partition_names import (
    check_partition_value,
    partition_name,
    partition_names,
    partition_value_text,
    qualified_name,
    split_partition_name,
)
from fluss.codec.keys.partition_values import partition_value
from fluss.codec.rows.values import RowValueError
from fluss.model import types as t


@pytest.mark.parametrize(
    ("value", "data_type", "text"),
    [
        ("Fluss", t.StringType(), "Fluss"),
        ("F", t.CharType(3), "F"),
        (True, t.BooleanType(), "true"),
        (False, t.BooleanType(), "false"),
        (-32760, t.SmallIntType(), "-32760"),
        (7, t.TinyIntType(), "7"),
        (2**31 - 1, t.IntType(), "2147483647"),
        (-(2**63), t.BigIntType(), "-9223372036854775808"),
        (bytes.fromhex("1020304050ff"), t.BytesType(), "1020304050ff"),
        (b"\x01", t.BinaryType(4), "01"),
        (20235, t.DateType(), "2025-05-27"),
        (-719162, t.DateType(), "0001-01-01"),
        (5402199, t.TimeType(), "01-30-02_199"),
        (0, t.TimeType(), "00-00-00_000"),
        ((1748662955428, 99988), t.TimestampType(9), "2025-05-31-03-42-35_428099988"),
        ((1698235273182, 0), t.TimestampType(3), "2023-10-25-12-01-13_182"),
        ((1698235273500, 0), t.TimestampLtzType(3), "2023-10-25-12-01-13_5"),
        ((1698235273000, 5000), t.TimestampLtzType(9), "2023-10-25-12-01-13_000005"),
        ((1698235273000, 0), t.TimestampType(0), "2023-10-25-12-01-13_"),
        ((-1, 0), t.TimestampType(3), "1969-12-31-23-59-59_999"),
        (math.nan, t.DoubleType(), "NaN"),
        (math.inf, t.FloatType(), "Inf"),
        (-math.inf, t.DoubleType(), "-Inf"),
        (1.0, t.DoubleType(), "1_0"),
        (5.73, t.DoubleType(), "5_73"),
        (5.73, t.FloatType(), "5_73"),
        (9999999.0, t.DoubleType(), "9999999_0"),
        (-0.0, t.DoubleType(), "-0_0"),
        (1e7, t.FloatType(), "1_0E7"),
        (1e10, t.DoubleType(), "1_0E10"),
        (1e-5, t.DoubleType(), "1_0E-5"),
    ],
)
def test_value_texts(value: Any, data_type: t.DataType, text: str) -> None:
    assert repr(partition_value(text, data_type)) == repr(value)
    assert partition_value_text(value, data_type) == text


@pytest.mark.parametrize(
    ("value", "single", "text"),
    [
        # as printed by a Java virtual machine
        (0.001, False, "0.001"),
        (9.99e-4, False, "9.99E-4"),
        (123456789.125, False, "1.23456789125E8"),
        (5e-324, False, "4.9E-324"),
        (2.2250738585072014e-308, False, "2.2250738585072014E-308"),
        (1.7976931348623157e308, False, "1.7976931348623157E308"),
        (1234567.891, False, "1234567.891"),
        (1234567.891, True, "1234567.9"),
        (0.00123, True, "0.00123"),
        (3e-44, True, "2.9E-44"),
        (100.0, True, "100.0"),
        (9007199254740992.0, False, "9.007199254740992E15"),
        (math.inf, False, "Infinity"),
        (-math.inf, True, "-Infinity"),
        (0.0, True, "0.0"),
    ],
)
def test_float_texts(value: float, single: bool, text: str) -> None:
    assert float_text(value, single) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_float_texts_read_back(value: float) -> None:
    assert float(float_text(value, False)) == value


@pytest.mark.parametrize(
    ("millis", "nanos", "local", "instant"),
    [
        (0, 0, "1970-01-01T00:00", "1970-01-01T00:00:00Z"),
        (60000, 0, "1970-01-01T00:01", "1970-01-01T00:01:00Z"),
        (0, 100000, "1970-01-01T00:00:00.000100", "1970-01-01T00:00:00.000100Z"),
        (-1, 99988, "1969-12-31T23:59:59.999099988", "1969-12-31T23:59:59.999099988Z"),
        (1698235273500, 0, "2023-10-25T12:01:13.500", "2023-10-25T12:01:13.500Z"),
    ],
)
def test_instant_texts(millis: int, nanos: int, local: str, instant: str) -> None:
    assert local_date_time_text(millis, nanos) == local
    assert instant_text(millis, nanos) == instant


def test_decimal_texts() -> None:
    assert [decimal_text(number, 2) for number in (0, 5, -5, 12345)] == ["0.00", "0.05", "-0.05", "123.45"]


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        (None, t.StringType()),
        (1, t.StringType()),
        ("1", t.IntType()),
        (2**31, t.IntType()),
        (1, t.BooleanType()),
        ("x", t.BytesType()),
        (86_400_000, t.TimeType()),
        (2**31 - 1, t.DateType()),
        ((2**62, 0), t.TimestampType()),
        (1, t.TimestampType()),
        (1, t.DecimalType(5, 0)),
        ([1], t.ArrayType(t.IntType())),
    ],
)
def test_values_without_a_text(value: Any, data_type: t.DataType) -> None:
    with pytest.raises(RowValueError):
        partition_value_text(value, data_type)


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        ("yes", t.BooleanType()),
        ("1.5", t.DoubleType()),
        ("infinity", t.DoubleType()),
        ("+1", t.IntType()),
        ("2025-13-01", t.DateType()),
        ("1-30-02_199", t.TimeType(3)),
        ("2025-05-31-24-00-00_", t.TimestampType(6)),
        ("xy", t.BytesType()),
        ("1", t.DecimalType(10, 0)),
    ],
)
def test_texts_without_a_value(text: str, data_type: t.DataType) -> None:
    with pytest.raises(ValueError, match=re.escape(str(data_type))):
        partition_value(text, data_type)


def test_texts_of_pyfluss_have_the_same_values() -> None:
    assert partition_value("2023-10-25-12-01-13_500", t.TimestampType(6)) == (1698235273500, 0)
    assert partition_value("1", t.DoubleType()) == 1.0


def test_names_of_several_keys() -> None:
    types = [t.StringType(), t.DateType()]
    assert partition_name(["eu", 20235], types) == "eu$2025-05-27"
    assert split_partition_name("eu$2025-05-27", ["region", "day"]) == {"region": "eu", "day": "2025-05-27"}
    assert qualified_name("eu$2025-05-27", ["region", "day"]) == "region=eu/day=2025-05-27"
    with pytest.raises(ValueError, match="has 1 values"):
        split_partition_name("eu", ["region", "day"])
    with pytest.raises(RowValueError, match="2 partition keys, got 1 values"):
        partition_name(["eu"], types)


def test_names_of_columns() -> None:
    types = [t.StringType(), t.DateType()]
    columns = [pa.array(["eu", "us", "eu"]), pa.array([20235, 20236, 20235], pa.date32())]
    assert partition_names(columns, types).to_pylist() == ["eu$2025-05-27", "us$2025-05-28", "eu$2025-05-27"]
    assert partition_names(columns[:1], types[:1]).to_pylist() == ["eu", "us", "eu"]
    with pytest.raises(RowValueError, match="null"):
        partition_names([pa.array(["a", None])], types[:1])
    with pytest.raises(RowValueError, match="partition keys, got"):
        partition_names([], [])


def test_values_that_the_server_takes() -> None:
    for text in ("a", "A-z_09", "x" * 200, "__later"):
        check_partition_value(text, creating=False)
    for text in ("", "x" * 201, "a b", "a.b", "..", "a$b", "\u00e9", "a\n"):
        with pytest.raises(ValueError, match="partition value"):
            check_partition_value(text, creating=False)
    with pytest.raises(ValueError, match="reserved"):
        check_partition_value("__later", creating=True)
