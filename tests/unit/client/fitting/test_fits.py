"""Python values and Arrow arrays by one rule: what is taken, what is stored, what is refused and why."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fluss.client.fitting import FitRules, UnfitTypeError, UnfitValueError, fit_of
from fluss.client.input.row_columns import array_maker
from fluss.codec.rows.columns import RowFormat
from fluss.model import types as t
from tests.support.runner.lanes import examples

D, UTC = decimal.Decimal, datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1)
MOMENT = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)
CUT, IN_ROWS = FitRules("truncate"), FitRules(row_format=RowFormat.COMPACTED)
POINT = t.RowType((t.RowField("x", t.IntType()), t.RowField("y", t.IntType())))
REFUSED = "refused"

# Column type, source array, what comes out; REFUSED stands for all values of the array.
EXACT: list[tuple[t.DataType, Any, Any]] = [
    (t.BigIntType(), pa.array([1.0, -7.0]), [1, -7]),
    (t.BigIntType(), pa.array([D("5.00")]), [5]),
    (t.BigIntType(), pa.array([2**63], pa.uint64()), REFUSED),
    (t.BigIntType(), pa.array([1.5, math.nan, math.inf, 2.0**63]), REFUSED),
    (t.IntType(), pa.array([2**31, -(2**31) - 1]), REFUSED),
    (t.IntType(), pa.array(["5"]), REFUSED),
    (t.IntType(), pa.array([True]), REFUSED),
    (t.BigIntType(), pa.array([1], pa.duration("ms")), REFUSED),
    (t.BooleanType(), pa.array([0, 1, 2]), REFUSED),
    (t.FloatType(), pa.array([0.1, math.inf]), [0.10000000149011612, math.inf]),
    (t.FloatType(), pa.array([1e39, -1e39]), REFUSED),
    (t.FloatType(), pa.array([2**24 + 1]), REFUSED),
    (t.FloatType(), pa.array([2**24, 2**30]), [2.0**24, 2.0**30]),
    (t.DoubleType(), pa.array([2**53 + 1, 2**63 - 1]), REFUSED),
    (t.DoubleType(), pa.array([2**53, 2**62]), [2.0**53, 2.0**62]),
    (t.DecimalType(10, 2), pa.array([5]), [D("5.00")]),
    (t.DecimalType(10, 2), pa.array([0.1, 1.99, 1e7]), [D("0.10"), D("1.99"), D("10000000.00")]),
    (t.DecimalType(10, 2), pa.array([0.1], pa.float32()), [D("0.10")]),
    (t.DecimalType(10, 2), pa.array([0.01, -0.01, 0.0], pa.float32()), [D("0.01"), D("-0.01"), D("0.00")]),
    (t.DecimalType(10, 3), pa.array([5e-324, 2.2250738585072014e-308, -1e-300, 1e-40]), REFUSED),
    (t.DecimalType(38, 0), pa.array([1e-39]), REFUSED),
    (t.DecimalType(38, 30), pa.array([5.4254269750754136e16, -1e8, 1e308]), REFUSED),
    (t.DecimalType(38, 30), pa.array([12345678.5, -99999999.0]), [D("12345678.5"), D(-99999999)]),
    (t.DecimalType(10, 2), pa.array([1.999, math.nan, math.inf, 1e9]), REFUSED),
    (t.DecimalType(10, 2), pa.array([D("1.999")]), REFUSED),
    (t.DecimalType(10, 2), pa.array([D("1.9900")]), [D("1.99")]),
    (t.DecimalType(10, 2), pa.array([10**8]), REFUSED),
    # Arrow's own cast wraps around here.
    (t.DecimalType(38, 10), pa.array([D(2**100)], pa.decimal128(38, 0)), REFUSED),
    (t.CharType(3), pa.array(["", "äöü", "a"]), ["", "äöü", "a"]),
    (t.CharType(3), pa.array(["abcd"]), REFUSED),
    (t.StringType(), pa.array(["a"], pa.large_string()).dictionary_encode(), ["a"]),
    (t.StringType(), pa.array(["a"], pa.string_view()), ["a"]),
    (t.StringType(), pa.array([b"a"]), REFUSED),
    (t.StringType(), pa.array([1]), REFUSED),
    (t.BytesType(), pa.array(["a"]), REFUSED),
    (t.BytesType(), pa.array([b"ab"], pa.binary(2)), [b"ab"]),
    (t.BinaryType(2), pa.array([b"ab"], pa.large_binary()), [b"ab"]),
    (t.BinaryType(2), pa.array([b"a", b"abc"]), REFUSED),
    (t.DateType(), pa.array([datetime.datetime(2020, 1, 2)]), [datetime.date(2020, 1, 2)]),
    (t.DateType(), pa.array([datetime.datetime(2020, 1, 2, 3)]), REFUSED),
    (t.DateType(), pa.array([5], pa.int32()), REFUSED),
    (t.TimeType(3), pa.array([1_001], pa.time64("us")), REFUSED),
    (t.TimeType(3), pa.array([1_000], pa.time64("us")), [datetime.time(0, 0, 0, 1000)]),
    (t.TimestampType(3), pa.array([MOMENT]), REFUSED),
    (t.TimestampType(6), pa.array([MOMENT]), [MOMENT]),
    (t.TimestampType(6), pa.array([1]), REFUSED),
    (t.TimestampType(6), pa.array([datetime.date(2020, 1, 1)]), REFUSED),
    (t.TimestampType(6), pa.array([MOMENT.replace(tzinfo=UTC)]), REFUSED),
    (t.TimestampType(9), pa.array([datetime.datetime(3000, 1, 1)]), REFUSED),
    (t.TimestampLtzType(6), pa.array([0], pa.timestamp("us", "Asia/Tokyo")), [EPOCH.replace(tzinfo=UTC)]),
    (t.TimestampLtzType(6), pa.array([MOMENT]), [MOMENT.replace(tzinfo=UTC)]),
    (t.ArrayType(t.CharType(1)), pa.array([["a"], None, ["b", None]]), [["a"], None, ["b", None]]),
    (t.ArrayType(t.CharType(1)), pa.array([["ab"]]), REFUSED),
    (t.ArrayType(t.IntType().not_null()), pa.array([[None]], pa.list_(pa.int32())), REFUSED),
    (t.ArrayType(t.IntType()), pa.array([[1, 2]], pa.list_(pa.int64(), 2)), [[1, 2]]),
    (POINT, pa.array([{"y": 2, "x": 1}]), [{"x": 1, "y": 2}]),
    (POINT, pa.array([{"x": 1}, None]), [{"x": 1, "y": None}, None]),
    (POINT, pa.array([{"X": 1, "y": 2}]), REFUSED),
    (POINT, pa.array([{"x": 1, "z": 2}]), REFUSED),
    (t.ArrayType(POINT), pa.array([[{"x": 1, "z": 2}]]), REFUSED),
    (t.MapType(t.StringType(), POINT), pa.array([[("k", {"x": 1, "z": 2})]], pa.map_(
        pa.string(), pa.struct([("x", pa.int32()), ("z", pa.int32())]))), REFUSED),
    (t.MapType(t.StringType(), t.IntType()), pa.array([[{"key": "a", "value": 1}], None]), [[("a", 1)], None]),
]  # fmt: skip


@pytest.mark.parametrize(("data_type", "array", "expected"), EXACT, ids=lambda each: str(each)[:40].replace("\n", " "))
def test_arrays_are_converted_exactly_or_refused(data_type: t.DataType, array: Any, expected: Any) -> None:
    fit = fit_of(data_type)
    array.validate(full=True)
    if expected == REFUSED:
        for row in range(len(array)):
            with pytest.raises(UnfitValueError):
                fit.array(array.slice(row, 1))
        with pytest.raises(UnfitValueError):
            fit.array(array)
        return
    found = fit.array(array)
    found.validate(full=True)
    assert found.type == fit.arrow_type
    assert found.to_pylist() == expected
    padded = pa.concat_arrays([array, array, array]).slice(len(array), len(array))
    assert fit.array(padded).to_pylist() == expected


VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-300, 300),
    st.sampled_from([2**24 + 1, 2**53 + 1, 2**62, -(2**63)]),
    st.floats(),
    st.sampled_from([0.1, 1.999, 5.0, 1e39, -0.0]),
    st.decimals(-(10**9), 10**9, places=3),
    st.sampled_from([D("5.00"), D("1.50"), D("0.005")]),
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.binary(max_size=4),
    st.booleans(),
    st.dates(),
    st.times(),
    st.datetimes(),
    st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)).map(lambda m: m.replace(microsecond=0)),
    st.datetimes(datetime.datetime(2, 1, 1), datetime.datetime(9998, 1, 1), timezones=st.just(UTC)),
    st.lists(st.integers(-5, 5), max_size=3),
    st.fixed_dictionaries({"x": st.integers(0, 5)}, optional={"y": st.integers(0, 5), "z": st.integers(0, 5)}),
)
TYPES: list[t.DataType] = [
    t.BooleanType(), t.TinyIntType(), t.IntType(), t.BigIntType(), t.FloatType(), t.DoubleType(), t.CharType(3),
    t.StringType(), t.BinaryType(3), t.BytesType(), t.DecimalType(6, 2), t.DecimalType(38, 30), t.DateType(),
    t.TimeType(0), t.TimeType(3), t.TimeType(6), t.TimeType(9), t.TimestampType(0), t.TimestampType(3),
    t.TimestampType(6), t.TimestampType(9), t.TimestampLtzType(0), t.TimestampLtzType(3), t.TimestampLtzType(9),
    t.ArrayType(t.TinyIntType()), POINT,
]  # fmt: skip
ALL_RULES = [FitRules(), CUT, IN_ROWS, FitRules("truncate", RowFormat.INDEXED)]


@settings(max_examples=examples(600), deadline=None)
@given(value=VALUES, data_type=st.sampled_from(TYPES), rules=st.sampled_from(ALL_RULES))
def test_what_one_way_takes_the_other_takes(value: Any, data_type: t.DataType, rules: FitRules) -> None:
    assume(not (isinstance(value, list) and isinstance(data_type, t.RowType)))  # by position, which Arrow has not
    fit = fit_of(data_type, rules)
    try:
        by_value = array_maker(fit.arrow_type)([fit.value(value)], True)
    except UnfitValueError:
        by_value = None
    try:
        by_array = fit.array(pa.array([value]))
    except UnfitValueError:
        by_array = None
    assert (by_value is None) == (by_array is None), (by_value, by_array)
    if by_value is not None and by_array is not None:
        assert by_value.type == by_array.type == fit.arrow_type
        assert repr(by_value.to_pylist()) == repr(by_array.to_pylist())


def test_digits_are_cut_towards_the_past_and_the_smaller_number() -> None:
    last_second = datetime.datetime(1969, 12, 31, 23, 59, 59)
    assert fit_of(t.TimestampType(0), CUT).value(MOMENT) == last_second
    assert fit_of(t.TimestampType(0), CUT).array(pa.array([MOMENT])).to_pylist() == [last_second]
    for number, cut in (("1.999", "1.99"), ("-1.991", "-2.00")):
        assert fit_of(t.DecimalType(6, 2), CUT).value(D(number)) == D(cut)
        assert fit_of(t.DecimalType(6, 2), CUT).value(float(number)) == D(cut)
        for array in (pa.array([D(number)]), pa.array([float(number)])):
            assert fit_of(t.DecimalType(6, 2), CUT).array(array).to_pylist() == [D(cut)]
    time = datetime.time(1, 2, 3, 456_789)
    in_rows = FitRules("truncate", RowFormat.COMPACTED)
    assert fit_of(t.TimeType(6), in_rows).array(pa.array([time])).to_pylist() == [time.replace(microsecond=456_000)]
    with pytest.raises(UnfitValueError, match="digits finer than the milliseconds"):
        fit_of(t.TimeType(6), IN_ROWS).value(time)


def test_floats_are_cut_in_bulk_as_they_are_one_by_one() -> None:
    numbers = [0.0, -0.0, 5e-324, -5e-324, 1e-38, -1e-38, 0.005, -0.005, 0.1 + 0.2, -1e16 / 3, 1e15 + 0.3, 9.999e37]
    for data_type in (t.DecimalType(38, 0), t.DecimalType(38, 20), t.DecimalType(18, 2), t.DecimalType(38, 38)):
        fit, taken = fit_of(data_type, CUT), []
        for number in numbers:
            try:
                taken.append((number, fit.value(number)))
            except UnfitValueError:
                with pytest.raises(UnfitValueError, match="digits before the point"):
                    fit.array(pa.array([number]))
        assert fit.array(pa.array([number for number, _ in taken])).to_pylist() == [cut for _, cut in taken]
        assert fit.array(pa.array([None, 0.0])).to_pylist() == [None, 0]


def test_keys_are_never_cut() -> None:
    rules = FitRules("truncate", is_key=True)
    with pytest.raises(UnfitValueError, match="keys are never cut off"):
        fit_of(t.DecimalType(6, 2), rules).value(D("1.005"))
    with pytest.raises(UnfitValueError, match="keys are never cut off"):
        fit_of(t.TimestampType(3), rules).array(pa.array([MOMENT]))


def test_a_type_that_never_fits_is_refused_without_rows() -> None:
    with pytest.raises(UnfitTypeError, match="no field 'z'; the fields are x, y"):
        fit_of(t.ArrayType(POINT)).array(pa.array([], pa.list_(pa.struct([("z", pa.int32())]))))
    with pytest.raises(UnfitTypeError, match="cast them first"):
        fit_of(t.IntType()).array(pa.array([], pa.string()))


def test_what_cannot_be_seen_does_not_count() -> None:
    """Values under null lists, and outside of slices."""
    values = pa.array(["ab", "a", "abc"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3]), values, mask=pa.array([True, False, True]))
    assert fit_of(t.ArrayType(t.CharType(1))).array(lists).to_pylist() == [None, ["a"], None]
    assert fit_of(t.ArrayType(t.CharType(1))).array(pa.array([["ab"], ["a"]]).slice(1)).to_pylist() == [["a"]]


def test_other_meanings_of_storage_are_no_values_of_the_column() -> None:
    """A period of pandas is stored as the number of months since 1970, which is no BIGINT."""
    months = pa.array(pd.Series(pd.period_range("2026-01", periods=2, freq="M")))
    between = pa.array(pd.Series(pd.interval_range(0, 2)))
    fields = t.RowType((t.RowField("left", t.BigIntType()), t.RowField("right", t.BigIntType())))
    lists = pa.ListArray.from_arrays([0, 2], months)
    for data_type, array in [
        (t.BigIntType(), months),
        (t.BigIntType(), pa.DictionaryArray.from_arrays([1, 0], months)),
        (t.ArrayType(t.BigIntType()), lists),
        (fields, between),
    ]:
        for part in (array, array.slice(0, 0)):
            with pytest.raises(UnfitTypeError, match="have another meaning than their storage type"):
                fit_of(data_type).array(part)


def test_extension_types_that_only_name_what_is_stored_are_taken() -> None:
    ids = pa.array([b"0123456789abcdef"], pa.binary(16))
    if not hasattr(pa, "uuid"):
        pytest.skip("this pyarrow has no uuid and json types")
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), ids)
    assert fit_of(t.BinaryType(16)).array(uuids).to_pylist() == ids.to_pylist()
    with pytest.raises(UnfitTypeError):
        fit_of(t.StringType()).array(uuids)
    documents = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"]))
    assert fit_of(t.StringType()).array(documents).to_pylist() == ["{}"]
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8()))
    with pytest.raises(UnfitTypeError):
        fit_of(t.TinyIntType()).array(flags)


def test_seconds_out_of_reach_of_milliseconds_are_refused_on_both_sides() -> None:
    reach = (2**63 - 1) // 1000
    for far in (-(2**63), 2**63 - 1, reach + 1, -reach - 1):
        with pytest.raises(UnfitValueError, match="out of range"):
            fit_of(t.TimestampType(0), IN_ROWS).array(pa.array([far], pa.timestamp("s")))
    assert fit_of(t.TimestampType(0), IN_ROWS).array(pa.array([-reach, reach], pa.timestamp("s")))


def test_a_far_midnight_is_too_far_and_has_no_time_of_day() -> None:
    for far in (2**31 * 86_400, (-(2**31) - 1) * 86_400, 2**62 // 86_400 * 86_400):
        with pytest.raises(UnfitValueError, match="out of range"):
            fit_of(t.DateType()).array(pa.array([far], pa.timestamp("s")))
    with pytest.raises(UnfitValueError, match="time of day"):
        fit_of(t.DateType()).array(pa.array([1], pa.timestamp("s")))


def test_char_in_indexed_rows_has_bytes() -> None:
    rules = FitRules(row_format=RowFormat.INDEXED)
    for text in ("äö", "a\0"):
        with pytest.raises(UnfitValueError, match="make the column STRING"):
            fit_of(t.CharType(3), rules).value(text)
        with pytest.raises(UnfitValueError, match="make the column STRING"):
            fit_of(t.CharType(3), rules).array(pa.array([text]))
