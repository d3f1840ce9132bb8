"""Values of NumPy, pandas and odd classes that look like others: each was changed in silence or raised by accident."""

from __future__ import annotations

import datetime
import decimal
import zoneinfo
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fluss.client.fitting import FitRules, UnfitValueError, fit_of
from fluss.client.input.arrow_input import ArrowInput
from fluss.client.input.frame_input import table_of_frame, table_of_polars
from fluss.errors import FlussError
from fluss.model import types as t
from fluss.model.schema import Column, Schema

D, UTC = decimal.Decimal, datetime.UTC
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
SECOND_HALF_PAST_TWO = pd.Timestamp("2026-10-25 01:30", tz="UTC").tz_convert(BERLIN)
IS_LONG_LONGER = np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant
NUMBERS: list[t.DataType] = [t.BigIntType(), t.FloatType(), t.DoubleType(), t.DecimalType(10, 2)]
POINT = t.RowType((t.RowField("x", t.IntType()),))


class OwnDatetime(datetime.datetime):
    pass


class NoOffset(datetime.tzinfo):
    def utcoffset(self, moment: Any) -> None:
        return None

    dst = tzname = utcoffset


@pytest.mark.parametrize("data_type", NUMBERS, ids=str)
@pytest.mark.parametrize("duration", [np.timedelta64(5, "s"), np.timedelta64(5, "ns"), pd.Timedelta(5, "s")], ids=repr)
def test_durations_of_numpy_are_no_integers(data_type: t.DataType, duration: Any) -> None:
    for each, value in ((data_type, duration), (t.ArrayType(data_type), [duration])):
        with pytest.raises(UnfitValueError):
            fit_of(each).value(value)


@pytest.mark.parametrize(
    "moment",
    [SECOND_HALF_PAST_TWO, OwnDatetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)],
    ids=["pandas", "own class"],
)
def test_the_second_hour_of_the_end_of_summer_stays_it(moment: datetime.datetime) -> None:
    assert fit_of(t.TimestampLtzType(6)).value(moment) == datetime.datetime(2026, 10, 25, 1, 30)
    assert fit_of(t.TimestampLtzType(9)).value(moment) == datetime.datetime(2026, 10, 25, 1, 30)


def test_a_date_has_no_nanoseconds() -> None:
    assert fit_of(t.DateType()).value(np.datetime64("2026-01-01T00:00", "ns")) == datetime.date(2026, 1, 1)
    for value in (np.datetime64("2026-01-01T00:00:00.000000001"), pd.Timestamp("2026-01-01 00:00:00.000000001")):
        with pytest.raises(UnfitValueError, match="time of day"):
            fit_of(t.DateType()).value(value)


@pytest.mark.parametrize("data_type", [t.DateType(), t.TimestampType(3), t.TimestampType(9), t.TimestampLtzType(6)])
@pytest.mark.parametrize(
    "value",
    [
        np.datetime64(10**15, "s"),
        np.datetime64(2**62, "D"),
        np.datetime64("20000-01-01"),
        np.datetime64("2026-01-01T00:00:00.000000000001"),
        np.datetime64("NaT"),
        pd.Timestamp(np.datetime64("20000-01-01", "s")),
        pd.Timestamp(np.datetime64("-5000-01-01", "s")),
        pd.NaT,
    ],
    ids=repr,
)
def test_moments_that_python_has_not_are_refused(data_type: t.DataType, value: Any) -> None:
    with pytest.raises(UnfitValueError):
        fit_of(data_type).value(value)


def test_moments_of_numpy_in_all_units() -> None:
    for unit in ("Y", "M", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs"):
        moment = np.datetime64(0, unit)
        assert fit_of(t.TimestampType(6)).value(moment) == datetime.datetime(1970, 1, 1), unit
    assert fit_of(t.TimestampType(9)).value(np.datetime64(-1, "ns")) == -1


def test_a_zone_without_an_offset_is_not_that_of_this_machine() -> None:
    with pytest.raises(UnfitValueError, match="has no UTC offset"):
        fit_of(t.TimestampLtzType(6)).value(datetime.datetime(2026, 1, 1, tzinfo=NoOffset()))


@pytest.mark.skipif(not IS_LONG_LONGER, reason="a long double has 64 bits here")
def test_long_doubles_that_are_no_doubles_are_refused() -> None:
    third, huge, odd = np.longdouble(1) / 3, np.longdouble("1e4000"), np.longdouble(2**60) + np.longdouble("0.5")
    for value in (third, huge, odd):
        for data_type in (t.FloatType(), t.DoubleType(), t.BigIntType()):
            with pytest.raises(UnfitValueError):
                fit_of(data_type).value(value)
    assert fit_of(t.DoubleType()).value(np.longdouble(0.1)) == 0.1
    assert fit_of(t.BigIntType()).value(np.longdouble(2**60)) == 2**60


@pytest.mark.parametrize("rules", [FitRules(), FitRules("truncate")], ids=["error", "truncate"])
def test_half_floats_are_spelled_as_such(rules: FitRules) -> None:
    fit, half = fit_of(t.DecimalType(10, 2), rules), np.float16(0.1)
    assert fit.value(half) == D("0.10")
    assert fit.array(pa.array([half, None], pa.float16())).to_pylist() == [D("0.10"), None]


def test_values_that_cannot_be_shown_are_refused_all_the_same() -> None:
    huge = 10**5000
    for data_type, value in (
        (t.ArrayType(t.IntType()), [huge]),
        (t.MapType(t.StringType(), t.IntType()), {"a": huge}),
        (POINT, {"x": huge}),
        (POINT, {huge: 1}),
    ):
        with pytest.raises(UnfitValueError, match="cannot be shown"):
            fit_of(data_type).value(value)
    with pytest.raises(UnfitValueError, match="not a list"):
        fit_of(t.ArrayType(t.IntType())).value(np.array(5))


def rules_of(data_type: t.DataType) -> ArrowInput:
    return ArrowInput("db.t", Schema((Column("c", data_type),)))


def by_pandas(data_type: t.DataType, series: Any) -> list[Any]:
    rules = rules_of(data_type)
    batches = rules.batches(table_of_frame(rules, pd.DataFrame({"c": series}), "write_pandas"))
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def test_what_is_missing_in_columns_of_objects() -> None:
    for missing in (np.float32("nan"), np.float16("nan"), float("nan"), pd.NA, pd.NaT, np.datetime64("NaT"), None):
        for data_type in (t.IntType(), t.StringType(), t.TimestampType(6), t.DecimalType(5, 2)):
            assert by_pandas(data_type, pd.Series([missing], dtype=object)) == [None]
    assert str(by_pandas(t.DoubleType(), pd.Series([float("nan"), None], dtype=object))) == "[nan, None]"


def series_of(kind: str, values: list[float | None]) -> Any:
    """Doubles in a type of pandas that distinguishes NaN from missing values."""
    if kind == "masked":
        numbers = np.array([0.0 if value is None else value for value in values])
        return pd.Series(pd.arrays.FloatingArray(numbers, np.array([value is None for value in values], bool)))
    arrow_type = {"double": pa.float64(), "float": pa.float32(), "half": pa.float16()}[kind]
    return pd.Series(pa.chunked_array([pa.array(values, arrow_type)]), dtype=pd.ArrowDtype(arrow_type))


@pytest.mark.parametrize("kind", ["masked", "double", "float", "half"])
def test_nan_of_typed_columns_is_null_except_for_floats(kind: str) -> None:
    nan = float("nan")
    for number_type in (t.BigIntType(), t.DecimalType(6, 2)):
        assert by_pandas(number_type, series_of(kind, [5.0, nan, None])) == [5, None, None]
        with pytest.raises(FlussError, match=r"got 1\.5 .* in row 1: it is not a whole number"):
            by_pandas(t.BigIntType(), series_of(kind, [nan, 1.5]))
    for float_type in (t.FloatType(), t.DoubleType()):
        assert str(by_pandas(float_type, series_of(kind, [5.0, nan, None]))) == "[5.0, nan, None]"
    assert by_pandas(t.StringType(), series_of(kind, [nan, None])) == [None, None]
    with pytest.raises(FlussError, match=r"column 'c' .* must not be null"):
        by_pandas(t.BigIntType(nullable=False), series_of(kind, [5.0, nan]))


def test_a_column_of_pandas_without_any_value_has_no_type() -> None:
    """pandas calls it one of floats, also where the frame is empty."""
    for data_type in (t.StringType(), t.BytesType(), t.BooleanType(), t.DateType(), t.TimestampType(3), POINT):
        for values in ([float("nan"), float("nan")], []):
            assert by_pandas(data_type, pd.Series(values, dtype=float)) == [None] * len(values)
        with pytest.raises(FlussError, match="column 'c' expects"):
            by_pandas(data_type, pd.Series([float("nan"), 1.5]))
    with pytest.raises(FlussError, match="must not be null"):
        by_pandas(t.StringType(nullable=False), pd.Series([float("nan")]))


class Months(pa.ExtensionType):
    """A type that is not registered, so that its values are read as numbers."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.months")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> Months:
        return cls()


def received(array: Any, data_type: t.DataType) -> list[Any]:
    """What becomes of a column that comes from another process."""
    sink = pa.BufferOutputStream()
    table = pa.table({"c": array})
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    read = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert not isinstance(read.schema.field("c").type, pa.BaseExtensionType)
    (batch,) = rules_of(data_type).batches(read)
    values: list[Any] = batch.column(0).to_pylist()
    return values


def test_extension_types_that_nobody_registered_are_no_values_of_the_column() -> None:
    months, bigint = pa.ExtensionArray.from_storage(Months(), pa.array([672])), t.BigIntType()
    fields = t.RowType((t.RowField("x", bigint),))
    for data_type, array in (
        (bigint, months),
        (t.IntType(), months),
        (bigint, months.slice(0, 0)),
        (t.ArrayType(bigint), pa.ListArray.from_arrays([0, 1], months)),
        (t.ArrayType(bigint), pa.FixedSizeListArray.from_arrays(months, 1)),
        (t.MapType(t.StringType(), bigint), pa.MapArray.from_arrays([0, 1], pa.array(["a"]), months)),
        (fields, pa.StructArray.from_arrays([months], ["x"])),
        (t.ArrayType(fields), pa.ListArray.from_arrays([0, 1], pa.StructArray.from_arrays([months], ["x"]))),
    ):
        with pytest.raises(
            FlussError, match=r"column 'c' expects .*'tests\.months', whose values have another meaning"
        ):
            received(array, data_type)


def test_metadata_that_only_name_what_is_stored_are_no_hindrance() -> None:
    for data_type, array, name in (
        (t.StringType(), pa.array(["{}"]), "arrow.json"),
        (t.BinaryType(16), pa.array([b"0123456789abcdef"], pa.binary(16)), "arrow.uuid"),
        (t.BigIntType(), pa.array([5]), ""),
    ):
        field = pa.field("c", array.type, metadata={"ARROW:extension:name": name, "PARQUET:field_id": "1"})
        (batch,) = rules_of(data_type).batches(pa.table([array], schema=pa.schema([field])))
        assert batch.column(0).to_pylist() == array.to_pylist()


def test_sparse_columns_are_those_that_they_stand_for() -> None:
    sparse = pd.arrays.SparseArray
    assert str(by_pandas(t.DoubleType(), pd.Series(sparse([1.5, float("nan")])))) == "[1.5, nan]"
    assert by_pandas(t.IntType(), pd.Series(sparse([5.0, float("nan")]))) == [5, None]
    assert by_pandas(t.IntType(), pd.Series(sparse([5, 0, 0]))) == [5, 0, 0]
    with pytest.raises(FlussError, match="column 'c' expects TINYINT, got 300"):
        by_pandas(t.TinyIntType(), pd.Series(sparse([0, 300])))


def test_a_frame_may_be_changed_once_it_was_written() -> None:
    """Rows leave later: they must not share the memory of the frame."""
    numbers, mask, days = np.arange(3), np.zeros(3, bool), np.array(["2026-01-01"] * 3, "M8[ns]")
    for data_type, values, memory in (
        (t.BigIntType(), numbers, numbers),
        (t.BigIntType(), pd.arrays.IntegerArray(numbers, mask), numbers),
        (t.TimestampType(9), days, days),
        (t.DoubleType(), (floats := np.arange(3.0)), floats),
    ):
        rules = rules_of(data_type)
        table = table_of_frame(rules, pd.DataFrame({"c": pd.Series(values, copy=False)}, copy=False), "write_pandas")
        before = table.to_pylist()
        memory[:] = memory[::-1] + np.array(7, "m8[ns]" if memory is days else memory.dtype)
        assert table.to_pylist() == before


def test_what_only_polars_has_is_refused_by_name() -> None:
    """Its objects leave it as eight bytes each, the address in memory."""
    for values, kind in (([object()], pl.Object), ([5], pl.Int128)):
        frame = pl.DataFrame({"id": [1], "c": pl.Series(values, dtype=kind)})
        with pytest.raises(FlussError, match="column 'c' has the polars type"):
            table_of_polars(frame)
    assert table_of_polars(pl.DataFrame({"c": [1]})).to_pylist() == [{"c": 1}]
    assert table_of_polars(pl.Series([1])).to_pylist() == [1]


def not_utf8(view: Any) -> Any:
    """A string, and bytes that are not UTF-8."""
    values = pa.array([b"good", b"caf\xe9 and more than twelve bytes"])
    kind = pa.binary_view() if view == pa.string_view() else pa.binary()
    return values.cast(pa.large_binary() if view == pa.large_string() else kind).view(view)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_errors_have_the_row_and_the_bytes_of_a_text_that_is_none(kind: Any) -> None:
    bad = not_utf8(kind)
    text, texts, pairs = t.StringType(), t.ArrayType(t.StringType()), t.MapType(t.StringType(), t.IntType())
    for data_type, array, row, value in (
        (text, bad, 1, "b'caf"),
        (text, pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), bad), 2, "b'caf"),
        (texts, pa.ListArray.from_arrays([0, 0, 2], bad), 1, r"\['good', b'caf"),
        (texts, pa.FixedSizeListArray.from_arrays(bad, 1), 1, r"\[b'caf"),
        (pairs, pa.MapArray.from_arrays([0, 1, 2], bad, pa.array([1, 2])), 1, r"\[\(b'caf.*', 2\)\]"),
        (t.RowType((t.RowField("x", text),)), pa.StructArray.from_arrays([bad], ["x"]), 1, "{'x': b'caf"),
    ):
        with pytest.raises(FlussError, match=rf"got {value}.* in row {row}: it is not UTF-8"):
            list(rules_of(data_type).batches(pa.table({"c": array})))


def test_errors_do_not_name_a_row_that_is_good() -> None:
    """Of a list view no row can be looked at alone, and an entry of a dictionary may be that of no row."""
    for array in (
        pa.ListViewArray.from_arrays([0, 1], [1, 1], not_utf8(pa.string())),
        pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), not_utf8(pa.string())),
    ):
        data_type = t.StringType() if pa.types.is_dictionary(array.type) else t.ArrayType(t.StringType())
        with pytest.raises(FlussError, match=r"array is invalid \(") as caught:
            list(rules_of(data_type).batches(pa.table({"c": array})))
        assert "in row" not in caught.value.message


def test_errors_have_the_number_of_a_time_that_is_none() -> None:
    """Python would show that of another day."""
    for number in (-1, 86_400_000):
        times = pa.array([number], pa.time32("ms"))
        lists = pa.ListArray.from_arrays([0, 1], times)
        for data_type, array, value in ((t.TimeType(3), times, number), (t.ArrayType(t.TimeType(3)), lists, [number])):
            with pytest.raises(FlussError) as caught:
                list(rules_of(data_type).batches(pa.table({"c": array})))
            assert f"got {value} ({array.type}) in row 0: it is not a time of day" in caught.value.message


def test_views_and_runs_are_refused_with_row_and_value() -> None:
    views = pa.array(["a", "more than twelve characters"], pa.string_view())
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array([5, 300]))
    lists = pa.ListArray.from_arrays([0, 1, 2], views)
    indices = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), views)
    for data_type, array, row in (
        (t.CharType(2), views, 1),
        (t.TinyIntType(), runs, 1),
        (t.ArrayType(t.CharType(2)), lists, 1),
        (t.CharType(2), indices, 0),
        (t.TinyIntType(), runs.slice(2), 0),
    ):
        with pytest.raises(FlussError, match=f"column 'c' expects .* in row {row}: "):
            list(rules_of(data_type).batches(pa.table({"c": array})))
    (batch,) = rules_of(t.StringType()).batches(pa.table({"c": indices}))
    assert batch.column(0).to_pylist() == indices.to_pylist()
