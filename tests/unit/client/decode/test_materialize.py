"""Arrow columns become the Python values that the documents promise, for every type, with nulls, sliced and whole."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.client.decode.log_rows import PAGED_FROM_ROWS, LogRows
from fluss.client.decode.materialize import ScanRecord, column_values, row_maker
from fluss.errors import FlussError
from fluss.values.basic import ChangeType, TableBucket

UTC = dt.UTC
BUCKET = TableBucket(1, 0)
MOMENTS = [dt.datetime(1969, 12, 31, 23, 59, 59, 999000), dt.datetime(2024, 2, 29, 12, 30), dt.datetime(9999, 1, 1)]

COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 127]),
    (pa.int16(), [-(2**15), 2**15 - 1]),
    (pa.int32(), [-(2**31), 2**31 - 1]),
    (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    (pa.float32(), [1.5, -0.0, float("inf")]),
    (pa.float64(), [0.1, -1e300]),
    (pa.string(), ["", "ä", "x" * 200]),
    (pa.string(), ["short", "b"]),
    (pa.binary(), [b"", b"\x00\xff"]),
    (pa.binary(3), [b"abc", b"\x00\x00\x00"]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    (pa.time32("s"), [dt.time(0), dt.time(23, 59, 59)]),
    (pa.time32("ms"), [dt.time(0, 0, 0, 1000), dt.time(23, 59, 59, 999000)]),
    (pa.time64("us"), [dt.time(12, 0, 0, 1)]),
    (pa.time64("ns"), [dt.time(12, 0, 0, 1)]),
    (pa.timestamp("s"), [dt.datetime(2024, 1, 1), dt.datetime(1, 1, 1)]),
    (pa.timestamp("ms"), MOMENTS),
    (pa.timestamp("us"), [*MOMENTS, dt.datetime(2024, 1, 1, 0, 0, 0, 7)]),
    (pa.timestamp("ns"), [dt.datetime(2024, 1, 1, 0, 0, 0, 7), dt.datetime(1960, 1, 1)]),
    (pa.timestamp("ms", "UTC"), [moment.replace(tzinfo=UTC) for moment in MOMENTS]),
    (pa.timestamp("us", "UTC"), [moment.replace(tzinfo=UTC) for moment in MOMENTS]),
    (pa.timestamp("ns", "UTC"), [dt.datetime(2024, 1, 1, tzinfo=UTC)]),
    (pa.decimal128(10, 2), [decimal.Decimal("1.00"), decimal.Decimal("-99999999.99")]),
    (pa.decimal128(18, 0), [decimal.Decimal(-(10**18) + 1)]),
    (pa.decimal128(38, 10), [decimal.Decimal("1234567890123456789012345678.0123456789")]),
    (pa.list_(pa.int32()), [[], [1, None, 3]]),
    (pa.list_(pa.timestamp("ns")), [[dt.datetime(2024, 1, 1)], []]),
    (pa.map_(pa.string(), pa.int64()), [[], [("a", 1), ("b", None)]]),
    (pa.map_(pa.date32(), pa.list_(pa.string())), [[(dt.date(2024, 1, 1), ["x"])]]),
    (pa.struct([("a", pa.int32()), ("b", pa.timestamp("us", "UTC"))]), [{"a": 1, "b": None}, {"a": None, "b": None}]),
    (pa.struct([("a", pa.struct([("b", pa.list_(pa.date32()))]))]), [{"a": {"b": [dt.date(2020, 1, 1)]}}]),
]  # fmt: skip


def array_of(arrow_type: pa.DataType, values: list[Any]) -> Any:
    return pa.array(values, arrow_type)


@pytest.mark.parametrize(("arrow_type", "values"), COLUMNS, ids=lambda each: str(each)[:40])
def test_every_type(arrow_type: pa.DataType, values: list[Any]) -> None:
    for wanted in (values, [None, *values, None], [None, None], [], values * 40):
        column = array_of(arrow_type, wanted)
        assert column_values(column) == wanted
        for start, length in ((0, 1), (1, 2), (1, 100)):
            assert column_values(column.slice(start, length)) == wanted[start : start + length]


@pytest.mark.parametrize(("arrow_type", "values"), COLUMNS, ids=lambda each: str(each)[:40])
def test_inside_of_lists_and_rows(arrow_type: pa.DataType, values: list[Any]) -> None:
    nested = pa.ListArray.from_arrays(pa.array([0, 0, 1, len(values)], pa.int32()), array_of(arrow_type, values))
    assert column_values(nested) == [[], values[:1], values[1:]]
    assert column_values(nested.slice(1)) == [values[:1], values[1:]]
    rows = pa.StructArray.from_arrays([array_of(arrow_type, values)], ["f"])
    assert column_values(rows.slice(len(values) - 1)) == [{"f": values[-1]}]


def test_values_have_the_documented_types() -> None:
    assert type(column_values(pa.array([1], pa.timestamp("ms")))[0]) is dt.datetime
    assert type(column_values(pa.array([1], pa.date32()))[0]) is dt.date
    assert column_values(pa.array([1], pa.timestamp("us", "UTC")))[0].tzinfo is UTC


def test_nanoseconds_are_cut_to_microseconds() -> None:
    assert column_values(pa.array([1999], pa.timestamp("ns"))) == [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]
    assert column_values(pa.array([1999], pa.time64("ns"))) == [dt.time(0, 0, 0, 1)]


@pytest.mark.parametrize("arrow_type", [pa.timestamp("s"), pa.timestamp("s", "UTC"), pa.timestamp("ms"), pa.date32()])
def test_moments_that_python_cannot_hold(arrow_type: pa.DataType) -> None:
    far = pa.array([2**31 - 1 if arrow_type.bit_width == 32 else 2**60, 0, None], pa.int64())
    column = far.cast(pa.int32()).cast(arrow_type) if arrow_type.bit_width == 32 else far.cast(arrow_type)
    with pytest.raises(FlussError, match="9999"):
        column_values(column)
    hidden = pa.Array.from_buffers(arrow_type, 3, [pa.py_buffer(b"\x02"), column.buffers()[1]])
    assert column_values(hidden)[0] is None  # bytes under a null have no meaning


@given(st.lists(st.none() | st.text(max_size=80), max_size=30), st.integers(0, 30))
def test_texts(values: list[str | None], start: int) -> None:
    values = [value if value is None else value.encode("utf-8", "ignore").decode() for value in values]
    assert column_values(pa.array(values, pa.string()).slice(start)) == values[start:]


@given(st.lists(st.none() | st.decimals(-(10**15), 10**15, places=2), max_size=10))
def test_decimals(values: list[decimal.Decimal | None]) -> None:
    found = column_values(pa.array(values, pa.decimal128(18, 2)))
    assert found == values
    assert [str(value) for value in found] == [
        str(value) for value in pa.array(values, pa.decimal128(18, 2)).to_pylist()
    ]


def test_rows_with_names_that_are_no_identifiers() -> None:
    names = ("a b", "quote'\"\\", "1", "class", "{}")
    plain, listed = row_maker(names)
    columns = [[index] for index in range(5)]
    row = dict(zip(names, range(5), strict=True))
    assert list(plain(7, 9, ChangeType.Insert, columns)) == [ScanRecord(7, 9, ChangeType.Insert, row)]
    assert list(listed([8], 9, [ChangeType.Delete], columns)) == [ScanRecord(8, 9, ChangeType.Delete, row)]


def rows_of(count: int, **fields: Any) -> LogRows:
    batch = pa.RecordBatch.from_arrays([pa.array(range(count), pa.int32())], ["id"])
    return LogRows(BUCKET, batch, 100, 5, **fields)


def test_large_batches_are_made_page_by_page() -> None:
    count = PAGED_FROM_ROWS + 3
    records = list(rows_of(count).records())
    assert [record.offset for record in records] == list(range(100, 100 + count))
    assert [record.row["id"] for record in records] == list(range(count))


def test_slices_keep_offsets_and_change_types() -> None:
    import numpy as np

    rows = rows_of(4, change_types=bytes((1, 2, 3, 4)), offsets=np.array([100, 103, 104, 200]))
    part = rows.slice(1, 4)
    assert [(r.offset, r.change_type.short_string(), r.row["id"]) for r in part.records()] == [
        (103, "-U", 1),
        (104, "+U", 2),
        (200, "-D", 3),
    ]
    assert (part.offset_of(0), part.last_offset) == (103, 200)
    assert [rows.index_of(offset) for offset in (0, 100, 101, 104, 201)] == [0, 0, 1, 2, 4]
    assert [rows.cut_at(limit) for limit in (1, 2, 3, 4)] == [1, 3, 3, 4]
