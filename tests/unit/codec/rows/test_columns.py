"""Column-wise rows against row-by-row ones and against the worked examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss.codec.arrow.types import to_arrow_type
from fluss.codec.rows.aligned import encode_aligned_row
from fluss.codec.rows.arrow_values import column_from_values, column_to_values
from fluss.codec.rows.block_encode import encode_aligned_columns
from fluss.codec.rows.column_buffers import PaddedSource, binary_parts, join
from fluss.codec.rows.columns import (
    COLUMN_WISE_MIN_ROWS,
    RowFormat,
    decode_row_array,
    decode_rows,
    empty_columns,
    encode_rows,
)
from fluss.codec.rows.compacted import encode_compacted_row
from fluss.codec.rows.decode import decode_compacted_columns, decode_indexed_columns
from fluss.codec.rows.encode import encode_compacted_columns, encode_indexed_columns
from fluss.codec.rows.indexed import encode_indexed_row
from fluss.codec.rows.values import NESTED_ROOTS, CorruptRowError, RowValueError
from fluss.model import types as t
from tests.support.runner.lanes import examples
from tests.support.values.reference_rows import (
    ALL_TYPES,
    ALL_VALUES,
    NESTED_COMPACTED,
    NESTED_INDEXED,
    VALUE_ROWS,
    GoldenRow,
)
from tests.support.values.row_strategies import tables

ENCODE_COLUMNS = {RowFormat.COMPACTED: encode_compacted_columns, RowFormat.INDEXED: encode_indexed_columns}
DECODE_COLUMNS = {RowFormat.COMPACTED: decode_compacted_columns, RowFormat.INDEXED: decode_indexed_columns}
ENCODE_ROW = {RowFormat.COMPACTED: encode_compacted_row, RowFormat.INDEXED: encode_indexed_row}
BOTH = pytest.mark.parametrize("row_format", list(RowFormat))


def columns_of(types: list[t.DataType], rows: list[list[Any]]) -> list[Any]:
    values = list(zip(*rows, strict=True)) if rows else [()] * len(types)
    return [column_from_values(column, data_type) for column, data_type in zip(values, types, strict=True)]


def decoded(rows: Any, types: list[t.DataType], row_format: RowFormat) -> list[Any]:
    data, offsets = binary_parts(rows)
    return DECODE_COLUMNS[row_format](PaddedSource(memoryview(data)), offsets[:-1], offsets[1:], types)


@BOTH
@settings(max_examples=examples(60))
@given(tables())
def test_column_wise_equals_row_by_row(row_format: RowFormat, table: tuple[list[t.DataType], list[list[Any]]]) -> None:
    types, rows = table
    columns = columns_of(types, rows)
    for column, data_type in zip(columns, types, strict=True):
        column.validate(full=True)
        assert column.type == to_arrow_type(data_type)
    encoded = ENCODE_COLUMNS[row_format](columns, types, len(rows))
    assert encoded.to_pylist() == [ENCODE_ROW[row_format](row, types) for row in rows]
    back = decoded(encoded, types, row_format)
    for column, expected, data_type in zip(back, columns, types, strict=True):
        column.validate(full=True)
        assert column.type == to_arrow_type(data_type)
        assert column.equals(expected)
        assert column_to_values(column, data_type) == column_to_values(expected, data_type)


@BOTH
@settings(max_examples=examples(60))
@given(tables(), st.data())
def test_columns_that_nobody_wants_change_nothing_for_the_others(
    row_format: RowFormat, table: tuple[list[t.DataType], list[list[Any]]], data: st.DataObject
) -> None:
    types, rows = table
    wanted = data.draw(st.sets(st.integers(0, max(len(types) - 1, 0))))
    columns = columns_of(types, rows)
    encoded = ENCODE_COLUMNS[row_format](columns, types, len(rows))
    content, offsets = binary_parts(encoded)
    source = PaddedSource(memoryview(content))
    back = DECODE_COLUMNS[row_format](source, offsets[:-1], offsets[1:], types, wanted)
    for index, (column, expected) in enumerate(zip(back, columns, strict=True)):
        assert column.type == expected.type
        assert len(column) == len(rows)
        assert column.equals(expected) if index in wanted else column.null_count == len(rows)


@BOTH
@settings(max_examples=examples(40))
@given(tables(), st.data())
def test_slices_and_both_ways_give_the_same(
    row_format: RowFormat, table: tuple[list[t.DataType], list[list[Any]]], data: st.DataObject
) -> None:
    types, rows = table
    start = data.draw(st.integers(0, len(rows)))
    columns = [column.slice(start) for column in columns_of(types, rows)]
    count = len(rows) - start
    encoded = ENCODE_COLUMNS[row_format](columns, types, count)
    batch = pa.record_batch(columns, [str(index) for index in range(len(types))])
    assert encode_rows(batch, types, row_format).to_pylist() == encoded.to_pylist()
    small = decode_row_array(encoded, types, row_format)
    assert all(ours.equals(theirs) for ours, theirs in zip(small, columns, strict=True))


@settings(max_examples=examples(60))
@given(tables())
def test_aligned_columns_equal_aligned_rows(table: tuple[list[t.DataType], list[list[Any]]]) -> None:
    types, rows = table
    chosen = [index for index, data_type in enumerate(types) if data_type.root not in NESTED_ROOTS]
    columns = columns_of(types, rows)
    encoded = encode_aligned_columns([columns[i] for i in chosen], [types[i] for i in chosen], len(rows))
    expected = [encode_aligned_row([row[i] for i in chosen], [types[i] for i in chosen]) for row in rows]
    assert encoded.to_pylist() == expected


@pytest.mark.parametrize("golden", [*NESTED_COMPACTED, *VALUE_ROWS])
def test_compacted_examples(golden: GoldenRow) -> None:
    types = list(golden.types)
    columns = columns_of(types, [list(golden.values)] * 3)
    encoded = encode_compacted_columns(columns, types, 3)
    assert encoded.to_pylist() == [golden.row] * 3
    assert all(
        ours.equals(theirs) for ours, theirs in zip(decoded(encoded, types, RowFormat.COMPACTED), columns, strict=True)
    )


@pytest.mark.parametrize("golden", NESTED_INDEXED)
def test_indexed_examples(golden: GoldenRow) -> None:
    types = list(golden.types)
    columns = columns_of(types, [list(golden.values)] * 3)
    encoded = encode_indexed_columns(columns, types, 3)
    assert encoded.to_pylist() == [golden.row] * 3
    assert all(
        ours.equals(theirs) for ours, theirs in zip(decoded(encoded, types, RowFormat.INDEXED), columns, strict=True)
    )


@BOTH
def test_all_types_with_more_rows_than_the_column_wise_limit(row_format: RowFormat) -> None:
    types = list(ALL_TYPES)
    values = list(ALL_VALUES)
    values[11] = b"\x01\x02\x03\x04"  # Arrow pads BINARY(4), so take a full one
    rows = [values, [None] * len(values)] * COLUMN_WISE_MIN_ROWS
    batch = pa.record_batch(columns_of(types, rows), [str(index) for index in range(len(types))])
    encoded = encode_rows(batch, types, row_format)
    assert encoded.to_pylist() == [ENCODE_ROW[row_format](row, types) for row in rows]
    assert all(a.equals(b) for a, b in zip(decode_row_array(encoded, types, row_format), batch.columns, strict=True))


@BOTH
def test_rows_in_any_order(row_format: RowFormat) -> None:
    types: list[t.DataType] = [t.StringType(), t.BytesType(), t.ArrayType(t.StringType())]
    rows = [[f"text {number}", b"x" * (number % 9), [f"a{number}", None]] for number in range(100)]
    encoded = encode_rows(pa.record_batch(columns_of(types, rows), ["a", "b", "c"]), types, row_format)
    data, offsets = binary_parts(encoded)
    order = np.arange(99, -1, -1)
    columns = decode_rows(memoryview(data), offsets[:-1][order], offsets[1:][order], types, row_format)
    assert columns[0].to_pylist() == [row[0] for row in reversed(rows)]
    assert columns[2].to_pylist() == [row[2] for row in reversed(rows)]


def test_short_and_long_binary_is_padded_and_cut_for_arrow() -> None:
    types: list[t.DataType] = [t.BinaryType(3)]
    rows = [encode_compacted_row([value], types) for value in (b"", b"ab", b"abc", b"abcdef")]
    array = pa.array(rows, pa.binary())
    expected = [b"\0\0\0", b"ab\0", b"abc", b"abc"]
    assert decoded(array, types, RowFormat.COMPACTED)[0].to_pylist() == expected
    assert decode_row_array(array, types, RowFormat.COMPACTED)[0].to_pylist() == expected


def test_other_arrow_types_are_cast() -> None:
    types: list[t.DataType] = [t.StringType(), t.IntType(), t.TimestampLtzType(6), t.ArrayType(t.IntType())]
    columns = [
        pa.array(["a", None]).dictionary_encode(),
        pa.array([1, 2], pa.int64()),
        pa.array([1, None], pa.timestamp("us")),
        pa.array([[1], None], pa.large_list(pa.int16())),
    ]
    encoded = encode_compacted_columns(columns, types, 2)
    assert encoded.to_pylist() == [
        encode_compacted_row(["a", 1, (0, 1000), [1]], types),
        encode_compacted_row([None, 2, None, None], types),
    ]


@pytest.mark.parametrize(
    ("array", "data_type"),
    [
        (pa.array([2**40]), t.IntType()),
        (pa.array(["x"]), t.IntType()),
        (pa.array([None], pa.int32()), t.IntType(nullable=False)),
        (pa.array([[None]], pa.list_(pa.int32())), t.ArrayType(t.IntType(nullable=False))),
        (pa.array([1]), t.ArrayType(t.IntType())),
        (pa.array([1]), t.MapType(t.IntType(), t.IntType())),
        (pa.array([1]), t.RowType((t.RowField("a", t.IntType()),))),
        (pa.array([2**62], pa.timestamp("s")), t.TimestampType(0)),
    ],
)
def test_arrow_values_that_a_type_cannot_hold(array: Any, data_type: t.DataType) -> None:
    with pytest.raises(RowValueError):
        encode_compacted_columns([array], [data_type], 1)
    with pytest.raises(RowValueError):
        encode_indexed_columns([array], [data_type], 1)


def test_instants_that_arrow_cannot_count_are_refused() -> None:
    types: list[t.DataType] = [t.TimestampType(9)]
    row = encode_compacted_row([(2**50, 0)], types)
    for count in (1, COLUMN_WISE_MIN_ROWS):
        with pytest.raises(RowValueError, match="out of range"):
            decode_row_array(pa.array([row] * count, pa.binary()), types, RowFormat.COMPACTED)


@pytest.mark.parametrize("data_type", [t.TimestampType(9), t.TimestampLtzType(6)], ids=str)
def test_the_first_and_the_last_instant_that_arrow_can_count(data_type: t.DataType) -> None:
    arrow_type = to_arrow_type(data_type)
    instants = pa.array([-(2**63), 1 - 2**63, -1, 0, 2**63 - 2, 2**63 - 1] * COLUMN_WISE_MIN_ROWS).cast(arrow_type)
    for encode, row_format in (
        (encode_compacted_columns, RowFormat.COMPACTED),
        (encode_indexed_columns, RowFormat.INDEXED),
    ):
        rows = encode([instants], [data_type], len(instants))
        assert decode_row_array(rows, [data_type], row_format)[0].equals(instants)
        assert decode_row_array(rows[:1], [data_type], row_format)[0].equals(instants[:1])
    per_milli = 10**6 if arrow_type.unit == "ns" else 1000
    for end, step in ((2**63 - 1, 1), (-(2**63), -1)):
        millis, part = divmod(end, per_milli)
        if not 0 <= part + step < per_milli:
            continue
        row = encode_compacted_row([(millis, (part + step) * 10**6 // per_milli)], [data_type])
        for count in (1, COLUMN_WISE_MIN_ROWS):
            with pytest.raises(RowValueError, match="out of range"):
                decode_row_array(pa.array([row] * count, pa.binary()), [data_type], RowFormat.COMPACTED)


def test_seconds_before_1970_are_cut_toward_zero_like_the_reference() -> None:
    types: list[t.DataType] = [t.TimestampType(0)]
    row = encode_compacted_row([(-1500, 0)], types)
    column = decode_row_array(pa.array([row], pa.binary()), types, RowFormat.COMPACTED)[0]
    assert column.cast(pa.int64()).to_pylist() == [-1]


def test_wrong_widths_and_bounds() -> None:
    batch = pa.record_batch([pa.array([1])], ["a"])
    with pytest.raises(RowValueError, match="2 columns, but the batch has 1"):
        encode_rows(batch, [t.IntType(), t.IntType()], RowFormat.COMPACTED)
    for count in (1, COLUMN_WISE_MIN_ROWS):
        starts, ends = np.zeros(count, np.int64), np.full(count, 9, np.int64)
        with pytest.raises(CorruptRowError, match=r"bytes 0\.\.9, outside of the buffer of 4"):
            decode_rows(b"abcd", starts, ends, [t.IntType()], RowFormat.COMPACTED)


def test_no_rows() -> None:
    types = [case.types[0] for case in NESTED_COMPACTED] + list(ALL_TYPES)
    columns = empty_columns(types)
    for row_format in RowFormat:
        encoded = ENCODE_COLUMNS[row_format](columns, types, 0)
        assert len(encoded) == 0
        assert all(a.equals(b) for a, b in zip(decoded(encoded, types, row_format), columns, strict=True))
    assert len(join([], 0)) == 0


@settings(max_examples=examples(20))
@given(tables(max_rows=3))
def test_nulls_only(table: tuple[list[t.DataType], list[list[Any]]]) -> None:
    types = [data_type.copy(True) for data_type in table[0]]
    columns = [pa.nulls(4, to_arrow_type(data_type)) for data_type in types]
    untyped = [pa.nulls(4) for _ in types]
    for row_format in RowFormat:
        encoded = ENCODE_COLUMNS[row_format](columns, types, 4)
        assert ENCODE_COLUMNS[row_format](untyped, types, 4).equals(encoded)
        assert all(a.equals(b) for a, b in zip(decoded(encoded, types, row_format), columns, strict=True))


def test_a_map_with_a_null_key_is_refused() -> None:
    data_type = t.MapType(t.StringType(), t.IntType())
    with pytest.raises(RowValueError, match="cannot hold a null key"):
        column_from_values([[("a", 1)], [(None, 2)]], data_type)
