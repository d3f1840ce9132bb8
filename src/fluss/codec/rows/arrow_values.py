"""Converts Arrow columns to lists of logical values and back, to encode and decode small batches row by row.

Logical values are those of `values.py`. Lists have None where the column is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from fluss.codec.arrow.types import to_arrow_type
from fluss.codec.rows.arrow_columns import (
    NUMPY_OF_ROOT,
    as_column,
    from_fixed,
    from_timestamps,
    from_wide_unscaled,
    list_array,
    map_array,
    struct_array,
    to_fixed,
    to_timestamps,
    to_wide_unscaled,
)
from fluss.codec.rows.block_encode import list_parts
from fluss.codec.rows.column_buffers import any_null, null_mask, offsets_of, spread
from fluss.codec.rows.values import (
    FIXED_STRUCTS,
    NANOS_PER_MILLI,
    NESTED_ROOTS,
    TIMESTAMP_ROOTS,
    RowValueError,
    map_pairs,
)
from fluss.codec.rows.varint import MASK64
from fluss.model.types import ArrayType, BinaryType, DataType, MapType, RowType


def column_to_values(array: pa.Array, data_type: DataType) -> list[Any]:
    """Convert an Arrow column to a list of logical values."""
    if data_type.root in NESTED_ROOTS:
        return _nested_values(array, data_type)
    array = as_column(array, data_type)
    values: list[Any]
    if data_type.root in FIXED_STRUCTS:
        numbers = from_fixed(array, data_type)
        values = (numbers != 0).tolist() if data_type.root == "BOOLEAN" else numbers.tolist()
    elif data_type.root in TIMESTAMP_ROOTS:
        millis, nanos = from_timestamps(array)
        values = list(zip(millis.tolist(), nanos.tolist(), strict=True))
    elif data_type.root == "DECIMAL":
        low, high = from_wide_unscaled(array)
        values = [(top << 64) + bottom for bottom, top in zip(low.tolist(), high.tolist(), strict=True)]
    else:
        whole: list[object] = array.to_pylist()
        return whole
    return _with_nulls(values, array)


def _with_nulls(values: list[object], array: pa.Array) -> list[object]:
    nulls = null_mask(array)
    if nulls is not None:
        for index in np.flatnonzero(nulls).tolist():
            values[index] = None
    return values


def _nested_values(array: pa.Array, data_type: DataType) -> list[object]:
    if pa.types.is_null(array.type):
        return [None] * len(array)
    nulls = null_mask(array)
    if nulls is not None:
        array = array.filter(pa.array(~nulls))
    present: list[object]
    if isinstance(data_type, RowType):
        if not pa.types.is_struct(array.type) or array.type.num_fields != len(data_type.fields):
            raise RowValueError(f"{data_type} cannot hold Arrow values of type {array.type}")
        children = [column_to_values(array.field(i), field.data_type) for i, field in enumerate(data_type.fields)]
        present = [list(row) for row in zip(*children, strict=True)] if children else [[] for _ in range(len(array))]
    else:
        counts, parts = list_parts(array, data_type)
        if isinstance(data_type, MapType):
            keys, items = column_to_values(parts[0], data_type.key), column_to_values(parts[1], data_type.value)
            flat: list[object] = list(zip(keys, items, strict=True))
        else:
            assert isinstance(data_type, ArrayType)
            flat = column_to_values(parts[0], data_type.element)
        bounds = offsets_of(counts).tolist()
        present = [flat[bounds[i] : bounds[i + 1]] for i in range(len(array))]
    if nulls is None:
        return present
    following = iter(present)
    return [None if is_null else next(following) for is_null in nulls.tolist()]


def column_from_values(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """Convert logical values to an Arrow column."""
    nulls = any_null(np.array([value is None for value in values], np.bool_))
    root = data_type.root
    if root in NESTED_ROOTS:
        present = [value for value in values if value is not None]
        return spread(_nested_column(present, data_type), nulls)
    try:
        if root in FIXED_STRUCTS:
            numbers = np.array([0 if value is None else value for value in values], NUMPY_OF_ROOT[root])
            return to_fixed(numbers, data_type, nulls)
        if root in TIMESTAMP_ROOTS:
            pairs = np.array([(0, 0) if value is None else value for value in values], np.int64).reshape(-1, 2)
            millis, nanos = pairs[:, 0].copy(), pairs[:, 1].copy()
            if (nanos // NANOS_PER_MILLI).any():
                wrong = int(nanos[nanos // NANOS_PER_MILLI != 0][0])
                raise RowValueError(f"{data_type} must have 0 to 999999 nanoseconds within a millisecond, got {wrong}")
            return to_timestamps(millis, nanos, data_type, nulls)
        if root == "DECIMAL":
            unscaled = [0 if value is None else value for value in values]
            low = np.array([value & MASK64 for value in unscaled], np.uint64)
            high = np.array([value >> 64 for value in unscaled], np.int64)
            return to_wide_unscaled(low, high, data_type, nulls)
        if isinstance(data_type, BinaryType):
            width = data_type.length
            cut = [None if value is None else value[:width].ljust(width, b"\0") for value in values]
            return pa.array(cut, pa.binary(width))
        return pa.array(values, to_arrow_type(data_type))
    except (OverflowError, TypeError, pa.ArrowException) as error:
        raise RowValueError(f"{data_type} cannot hold these values: {error}") from None


def _nested_column(values: list[Any], data_type: DataType) -> pa.Array:
    if isinstance(data_type, RowType):
        fields = data_type.fields
        wrong = next((len(value) for value in values if len(value) != len(fields)), None)
        if wrong is not None:
            raise RowValueError(f"every value of {data_type} must have {len(fields)} fields, got one with {wrong}")
        columns = list(zip(*values, strict=True)) if values else [()] * len(fields)
        children = [column_from_values(column, field.data_type) for column, field in zip(columns, fields, strict=True)]
        return struct_array(data_type, len(values), children)
    lists = [map_pairs(value, data_type) for value in values] if isinstance(data_type, MapType) else values
    offsets = offsets_of(np.array([len(value) for value in lists], np.int64))
    flat = list(chain.from_iterable(lists))
    if isinstance(data_type, MapType):
        keys = column_from_values([pair[0] for pair in flat], data_type.key)
        return map_array(data_type, offsets, keys, column_from_values([pair[1] for pair in flat], data_type.value))
    assert isinstance(data_type, ArrayType)
    return list_array(data_type, offsets, column_from_values(flat, data_type.element))
