"""Nulls under null rows go away, everything that is seen stays."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fluss.codec.arrow.hidden_nulls import without_hidden_nulls

ROWS = [{"a": 1, "b": "x"}, None, {"a": 3, "b": None}, None]


def strict_row(inner: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field("a", inner, nullable=False), pa.field("b", pa.string())])


def with_hidden_nulls(values: list[Any], inner: pa.DataType) -> pa.Array:
    """As a decoder of rows makes it: a null row has null fields, also where the field is NOT NULL."""
    kind = strict_row(inner)
    children = [pa.array([None if v is None else v[f.name] for v in values], f.type) for f in kind]
    mask = pa.array([value is None for value in values])
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


INNER: list[tuple[pa.DataType, Any]] = [
    (pa.int32(), 7),
    (pa.bool_(), True),
    (pa.string(), "text"),
    (pa.binary(), b"bytes"),
    (pa.binary(2), b"ab"),
    (pa.decimal128(10, 2), None),
    (pa.timestamp("us"), 5),
    (pa.list_(pa.int32()), [1, None]),
    (pa.map_(pa.string(), pa.int32()), [("k", 1)]),
    (pa.struct([pa.field("deep", pa.int32(), nullable=False)]), {"deep": 4}),
]


@pytest.mark.parametrize(("inner", "value"), INNER, ids=[str(inner) for inner, _ in INNER])
@pytest.mark.parametrize("start", [0, 1])
def test_every_type_of_field(inner: pa.DataType, value: Any, start: int) -> None:
    some = pa.array([value], inner)[0].as_py() if value is not None else pa.array([1], inner)[0].as_py()
    rows = [{"a": some, "b": "x"}, None, {"a": some, "b": None}, None]
    array = with_hidden_nulls(rows, inner).slice(start)
    clean = without_hidden_nulls(array)
    assert clean.to_pylist() == array.to_pylist()
    clean.validate(full=True)
    pq.write_table(pa.table([clean], pa.schema([pa.field("r", clean.type)])), io.BytesIO())
    assert clean.field(0).null_count == 0


def test_parquet_refuses_what_this_is_for() -> None:
    array = with_hidden_nulls(ROWS, pa.int32())
    with pytest.raises(pa.ArrowInvalid, match="declared non-nullable"):
        pq.write_table(pa.table([array], ["r"]), io.BytesIO())


def test_rows_in_lists_and_maps() -> None:
    rows = with_hidden_nulls(ROWS, pa.int32())
    lists = pa.ListArray.from_arrays(pa.array([0, 2, None, 4], pa.int32()), rows)
    maps = pa.MapArray.from_arrays([0, 1, 4], pa.array(["a", "b", "c", "d"]), rows)
    for array in (lists, lists.slice(1), maps, maps.slice(1)):
        clean = without_hidden_nulls(array)
        assert clean.to_pylist() == array.to_pylist()
        clean.validate(full=True)
        pq.write_table(pa.table([clean], ["c"]), io.BytesIO())


def test_plain_columns_are_not_touched() -> None:
    array = pa.array([1, None, 3])
    assert without_hidden_nulls(array) is array
    lists = pa.array([[1], None])
    assert without_hidden_nulls(lists).equals(lists)
