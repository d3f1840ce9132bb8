"""The statistics block of V1 and V2 batches: null counts and bounds of some columns.

    version 1 | int16 column count N | N x int16 position | N x int32 null count |
    int32 size, min row | int32 size, max row                                        (little-endian, ALIGNED rows)

The bounds of a column without values are null. Values are in logical form (`codec.rows.values`), so predicates compare
them with literals directly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from struct import Struct, error
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.codec.arrow.types import from_arrow_type
from fluss.codec.batches.log_batch import BatchHeader
from fluss.codec.buffers import ReadableBuffer, byte_view
from fluss.codec.rows.aligned import decode_aligned_row, encode_aligned_row
from fluss.model.types import DataType

STATISTICS_VERSION = 1
STATISTICS_ROOTS = frozenset(
    (
        "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "STRING", "CHAR", "DECIMAL", "DATE",
        "TIME_WITHOUT_TIME_ZONE", "TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE",
    )
)  # fmt: skip

_VERSION_AND_COUNT = Struct("<Bh")
_INT32 = Struct("<i")
_NANOS_PER_MILLI = 1_000_000
_UNITS_PER_MILLI = {"us": 1_000, "ns": 1_000_000}


def supports_statistics(data_type: DataType) -> bool:
    """True if bounds of a column of this type can be stored."""
    return data_type.root in STATISTICS_ROOTS


def encode_statistics(batch: pa.RecordBatch, columns: Sequence[int]) -> bytes:
    """Encode the statistics block of the columns at these positions, in this order."""
    types: list[DataType] = []
    null_counts: list[int] = []
    minima: list[object] = []
    maxima: list[object] = []
    for position in columns:
        array = batch.column(position)
        data_type = from_arrow_type(array.type)
        if not supports_statistics(data_type):
            name = batch.schema.names[position]
            raise ValueError(f"column {name!r} of type {data_type} cannot have statistics; leave it out")
        minimum, maximum = _bounds(array, data_type)
        types.append(data_type)
        null_counts.append(array.null_count)
        minima.append(minimum)
        maxima.append(maximum)
    count = len(columns)
    parts = [
        _VERSION_AND_COUNT.pack(STATISTICS_VERSION, count),
        Struct(f"<{count}h{count}i").pack(*columns, *null_counts),
    ]
    for values in (minima, maxima):
        row = encode_aligned_row(values, types)
        parts += (_INT32.pack(len(row)), row)
    return b"".join(parts)


def _bounds(array: pa.Array, data_type: DataType) -> tuple[object, object]:
    if array.null_count == len(array):
        return None, None
    if data_type.root in ("FLOAT", "DOUBLE"):
        return _float_bounds(array.drop_null().to_numpy(zero_copy_only=False))
    result = pc.min_max(array)
    to_logical = _TO_LOGICAL.get(data_type.root, _plain_value)
    return to_logical(result["min"]), to_logical(result["max"])


def _float_bounds(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """The smallest and the largest value in Java's order: -0.0 before 0.0, NaN after everything."""
    numbers = values[~np.isnan(values)]
    if not len(numbers):
        return math.nan, math.nan
    minimum, maximum = float(numbers.min()), float(numbers.max())
    if minimum == 0.0:
        minimum = -0.0 if np.signbit(numbers[numbers == 0]).any() else 0.0
    if maximum == 0.0:
        maximum = -0.0 if np.signbit(numbers[numbers == 0]).all() else 0.0
    return minimum, maximum if len(numbers) == len(values) else math.nan


def _plain_value(scalar: pa.Scalar) -> object:
    return scalar.as_py()


def _days(scalar: pa.Scalar) -> int:
    return int(scalar.value)


def _millis_of_day(scalar: pa.Scalar) -> int:
    unit = scalar.type.unit
    return int(scalar.value) * 1000 if unit == "s" else int(scalar.value) // _UNITS_PER_MILLI.get(unit, 1)


def _millis_and_nanos(scalar: pa.Scalar) -> tuple[int, int]:
    unit, value = scalar.type.unit, int(scalar.value)
    if unit == "s":
        return value * 1000, 0
    units = _UNITS_PER_MILLI.get(unit, 1)
    millis, rest = divmod(value, units)
    return millis, rest * (_NANOS_PER_MILLI // units)


def _unscaled(scalar: pa.Scalar) -> int:
    # Computed from the digits: arithmetic of decimal.Decimal would round to the 28 digits of its default context.
    sign, digits, _ = scalar.as_py().as_tuple()
    magnitude = int("".join(map(str, digits)))
    return -magnitude if sign else magnitude


_TO_LOGICAL: dict[str, Callable[[pa.Scalar], object]] = {
    "DATE": _days,
    "TIME_WITHOUT_TIME_ZONE": _millis_of_day,
    "TIMESTAMP_WITHOUT_TIME_ZONE": _millis_and_nanos,
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": _millis_and_nanos,
    "DECIMAL": _unscaled,
}


class BatchStatistics:
    """The null counts and bounds of a batch, by column position. Bounds are decoded when they are first used."""

    __slots__ = ("_index", "_maxima", "_maximum_row", "_minima", "_minimum_row", "_null_counts", "_types", "columns")

    def __init__(
        self,
        columns: Sequence[int],
        null_counts: Sequence[int],
        types: Sequence[DataType],
        minimum_row: memoryview,
        maximum_row: memoryview,
    ) -> None:
        self.columns = tuple(columns)
        self._index = {position: index for index, position in enumerate(columns)}
        self._null_counts = null_counts
        self._types = types
        self._minimum_row = minimum_row
        self._maximum_row = maximum_row
        self._minima: list[Any] | None = None
        self._maxima: list[object] | None = None

    def null_count(self, position: int) -> int:
        """The number of nulls of a column; KeyError if it has no statistics."""
        return self._null_counts[self._index[position]]

    def bounds(self, position: int) -> tuple[Any, Any]:
        """The smallest and the largest value of a column, None if unknown; KeyError if it has no statistics."""
        index = self._index[position]
        if self._minima is None or self._maxima is None:
            self._minima = decode_aligned_row(self._minimum_row, self._types)
            self._maxima = decode_aligned_row(self._maximum_row, self._types)
        return self._minima[index], self._maxima[index]


def decode_statistics(
    buffer: ReadableBuffer, position: int, header: BatchHeader, data_types: Sequence[DataType]
) -> BatchStatistics | None:
    """The statistics of the batch at `position`, or None if it has none that can be used.

    `data_types` are the types of all columns in the batch's own schema.
    """
    if not header.statistics_length:
        return None
    start = position + header.header_size
    try:
        block = byte_view(buffer)[start : start + header.statistics_length]
        version, count = _VERSION_AND_COUNT.unpack_from(block)
        if version != STATISTICS_VERSION or count <= 0:
            return None
        table = Struct(f"<{count}h{count}i")
        fields = table.unpack_from(block, _VERSION_AND_COUNT.size)
        minimum_row, past = _sized(block, _VERSION_AND_COUNT.size + table.size)
        maximum_row, _ = _sized(block, past)
    except (error, ValueError):
        return None
    columns = fields[:count]
    if not all(0 <= column < len(data_types) for column in columns):
        return None
    types = [data_types[column] for column in columns]
    return BatchStatistics(columns, fields[count:], types, minimum_row, maximum_row)


def _sized(block: memoryview, position: int) -> tuple[memoryview, int]:
    (size,) = _INT32.unpack_from(block, position)
    past = position + _INT32.size + size
    if size <= 0 or past > len(block):
        raise ValueError(f"statistics row of {size} bytes at {position} does not fit into the block of {len(block)}")
    return block[position + _INT32.size : past], past
