"""COMPACTED, INDEXED and ALIGNED rows value by value: worked examples, refusals."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from fluss.codec.rows.aligned import decode_aligned_row, encode_aligned_row
from fluss.codec.rows.compacted import decode_compacted_row, encode_compacted_row
from fluss.codec.rows.indexed import decode_indexed_row, encode_indexed_row
from fluss.codec.rows.values import CorruptRowError, RowValueError
from fluss.model import types as t
from tests.support.values.reference_rows import (
    ALL_ALIGNED,
    ALL_COMPACTED,
    ALL_INDEXED,
    ALL_TYPES,
    ALL_VALUES,
    NESTED_COMPACTED,
    NESTED_INDEXED,
    SMALL_ALIGNED,
    SMALL_INDEXED,
    VALUE_ROWS,
    GoldenRow,
)

COMPACTED = (GoldenRow(ALL_TYPES, ALL_VALUES, ALL_COMPACTED), *NESTED_COMPACTED, *VALUE_ROWS)
INDEXED = (GoldenRow(ALL_TYPES, ALL_VALUES, ALL_INDEXED), SMALL_INDEXED, *NESTED_INDEXED)
ALIGNED = (GoldenRow(ALL_TYPES, ALL_VALUES, ALL_ALIGNED), SMALL_ALIGNED)


@pytest.mark.parametrize("golden", COMPACTED)
def test_compacted_examples(golden: GoldenRow) -> None:
    assert encode_compacted_row(golden.values, golden.types).hex(" ") == golden.row.hex(" ")
    assert decode_compacted_row(golden.row, golden.types) == list(golden.values)


@pytest.mark.parametrize("golden", INDEXED)
def test_indexed_examples(golden: GoldenRow) -> None:
    assert encode_indexed_row(golden.values, golden.types).hex(" ") == golden.row.hex(" ")
    assert decode_indexed_row(golden.row, golden.types) == list(golden.values)


@pytest.mark.parametrize("golden", ALIGNED)
def test_aligned_examples(golden: GoldenRow) -> None:
    assert encode_aligned_row(golden.values, golden.types).hex(" ") == golden.row.hex(" ")
    assert decode_aligned_row(golden.row, golden.types) == list(golden.values)


def test_every_prefix_and_every_extension_of_a_row_is_refused() -> None:
    for size in range(len(ALL_COMPACTED)):
        with pytest.raises(CorruptRowError):
            decode_compacted_row(ALL_COMPACTED[:size], ALL_TYPES)
    for size in range(len(ALL_INDEXED)):
        with pytest.raises(CorruptRowError):
            decode_indexed_row(ALL_INDEXED[:size], ALL_TYPES)
    for size in range(len(ALL_ALIGNED)):
        with pytest.raises(CorruptRowError):
            decode_aligned_row(ALL_ALIGNED[:size], ALL_TYPES)
    with pytest.raises(CorruptRowError, match="unexpected bytes"):
        decode_compacted_row(ALL_COMPACTED + b"\0", ALL_TYPES)
    with pytest.raises(CorruptRowError, match="unexpected bytes"):
        decode_indexed_row(ALL_INDEXED + b"\0", ALL_TYPES)


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        (None, t.IntType(nullable=False)),
        ("7", t.IntType()),
        (True, t.IntType()),
        (2**31, t.IntType()),
        (-(2**63) - 1, t.BigIntType()),
        (128, t.TinyIntType()),
        (1, t.BooleanType()),
        (1e39, t.FloatType()),
        (b"x", t.StringType()),
        ("\ud800", t.StringType()),
        ("x", t.BytesType()),
        (1000, t.DecimalType(3, 0)),
        (10**38, t.DecimalType(38, 0)),
        (5, t.TimestampType(3)),
        ((0, 1_000_000), t.TimestampType(9)),
        ((0, -1), t.TimestampLtzType(9)),
        ("ab", t.ArrayType(t.StringType())),
        ([None], t.ArrayType(t.IntType(nullable=False))),
        ([(None, 1)], t.MapType(t.IntType(), t.IntType())),
        ([1, 2], t.MapType(t.IntType(), t.IntType())),
        ([1], t.RowType((t.RowField("a", t.IntType()), t.RowField("b", t.IntType())))),
    ],
)
def test_values_that_a_type_cannot_hold_are_refused(value: Any, data_type: t.DataType) -> None:
    with pytest.raises(RowValueError):
        encode_compacted_row([value], [data_type])
    with pytest.raises(RowValueError):
        encode_indexed_row([value], [data_type])


def test_the_number_of_values_must_be_the_number_of_columns() -> None:
    for encode in (encode_compacted_row, encode_indexed_row, encode_aligned_row):
        with pytest.raises(RowValueError, match="2 columns, got 1 values"):
            encode([1], [t.IntType(), t.IntType()])


def test_null_in_a_not_null_column_is_corrupt_on_reading() -> None:
    with pytest.raises(CorruptRowError, match="null"):
        decode_compacted_row(b"\x01", [t.IntType(nullable=False)])
    with pytest.raises(CorruptRowError, match="null"):
        decode_indexed_row(b"\x01", [t.IntType(nullable=False)])


def test_text_too_long_for_char_in_an_indexed_row() -> None:
    assert encode_compacted_row(["h\u00e9"], [t.CharType(2)]) == b"\0\x03h\xc3\xa9"
    with pytest.raises(RowValueError, match="at most 2 bytes"):
        encode_indexed_row(["h\u00e9"], [t.CharType(2)])


def test_map_accepts_a_dict() -> None:
    data_type = t.MapType(t.StringType(), t.IntType())
    assert encode_compacted_row([{"k": 1}], [data_type]) == encode_compacted_row([[("k", 1)]], [data_type])


def test_arrays_have_one_form_of_nan_and_rows_keep_it() -> None:
    strange = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
    assert math.isnan(strange)
    assert encode_compacted_row([strange], [t.DoubleType()])[1:] == struct.pack("<Q", 0x7FF8000000000001)
    block = encode_compacted_row([[strange]], [t.ArrayType(t.DoubleType())])
    assert block.endswith(struct.pack("<Q", 0x7FF8000000000000))


def test_a_block_cannot_ask_for_more_than_its_own_bytes() -> None:
    """Slots that all point to the same large entry would multiply the work."""
    inner = encode_compacted_row([list(range(100))], [t.ArrayType(t.IntType())])[3:]
    count = 50
    header = struct.pack("<iQ", count, 0)
    slots = struct.pack("<II", len(inner), 12 + 8 * count + 4) * count
    block = header + slots + b"\0" * 4 + inner
    row = bytearray(b"\0")
    size = len(block)
    row += bytes((size & 0x7F | 0x80, size >> 7)) + block
    with pytest.raises(CorruptRowError, match="more bytes than the block has"):
        decode_compacted_row(row, [t.ArrayType(t.ArrayType(t.IntType()))])
