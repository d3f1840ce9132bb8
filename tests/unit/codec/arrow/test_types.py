"""Fluss types and Arrow types, both ways, and which Arrow types may be written."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given

from fluss.codec.arrow.types import (
    from_arrow_schema,
    from_arrow_type,
    schema_wire_layout,
    to_arrow_schema,
    to_arrow_type,
    wire_layout,
)
from fluss.model import types as t
from fluss.model.schema import Column, Schema
from tests.support.values.arrow_strategies import data_types


@pytest.mark.parametrize(
    ("data_type", "arrow_type"),
    [
        (t.BooleanType(), pa.bool_()),
        (t.TinyIntType(), pa.int8()),
        (t.SmallIntType(), pa.int16()),
        (t.IntType(), pa.int32()),
        (t.BigIntType(), pa.int64()),
        (t.FloatType(), pa.float32()),
        (t.DoubleType(), pa.float64()),
        (t.CharType(3), pa.utf8()),
        (t.StringType(), pa.utf8()),
        (t.BinaryType(5), pa.binary(5)),
        (t.BytesType(), pa.binary()),
        (t.DecimalType(5, 2), pa.decimal128(5, 2)),
        (t.DecimalType(38, 10), pa.decimal128(38, 10)),
        (t.DateType(), pa.date32()),
        (t.ArrayType(t.IntType(nullable=False)), pa.list_(pa.field("element", pa.int32(), False))),
        (t.MapType(t.StringType(), t.IntType()), pa.map_(pa.utf8(), pa.int32())),
        (t.RowType((t.RowField("x", t.IntType()),)), pa.struct([("x", pa.int32())])),
    ],
)
def test_arrow_type_of_each_type(data_type: t.DataType, arrow_type: pa.DataType) -> None:
    assert to_arrow_type(data_type) == arrow_type


def test_unit_of_each_precision() -> None:
    units = ["s", *["ms"] * 3, *["us"] * 3, *["ns"] * 3]
    assert [to_arrow_type(t.TimestampType(p)) for p in range(10)] == [pa.timestamp(unit) for unit in units]
    assert [to_arrow_type(t.TimestampLtzType(p)) for p in range(10)] == [pa.timestamp(unit, "UTC") for unit in units]
    times = [pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit) for unit in units]
    assert [to_arrow_type(t.TimeType(p)) for p in range(10)] == times


@given(data_types())
def test_types_survive_the_way_back(data_type: t.DataType) -> None:
    arrow_type = to_arrow_type(data_type)
    assert to_arrow_type(from_arrow_type(arrow_type)) == arrow_type


def test_wider_arrow_forms_are_understood() -> None:
    assert from_arrow_type(pa.large_utf8()) == t.StringType()
    assert from_arrow_type(pa.string_view()) == t.StringType()
    assert from_arrow_type(pa.large_binary()) == t.BytesType()
    assert from_arrow_type(pa.dictionary(pa.int8(), pa.utf8())) == t.StringType()
    assert from_arrow_type(pa.large_list(pa.int8())) == t.ArrayType(t.TinyIntType())
    assert from_arrow_type(pa.decimal256(20, 3)) == t.DecimalType(20, 3)


@pytest.mark.parametrize("arrow_type", [pa.uint8(), pa.null(), pa.duration("s"), pa.decimal256(40), pa.float16()])
def test_types_without_a_fluss_type(arrow_type: pa.DataType) -> None:
    with pytest.raises(ValueError, match="column 'x'"):
        from_arrow_schema(pa.schema([("x", arrow_type)]))


def test_schemas_both_ways() -> None:
    schema = Schema((Column("id", t.IntType(nullable=False)), Column("name", t.StringType()))).numbered()
    arrow_schema = to_arrow_schema(schema)
    assert arrow_schema == pa.schema([pa.field("id", pa.int32(), False), ("name", pa.utf8())])
    assert from_arrow_schema(arrow_schema) == schema


def test_nodes_and_buffers_of_nested_types() -> None:
    assert wire_layout(pa.int32()) == (1, 2)
    assert wire_layout(pa.utf8()) == (1, 3)
    assert wire_layout(pa.list_(pa.utf8())) == (2, 5)
    assert wire_layout(pa.map_(pa.utf8(), pa.int32())) == (4, 8)
    assert wire_layout(pa.struct([("a", pa.int8()), ("b", pa.binary())])) == (3, 6)
    assert schema_wire_layout(pa.schema([("a", pa.int8()), ("b", pa.list_(pa.bool_()))])) == (3, 6)


@pytest.mark.parametrize(
    "arrow_type",
    [pa.large_utf8(), pa.string_view(), pa.dictionary(pa.int8(), pa.utf8()), pa.decimal256(5), pa.date64(), pa.uint8(),
     pa.list_(pa.large_binary()), pa.large_list(pa.int8())],
)  # fmt: skip
def test_types_that_readers_would_misread_are_refused(arrow_type: pa.DataType) -> None:
    with pytest.raises(ValueError, match="cast"):
        wire_layout(arrow_type)
