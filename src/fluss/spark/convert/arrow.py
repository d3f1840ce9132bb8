"""Conversion of Arrow data between tables and Spark.

Spark accepts a batch only if its schema is exactly the `spark_arrow_schema` of the Spark schema: types, order, names
and the nullability of every nested field. `for_spark` brings columns, found by name, into that form. Equal types cost
nothing; nested ones with equal leaves are relabelled without a copy. Values from Spark are converted by the fits of
their columns, as values from any other caller are; `SparkInput` only decides which Spark types are accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from fluss.client.engine.values import ArrowInput, FitRules, Source
from fluss.codec.arrow.convert import check_nulls, converted, cut
from fluss.codec.arrow.types import to_arrow_type
from fluss.errors import FlussError
from fluss.model.schema import Schema
from fluss.model.types import ArrayType, DataType, MapType, RowType

if TYPE_CHECKING:
    from fluss.spark.options.parsing import NanosAs


def spark_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects from a reader, made by the function with which Spark checks it."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def for_spark(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Convert a batch of a table to `target`, the `spark_arrow_schema` of the read's schema.

    Columns are found by name; other columns of the batch are left out.
    """
    if batch.schema.equals(target):
        return batch
    positions = {name: index for index, name in enumerate(batch.schema.names)}
    arrays = []
    for field in target:
        if field.name not in positions:
            raise FlussError(f"unknown column {field.name!r} in the table; its columns are {', '.join(positions)}")
        array = batch.column(positions[field.name])
        check_nulls(array, field, f"column {field.name!r}")
        arrays.append(converted(array, field.type, f"column {field.name!r}", _leaf_for_spark))
    return pa.RecordBatch.from_arrays(arrays, schema=target)


class SparkInput:
    """Converts rows of a Spark task to `columns`; errors name the column, type, row and value that do not fit.

    The fit of the column converts each value before anything is kept or sent. Columns in `keys` keep all digits.
    """

    def __init__(
        self,
        table: str,
        columns: Schema,
        nanos_as: NanosAs,
        rules: FitRules,
        keys: Sequence[str] = (),
        required: Sequence[str] = (),
    ) -> None:
        self._columns = columns
        self._nanos_as = nanos_as
        self._input = ArrowInput(table, columns, required, rules, keys)
        self._rows_before = 0

    def rows(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Build a batch of the table from arrays in the order of its columns. Errors count rows over all batches."""
        arrays = []
        for array, column in zip(columns, self._columns.columns, strict=True):
            taken = taken_type(array.type, column.data_type, f"column {column.name!r}", self._nanos_as)
            arrays.append(array if array.type == taken else array.cast(taken))
        batch = pa.RecordBatch.from_arrays(arrays, list(self._columns.column_names))
        fitting = self._input.conform(batch, Source(batch, self._rows_before))
        self._rows_before += batch.num_rows
        return fitting


def check_names(given: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise `FlussError` unless `given` has exactly the names in `wanted`, each once."""
    twice = sorted({name for name in given if list(given).count(name) > 1})
    if twice:
        raise FlussError(f"the rows have duplicate columns: {', '.join(twice)}")
    missing = [name for name in wanted if name not in given]
    extra = [name for name in given if name not in wanted]
    if missing or extra:
        said = [f"lack {', '.join(missing)}"] if missing else []
        said += [f"have {', '.join(extra)}, which the table does not have"] if extra else []
        raise FlussError(
            f"the rows {' and '.join(said)}; the columns to write are {', '.join(wanted)}. "
            "Select them by name, or name the columns of a partial update with the option columns"
        )


def check_types(given: pa.Schema, columns: Schema, nanos_as: NanosAs = "microseconds") -> None:
    """Raise `FlussError` for columns that `SparkInput` would refuse, before there are any rows."""
    check_names(given.names, columns.column_names)
    for column in columns.columns:
        taken_type(given.field(column.name).type, column.data_type, f"column {column.name!r}", nanos_as)


def _leaf_for_spark(array: pa.Array, target: pa.DataType, where: str) -> pa.Array:
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


def taken_type(source: pa.DataType, data_type: DataType, where: str, nanos_as: NanosAs) -> pa.DataType:
    """The Arrow type to read values of `source` as, for a column: `source` itself, except for nanoseconds as numbers.

    Raises if the column does not accept `source`. Queries can cast, so fewer types are accepted than from other Arrow
    data. Nested types are accepted if their leaves are.
    """
    target = to_arrow_type(data_type)
    if source.equals(target) or pa.types.is_null(source):
        return source
    if isinstance(data_type, ArrayType) and pa.types.is_list(source):
        element = taken_type(source.value_type, data_type.element, f"{where}, element", nanos_as)
        return pa.list_(source.value_field.with_type(element))
    if isinstance(data_type, MapType) and pa.types.is_map(source):
        key = taken_type(source.key_type, data_type.key, f"{where}, key", nanos_as)
        value = taken_type(source.item_type, data_type.value, f"{where}, value", nanos_as)
        return pa.map_(source.key_field.with_type(key), source.item_field.with_type(value))
    if isinstance(data_type, RowType) and pa.types.is_struct(source):
        return _taken_struct(source, data_type, where, nanos_as)
    return _taken_leaf(source, target, data_type, where, nanos_as)


def _taken_struct(source: pa.DataType, data_type: RowType, where: str, nanos_as: NanosAs) -> pa.DataType:
    given = [source.field(index) for index in range(source.num_fields)]
    if [field.name for field in given] != [field.name for field in data_type.fields]:
        names, wanted = (", ".join(field.name for field in fields) for fields in (given, data_type.fields))
        raise FlussError(f"{where} has the fields {names}, but the table has {wanted}: use the same names and order")
    return pa.struct(
        field.with_type(taken_type(field.type, own.data_type, f"{where}, field {field.name!r}", nanos_as))
        for field, own in zip(given, data_type.fields, strict=True)
    )


def _taken_leaf(
    source: pa.DataType, target: pa.DataType, data_type: DataType, where: str, nanos_as: NanosAs
) -> pa.DataType:
    hint = ""
    if pa.types.is_int64(source) and pa.types.is_temporal(target) and getattr(target, "unit", "") == "ns":
        if nanos_as == "bigint":
            return target
        hint = " (nanoseconds as BIGINT, which reads with nanosAs=bigint return, need that option here too)"
    # In Spark, a time without a zone is not a point in time, whereas in rows of the client it means UTC.
    same_kind = pa.types.is_timestamp(source) and pa.types.is_timestamp(target)
    if (same_kind and (source.tz is None) == (target.tz is None)) or any(
        is_source(source) and is_target(target) for is_source, is_target in _TAKEN
    ):
        return source
    if pa.types.is_timestamp(source):
        hint = " (timestamp is a point in time, timestamp_ntz is not)"
    raise FlussError(f"{where} is {data_type} in the table, but the rows have {source}{hint}: cast it first")
