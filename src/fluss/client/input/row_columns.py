"""Conversion of rows in one flat list to Arrow columns.

The list holds the checked values of row 0, then of row 1 and so on, so a column is every n-th value. Numbers go through
NumPy, which is fastest, but would turn a null of a float column into a NaN: float columns with a null are converted by
Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from fluss.codec.arrow.types import to_arrow_schema
from fluss.model.schema import Schema

_Make = Callable[[list[object], bool], pa.Array]
_NUMBERS = {pa.int8(): "i1", pa.int16(): "i2", pa.int32(): "i4", pa.int64(): "i8"}
_FLOATS = {pa.float32(): "f4", pa.float64(): "f8"}
_TIME_NUMBERS = {32: pa.int32(), 64: pa.int64()}


class ColumnMaker:
    """Makes record batches of one table. Used by any thread."""

    def __init__(self, schema: Schema) -> None:
        self.arrow_schema = to_arrow_schema(schema)
        self._makers = [array_maker(arrow_type) for arrow_type in self.arrow_schema.types]

    def record_batch(self, flat: list[object], saw_null: Sequence[bool]) -> pa.RecordBatch:
        """The rows of a flat list as a record batch."""
        return pa.RecordBatch.from_arrays(self.arrays(flat, saw_null, len(self._makers)), schema=self.arrow_schema)

    def arrays(self, flat: list[object], saw_null: Sequence[bool], width: int) -> list[pa.Array]:
        """The columns of a flat list whose rows have `width` values, the first ones for the columns."""
        return [make(flat[index::width], saw_null[index]) for index, make in enumerate(self._makers)]


def array_maker(arrow_type: pa.DataType) -> _Make:
    """A function that makes arrays of checked values; its second argument tells if there may be nulls."""
    if arrow_type in _NUMBERS:
        return _numbers(arrow_type, _NUMBERS[arrow_type])
    if arrow_type in _FLOATS:
        return _floats(arrow_type, _FLOATS[arrow_type])
    if pa.types.is_time(arrow_type):
        numbers_type = _TIME_NUMBERS[arrow_type.bit_width]
        numbers = _numbers(numbers_type, _NUMBERS[numbers_type])
        return lambda values, saw_null: numbers(values, saw_null).view(arrow_type)
    return lambda values, saw_null: pa.array(values, arrow_type)


def _numbers(arrow_type: pa.DataType, code: str) -> _Make:
    def make(values: list[object], saw_null: bool) -> pa.Array:
        try:
            return pa.array(np.fromiter(values, code, len(values)))
        except TypeError:  # a null, which integers, unlike floats, report
            return pa.array(values, arrow_type)

    return make


def _floats(arrow_type: pa.DataType, code: str) -> _Make:
    def make(values: list[object], saw_null: bool) -> pa.Array:
        if saw_null:
            return pa.array(values, arrow_type)
        return pa.array(np.fromiter(values, code, len(values)))

    return make
