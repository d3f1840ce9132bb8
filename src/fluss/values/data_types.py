"""`DataTypes`: a method for each column type, for schemas that are built without Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from fluss.codec.arrow.types import from_arrow_type
from fluss.errors import FlussError
from fluss.model import types
from fluss.model.types import DataType

_Int = int  # the factory below has methods of the same names as the builtins
_Str = str


class DataField(types.RowField):
    """A field of a ROW: name, type and optionally a description."""

    def __init__(self, name: str, data_type: DataType, description: str | None = None) -> None:
        super().__init__(name, data_type, description)


class DataTypes:
    """Makes column types: `DataTypes.decimal(10, 2)`. They are nullable; `.not_null()` returns the NOT NULL type."""

    @staticmethod
    def boolean() -> DataType:
        """True or false."""
        return types.BooleanType()

    @staticmethod
    def tinyint() -> DataType:
        """8-bit signed integer."""
        return types.TinyIntType()

    @staticmethod
    def smallint() -> DataType:
        """16-bit signed integer."""
        return types.SmallIntType()

    @staticmethod
    def int() -> DataType:
        """32-bit signed integer."""
        return types.IntType()

    @staticmethod
    def bigint() -> DataType:
        """64-bit signed integer."""
        return types.BigIntType()

    @staticmethod
    def float() -> DataType:
        """32-bit floating point."""
        return types.FloatType()

    @staticmethod
    def double() -> DataType:
        """64-bit floating point."""
        return types.DoubleType()

    @staticmethod
    def string() -> DataType:
        """Text of any length."""
        return types.StringType()

    @staticmethod
    def bytes() -> DataType:
        """Bytes of any length."""
        return types.BytesType()

    @staticmethod
    def date() -> DataType:
        """A calendar date, without time or time zone."""
        return types.DateType()

    @staticmethod
    def time(precision: _Int | None = None) -> DataType:
        """A time of day with `precision` digits of a second."""
        return _checked(lambda: types.TimeType(0 if precision is None else precision))

    @staticmethod
    def timestamp(precision: _Int | None = None) -> DataType:
        """A date and time of day without time zone, with `precision` digits of a second."""
        return _checked(lambda: types.TimestampType(6 if precision is None else precision))

    @staticmethod
    def timestamp_ltz(precision: _Int | None = None) -> DataType:
        """A point in time (UTC), with `precision` digits of a second."""
        return _checked(lambda: types.TimestampLtzType(6 if precision is None else precision))

    @staticmethod
    def decimal(precision: _Int = 10, scale: _Int = 0) -> DataType:
        """Fixed-point number with `precision` digits, `scale` of them after the point."""
        return _checked(lambda: types.DecimalType(precision, scale))

    @staticmethod
    def char(length: _Int) -> DataType:
        """Text of a fixed length."""
        return _checked(lambda: types.CharType(length))

    @staticmethod
    def binary(length: _Int) -> DataType:
        """Bytes of a fixed length."""
        return _checked(lambda: types.BinaryType(length))

    @staticmethod
    def array(element: DataType | pa.DataType) -> DataType:
        """A list of values of one type."""
        return types.ArrayType(as_data_type(element))

    @staticmethod
    def map(key: DataType | pa.DataType, value: DataType | pa.DataType) -> DataType:
        """A map of keys of one type to values of one type; keys are never null."""
        return types.MapType(as_data_type(key).not_null(), as_data_type(value))

    @staticmethod
    def row(fields: Iterable[types.RowField]) -> DataType:
        """A nested row; make its fields with `DataTypes.field`."""
        # A copy of each field has no id yet: the schema that uses the type assigns the ids.
        plain = (types.RowField(field.name, field.data_type, field.description) for field in fields)
        return types.RowType(tuple(plain))

    @staticmethod
    def field(name: _Str, data_type: DataType | pa.DataType, description: _Str | None = None) -> DataField:
        """A field of a nested row."""
        return DataField(name, as_data_type(data_type), description)


def _checked(make: Callable[[], DataType]) -> DataType:
    try:
        return make()
    except ValueError as error:
        raise FlussError(str(error)) from None


def as_data_type(value: object, nullable: bool = True) -> DataType:
    """The column type for one of `DataTypes`, which is returned as it is, or for a pyarrow type."""
    if isinstance(value, DataType):
        return value
    if isinstance(value, pa.DataType):
        return _checked(lambda: from_arrow_type(value, nullable))
    raise FlussError(f"a data type must be one of DataTypes or a pyarrow type, got {value!r}")


_NAMES = {
    "INTEGER": "int",
    "TIME_WITHOUT_TIME_ZONE": "time",
    "TIMESTAMP_WITHOUT_TIME_ZONE": "timestamp",
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": "timestamp_ltz",
}


def type_text(data_type: DataType) -> str:
    """A type as shown to users: `decimal(10,2) NOT NULL`, `array<int>`, `timestamp(3)`.

    >>> type_text(types.TimestampType(6))
    'timestamp'
    """
    name = _NAMES.get(data_type.root, data_type.root.lower())
    suffix = "" if data_type.nullable else " NOT NULL"
    if isinstance(data_type, types.ArrayType):
        return f"array<{type_text(data_type.element)}>{suffix}"
    if isinstance(data_type, types.MapType):
        return f"map<{type_text(data_type.key)},{type_text(data_type.value)}>{suffix}"
    if isinstance(data_type, types.RowType):
        inner = ", ".join(f"{field.name}: {type_text(field.data_type)}" for field in data_type.fields)
        return f"row<{inner}>{suffix}"
    parameters = data_type.parameters().replace(" ", "")
    if isinstance(data_type, (types.TimeType, types.TimestampType, types.TimestampLtzType)):
        default = 0 if isinstance(data_type, types.TimeType) else 6
        parameters = "" if data_type.precision == default else parameters
    return name + (f"({parameters})" if parameters else "") + suffix
