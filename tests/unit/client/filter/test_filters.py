"""Filters against a plain Python model, row by row, and what is told to the server never loses a row."""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.client.decode.materialize import valid_mask
from fluss.client.filter.filters import RowFilter
from fluss.codec.arrow.compression import NO_COMPRESSION
from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.arrow_batch import encode_arrow_batch
from fluss.codec.batches.log_batch import read_header
from fluss.codec.batches.pruning import BatchFilter
from fluss.codec.filters.predicate import CompoundFunction, LeafFunction, read_predicate
from fluss.errors import FlussError
from fluss.model import types as t
from fluss.model.schema import Column, Schema
from fluss.values.predicates import Combination, Comparison, Negation, Predicate, col

UTC = dt.UTC
EPOCH, EPOCH_UTC = dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1, tzinfo=UTC)
MICRO = dt.timedelta(microseconds=1)


def float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


SMALL_FLOATS = st.sampled_from([0.0, -0.0, 1.5, -1.5, 2.0, float("inf"), float("-inf"), float("nan")])
COLUMNS: dict[str, tuple[t.DataType, st.SearchStrategy[Any]]] = {
    "bool": (t.BooleanType(), st.booleans()),
    "tiny": (t.TinyIntType(), st.integers(-3, 3)),
    "int": (t.IntType(), st.integers(-4, 4)),
    "big": (t.BigIntType(), st.integers(-2, 2).map(lambda value: value * 2**40)),
    "float": (t.FloatType(), SMALL_FLOATS | st.sampled_from([0.1, 0.2]).map(float32)),
    "double": (t.DoubleType(), SMALL_FLOATS),
    "text": (t.StringType(), st.text("ab\U0001f600", max_size=3)),
    "char": (t.CharType(3), st.text("ab", max_size=3)),
    "bytes": (t.BytesType(), st.binary(max_size=2)),
    "fixed": (t.BinaryType(1), st.binary(min_size=1, max_size=1)),
    "money": (t.DecimalType(6, 2), st.integers(-300, 300).map(lambda value: decimal.Decimal(value).scaleb(-2))),
    "large": (t.DecimalType(30, 1), st.integers(-3, 3).map(lambda value: decimal.Decimal(value))),
    "day": (t.DateType(), st.dates(dt.date(1969, 12, 30), dt.date(1970, 1, 3))),
    "time": (t.TimeType(3), st.integers(0, 3).map(lambda value: dt.time(0, 0, 0, value * 1000))),
    "fine": (t.TimeType(6), st.integers(0, 2500).map(lambda value: dt.time(0, 0, 0, value))),
    "stamp": (t.TimestampType(6), st.integers(-2000, 2000).map(lambda v: EPOCH + v * MICRO)),
    "coarse": (t.TimestampType(0), st.integers(-2, 2).map(lambda v: EPOCH + v * 1_000_000 * MICRO)),
    "zoned": (t.TimestampLtzType(9), st.integers(-3, 3).map(lambda v: EPOCH_UTC + v * MICRO)),
}  # fmt: skip
SCHEMA = Schema(tuple(Column(name, data_type) for name, (data_type, _) in COLUMNS.items())).numbered()
ARROW = to_arrow_schema(SCHEMA)
STATISTICS = [index for index, name in enumerate(COLUMNS) if name not in ("bytes", "fixed")]

MODEL: dict[LeafFunction, Callable[[Any, Any], bool]] = {
    LeafFunction.EQUAL: lambda a, b: a == b,
    LeafFunction.NOT_EQUAL: lambda a, b: a != b,
    LeafFunction.LESS_THAN: lambda a, b: a < b,
    LeafFunction.LESS_OR_EQUAL: lambda a, b: a <= b,
    LeafFunction.GREATER_THAN: lambda a, b: a > b,
    LeafFunction.GREATER_OR_EQUAL: lambda a, b: a >= b,
    LeafFunction.STARTS_WITH: lambda a, b: a.startswith(b),
    LeafFunction.ENDS_WITH: lambda a, b: a.endswith(b),
    LeafFunction.CONTAINS: lambda a, b: b in a,
    LeafFunction.IN: lambda a, b: any(a == value for value in b),
    LeafFunction.NOT_IN: lambda a, b: all(a != value for value in b),
}


def judge(node: Predicate, row: dict[str, Any]) -> bool | None:
    """The model: three-valued logic as in SQL."""
    if isinstance(node, Negation):
        inner = judge(node.child, row)
        return None if inner is None else not inner
    if isinstance(node, Combination):
        values = [judge(child, row) for child in node.children]
        decided = node.function is CompoundFunction.OR
        return decided if decided in values else (None if None in values else not decided)
    assert isinstance(node, Comparison)
    value = row[node.column]
    if node.function is LeafFunction.IS_NULL:
        return value is None
    if node.function is LeafFunction.IS_NOT_NULL:
        return value is not None
    if value is None:
        return None
    lists = node.function in (LeafFunction.IN, LeafFunction.NOT_IN)
    return MODEL[node.function](value, node.values if lists else node.values[0])


def leaves() -> st.SearchStrategy[Predicate]:
    def of_column(name: str) -> st.SearchStrategy[Predicate]:
        column, values = col(name), COLUMNS[name][1]
        compare = st.sampled_from(
            [
                column.equal, column.not_equal, column.less_than, column.less_or_equal, column.greater_than,
                column.greater_or_equal,
            ]
        )  # fmt: skip
        several = st.sampled_from([column.is_in, column.not_in])
        kinds = [
            st.builds(lambda make, value: make(value), compare, values),
            st.builds(lambda make, value: make(value), several, st.lists(values, max_size=25)),
            st.sampled_from([column.is_null(), column.is_not_null()]),
        ]
        if name in ("text", "char"):
            texts = st.sampled_from([column.starts_with, column.ends_with, column.contains])
            kinds.append(st.builds(lambda make, value: make(value), texts, values))
        return st.one_of(kinds)

    return st.sampled_from(list(COLUMNS)).flatmap(of_column)


def trees() -> st.SearchStrategy[Predicate]:
    def grow(inner: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
        return st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a: ~a, inner),
        )

    return st.recursive(leaves(), grow, max_leaves=5)


def tables() -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()})
    return st.lists(row, min_size=1, max_size=6)


def matching(predicate: Predicate, batch: Any) -> list[bool]:
    ids = {column.column_id: index for index, column in enumerate(SCHEMA.columns)}
    mask = RowFilter(predicate, SCHEMA).mask(lambda column_id: batch.column(ids[column_id]))
    return list(valid_mask(mask).to_pylist())


@given(trees(), tables())
def test_rows_are_judged_as_by_the_model(predicate: Predicate, table: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(table, ARROW)
    assert matching(predicate, batch) == [judge(predicate, row) is True for row in table]


@given(trees(), tables())
def test_the_server_keeps_every_batch_with_a_matching_row(predicate: Predicate, table: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(table, ARROW)
    pushed = RowFilter(predicate, SCHEMA).pushed
    if pushed is None or not any(matching(predicate, batch)):
        return
    encoded = encode_arrow_batch(batch, 1, NO_COMPRESSION, statistics_columns=STATISTICS)
    kept = BatchFilter(read_predicate(pushed, SCHEMA), SCHEMA).keeps(encoded, 0, read_header(encoded), SCHEMA)
    assert kept


@given(leaves())
def test_every_leaf_can_be_told_or_is_left_out(predicate: Predicate) -> None:
    pushed = RowFilter(predicate, SCHEMA).pushed
    if pushed is not None:
        read_predicate(pushed, SCHEMA)
        type(pushed).FromString(pushed.SerializeToString())


SIMPLE = Schema((Column("id", t.IntType()), Column("name", t.StringType()))).numbered()


def test_bytes_are_those_of_the_published_client() -> None:
    pushed = RowFilter(col("id") > 100, SIMPLE).pushed
    assert pushed is not None
    assert pushed.SerializeToString() == bytes.fromhex("0800120c080410001a0608031000 2064")
    pushed = RowFilter((col("id") > 1) & (col("name") == "ccc"), SIMPLE).pushed
    assert pushed is not None
    assert pushed.SerializeToString() == bytes.fromhex(
        "08011a2908001210 0800120c080410001a06080310002001 12130800120f080010011a09080810004203636363"
    )


def test_parts_that_cannot_be_told() -> None:
    only = ~col("name").starts_with("a")
    assert RowFilter(only, SIMPLE).pushed is None
    assert RowFilter(only | (col("id") > 1), SIMPLE).pushed is None
    assert RowFilter(only & (col("id") > 1), SIMPLE).pushed == RowFilter(col("id") > 1, SIMPLE).pushed
    assert RowFilter(~((col("id") > 1) & (col("id") < 0)), SIMPLE).pushed is not None
    assert RowFilter(col("id").is_in([]), SIMPLE).pushed is None


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**70])
def test_integers_beyond_64_bits_overflow(value: int) -> None:
    """As in pyfluss, which has no such literal."""
    with pytest.raises(OverflowError, match="64 bits"):
        _ = col("id") > value
    with pytest.raises(OverflowError, match="64 bits"):
        col("id").is_in([1, value])
    assert repr(col("id") >= 2**63 - 1) == f"(col('id') >= {2**63 - 1})"


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (col("zz") > 1, "unknown column 'zz'; the columns are id, name"),
        (col("id") > "a", "column 'id' is INT.*an int, got 'a'"),
        (col("id") > 2**40, "32 bits"),
        (col("id") == True, "an int, got True"),  # noqa: E712
        (col("id") > 1.0, "an int, got 1.0"),
        (col("id") == None, "is_null"),  # noqa: E711
        (col("name").is_in(["a", 3]), "a str, got 3"),
        (col("id").starts_with("a"), "requires a string column"),
        (col("name").contains(3), "a str, got 3"),  # type: ignore[arg-type]
    ],
)
def test_wrong_filters_say_what_is_wrong(predicate: Predicate, text: str) -> None:
    with pytest.raises(FlussError, match=text):
        RowFilter(predicate, SIMPLE)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("money", decimal.Decimal("1.005"), "2 digits after the point"),
        ("money", 12345, "at most 6 digits"),
        ("money", 1.5, "decimal.Decimal"),
        ("money", decimal.Decimal("NaN"), "finite"),
        ("day", dt.datetime(2024, 1, 1), "a datetime.date"),
        ("time", dt.time(0, 0, 0, 1), "whole ms"),
        ("stamp", dt.datetime(2024, 1, 1, tzinfo=UTC), "naive"),
        ("zoned", dt.datetime(2024, 1, 1), "time zone"),
        ("coarse", dt.datetime(2024, 1, 1, 0, 0, 0, 1), "whole s"),
        ("bool", 1, "a bool"),
        ("bytes", "a", "bytes"),
        ("float", "a", "a float"),
        ("day", pa.scalar(5_000_000, pa.int32()).cast(pa.date32()), "a datetime.date, got a Date32Scalar"),
    ],
)
def test_values_must_fit_the_column(name: str, value: object, text: str) -> None:
    with pytest.raises(FlussError, match=text):
        RowFilter(col(name) >= value, SCHEMA)


def test_floats_of_a_float_column_are_rounded_as_stored_ones() -> None:
    schema = Schema((Column("f", t.FloatType()),)).numbered()
    mask = RowFilter(col("f") == 0.1, schema).mask(lambda _: pa.array([0.1, 0.2], pa.float32()))
    assert mask.to_pylist() == [True, False]
    assert RowFilter(col("f") < 1e300, schema).mask(lambda _: pa.array([1.0], pa.float32())).to_pylist() == [True]


def test_nested_columns_can_only_be_asked_for_nulls() -> None:
    schema = Schema((Column("list", t.ArrayType(t.IntType())),)).numbered()
    judged = RowFilter(col("list").is_null(), schema).mask(lambda _: pa.array([[1], None], pa.list_(pa.int32())))
    assert judged.to_pylist() == [False, True]
    with pytest.raises(FlussError, match="is_null"):
        RowFilter(col("list") == [1], schema)


def test_filters_have_no_truth_value_and_show_what_they_are() -> None:
    both = (col("id") >= 3) & ~col("name").is_in(["a"]) | col("id").between(1, 2)
    assert repr(both) == "(((col('id') >= 3) & col('name').not_in(['a'])) | ((col('id') >= 1) & (col('id') <= 2)))"
    assert repr(~col("name").starts_with("x")) == "~col('name').starts_with('x')"
    assert repr(~~col("name").starts_with("x")) == "col('name').starts_with('x')"
    assert col("id").name == "id"
    for value in (both, col("id")):
        with pytest.raises(TypeError, match="truth value"):
            bool(value)
    with pytest.raises(FlussError, match="another filter"):
        (col("id") > 3) & 4  # type: ignore[operator]
    with pytest.raises(FlussError, match="must be a list"):
        col("id").isin("abc")
    with pytest.raises(FlussError, match="must be a string"):
        col(3)  # type: ignore[arg-type]


def judged(predicate: Predicate, column: pa.Array) -> list[bool]:
    """What a filter says about a column named `at` of type TIMESTAMP(9)."""
    schema = Schema((Column("at", t.TimestampType(9)),)).numbered()
    found: list[bool] = RowFilter(predicate, schema).mask(lambda column_id: column).to_pylist()
    return found


def test_nanoseconds_count() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is an extra")
    text = "2024-01-01T00:00:00.123456789"
    nanos = np.datetime64(text).astype(np.int64).item()
    column = pa.array([nanos - 1, nanos, nanos + 1], pa.int64()).cast(pa.timestamp("ns"))
    for value in (pandas.Timestamp(text), np.datetime64(text)):
        assert judged(col("at") == value, column) == [False, True, False]
        assert judged(col("at") < value, column) == [True, False, False]
        assert judged(col("at") >= value, column) == [False, True, True]
        assert judged(col("at").is_in([value]), column) == [False, True, False]
        literal = RowFilter(col("at") == value, Schema((Column("at", t.TimestampType(9)),)).numbered()).pushed
        assert literal is not None
        (said,) = literal.leaf.literals
        assert (said.timestamp_millis_value, said.timestamp_nano_of_millis_value) == divmod(nanos, 1_000_000)
    before = pandas.Timestamp("1969-12-31T23:59:59.999999999")
    assert judged(col("at") == before, pa.array([-1, 0], pa.int64()).cast(pa.timestamp("ns"))) == [True, False]
    zoned = pandas.Timestamp("2024-01-01T01:00:00.000000001+01:00")
    schema = Schema((Column("at", t.TimestampLtzType(9)),)).numbered()
    value = RowFilter(col("at") == zoned, schema)
    found = pa.array([1_704_067_200_000_000_001], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    assert value.mask(lambda column_id: found).to_pylist() == [True]
    assert judged(col("at") > np.datetime64("2023-01-01"), column) == [True] * 3


@pytest.mark.parametrize(
    ("predicate", "words"),
    [
        (col("text") == "\ud800", "lone surrogates"),
        (col("text").starts_with("\ud800"), "lone surrogates"),
        (col("int") == np.array([1, 2]), r"is_in\(\[...\]\)"),
        (col("stamp") == np.datetime64("2024-01-01T00:00:00.123456789"), "whole us"),
        (col("stamp") == np.datetime64("NaT"), "is_null"),
        (col("zoned") > dt.datetime(9999, 1, 1, tzinfo=UTC), "1678"),
        (col("zoned") > np.datetime64("2024-01-01"), "with a time zone"),
    ],
)
def test_values_that_cannot_be_compared_are_refused(predicate: Predicate, words: str) -> None:
    with pytest.raises(FlussError, match=words):
        RowFilter(predicate, SCHEMA)
