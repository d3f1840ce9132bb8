"""Fluss types and Iceberg types.

Iceberg (version 2) has no int of 8 or 16 bits, no CHAR, and its times have microseconds. Values are restored exactly
through the Fluss schema, except for digits beyond microseconds, which are cut off. Field ids are assigned in the
order in which types are visited; the catalog assigns its own when it creates the table.
"""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from fluss.errors import ErrorCode, FlussError
from fluss.model import types as fluss

# Digits of a second that a time in the lake has.
LAKE_TIME_PRECISION = 6

_PLAIN: dict[str, IcebergType] = {
    "BOOLEAN": BooleanType(),
    "TINYINT": IntegerType(),
    "SMALLINT": IntegerType(),
    "INTEGER": IntegerType(),
    "BIGINT": LongType(),
    "FLOAT": FloatType(),
    "DOUBLE": DoubleType(),
    "CHAR": StringType(),
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "BYTES": BinaryType(),
    "DATE": DateType(),
    "TIME_WITHOUT_TIME_ZONE": TimeType(),
    "TIMESTAMP_WITHOUT_TIME_ZONE": TimestampType(),
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": TimestamptzType(),
}
_BACK: dict[IcebergType, fluss.DataType] = {
    BooleanType(): fluss.BooleanType(),
    IntegerType(): fluss.IntType(),
    LongType(): fluss.BigIntType(),
    FloatType(): fluss.FloatType(),
    DoubleType(): fluss.DoubleType(),
    StringType(): fluss.StringType(),
    BinaryType(): fluss.BytesType(),
    DateType(): fluss.DateType(),
    TimeType(): fluss.TimeType(LAKE_TIME_PRECISION),
    TimestampType(): fluss.TimestampType(LAKE_TIME_PRECISION),
    TimestamptzType(): fluss.TimestampLtzType(LAKE_TIME_PRECISION),
}

NextId = Callable[[], int]


def to_iceberg_type(data_type: fluss.DataType, next_id: NextId) -> IcebergType:
    """The Iceberg type of a column; `next_id` gives the ids of nested fields."""
    plain = _PLAIN.get(data_type.root)
    if plain is not None:
        return plain
    if isinstance(data_type, fluss.DecimalType):
        return DecimalType(data_type.precision, data_type.scale)
    if isinstance(data_type, fluss.ArrayType):
        own = next_id()
        return ListType(own, to_iceberg_type(data_type.element, next_id), not data_type.element.nullable)
    if isinstance(data_type, fluss.MapType):
        key, value = next_id(), next_id()
        key_type, value_type = to_iceberg_type(data_type.key, next_id), to_iceberg_type(data_type.value, next_id)
        return MapType(key, key_type, value, value_type, not data_type.value.nullable)
    if isinstance(data_type, fluss.RowType):
        return StructType(*[_row_field(row_field, next_id) for row_field in data_type.fields])
    message = f"column type {data_type} does not exist in Iceberg: use another type"
    raise FlussError(message, ErrorCode.INVALID_TABLE_EXCEPTION)


def _row_field(row_field: fluss.RowField, next_id: NextId) -> NestedField:
    own = next_id()
    required = not row_field.data_type.nullable
    return NestedField(
        own, row_field.name, to_iceberg_type(row_field.data_type, next_id), required, doc=row_field.description
    )


def from_iceberg_type(iceberg_type: IcebergType, nullable: bool = True) -> fluss.DataType:
    """The Fluss type for the values of an Iceberg type, for tables that other programs have created.

    >>> str(from_iceberg_type(IntegerType()))
    'INT'
    """
    plain = _BACK.get(iceberg_type)
    if plain is not None:
        return plain.copy(nullable)
    if isinstance(iceberg_type, DecimalType):
        return fluss.DecimalType(iceberg_type.precision, iceberg_type.scale, nullable=nullable)
    if isinstance(iceberg_type, ListType):
        element = from_iceberg_type(iceberg_type.element_type, not iceberg_type.element_required)
        return fluss.ArrayType(element, nullable=nullable)
    if isinstance(iceberg_type, MapType):
        value = from_iceberg_type(iceberg_type.value_type, not iceberg_type.value_required)
        return fluss.MapType(from_iceberg_type(iceberg_type.key_type, False), value, nullable=nullable)
    if isinstance(iceberg_type, StructType):
        fields = [
            fluss.RowField(each.name, from_iceberg_type(each.field_type, not each.required), each.doc)
            for each in iceberg_type.fields
        ]
        return fluss.RowType(tuple(fields), nullable=nullable)
    raise FlussError(f"Iceberg type {iceberg_type} cannot be stored in Fluss", ErrorCode.INVALID_TABLE_EXCEPTION)


def same_type(one: IcebergType, other: IcebergType) -> bool:
    """True if two types hold the same values under the same names, whatever the ids of their fields."""
    if isinstance(one, ListType) and isinstance(other, ListType):
        return one.element_required == other.element_required and same_type(one.element_type, other.element_type)
    if isinstance(one, MapType) and isinstance(other, MapType):
        same_parts = same_type(one.key_type, other.key_type) and same_type(one.value_type, other.value_type)
        return one.value_required == other.value_required and same_parts
    if isinstance(one, StructType) and isinstance(other, StructType):
        pairs = zip(one.fields, other.fields, strict=False)
        return len(one.fields) == len(other.fields) and all(same_field(left, right) for left, right in pairs)
    return one == other


def same_field(one: NestedField, other: NestedField) -> bool:
    """True if two fields have the same name, type and nullability."""
    return one.name == other.name and one.required == other.required and same_type(one.field_type, other.field_type)
