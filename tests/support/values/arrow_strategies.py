"""Hypothesis strategies for data types and for record batches of any schema."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from fluss.codec.arrow.types import to_arrow_type
from fluss.model import types as t

MAX_STRATEGY_ROWS = 20
_SMALL_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_UNITS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_INTEGERS: dict[str, st.SearchStrategy[Any]] = {
    "TINYINT": st.integers(-(2**7), 2**7 - 1),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INTEGER": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": _INT64,
    "DATE": st.integers(-(2**31), 2**31 - 1),
}


@st.composite
def decimal_types(draw: st.DrawFn) -> t.DataType:
    precision = draw(st.integers(1, t.MAX_DECIMAL_PRECISION))
    return t.DecimalType(precision, draw(st.integers(0, precision)))


def flat_types() -> st.SearchStrategy[t.DataType]:
    plain = (
        t.BooleanType, t.TinyIntType, t.SmallIntType, t.IntType, t.BigIntType, t.FloatType, t.DoubleType,
        t.StringType, t.BytesType, t.DateType,
    )  # fmt: skip
    return st.one_of(
        st.sampled_from([kind() for kind in plain]),
        st.integers(1, 20).map(t.CharType),
        st.integers(1, 20).map(t.BinaryType),
        st.integers(0, 9).map(t.TimeType),
        st.integers(0, 9).map(t.TimestampType),
        st.integers(0, 9).map(t.TimestampLtzType),
        decimal_types(),
    )


def data_types() -> st.SearchStrategy[t.DataType]:
    """All types, nested up to three levels."""

    def nest(inner: st.SearchStrategy[t.DataType]) -> st.SearchStrategy[t.DataType]:
        rows = st.lists(inner, min_size=1, max_size=3).map(
            lambda types: t.RowType(tuple(t.RowField(f"f{index}", each) for index, each in enumerate(types)))
        )
        maps = st.builds(lambda key, value: t.MapType(key.not_null(), value), flat_types(), inner)
        return st.one_of(inner.map(t.ArrayType), maps, rows)

    return st.recursive(flat_types(), nest, max_leaves=5)


def values(data_type: t.DataType) -> st.SearchStrategy[Any]:
    """Values in the form that `arrow_array` takes; None where the type is nullable."""
    strategy = _values(data_type)
    return st.none() | strategy if data_type.nullable else strategy


def _values(data_type: t.DataType) -> st.SearchStrategy[Any]:
    if data_type.root in _INTEGERS:
        return _INTEGERS[data_type.root]
    if isinstance(data_type, t.BooleanType):
        return st.booleans()
    if isinstance(data_type, t.FloatType):
        return st.floats(width=32)
    if isinstance(data_type, t.DoubleType):
        return st.floats()
    if isinstance(data_type, t.CharType | t.StringType):
        return _SMALL_TEXT
    if isinstance(data_type, t.BytesType):
        return st.binary(max_size=12)
    if isinstance(data_type, t.BinaryType):
        return st.binary(min_size=data_type.length, max_size=data_type.length)
    if isinstance(data_type, t.DecimalType):
        limit, scale = 10**data_type.precision - 1, data_type.scale
        return st.integers(-limit, limit).map(lambda unscaled: decimal_of(unscaled, scale))
    if isinstance(data_type, t.TimeType):
        return st.integers(0, _UNITS_PER_DAY[to_arrow_type(data_type).unit] - 1)
    if isinstance(data_type, t.TimestampType | t.TimestampLtzType):
        # seconds are kept small enough to be milliseconds too
        return st.integers(-(2**52), 2**52) if data_type.precision == 0 else _INT64
    if isinstance(data_type, t.ArrayType):
        return st.lists(values(data_type.element), max_size=4)
    if isinstance(data_type, t.MapType):
        return st.lists(st.tuples(values(data_type.key), values(data_type.value)), max_size=4)
    assert isinstance(data_type, t.RowType)
    return st.fixed_dictionaries({field.name: values(field.data_type) for field in data_type.fields})


def decimal_of(unscaled: int, scale: int) -> decimal.Decimal:
    """Exact for any number of digits."""
    digits = tuple(map(int, str(abs(unscaled))))
    return decimal.Decimal((int(unscaled < 0), digits, -scale))


@st.composite
def record_batches(
    draw: st.DrawFn, types: list[t.DataType], min_rows: int = 0, max_rows: int = MAX_STRATEGY_ROWS
) -> pa.RecordBatch:
    """Rows of the given column types; now and then a slice of a longer batch."""
    count = draw(st.integers(min_rows, max_rows))
    columns = [draw(st.lists(values(data_type), min_size=count, max_size=count)) for data_type in types]
    arrow_types = [to_arrow_type(data_type) for data_type in types]
    batch = pa.record_batch(
        [pa.array(column, arrow_type) for column, arrow_type in zip(columns, arrow_types, strict=True)],
        schema=pa.schema([(f"c{index}", arrow_type) for index, arrow_type in enumerate(arrow_types)]),
    )
    start = draw(st.integers(0, count - min_rows)) if draw(st.booleans()) else 0
    return batch.slice(start)
