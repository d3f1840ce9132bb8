"""Arrow data on its way between tables and Spark.

Spark takes a batch only if its schema is exactly `spark_arrow_schema` of the Spark schema: type, order, names and the
nullability of every nested field. Tables are as exact, with types of their own. `for_spark` and `from_spark` go through
the columns by name; equal types cost nothing, nested ones with equal leaves are relabelled without a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from fluss.client.fitting import ExtraDigits, Fit, FitRules, UnfitValueError, fit_of
from fluss.client.writer.bad_values import first_bad_row, shown_scalar
from fluss.codec.arrow_convert import check_nulls, converted, cut
from fluss.codec.arrow_types import from_arrow_type
from fluss.errors import FlussError


def spark_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects from a reader; by Spark's own function, since it compares with it."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def for_spark(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """A batch of a table as Spark wants it: `target` is `spark_arrow_schema` of the read's schema.

    Columns are found by name; others of the batch are left out.
    """
    if batch.schema.equals(target):
        return batch
    positions = {name: index for index, name in enumerate(batch.schema.names)}
    arrays = []
    for field in target:
        if field.name not in positions:
            raise FlussError(f"the table has no column {field.name!r}, only {', '.join(positions)}")
        array = batch.column(positions[field.name])
        check_nulls(array, field, f"column {field.name!r}")
        arrays.append(converted(array, field.type, f"column {field.name!r}", _leaf_for_spark))
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def from_spark(
    batch: pa.RecordBatch, target: pa.Schema, extra_digits: ExtraDigits = "error", exact: Collection[str] = ()
) -> pa.RecordBatch:
    """A batch of a Spark writer as the table wants it: `target` is the Arrow schema of the columns to write.

    Columns are matched by name. Numbers may have another type as long as the values fit; everything else must have the
    type of the column. Digits that a column lacks are refused or cut off, those of columns in `exact` always refused.
    """
    if batch.schema.equals(target):
        return batch
    check_names(batch.schema.names, target.names)
    arrays = []
    for field in target:
        where = f"column {field.name!r}"
        array = batch.column(batch.schema.get_field_index(field.name))
        check_nulls(array, field, where)
        leaf = partial(_leaf_from_spark, FitRules(extra_digits, is_key=field.name in exact))
        arrays.append(converted(array, field.type, where, leaf))
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def check_names(given: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise unless both have the same names, each once."""
    twice = sorted({name for name in given if list(given).count(name) > 1})
    if twice:
        raise FlussError(f"the rows have a column twice: {', '.join(twice)}")
    missing = [name for name in wanted if name not in given]
    extra = [name for name in given if name not in wanted]
    if missing or extra:
        said = [f"lack {', '.join(missing)}"] if missing else []
        said += [f"have {', '.join(extra)}, which the table does not have"] if extra else []
        raise FlussError(
            f"the rows {' and '.join(said)}: the columns to write are {', '.join(wanted)}. "
            "Select them by name, or name the columns of a partial update with the option columns"
        )


def check_types(given: pa.Schema, target: pa.Schema) -> None:
    """Raise for columns that `from_spark` would refuse, before any row is there."""
    check_names(given.names, target.names)
    from_spark(_empty(given), target)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _leaf_for_spark(array: Any, target: pa.DataType, where: str) -> Any:
    source = array.type
    if pa.types.is_temporal(source) and getattr(source, "unit", "") == "ns":
        if pa.types.is_int64(target):
            return array.cast(target)
        array = cut(array, "us")
    try:
        return array.cast(target)
    except pa.ArrowException as error:
        raise FlussError(f"{where} is {source} in the table and cannot be read as {target}: {error}") from None


_TAKEN = (
    (pa.types.is_signed_integer, pa.types.is_signed_integer),
    (pa.types.is_signed_integer, pa.types.is_decimal),
    (pa.types.is_signed_integer, pa.types.is_floating),
    (pa.types.is_floating, pa.types.is_floating),
    (pa.types.is_floating, pa.types.is_decimal),
    (pa.types.is_decimal, pa.types.is_decimal),
    (pa.types.is_binary, pa.types.is_fixed_size_binary),
    (pa.types.is_large_binary, pa.types.is_binary),
    (pa.types.is_large_string, pa.types.is_string),
    (pa.types.is_time, pa.types.is_time),
)


def _leaf_from_spark(rules: FitRules, array: Any, target: pa.DataType, where: str) -> Any:
    source = array.type
    if pa.types.is_int64(source) and pa.types.is_temporal(target) and getattr(target, "unit", "") == "ns":
        return array.cast(target)  # what reads with nanosAs=bigint give
    # Without a zone, a time of Spark is no point in time, whereas rows without one mean UTC.
    same_kind = pa.types.is_timestamp(source) and pa.types.is_timestamp(target)
    if (same_kind and (source.tz is None) == (target.tz is None)) or any(
        is_source(source) and is_target(target) for is_source, is_target in _TAKEN
    ):
        return _fitted(fit_of(from_arrow_type(target), rules), array, where)
    hint = " (timestamp is a point in time, timestamp_ntz is not)" if pa.types.is_timestamp(source) else ""
    raise FlussError(f"{where} is {target} in the table, but the rows have {source}{hint}: cast it first")


def _fitted(fit: Fit, array: Any, where: str) -> Any:
    try:
        return fit.array(array)
    except UnfitValueError as error:
        row = first_bad_row(array, fit.array)
        value = "" if row is None else f" {shown_scalar(array, row)}"
        raise FlussError(
            f"{where} is {fit.arrow_type} in the table, and a value does not fit{value}: {error}"
        ) from None
