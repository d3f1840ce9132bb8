"""Batches between tables and Spark: what is cast, what is refused, and that slices and nested nulls stay right."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from fluss import FlussError
from fluss.spark.arrow import check_types, for_spark, from_spark, spark_arrow_schema


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def one(values: Any, source: pa.DataType, target: pa.DataType, nullable: bool = True) -> list[Any]:
    """The values of one column after `from_spark`."""
    given = pa.RecordBatch.from_arrays([pa.array(values, source)], names=["c"])
    result = from_spark(given, pa.schema([pa.field("c", target, nullable)]))
    assert result.schema.types == [target]
    return list(result.column(0).to_pylist())


def test_equal_schemas_are_passed_on_untouched() -> None:
    given = batch(a=pa.array([1, 2]))
    assert for_spark(given, given.schema) is given
    assert from_spark(given, given.schema) is given


def test_columns_are_found_by_name() -> None:
    target = spark_arrow_schema(
        StructType([StructField("b", StringType()), StructField("a", IntegerType(), nullable=False)])
    )
    given = batch(a=pa.array([1], pa.int32()), x=pa.array([0]), b=pa.array(["t"]))
    result = for_spark(given, target)
    assert result.schema.equals(target)
    assert result.to_pylist() == [{"b": "t", "a": 1}]


def test_nested_values_keep_slices_and_nulls() -> None:
    table_type = pa.list_(
        pa.field("element", pa.struct([pa.field("a", pa.int32(), False), pa.field("t", pa.time32("s"))]))
    )
    spark_type = pa.list_(
        pa.field("element", pa.struct([pa.field("a", pa.int32(), False), pa.field("t", pa.time64("ns"))]))
    )
    values = [[{"a": 1, "t": 5}], None, [], [None, {"a": 2, "t": None}], [{"a": 3, "t": 7}]]
    whole = pa.RecordBatch.from_arrays([pa.array(values, table_type)], names=["c"])
    for start in range(len(values)):
        part = whole.slice(start, 3)
        result = for_spark(part, pa.schema([pa.field("c", spark_type)]))
        result.validate(full=True)
        back = from_spark(result, part.schema)
        assert back.to_pylist() == part.to_pylist()


def test_maps_keep_slices_and_nulls() -> None:
    table_type = pa.map_(pa.utf8(), pa.field("value", pa.timestamp("ms", "UTC")))
    spark_type = pa.map_(pa.utf8(), pa.field("value", pa.timestamp("us", "UTC")))
    whole = pa.RecordBatch.from_arrays([pa.array([[("a", 1)], None, [("b", None), ("c", 3)]], table_type)], names=["c"])
    part = whole.slice(1)
    result = for_spark(part, pa.schema([pa.field("c", spark_type)]))
    result.validate(full=True)
    assert result.column(0).type == spark_type
    assert from_spark(result, part.schema).to_pylist() == part.to_pylist()


def test_points_in_time_of_any_zone_become_utc() -> None:
    given = pa.array([0], pa.timestamp("us", "Asia/Tokyo"))
    result = from_spark(batch(c=given), pa.schema([("c", pa.timestamp("ms", "UTC"))]))
    assert result.column(0).cast(pa.int64()).to_pylist() == [0]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_are_cut_to_the_earlier_one(unit: str) -> None:
    last_microsecond = pa.array([-1, 999_999], pa.timestamp("us"))
    result = from_spark(batch(c=last_microsecond), pa.schema([("c", pa.timestamp(unit))]), "truncate")
    digits = {"s": 0, "ms": 3, "us": 6}[unit]
    assert result.column(0).cast(pa.int64()).to_pylist() == [-1, 10**digits - 1]
    if unit != "us":
        with pytest.raises(FlussError, match=r"does not fit .* digits finer"):
            from_spark(batch(c=last_microsecond), pa.schema([("c", pa.timestamp(unit))]))
        with pytest.raises(FlussError, match="a key is not cut off"):
            from_spark(batch(c=last_microsecond), pa.schema([("c", pa.timestamp(unit))]), "truncate", ("c",))


def test_whole_numbers_fit_or_fail() -> None:
    assert one([1, None, -128], pa.int64(), pa.int8()) == [1, None, -128]
    with pytest.raises(FlussError, match=r"column 'c' is int8 in the table, and a value does not fit 128: "):
        one([128], pa.int64(), pa.int8())


def test_numbers_of_other_types_fit_or_fail() -> None:
    assert one([0.5, None], pa.float64(), pa.float32()) == [0.5, None]
    assert one([1.99], pa.float64(), pa.decimal128(10, 2)) == [decimal.Decimal("1.99")]
    assert one([5], pa.int64(), pa.decimal128(10, 2)) == [decimal.Decimal("5.00")]
    for source, value, target in (
        (pa.float64(), 1e39, pa.float32()),
        (pa.float64(), 1.999, pa.decimal128(10, 2)),
        (pa.int64(), 2**53 + 1, pa.float64()),
    ):
        with pytest.raises(FlussError, match="a value does not fit"):
            one([value], source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.float64(), pa.int32()),
        (pa.utf8(), pa.int32()),
        (pa.int32(), pa.utf8()),
        (pa.int64(), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.bool_(), pa.int8()),
        (pa.list_(pa.int32()), pa.int32()),
    ],
)
def test_other_types_are_refused_before_any_row_is_there(source: pa.DataType, target: pa.DataType) -> None:
    with pytest.raises(FlussError, match=r"column 'c' is .* in the table, but the rows have .*: cast it first"):
        check_types(pa.schema([("c", source)]), pa.schema([("c", target)]))


def test_nulls_where_none_may_be() -> None:
    with pytest.raises(FlussError, match=r"column 'c' is NOT NULL, but 1 of 2 values are null"):
        one([1, None], pa.int32(), pa.int64(), nullable=False)
    inner = pa.struct([pa.field("a", pa.int32(), False)])
    loose = pa.struct([pa.field("a", pa.int32())])
    assert one([{"a": 1}, None], loose, inner) == [{"a": 1}, None]
    with pytest.raises(FlussError, match=r"column 'c', field 'a' is NOT NULL"):
        one([{"a": None}], loose, inner)


def test_structs_must_have_the_same_fields_in_order() -> None:
    with pytest.raises(FlussError, match=r"column 'c' has the fields b, a, but the table has a, b"):
        one([], pa.struct([("b", pa.int32()), ("a", pa.int32())]), pa.struct([("a", pa.int32()), ("b", pa.int64())]))


def test_names_must_fit() -> None:
    target = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    with pytest.raises(FlussError, match=r"lack b and have c, which the table does not have: .* are a, b"):
        check_types(pa.schema([("a", pa.int32()), ("c", pa.int32())]), target)
    with pytest.raises(FlussError, match="a column twice: a"):
        check_types(pa.schema([("a", pa.int32()), ("a", pa.int32())]), target)
