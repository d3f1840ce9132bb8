"""The statistics block: the worked sample, bounds of every type, and broken blocks."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fluss.codec.arrow.compression import NO_COMPRESSION
from fluss.codec.batches.arrow_batch import encode_arrow_batch
from fluss.codec.batches.log_batch import encode_batch, read_header
from fluss.codec.batches.statistics import BatchStatistics, decode_statistics, encode_statistics, supports_statistics
from fluss.codec.filters.predicate import order_of
from fluss.model import types as t
from tests.support.runner.lanes import examples
from tests.support.values import reference_log_batches as golden
from tests.support.values.arrow_strategies import decimal_of, flat_types, record_batches

SAMPLE_BLOCK = golden.STATISTICS_JAVA[52 : 52 + 0x5D]


def statistics_of(batch: bytes, types: list[t.DataType] | tuple[t.DataType, ...]) -> BatchStatistics:
    statistics = decode_statistics(batch, 0, read_header(batch), types)
    assert statistics is not None
    return statistics


def test_block_is_javas() -> None:
    assert encode_statistics(golden.ROWS_R3, [0, 1, 2]) == SAMPLE_BLOCK
    encoded = encode_arrow_batch(golden.ROWS_R3, 1, NO_COMPRESSION, statistics_columns=[0, 1, 2])
    assert encoded[48:145] == golden.STATISTICS_JAVA[48:145]


def test_reads_the_sample() -> None:
    statistics = statistics_of(golden.STATISTICS_JAVA, golden.R3_TYPES)
    assert statistics.columns == (0, 1, 2)
    assert [statistics.null_count(column) for column in range(3)] == [0, 1, 1]
    assert [statistics.bounds(column) for column in range(3)] == [(1, 3), ("a", "ccc"), (-2.0, 1.5)]


def test_order_of_columns_is_the_callers() -> None:
    encoded = encode_arrow_batch(golden.ROWS_R3, 1, NO_COMPRESSION, statistics_columns=[2, 0])
    statistics = statistics_of(encoded, golden.R3_TYPES)
    assert statistics.columns == (2, 0)
    assert statistics.bounds(2) == (-2.0, 1.5)
    with pytest.raises(KeyError):
        statistics.bounds(1)


def test_batches_without_statistics() -> None:
    assert decode_statistics(golden.APPEND_JAVA, 0, read_header(golden.APPEND_JAVA), golden.R3_TYPES) is None
    with pytest.raises(ValueError, match="cannot have statistics"):
        encode_statistics(pa.record_batch({"x": [b"a"]}), [0])
    assert not supports_statistics(t.ArrayType(t.IntType()))


@pytest.mark.parametrize(
    ("values", "arrow_type", "data_type", "bounds"),
    [
        ([True, False], pa.bool_(), t.BooleanType(), (False, True)),
        ([-128, 127], pa.int8(), t.TinyIntType(), (-128, 127)),
        ([18262, -1], pa.date32(), t.DateType(), (-1, 18262)),
        ([59, 86399], pa.time32("s"), t.TimeType(0), (59_000, 86_399_000)),
        ([1_500, 2_999], pa.time64("us"), t.TimeType(6), (1, 2)),
        ([2_000_000, 86_399_999_000_000], pa.time64("ns"), t.TimeType(9), (2, 86_399_999)),
        ([-1, 5], pa.timestamp("s"), t.TimestampType(0), ((-1000, 0), (5000, 0))),
        ([-1, 5], pa.timestamp("ms"), t.TimestampType(3), ((-1, 0), (5, 0))),
        ([-1, 5], pa.timestamp("us"), t.TimestampType(6), ((-1, 999_000), (0, 5_000))),
        ([-1, 5], pa.timestamp("ns", "UTC"), t.TimestampLtzType(9), ((-1, 999_999), (0, 5))),
        ([decimal_of(-12345, 2), decimal_of(7, 2)], pa.decimal128(10, 2), t.DecimalType(10, 2), (-12345, 7)),
        ([decimal_of(10**37 + 1, 5), decimal_of(-(10**37) - 1, 5)], pa.decimal128(38, 5), t.DecimalType(38, 5),
         (-(10**37) - 1, 10**37 + 1)),
        (["b", "a much longer text", "ä"], pa.utf8(), t.StringType(), ("a much longer text", "ä")),
        (["\U00010000", "\uffff"], pa.utf8(), t.StringType(), ("\uffff", "\U00010000")),
        ([None, None], pa.int64(), t.BigIntType(), (None, None)),
    ],
)  # fmt: skip
def test_bounds_of_each_type(
    values: list[Any], arrow_type: pa.DataType, data_type: t.DataType, bounds: tuple[Any, Any]
) -> None:
    batch = encode_arrow_batch(
        pa.record_batch([pa.array(values, arrow_type)], names=["x"]), 1, NO_COMPRESSION, statistics_columns=[0]
    )
    assert statistics_of(batch, [data_type]).bounds(0) == bounds


@pytest.mark.parametrize("arrow_type", [pa.float32(), pa.float64()])
def test_bounds_of_floats_are_in_javas_order(arrow_type: pa.DataType) -> None:
    def bounds(values: list[float | None]) -> str:
        rows = pa.record_batch([pa.array(values, arrow_type)], names=["x"])
        batch = encode_arrow_batch(rows, 1, NO_COMPRESSION, statistics_columns=[0])
        data_type = t.FloatType() if arrow_type == pa.float32() else t.DoubleType()
        return str(statistics_of(batch, [data_type]).bounds(0))

    assert bounds([0.0, -0.0, None]) == "(-0.0, 0.0)"
    assert bounds([-0.0]) == "(-0.0, -0.0)"
    assert bounds([0.0, 1.0]) == "(0.0, 1.0)"
    assert bounds([1.0, math.nan, -math.inf]) == "(-inf, nan)"
    assert bounds([math.nan]) == "(nan, nan)"


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.lists(flat_types().filter(supports_statistics), min_size=1, max_size=4))
def test_bounds_are_those_of_the_rows(data: st.DataObject, types: list[t.DataType]) -> None:
    rows = data.draw(record_batches(types, min_rows=1))
    columns = list(range(len(types)))
    statistics = statistics_of(encode_arrow_batch(rows, 1, NO_COMPRESSION, statistics_columns=columns), types)
    for column, data_type in enumerate(types):
        array = rows.column(column)
        assert statistics.null_count(column) == array.null_count
        bounds = statistics.bounds(column)
        singles = [_single(rows.slice(row, 1), column, data_type) for row in range(rows.num_rows)]
        keys = [order_of(data_type)(value) for value in singles if value is not None]
        if not keys:
            assert bounds == (None, None)
        else:
            assert tuple(map(order_of(data_type), bounds)) == (min(keys), max(keys))


def _single(row: pa.RecordBatch, column: int, data_type: t.DataType) -> Any:
    batch = encode_arrow_batch(row.select([column]), 1, NO_COMPRESSION, statistics_columns=[0])
    return statistics_of(batch, [data_type]).bounds(0)[0]


@pytest.mark.parametrize(
    "block",
    [b"\x01", b"\x02" + SAMPLE_BLOCK[1:], b"\x01\x00\x00" + SAMPLE_BLOCK[3:], b"\x01\xff\xff" + SAMPLE_BLOCK[3:],
     b"\x01\xff\x7f" + SAMPLE_BLOCK[3:], SAMPLE_BLOCK[:-1], SAMPLE_BLOCK[:3] + b"\x09" + SAMPLE_BLOCK[4:]],
)  # fmt: skip
def test_unusable_blocks_count_as_none(block: bytes) -> None:
    batch = encode_batch([], 1, 1, append_only=True, statistics=block, magic=1)
    assert decode_statistics(batch, 0, read_header(batch), golden.R3_TYPES) is None
