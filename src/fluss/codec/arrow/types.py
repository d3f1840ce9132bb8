"""Conversion between Fluss data types and Arrow types, and the layout of Arrow types on the wire.

The wire carries only buffers, not names, nullability or time zones, so both sides must agree on the physical layout.
TIMESTAMP_LTZ has the zone UTC in Arrow, so that the Arrow schema alone distinguishes it from TIMESTAMP.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from fluss.model.schema import Column, Schema
from fluss.model.types import (
    MAX_DECIMAL_PRECISION,
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    BytesType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    MapType,
    RowField,
    RowType,
    SmallIntType,
    StringType,
    TimestampLtzType,
    TimestampType,
    TimeType,
    TinyIntType,
)

LOCAL_TIME_ZONE_LABEL = "UTC"

_PLAIN: dict[type[DataType], pa.DataType] = {
    BooleanType: pa.bool_(),
    TinyIntType: pa.int8(),
    SmallIntType: pa.int16(),
    IntType: pa.int32(),
    BigIntType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    CharType: pa.utf8(),
    StringType: pa.utf8(),
    BytesType: pa.binary(),
    DateType: pa.date32(),
}
# A timestamp is stored in the coarsest unit that can hold it.
_UNITS = ("s", "ms", "ms", "ms", "us", "us", "us", "ns", "ns", "ns")
_PRECISION_OF_UNIT = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def to_arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type whose buffers a column of `data_type` has on the wire."""
    plain = _PLAIN.get(type(data_type))
    if plain is not None:
        return plain
    if isinstance(data_type, BinaryType):
        return pa.binary(data_type.length)
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if isinstance(data_type, TimeType):
        unit = _UNITS[data_type.precision]
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if isinstance(data_type, TimestampType):
        return pa.timestamp(_UNITS[data_type.precision])
    if isinstance(data_type, TimestampLtzType):
        return pa.timestamp(_UNITS[data_type.precision], LOCAL_TIME_ZONE_LABEL)
    if isinstance(data_type, ArrayType):
        return pa.list_(_field("element", data_type.element))
    if isinstance(data_type, MapType):
        return pa.map_(_field("key", data_type.key.not_null()), _field("value", data_type.value))
    if isinstance(data_type, RowType):
        return pa.struct([_field(row_field.name, row_field.data_type) for row_field in data_type.fields])
    raise ValueError(f"{data_type} has no Arrow type")


def _field(name: str, data_type: DataType) -> pa.Field:
    return pa.field(name, to_arrow_type(data_type), data_type.nullable)


def to_arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a table's rows: a field for each column, in order."""
    return pa.schema([_field(column.name, column.data_type) for column in schema.columns])


def from_arrow_type(arrow_type: pa.DataType, nullable: bool = True) -> DataType:
    """The Fluss type for an Arrow type; forms such as `large_string` give the same Fluss type as the plain ones."""
    simple = _SIMPLE_BY_ID.get(arrow_type.id)
    if simple is not None:
        return simple(nullable=nullable)
    if pa.types.is_fixed_size_binary(arrow_type):
        return BinaryType(arrow_type.byte_width, nullable=nullable)
    if pa.types.is_decimal(arrow_type):
        if arrow_type.precision > MAX_DECIMAL_PRECISION:
            raise ValueError(f"a DECIMAL has at most {MAX_DECIMAL_PRECISION} digits, got {arrow_type}; cast it first")
        return DecimalType(arrow_type.precision, arrow_type.scale, nullable=nullable)
    if pa.types.is_time(arrow_type):
        return TimeType(_PRECISION_OF_UNIT[arrow_type.unit], nullable=nullable)
    if pa.types.is_timestamp(arrow_type):
        kind = TimestampType if arrow_type.tz is None else TimestampLtzType
        return kind(_PRECISION_OF_UNIT[arrow_type.unit], nullable=nullable)
    return _nested_from_arrow(arrow_type, nullable)


def _nested_from_arrow(arrow_type: pa.DataType, nullable: bool) -> DataType:
    if pa.types.is_dictionary(arrow_type):
        return from_arrow_type(arrow_type.value_type, nullable)
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type) or pa.types.is_fixed_size_list(arrow_type):
        return ArrayType(_from_arrow_field(arrow_type.value_field), nullable=nullable)
    if pa.types.is_map(arrow_type):
        key, value = _from_arrow_field(arrow_type.key_field), _from_arrow_field(arrow_type.item_field)
        return MapType(key.not_null(), value, nullable=nullable)
    if pa.types.is_struct(arrow_type):
        fields = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
        return RowType(tuple(RowField(f.name, _from_arrow_field(f)) for f in fields), nullable=nullable)
    raise ValueError(f"Arrow type {arrow_type} has no Fluss type; cast the column first")


def _from_arrow_field(arrow_field: pa.Field) -> DataType:
    return from_arrow_type(arrow_field.type, arrow_field.nullable)


def from_arrow_schema(arrow_schema: pa.Schema) -> Schema:
    """The Fluss schema for an Arrow schema: without a primary key, and with column ids assigned."""
    columns = []
    for arrow_field in arrow_schema:
        try:
            columns.append(Column(arrow_field.name, _from_arrow_field(arrow_field)))
        except ValueError as error:
            raise ValueError(f"column {arrow_field.name!r}: {error}") from None
    return Schema(tuple(columns)).numbered()


_SIMPLE_BY_ID: dict[int, type[DataType]] = {
    pa.bool_().id: BooleanType,
    pa.int8().id: TinyIntType,
    pa.int16().id: SmallIntType,
    pa.int32().id: IntType,
    pa.int64().id: BigIntType,
    pa.float32().id: FloatType,
    pa.float64().id: DoubleType,
    pa.utf8().id: StringType,
    pa.large_utf8().id: StringType,
    pa.string_view().id: StringType,
    pa.binary().id: BytesType,
    pa.large_binary().id: BytesType,
    pa.binary_view().id: BytesType,
    pa.date32().id: DateType,
    pa.date64().id: DateType,
}

_FLAT_TWO_BUFFERS = frozenset(
    arrow_type.id
    for arrow_type in (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32(),
        pa.time32("s"), pa.time64("us"), pa.timestamp("s"), pa.decimal128(1), pa.binary(1),
    )
)  # fmt: skip
_FLAT_THREE_BUFFERS = frozenset((pa.utf8().id, pa.binary().id))
_LIST_ID, _MAP_ID, _STRUCT_ID = pa.list_(pa.int8()).id, pa.map_(pa.int8(), pa.int8()).id, pa.struct([]).id


class WireLayout(NamedTuple):
    """The number of field nodes and the number of buffers of a column or a whole message."""

    nodes: int
    buffers: int


def wire_layout(arrow_type: pa.DataType) -> WireLayout:
    """The nodes and buffers of a column of this type; ValueError for Arrow types that must never be written.

    The bytes carry no types: readers would take a large string or a 256-bit decimal for something else unnoticed.
    """
    type_id = arrow_type.id
    if type_id in _FLAT_TWO_BUFFERS:
        return WireLayout(1, 2)
    if type_id in _FLAT_THREE_BUFFERS:
        return WireLayout(1, 3)
    if type_id == _LIST_ID:
        children, own_buffers = [arrow_type.value_type], 2
    elif type_id == _MAP_ID:
        # The map has validity and offsets; its entries are a struct, which is a node with a validity buffer of its own.
        children, own_buffers = [pa.struct([arrow_type.key_field, arrow_type.item_field])], 2
    elif type_id == _STRUCT_ID:
        children, own_buffers = [arrow_type.field(index).type for index in range(arrow_type.num_fields)], 1
    else:
        raise ValueError(f"Arrow type {arrow_type} is not a wire type; cast it to the table's Arrow schema first")
    inner = [wire_layout(child) for child in children]
    return WireLayout(1 + sum(each.nodes for each in inner), own_buffers + sum(each.buffers for each in inner))


def schema_wire_layout(arrow_schema: pa.Schema) -> WireLayout:
    """The nodes and buffers of a whole message with this schema."""
    nodes = buffers = 0
    for arrow_type in arrow_schema.types:
        layout = wire_layout(arrow_type)
        nodes += layout.nodes
        buffers += layout.buffers
    return WireLayout(nodes, buffers)
