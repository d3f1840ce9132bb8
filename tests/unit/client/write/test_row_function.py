"""Rows are checked at the call: what is accepted, what is stored, what the error says."""

from __future__ import annotations

import datetime
import decimal
import math
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.client.fitting import FitRules, UnfitValueError, fit_of
from fluss.client.fitting.strings import is_encodable
from fluss.client.fitting.times import MAX_NANOSECOND_DATETIME, MIN_NANOSECOND_DATETIME
from fluss.client.input.row_columns import ColumnMaker
from fluss.client.write.row_function import RowRules, make_append, value_bytes
from fluss.errors import FlussError
from fluss.model import types as t
from fluss.model.schema import Column, Schema

UTC = datetime.UTC
TYPES: list[t.DataType] = [
    t.BooleanType(), t.TinyIntType(), t.SmallIntType(), t.IntType(), t.BigIntType(), t.FloatType(), t.DoubleType(),
    t.CharType(5), t.StringType(), t.BinaryType(3), t.BytesType(), t.DecimalType(6, 2), t.DateType(), t.TimeType(0),
    t.TimeType(3), t.TimeType(6), t.TimeType(9), t.TimestampType(0), t.TimestampType(3), t.TimestampType(6),
    t.TimestampType(9), t.TimestampLtzType(0), t.TimestampLtzType(3), t.TimestampLtzType(6), t.TimestampLtzType(9),
    t.ArrayType(t.IntType()), t.MapType(t.StringType(), t.BigIntType()),
    t.RowType((t.RowField("a", t.IntType()), t.RowField("b", t.StringType()))),
]  # fmt: skip
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-300, 300),
    st.floats(),
    st.text(),
    st.sampled_from(["\ud800", "é", "x" * 2000]),
    st.binary(max_size=5),
    st.decimals(),
    st.dates(),
    st.times(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.lists(st.integers(-5, 5), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(0, 5), max_size=2),
    st.sampled_from([np.int8(3), np.float32(1.5), np.bool_(True), np.str_("n"), np.datetime64("2020-01-01"), object()]),
)


class Sink:
    """A row buffer without anything behind it."""

    def __init__(self) -> None:
        self.flat: list[Any] = []
        self.limit = 1 << 60
        self.handle: Any = object()
        self.idle = False
        self.large_bytes = 0

    def make_room(self) -> None: ...
    def settled(self) -> Any: ...
    def raced(self, handle: Any) -> Any: ...
    def kick(self) -> None: ...

    def add_large(self, size_bytes: int) -> None:
        self.large_bytes += size_bytes


def schema_of(*data_types: t.DataType) -> Schema:
    return Schema(tuple(Column(f"c{index}", data_type) for index, data_type in enumerate(data_types)))


def appended(schema: Schema, *rows: Any) -> Any:
    """Rows through the generated function into a record batch."""
    rules, sink = RowRules("db.t", schema), Sink()
    append = make_append(rules, sink)
    for row in rows:
        append(row)
    return ColumnMaker(schema).record_batch(sink.flat, rules.saw_null)


def error_of(schema: Schema, row: Any) -> str:
    with pytest.raises(FlussError) as caught:
        appended(schema, row)
    return caught.value.message


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@given(value=ANYTHING)
def test_the_fast_path_agrees_with_the_checker(data_type: t.DataType, value: Any) -> None:
    """The generated function stores exactly what the complete check stores, and Arrow takes it."""
    schema = schema_of(data_type)
    rules, sink = RowRules("db.t", schema), Sink()
    try:
        expected: Any = rules.check((value,))
    except FlussError:
        expected = None
    try:
        make_append(rules, sink)((value,))
        stored: Any = tuple(sink.flat)
    except FlussError:
        stored = None
    assert repr(stored) == repr(expected)
    if stored is not None:
        batch = ColumnMaker(schema).record_batch(sink.flat, rules.saw_null)
        assert batch.num_rows == 1
        assert (batch.column(0)[0].is_valid) == (value is not None)


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@given(value=ANYTHING, truncate=st.booleans())
def test_a_fast_condition_accepts_only_what_is_stored_unchanged(
    data_type: t.DataType, value: Any, truncate: bool
) -> None:
    fit = fit_of(data_type, FitRules("truncate" if truncate else "error"))
    condition = fit.condition("v")
    if condition is None or value is None:
        return

    scope = {
        "date": datetime.date, "datetime": datetime.datetime, "v": value,
        "encodable": is_encodable, "min_ns": MIN_NANOSECOND_DATETIME, "max_ns": MAX_NANOSECOND_DATETIME,
    }  # fmt: skip
    if eval(condition, scope):
        assert fit.value(value) is value


def test_values_become_columns() -> None:
    schema = schema_of(
        t.IntType(), t.StringType(), t.FloatType(), t.DecimalType(6, 2), t.DateType(), t.TimeType(3),
        t.TimestampType(3), t.TimestampLtzType(6), t.ArrayType(t.IntType()), t.MapType(t.StringType(), t.IntType()),
        t.RowType((t.RowField("a", t.IntType()), t.RowField("b", t.TimestampType(6)))), t.TimestampType(0),
    )  # fmt: skip
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
    values = [
        np.int16(7), np.str_("né"), 3, decimal.Decimal("1.5"), datetime.date(2020, 2, 3),
        datetime.time(1, 2, 3, 456000), moment.replace(microsecond=678000),
        moment.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        (1, None, 3), {"k": 1}, [4, moment], datetime.datetime(1969, 12, 31, 23, 59, 58),
    ]  # fmt: skip
    batch = appended(schema, values, dict(zip(schema.column_names, values, strict=True)), {})
    assert batch.to_pylist()[0] == batch.to_pylist()[1]
    assert list(batch.to_pylist()[0].values()) == [
        7, "né", 3.0, decimal.Decimal("1.50"), datetime.date(2020, 2, 3), datetime.time(1, 2, 3, 456000),
        moment.replace(microsecond=678000), (moment - datetime.timedelta(hours=1)).replace(tzinfo=UTC),
        [1, None, 3], [("k", 1)], {"a": 4, "b": moment},
        datetime.datetime(1969, 12, 31, 23, 59, 58),
    ]  # fmt: skip
    assert set(batch.to_pylist()[2].values()) == {None}


def test_nulls_of_numbers_stay_nulls() -> None:
    schema = schema_of(t.DoubleType(), t.FloatType(), t.BigIntType(), t.BooleanType(), t.TimeType(0))
    batch = appended(schema, [1.0, 1.0, 1, True, datetime.time()], [None] * 5, {"c0": math.nan})
    assert [column.null_count for column in batch.columns] == [1, 2, 2, 2, 2]
    assert math.isnan(batch.column(0)[2].as_py())


def test_rows_of_all_forms_are_accepted() -> None:
    schema = schema_of(t.IntType(), t.StringType())
    rows: list[Any] = [{"c1": "a", "c0": 1}, {"c0": 2}, (3, "c"), [4, None], MappingProxyType({"c0": 5})]
    assert appended(schema, *rows).column(0).to_pylist() == [1, 2, 3, 4, 5]


def test_a_row_may_be_changed_after_the_call() -> None:
    schema = schema_of(t.ArrayType(t.IntType()), t.MapType(t.StringType(), t.IntType()))
    rules, sink = RowRules("db.t", schema), Sink()
    row: dict[str, Any] = {"c0": [1, 2], "c1": {"a": 1}}
    make_append(rules, sink)(row)
    row["c0"].append(3)
    row["c1"]["b"] = 2
    row["c0"] = []
    assert ColumnMaker(schema).record_batch(sink.flat, rules.saw_null).to_pylist() == [{"c0": [1, 2], "c1": [("a", 1)]}]


@pytest.mark.parametrize(
    ("data_type", "value", "reason"),
    [
        (t.IntType(), 2**31, "outside -2147483648 to 2147483647"),
        (t.TinyIntType(), -129, "outside -128 to 127"),
        (t.IntType(), True, "not an int"),
        (t.IntType(), 1.5, "not a whole number"),
        (t.IntType(), decimal.Decimal("1.5"), "not a whole number"),
        (t.IntType(), "1", "not an int"),
        (t.BooleanType(), 1, "not a bool"),
        (t.FloatType(), 1e39, "too large"),
        (t.DoubleType(), 10**320, "too large"),
        (t.DoubleType(), 2**53 + 1, "pass a float"),
        (t.FloatType(), 2**24 + 1, "pass a float"),
        (t.DoubleType(), "1", "not a float"),
        (t.CharType(3), "abcd", "4 characters, but the column holds at most 3"),
        (t.StringType(), b"x", "not a str"),
        (t.StringType(), "\ud800", "surrogate"),
        (t.BytesType(), "x", "not bytes"),
        (t.BinaryType(3), b"xx", "has 2 bytes, not exactly 3"),
        (t.DecimalType(4, 2), decimal.Decimal("99.995"), "more than 2 digits after the point"),
        (t.DecimalType(4, 2), decimal.Decimal("100"), "more than 2 digits before the point"),
        (t.DecimalType(4, 2), decimal.Decimal("1e30"), "more than 2 digits"),
        (t.DecimalType(4, 2), decimal.Decimal("NaN"), "finite"),
        (t.DecimalType(4, 2), "1.5", "not a decimal.Decimal"),
        (t.DateType(), datetime.datetime(2020, 1, 1, 1), "time of day"),
        (t.TimeType(0), datetime.time(tzinfo=UTC), "time zone"),
        (t.TimestampType(6), datetime.datetime(2020, 1, 1, tzinfo=UTC), "time zone"),
        (t.TimestampType(6), datetime.date(2020, 1, 1), "not a datetime.datetime"),
        (t.TimestampType(9), datetime.datetime(3000, 1, 1), "1677 to 2262"),
        (t.ArrayType(t.IntType()), [1, "x"], "an element (INT) does not fit 'x'"),
        (t.ArrayType(t.IntType().not_null()), [None], "must not be null"),
        (t.ArrayType(t.IntType()), "12", "not a list"),
        (t.MapType(t.StringType(), t.IntType()), {None: 1}, "a key must not be null"),
        (t.MapType(t.StringType(), t.IntType()), [1], "list of pairs"),
        (t.RowType((t.RowField("a", t.IntType()),)), {"b": 1}, "no field 'b'"),
        (t.RowType((t.RowField("a", t.IntType()),)), [1, 2], "2 values, but the type has 1 fields"),
    ],
    ids=str,
)
def test_an_error_names_column_type_value_and_reason(data_type: t.DataType, value: Any, reason: str) -> None:
    message = error_of(schema_of(t.StringType(), data_type), {"c1": value})
    assert "db.t" in message
    assert f"column 'c1' expects {data_type}, got {repr(value)[:100]}" in message
    assert reason in message


def test_rows_of_the_wrong_shape_are_refused() -> None:
    schema = schema_of(t.IntType(), t.StringType().not_null())
    assert "no column 'c2'; its columns are c0, c1" in error_of(schema, {"c0": 1, "c1": "x", "c2": 2})
    assert "no column 'C0'" in error_of(schema, {"C0": 1, "c1": "x"})
    assert "3 values, but there are 2 columns" in error_of(schema, (1, "x", 2))
    assert "1 values, but there are 2 columns" in error_of(schema, [1])
    assert "a dict, list or tuple, got 'ab'" in error_of(schema, "ab")
    assert "column 'c1' (STRING NOT NULL) is NOT NULL" in error_of(schema, {"c0": 1})
    assert error_of(schema, {"c0": 1}).endswith("has no value for it: write a value")
    with pytest.raises(FlussError, match=r"column 'c0' \(INT\) decides where a row goes .* for it: write a value"):
        RowRules("db.t", schema, required=("c0",)).check((None, "x"))


def test_names_of_columns_never_become_source() -> None:
    names = ["row", "s", "if", "x'); raise SystemExit('", "f", "é\n", "type"]
    schema = Schema(tuple(Column(name, t.IntType()) for name in names))
    row = {name: index for index, name in enumerate(names)}
    assert appended(schema, row).to_pylist() == [row]


def test_long_values_are_counted() -> None:
    schema = schema_of(t.StringType(), t.ArrayType(t.StringType()))
    rules, sink = RowRules("db.t", schema), Sink()
    append = make_append(rules, sink)
    append(["x" * 10, ["y"]])
    assert sink.large_bytes == 0
    append(["x" * 5000, ["y" * 100]])
    assert 5100 <= sink.large_bytes < 5200
    assert value_bytes({"a": b"123"}) >= 3


def test_unfit_values_say_so_without_context() -> None:
    with pytest.raises(UnfitValueError, match=r"^it is not an int: convert it first$"):
        fit_of(t.IntType()).value("1")


def test_the_record_batch_has_the_tables_schema() -> None:
    schema = schema_of(*TYPES)
    batch = appended(schema, {})
    assert batch.schema.types == ColumnMaker(schema).arrow_schema.types
    assert isinstance(batch, pa.RecordBatch)
