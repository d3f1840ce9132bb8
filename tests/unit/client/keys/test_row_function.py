"""The generated reader of rows gives what the complete one gives, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss.client.keys.row_function import can_generate, row_function
from fluss.codec.batches.kv_values import ValueReader, encode_value
from fluss.codec.rows.columns import RowFormat
from fluss.codec.rows.values import CorruptRowError
from fluss.model import types as t
from fluss.model.schema import Column, Schema
from tests.support.runner.lanes import examples

KINDS: list[tuple[t.DataType, Any]] = [
    (t.IntType(), st.integers(-(2**31), 2**31 - 1)),
    (t.BigIntType(nullable=False), st.integers(-(2**63), 2**63 - 1)),
    (t.StringType(), st.text(max_size=200)),
    (t.BytesType(), st.binary(max_size=200)),
    (t.BooleanType(), st.booleans()),
    (t.TinyIntType(), st.integers(-128, 127)),
    (t.SmallIntType(), st.integers(-(2**15), 2**15 - 1)),
    (t.DoubleType(), st.floats(allow_nan=False)),
    (t.FloatType(), st.floats(width=32, allow_nan=False)),
    (t.DateType(), st.integers(-1000, 1000)),
    (t.DecimalType(precision=9, scale=2), st.integers(-(10**9) + 1, 10**9 - 1)),
    (t.TimestampType(precision=3), st.tuples(st.integers(-(2**40), 2**40), st.just(0))),
    (t.TimestampLtzType(precision=9), st.tuples(st.integers(-(2**40), 2**40), st.integers(0, 999_999))),
]
SCHEMA = Schema(tuple(Column(f"c{i} 'x'", kind) for i, (kind, _) in enumerate(KINDS))).numbered()
ROWS = st.tuples(*[values if not kind.nullable else st.none() | values for kind, values in KINDS])
READ = row_function(SCHEMA, 3, [None] * len(KINDS))
READER = ValueReader({3: SCHEMA}, 3, RowFormat.COMPACTED)


@settings(max_examples=examples(200), deadline=None)
@given(ROWS)
def test_it_reads_what_the_complete_reader_reads(row: tuple[Any, ...]) -> None:
    value = encode_value(row, 3, SCHEMA, RowFormat.COMPACTED)
    assert READ(value) == dict(zip(SCHEMA.column_names, READER.row(value), strict=True))


@settings(max_examples=examples(300), deadline=None)
@given(ROWS, st.data())
def test_it_never_reads_what_the_complete_reader_refuses(row: tuple[Any, ...], data: st.DataObject) -> None:
    value = bytearray(encode_value(row, 3, SCHEMA, RowFormat.COMPACTED))
    value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(value[: data.draw(st.integers(0, len(value)))] if data.draw(st.booleans()) else value)
    found = READ(damaged)
    if found is None:
        return
    try:
        expected = READER.row(damaged)
    except CorruptRowError:
        pytest.fail(f"{damaged.hex()} was read as {found}")
    assert repr(found) == repr(dict(zip(SCHEMA.column_names, expected, strict=True)))


def test_another_schema_is_left_to_the_complete_reader() -> None:
    assert READ(encode_value([1, 2, *[None] * 11], 4, SCHEMA, RowFormat.COMPACTED)) is None


def test_values_are_converted() -> None:
    read = row_function(SCHEMA, 3, [str, *[None] * 12])
    found = read(encode_value([1, 2, *[None] * 11], 3, SCHEMA, RowFormat.COMPACTED))
    assert found is not None
    assert list(found.values())[:3] == ["1", 2, None]


def test_nested_types_are_left_out() -> None:
    assert can_generate(SCHEMA)
    assert not can_generate(Schema((Column("a", t.ArrayType(element=t.IntType())),)))
