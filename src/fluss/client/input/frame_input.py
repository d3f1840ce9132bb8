"""Data frames of pandas and polars as Arrow tables, which are then handled like Arrow data.

Columns with a type of their own become Arrow arrays of that type, which are checked like Arrow data. Columns of Python
objects are checked value by value, like values of rows. NaN is a float for FLOAT and DOUBLE, and a missing value for
all other types. A named index that is a column of the table is used as one; any other index is ignored.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.fitting import UnfitValueError
from fluss.client.fitting.base import shown, widened
from fluss.client.input.arrow_input import ArrowInput
from fluss.client.input.row_columns import array_maker
from fluss.errors import FlussError

_FLOAT_ROOTS = ("FLOAT", "DOUBLE")
_ARROW_KINDS = ("string", "bytes")


def table_of_frame(rules: ArrowInput, frame: Any, call: str) -> pa.Table:
    """The Arrow table of a data frame; `call` is the name of the public method, for errors."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise FlussError(f"{call} requires pandas, which is not installed: pip install 'flusspy[pandas]'") from None
    if not isinstance(frame, pandas.DataFrame):
        raise FlussError(f"{call} takes a pandas.DataFrame, got {type(frame).__name__}")
    columns = _columns(rules, frame)
    rules.check_names([name for name, _ in columns])
    arrays = [_array(rules, pandas, name, series) for name, series in columns]
    return pa.Table.from_arrays(arrays, [name for name, _ in columns])


def table_of_polars(frame: Any) -> Any:
    """The Arrow table of a polars data frame; types that only polars has are refused."""
    schema = getattr(frame, "schema", None)
    schema = schema if isinstance(schema, Mapping) else {}  # other libraries may have such a method too
    for name, kind in schema.items():
        if _has_objects(kind):
            raise FlussError(f"column {name!r} has the polars type {kind}, which Arrow cannot hold")
    try:
        return frame.to_arrow()
    except Exception as error:
        for name, kind in schema.items():
            try:
                frame.get_column(name).to_arrow()
            except Exception:
                text = f"column {name!r} has the polars type {kind}, which Arrow does not have"
                raise FlussError(f"{text} ({error}): cast them first") from None
        raise FlussError(f"the frame cannot be converted to an Arrow table: {error}") from error


def _has_objects(kind: Any) -> bool:
    """True if values of a polars type contain Python objects."""
    if kind.base_type().__name__ == "Object":
        return True
    inner = getattr(kind, "inner", None)
    fields = [field.dtype for field in getattr(kind, "fields", ())]
    return any(map(_has_objects, fields if inner is None else [inner, *fields]))


def _columns(rules: ArrowInput, frame: Any) -> list[tuple[str, Any]]:
    """The columns of a frame, and the index levels that are columns of the table."""
    columns = [(str(name), frame.iloc[:, position]) for position, name in enumerate(frame.columns)]
    known = {name for name, _ in columns}
    for level, name in enumerate(frame.index.names):
        if name is not None and str(name) in rules.schema and str(name) not in known:
            columns.append((str(name), frame.index.get_level_values(level).to_series()))
    return columns


def _array(rules: ArrowInput, pandas: Any, name: str, series: Any) -> pa.ChunkedArray:
    number = rules.schema.position(name)
    is_float = rules.schema.columns[number].data_type.root in _FLOAT_ROOTS
    if isinstance(series.dtype, pandas.SparseDtype):
        series = series.sparse.to_dense()
    is_numpy_float = isinstance(series.dtype, np.dtype) and series.dtype.kind == "f"
    if series.dtype == object:
        kind = pandas.api.types.infer_dtype(series, skipna=True)
        if kind not in _ARROW_KINDS:
            return _of_objects(rules, pandas, number, series)
    elif not isinstance(series.dtype, pandas.ArrowDtype):
        # Rows are sent later, and Arrow would share the memory of the frame, which may change until then.
        series = series.copy()
    try:
        # Arrays with a mask distinguish NaN from missing values.
        keeps_nan = is_float and is_numpy_float
        array = pa.array(series.to_numpy() if keeps_nan else series, from_pandas=not keeps_nan)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return _of_objects(rules, pandas, number, series)
    if pa.types.is_floating(array.type) and not is_float:
        # Columns with a mask and those of Arrow types distinguish NaN from missing values, and may have both.
        array = _nan_as_null(array, rules.arrow_schema.types[number])
    return pa.chunked_array([array]) if isinstance(array, pa.Array) else array


def _nan_as_null(array: Any, column_type: Any) -> Any:
    """Floats for a column of another type: NaN is a missing value, and a column without any value has no type."""
    numbers = widened(array)
    numbers = pc.if_else(pc.is_nan(numbers), pa.scalar(None, numbers.type), numbers)
    return pa.nulls(len(array), column_type) if numbers.null_count == len(array) else numbers


def _of_objects(rules: ArrowInput, pandas: Any, number: int, series: Any) -> pa.ChunkedArray:
    fit = rules.fits[number]
    is_float = fit.data_type.root in _FLOAT_ROOTS
    stored: list[Any] = []
    for row, value in enumerate(series):
        if value is None or value is pandas.NA or value is pandas.NaT or _is_missing(value, is_float=is_float):
            stored.append(None)
            continue
        try:
            stored.append(fit.value(value))
        except UnfitValueError as error:
            column = rules.schema.columns[number]
            got = f"{shown(value)} ({type(value).__name__}) in row {row}"
            rules.refuse(f"column {column.name!r} expects {column.data_type}, got {got}: {error}", error.error_code)
    try:
        return pa.chunked_array([array_maker(rules.arrow_schema.types[number])(stored, True)])
    except (pa.ArrowException, OverflowError) as error:
        column = rules.schema.columns[number]
        text = f"column {column.name!r} expects {column.data_type}, and its values cannot be converted to it ({error})"
        return rules.refuse(f"{text}: convert them first")


def _is_missing(value: object, *, is_float: bool) -> bool:
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return not is_float and isinstance(value, (float, np.floating)) and math.isnan(value)
