"""Random and mutated bytes: both decoders refuse the same ones, with a clear error, in bounded time and memory."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss.codec.rows.aligned import decode_aligned_row, encode_aligned_row
from fluss.codec.rows.arrow_values import column_from_values
from fluss.codec.rows.column_buffers import PaddedSource
from fluss.codec.rows.columns import RowFormat
from fluss.codec.rows.compacted import decode_compacted_row, encode_compacted_row
from fluss.codec.rows.decode import decode_compacted_columns, decode_indexed_columns
from fluss.codec.rows.indexed import decode_indexed_row, encode_indexed_row
from fluss.codec.rows.values import CorruptRowError, RowValueError
from fluss.model import types as t
from tests.support.runner.lanes import examples
from tests.support.values.row_strategies import column_types, tables

DECODE_ROW = {RowFormat.COMPACTED: decode_compacted_row, RowFormat.INDEXED: decode_indexed_row}
ENCODE_ROW = {RowFormat.COMPACTED: encode_compacted_row, RowFormat.INDEXED: encode_indexed_row}
DECODE_COLUMNS = {RowFormat.COMPACTED: decode_compacted_columns, RowFormat.INDEXED: decode_indexed_columns}
MUTATIONS_PER_ROW = 30
TELLING_BYTES = (0, 1, 2, 8, 0x7F, 0x80, 0x81, 0xFF)
BOTH = pytest.mark.parametrize("row_format", list(RowFormat))


def one_by_one(content: bytes, types: list[t.DataType], row_format: RowFormat) -> list[Any] | None:
    try:
        values = DECODE_ROW[row_format](content, types)
        return [column_from_values([value], data_type) for value, data_type in zip(values, types, strict=True)]
    except (CorruptRowError, RowValueError):
        return None


def column_wise(content: bytes, types: list[t.DataType], row_format: RowFormat) -> list[Any] | None:
    starts, ends = np.zeros(1, np.int64), np.full(1, len(content), np.int64)
    try:
        return DECODE_COLUMNS[row_format](PaddedSource(content), starts, ends, types)
    except (CorruptRowError, RowValueError):
        return None


def same(content: bytes, types: list[t.DataType], row_format: RowFormat) -> None:
    ours, theirs = column_wise(content, types, row_format), one_by_one(content, types, row_format)
    assert (ours is None) == (theirs is None)
    for column, expected in zip(ours or [], theirs or [], strict=True):
        column.validate(full=True)
        assert str(column) == str(expected)  # texts, because NaN is not equal to itself


@BOTH
@given(column_types(), st.binary(max_size=120))
def test_random_bytes(row_format: RowFormat, types: list[t.DataType], content: bytes) -> None:
    same(content, types, row_format)


def mutated(content: bytes, chance: random.Random) -> bytes:
    """The bytes with one to three of them changed, now and then cut."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        changed[chance.randrange(len(changed))] = chance.choice(
            (0, 1, 2, 8, 0x7F, 0x80, 0x81, 0xFF, chance.randrange(256))
        )
    return bytes(changed[: chance.randrange(len(changed) + 1)] if chance.random() < 0.2 else changed)


@BOTH
@settings(max_examples=examples(40))
@given(tables(max_rows=2), st.integers(0, 2**32))
def test_mutated_rows(row_format: RowFormat, table: tuple[list[t.DataType], list[list[Any]]], seed: int) -> None:
    types, rows = table
    chance = random.Random(seed)
    for row in rows:
        content = ENCODE_ROW[row_format](row, types)
        for _ in range(MUTATIONS_PER_ROW):
            same(mutated(content, chance), types, row_format)


@settings(max_examples=examples(40))
@given(tables(max_rows=2), st.integers(0, 2**32))
def test_mutated_aligned_rows(table: tuple[list[t.DataType], list[list[Any]]], seed: int) -> None:
    types, rows = table
    chance = random.Random(seed)
    for row in rows:
        content = encode_aligned_row(row, types)
        assert decode_aligned_row(content, types) == row
        for _ in range(MUTATIONS_PER_ROW):
            with contextlib.suppress(CorruptRowError):
                decode_aligned_row(mutated(content, chance), types)


@BOTH
@pytest.mark.parametrize("count", [2**31 - 1, 10**6, -1])
def test_huge_counts_and_lengths_allocate_nothing(row_format: RowFormat, count: int) -> None:
    block = count.to_bytes(4, "little", signed=True) + bytes(20)
    content = bytes((0, 24)) + block if row_format is RowFormat.COMPACTED else bytes((0, 24, 0, 0, 0)) + block
    for element in (t.BooleanType(), t.BigIntType(), t.ArrayType(t.StringType()), t.StringType()):
        types: list[t.DataType] = [t.ArrayType(element)]
        assert one_by_one(content, types, row_format) is None
        assert column_wise(content, types, row_format) is None
