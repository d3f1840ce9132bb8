"""Batches between tables and Spark: casts, refused values, and correct slices and nested nulls."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from fluss import FlussError
from fluss.client.fitting import FitRules
from fluss.codec.arrow.types import from_arrow_type, to_arrow_type
from fluss.codec.rows.columns import RowFormat
from fluss.model import types as t
from fluss.model.schema import Column, Schema
from fluss.spark.convert.arrow import SparkInput, check_types, for_spark, spark_arrow_schema
from fluss.spark.options.parsing import NanosAs

PLAIN = FitRules()
CUT = FitRules("truncate")


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def into(data_type: t.DataType, nanos_as: NanosAs = "microseconds", rules: FitRules = PLAIN, **more: Any) -> SparkInput:
    """The input of a table with one column `c`."""
    return SparkInput("db.t", Schema((Column("c", data_type),)), nanos_as, rules, **more)


def one(values: Any, source: pa.DataType, data_type: t.DataType) -> list[Any]:
    """Convert the values of one column from Spark."""
    result = into(data_type).rows([pa.array(values, source)])
    result.validate(full=True)
    assert result.schema.types == [to_arrow_type(data_type)]
    return list(result.column(0).to_pylist())


def test_equal_schemas_are_passed_on_untouched() -> None:
    given = batch(a=pa.array([1, 2]))
    assert for_spark(given, given.schema) is given
    assert (
        into(t.BigIntType()).rows(given.columns).column(0).buffers()[1].address == given.column(0).buffers()[1].address
    )


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
        back = into(from_arrow_type(table_type)).rows(result.columns)
        assert back.to_pylist() == part.to_pylist()


def test_maps_keep_slices_and_nulls() -> None:
    table_type = pa.map_(pa.utf8(), pa.field("value", pa.timestamp("ms", "UTC")))
    spark_type = pa.map_(pa.utf8(), pa.field("value", pa.timestamp("us", "UTC")))
    whole = pa.RecordBatch.from_arrays([pa.array([[("a", 1)], None, [("b", None), ("c", 3)]], table_type)], names=["c"])
    part = whole.slice(1)
    result = for_spark(part, pa.schema([pa.field("c", spark_type)]))
    result.validate(full=True)
    assert result.column(0).type == spark_type
    assert into(from_arrow_type(table_type)).rows(result.columns).to_pylist() == part.to_pylist()


@pytest.mark.parametrize("kind", ["list", "map", "struct"])
def test_invisible_values_are_not_refused(kind: str) -> None:
    """Outside of a slice, and under nulls, any value may occur: here seconds that microseconds cannot hold."""
    far, mask = 2**62, pa.array([False, False, True, False])
    seconds = pa.array([far, 1, far, 2], pa.timestamp("s"))
    offsets = pa.array([0, 1, 2, 3, 4], pa.int32())
    if kind == "list":
        whole = pa.ListArray.from_arrays(offsets, seconds, mask=mask)
        target = pa.list_(pa.timestamp("us"))
    elif kind == "map":
        whole = pa.MapArray.from_arrays(offsets, pa.array(["a"] * 4), seconds, mask=mask)
        target = pa.map_(pa.string(), pa.timestamp("us"))
    else:
        whole = pa.StructArray.from_arrays([seconds], ["x"], mask=mask)
        target = pa.struct([("x", pa.timestamp("us"))])
    for part in (whole.slice(1), whole.slice(1, 2), whole.slice(2), whole.slice(2, 0), whole.slice(3)):
        result = for_spark(batch(c=part), pa.schema([("c", target)]))
        result.validate(full=True)
        assert result.column(0).to_pylist() == part.to_pylist()
    with pytest.raises(FlussError, match="cannot be read as"):
        for_spark(batch(c=whole), pa.schema([("c", target)]))


def test_points_in_time_of_any_zone_become_utc() -> None:
    given = pa.array([0], pa.timestamp("us", "Asia/Tokyo"))
    result = into(t.TimestampLtzType(3)).rows([given])
    assert result.column(0).cast(pa.int64()).to_pylist() == [0]


@pytest.mark.parametrize("digits", [0, 3, 6])
def test_times_are_cut_to_the_earlier_time(digits: int) -> None:
    data_type, last_microsecond = t.TimestampType(digits), pa.array([-1, 999_999], pa.timestamp("us"))
    result = into(data_type, rules=CUT).rows([last_microsecond])
    assert result.column(0).cast(pa.int64()).to_pylist() == [-1, 10**digits - 1]
    if digits < 6:
        with pytest.raises(FlussError, match="in row 0: it has digits finer"):
            into(data_type).rows([last_microsecond])
        with pytest.raises(FlussError, match="keys are never cut off"):
            into(data_type, rules=CUT, keys=["c"]).rows([last_microsecond])


def test_an_error_has_column_type_row_value_and_what_to_do() -> None:
    given = into(t.DecimalType(10, 2), rules=FitRules(cutting_option="the option onExtraDigits=truncate"))
    given.rows([pa.array([1.5, 2.5])])
    with pytest.raises(FlussError) as caught:
        given.rows([pa.array([1.25, 1.999])])
    assert caught.value.message == (
        "the rows do not fit table db.t: column 'c' expects DECIMAL(10, 2), got 1.999 (double) in row 3: it has more "
        "than 2 digits after the point: round it first, or write with the option onExtraDigits=truncate"
    )


def test_rows_hold_less_than_arrow_does() -> None:
    """Values that a table of rows cannot hold are refused, or cut, before anything is sent."""
    micros = pa.array([1_234_567], pa.time64("us"))
    assert into(t.TimeType(6)).rows([micros]).column(0).cast(pa.int64()).to_pylist() == [1_234_567]
    with pytest.raises(FlussError, match="digits finer than the milliseconds"):
        into(t.TimeType(6), rules=FitRules(row_format=RowFormat.COMPACTED)).rows([micros])
    cut = into(t.TimeType(6), rules=FitRules("truncate", RowFormat.INDEXED)).rows([micros])
    assert cut.column(0).cast(pa.int64()).to_pylist() == [1_234_000]
    assert one(["abc", "äöü", ""], pa.string(), t.CharType(3)) == ["abc", "äöü", ""]
    with pytest.raises(FlussError, match=r"expects CHAR\(3\), got 'abcd' \(string\) in row 1: it has more characters"):
        one(["abc", "abcd"], pa.string(), t.CharType(3))
    with pytest.raises(FlussError, match="more bytes than 3"):
        into(t.CharType(3), rules=FitRules(row_format=RowFormat.INDEXED)).rows([pa.array(["äöü"])])


def test_numbers_are_nanoseconds_with_the_option() -> None:
    nested = t.ArrayType(t.RowType((t.RowField("at", t.TimestampType(9)),)))
    for data_type, source in (
        (t.TimestampType(9), pa.int64()),
        (t.TimestampLtzType(7), pa.int64()),
        (t.TimeType(9), pa.int64()),
        (nested, pa.list_(pa.struct([("at", pa.int64())]))),
    ):
        with pytest.raises(FlussError, match=r"nanosAs=bigint return, need that option here too"):
            check_types(pa.schema([("c", source)]), Schema((Column("c", data_type),)))
        values = pa.array([1_000_000_001], source) if source == pa.int64() else pa.array([None, [{"at": 7}]], source)
        made = into(data_type, "bigint").rows([values]).column(0)
        assert made.cast(source).equals(values)
    with pytest.raises(FlussError, match=r"TIMESTAMP\(6\) in the table, but the rows have int64: cast"):
        into(t.TimestampType(6), "bigint").rows([pa.array([1])])
    with pytest.raises(FlussError, match="not a time of day"):
        into(t.TimeType(9), "bigint").rows([pa.array([-1])])


def test_whole_numbers_fit_or_fail() -> None:
    assert one([1, None, -128], pa.int64(), t.TinyIntType()) == [1, None, -128]
    with pytest.raises(
        FlussError, match=r"column 'c' expects TINYINT, got 128 \(int64\) in row 0: it is outside -128 to"
    ):
        one([128], pa.int64(), t.TinyIntType())


def test_numbers_of_other_types_fit_or_fail() -> None:
    assert one([0.5, None], pa.float64(), t.FloatType()) == [0.5, None]
    assert one([1.99], pa.float64(), t.DecimalType(10, 2)) == [decimal.Decimal("1.99")]
    assert one([5], pa.int64(), t.DecimalType(10, 2)) == [decimal.Decimal("5.00")]
    for source, value, data_type in (
        (pa.float64(), 1e39, t.FloatType()),
        (pa.float64(), 1.999, t.DecimalType(10, 2)),
        (pa.int64(), 2**53 + 1, t.DoubleType()),
    ):
        with pytest.raises(FlussError, match="the rows do not fit table"):
            one([value], source, data_type)


@pytest.mark.parametrize(
    ("source", "data_type"),
    [
        (pa.float64(), t.IntType()),
        (pa.utf8(), t.IntType()),
        (pa.int32(), t.StringType()),
        (pa.int64(), t.TimestampType(6)),
        (pa.timestamp("us"), t.TimestampLtzType(6)),
        (pa.bool_(), t.TinyIntType()),
        (pa.list_(pa.int32()), t.IntType()),
    ],
)
def test_other_types_are_refused_before_there_are_rows(source: pa.DataType, data_type: t.DataType) -> None:
    with pytest.raises(FlussError, match=r"column 'c' is .* in the table, but the rows have .*: cast it first"):
        check_types(pa.schema([("c", source)]), Schema((Column("c", data_type),)))


def test_nulls_that_are_not_allowed() -> None:
    with pytest.raises(FlussError, match=r"column 'c' \(BIGINT NOT NULL\) must not be null, but is null in row 1"):
        one([1, None], pa.int32(), t.BigIntType(nullable=False))
    inner = t.RowType((t.RowField("a", t.IntType(nullable=False)),))
    loose = pa.struct([pa.field("a", pa.int32())])
    assert one([{"a": 1}, None], loose, inner) == [{"a": 1}, None]
    with pytest.raises(FlussError, match=r"column 'c' .* field 'a' must not be null"):
        one([{"a": None}], loose, inner)


def test_structs_must_have_the_same_fields_in_order() -> None:
    wanted = t.RowType((t.RowField("a", t.IntType()), t.RowField("b", t.BigIntType())))
    with pytest.raises(FlussError, match=r"column 'c' has the fields b, a, but the table has a, b"):
        one([], pa.struct([("b", pa.int32()), ("a", pa.int32())]), wanted)


def test_names_must_match() -> None:
    target = Schema((Column("a", t.IntType()), Column("b", t.IntType())))
    with pytest.raises(FlussError, match=r"lack b and have c, which the table does not have; .* are a, b"):
        check_types(pa.schema([("a", pa.int32()), ("c", pa.int32())]), target)
    with pytest.raises(FlussError, match="duplicate columns: a"):
        check_types(pa.schema([("a", pa.int32()), ("a", pa.int32())]), target)
