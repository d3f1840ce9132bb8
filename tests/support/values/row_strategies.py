"""Hypothesis strategies for rows of logical values that Arrow can hold without loss."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import strategies as st

from fluss.model import types as t
from tests.support.values.arrow_strategies import data_types

MAX_COLUMNS = 9
_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "DATE": 32}
# nanoseconds that one step of a precision has: TIME and TIMESTAMP values are made of whole steps
_STEP_NANOS = (10**9, 10**6, 10**6, 10**6, 10**3, 10**3, 10**3, 1, 1, 1)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@functools.cache
def values_of(data_type: t.DataType) -> st.SearchStrategy[Any]:
    """Logical values of a type, null too if the type is nullable."""
    values = _present(data_type)
    return st.none() | values if data_type.nullable else values


def _present(data_type: t.DataType) -> st.SearchStrategy[Any]:
    root = data_type.root
    if root == "BOOLEAN":
        return st.booleans()
    if root in _INTEGER_BITS:
        return _integers(_INTEGER_BITS[root])
    if root in ("FLOAT", "DOUBLE"):
        return st.floats(allow_nan=False, width=32 if root == "FLOAT" else 64)
    if isinstance(data_type, t.CharType):
        return _short_text(data_type.length)
    if isinstance(data_type, t.BinaryType):
        return st.binary(min_size=data_type.length, max_size=data_type.length)
    if root == "STRING":
        return _TEXT | st.text(st.characters(codec="utf-8"), min_size=50, max_size=200)
    if root == "BYTES":
        return st.binary(max_size=40)
    if isinstance(data_type, t.DecimalType):
        limit = 10**data_type.precision - 1
        return st.integers(-limit, limit) | st.integers(-min(limit, 300), min(limit, 300))
    if isinstance(data_type, t.TimeType):
        step = max(_STEP_NANOS[data_type.precision] // 10**6, 1)
        return st.integers(0, 86_399_999 // step).map(lambda value: value * step)
    if isinstance(data_type, t.TimestampType | t.TimestampLtzType):
        return _timestamps(_STEP_NANOS[data_type.precision])
    return _nested(data_type)


def _integers(bits: int) -> st.SearchStrategy[int]:
    limit = 1 << (bits - 1)
    return st.integers(-limit, limit - 1) | st.integers(-5, min(300, limit - 1))


def _short_text(max_bytes: int) -> st.SearchStrategy[str]:
    """Text that fits the bytes of a CHAR in an INDEXED row and does not end in the padding byte."""
    return _TEXT.map(lambda text: text.encode()[:max_bytes].decode(errors="ignore").rstrip("\0"))


def _timestamps(step: int) -> st.SearchStrategy[tuple[int, int]]:
    # The reach of int64 nanoseconds, in whole steps; wide types get far instants as well.
    reach = 9 * 10**18 // step
    return st.integers(-reach, reach).map(lambda value: (value * step // 10**6, value * step % 10**6))


def _nested(data_type: t.DataType) -> st.SearchStrategy[Any]:
    if isinstance(data_type, t.ArrayType):
        # a long list of one value crosses the words of null bits without costing much to draw
        long = st.builds(lambda value, count: [value] * count, values_of(data_type.element), st.integers(31, 34))
        return st.lists(values_of(data_type.element), max_size=4) | long
    if isinstance(data_type, t.MapType):
        pairs = st.tuples(_present(data_type.key), values_of(data_type.value))
        return st.lists(pairs, max_size=3)
    assert isinstance(data_type, t.RowType)
    return st.tuples(*(values_of(field.data_type) for field in data_type.fields)).map(list)


def column_types() -> st.SearchStrategy[list[t.DataType]]:
    """The types of a table; some columns NOT NULL."""
    maybe_not_null = st.builds(lambda kind, nullable: kind.copy(nullable), data_types(), st.booleans())
    return st.lists(maybe_not_null, min_size=1, max_size=MAX_COLUMNS)


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 6) -> tuple[list[t.DataType], list[list[Any]]]:
    """Types and rows."""
    types = draw(column_types())
    rows = st.tuples(*map(values_of, types)).map(list)
    return types, draw(st.lists(rows, max_size=max_rows))
