"""Conversion of columns between Fluss's Arrow types and those of lake files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema as IcebergSchema

from fluss.codec.arrow.convert import check_nulls, converted, cut, relabelled
from fluss.codec.arrow.types import to_arrow_type
from fluss.errors import FlussError
from fluss.lake.tables.interface.format import BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss.model.schema import Schema

LAKE_ZONE = "UTC"
SYSTEM_ARROW_TYPES: dict[str, pa.DataType] = {
    BUCKET_COLUMN: pa.int32(),
    OFFSET_COLUMN: pa.int64(),
    TIMESTAMP_COLUMN: pa.timestamp("us", LAKE_ZONE),
}


def file_schema(schema: IcebergSchema) -> pa.Schema:
    """The Arrow schema of data files, with field ids, in types with 32-bit offsets, as in Fluss's batches."""
    return pa.schema([_narrow_field(field) for field in schema_to_pyarrow(schema)])


def _narrow_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _narrow(field.type), field.nullable, field.metadata)


def _narrow(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(data_type):
        return pa.utf8()
    if pa.types.is_large_binary(data_type):
        return pa.binary()
    if pa.types.is_large_list(data_type) or pa.types.is_list(data_type):
        return pa.list_(_narrow_field(data_type.value_field))
    if pa.types.is_map(data_type):
        return pa.map_(_narrow_field(data_type.key_field), _narrow_field(data_type.item_field))
    if pa.types.is_struct(data_type):
        return pa.struct([_narrow_field(data_type.field(index)) for index in range(data_type.num_fields)])
    return data_type


def to_lake(batch: pa.RecordBatch, target: pa.Schema, bucket_id: int) -> pa.RecordBatch:
    """Convert rows of a bucket for a file.

    Columns are found by name; `__bucket` is filled in. A column that the batch lacks (rows written before it was added)
    is null. Digits of times beyond microseconds are cut off, for times before 1970 too.
    """
    arrays = []
    for field in target:
        where = f"column {field.name!r}"
        position = batch.schema.get_field_index(field.name)
        if field.name == BUCKET_COLUMN:
            array = pa.repeat(pa.scalar(bucket_id, pa.int32()), batch.num_rows)
        elif position >= 0:
            array = batch.column(position)
        else:
            array = pa.nulls(batch.num_rows, field.type)
        check_nulls(array, field, where)
        arrays.append(converted(array, field.type, where, _converted_leaf))
    unknown = [name for name in batch.schema.names if target.get_field_index(name) < 0]
    if unknown:
        raise FlussError(
            f"the rows have columns that the lake table lacks: {', '.join(unknown)}. Load the lake table again: a "
            "column that is added to a table is added to its lake table first"
        )
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _converted_leaf(array: pa.Array, target: pa.DataType, where: str) -> pa.Array:
    try:
        if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(target):
            return cut(relabelled(array, target.tz), target.unit)
        if pa.types.is_time(array.type) and pa.types.is_time(target):
            return cut(array, target.unit)
        return array.cast(target)
    except pa.ArrowException as error:
        raise FlussError(f"{where} has type {array.type} and cannot be converted to {target}: {error}") from None


def table_schema(schema: Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The Arrow schema of a read: these columns of the Fluss schema (all of them if None), system columns by name."""
    types = {column.name: to_arrow_type(column.data_type) for column in schema.columns}
    names = list(types) if columns is None else list(columns)
    if not names:
        raise FlussError("a read needs at least one column; the number of rows of a file is in its plan")
    unknown = [name for name in names if name not in types and name not in SYSTEM_ARROW_TYPES]
    if unknown:
        raise FlussError(f"unknown column {unknown[0]!r}; the columns are {', '.join((*types, *SYSTEM_ARROW_TYPES))}")
    nullable = {column.name: column.data_type.nullable for column in schema.columns}
    return pa.schema(
        [
            pa.field(name, types[name], nullable[name])
            if name in types
            else pa.field(name, SYSTEM_ARROW_TYPES[name], False)
            for name in names
        ]
    )


def from_lake(columns: Mapping[str, pa.Array], row_count: int, target: pa.Schema) -> pa.RecordBatch:
    """Convert columns of a file to the types of the Fluss table; columns that the file lacks are null."""
    arrays = []
    for field in target:
        array = columns.get(field.name)
        if array is None:
            arrays.append(pa.nulls(row_count, field.type))
        else:
            plain = array.cast(_narrow(array.type))
            arrays.append(converted(plain, field.type, f"column {field.name!r} of the lake", _converted_leaf))
    return pa.RecordBatch.from_arrays(arrays, schema=target)
