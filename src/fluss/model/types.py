"""The data types of columns: their parameters, the limits of these, and their JSON form.

The fields `table_json` and `schema_json` of messages contain the JSON form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from fluss.model.json_types import JsonObject

MAX_DECIMAL_PRECISION = 38
MAX_TIME_PRECISION = 9
# Decimals up to this precision are stored as an int64, timestamps up to this precision as milliseconds alone.
MAX_COMPACT_DECIMAL_PRECISION = 18
MAX_COMPACT_TIMESTAMP_PRECISION = 3

_Self = TypeVar("_Self", bound="DataType")


@dataclass(frozen=True)
class DataType:
    """The base class of all types. Types that differ in `nullable` are not equal, as in Apache Fluss."""

    nullable: bool = field(default=True, kw_only=True)
    root: ClassVar[str] = ""

    def copy(self: _Self, nullable: bool) -> _Self:
        """The type with another nullability."""
        return self if self.nullable == nullable else replace(self, nullable=nullable)

    def not_null(self: _Self) -> _Self:
        """The same type, but NOT NULL."""
        return self.copy(False)

    def parameters(self) -> str:
        """The part between the parentheses of the SQL form; empty for types without parameters."""
        return ""

    def __str__(self) -> str:
        inner = self.parameters()
        return _SQL_NAMES[self.root] + (f"({inner})" if inner else "") + ("" if self.nullable else " NOT NULL")


def _check_range(what: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{what} must be an integer from {low} to {high}, got {value!r}")


@dataclass(frozen=True)
class BooleanType(DataType):
    root: ClassVar[str] = "BOOLEAN"


@dataclass(frozen=True)
class TinyIntType(DataType):
    root: ClassVar[str] = "TINYINT"


@dataclass(frozen=True)
class SmallIntType(DataType):
    root: ClassVar[str] = "SMALLINT"


@dataclass(frozen=True)
class IntType(DataType):
    root: ClassVar[str] = "INTEGER"


@dataclass(frozen=True)
class BigIntType(DataType):
    root: ClassVar[str] = "BIGINT"


@dataclass(frozen=True)
class FloatType(DataType):
    root: ClassVar[str] = "FLOAT"


@dataclass(frozen=True)
class DoubleType(DataType):
    root: ClassVar[str] = "DOUBLE"


@dataclass(frozen=True)
class _LengthType(DataType):
    length: int = 1

    def __post_init__(self) -> None:
        _check_range(f"{self.root} length", self.length, 1, 2**31 - 1)

    def parameters(self) -> str:
        return str(self.length)


@dataclass(frozen=True)
class CharType(_LengthType):
    root: ClassVar[str] = "CHAR"


@dataclass(frozen=True)
class BinaryType(_LengthType):
    root: ClassVar[str] = "BINARY"


@dataclass(frozen=True)
class StringType(DataType):
    root: ClassVar[str] = "STRING"


@dataclass(frozen=True)
class BytesType(DataType):
    root: ClassVar[str] = "BYTES"


@dataclass(frozen=True)
class DecimalType(DataType):
    precision: int = 10
    scale: int = 0
    root: ClassVar[str] = "DECIMAL"

    def __post_init__(self) -> None:
        _check_range("DECIMAL precision", self.precision, 1, MAX_DECIMAL_PRECISION)
        _check_range("DECIMAL scale", self.scale, 0, self.precision)

    @property
    def is_compact(self) -> bool:
        return self.precision <= MAX_COMPACT_DECIMAL_PRECISION

    def parameters(self) -> str:
        return f"{self.precision}, {self.scale}"


@dataclass(frozen=True)
class DateType(DataType):
    root: ClassVar[str] = "DATE"


@dataclass(frozen=True)
class _PrecisionType(DataType):
    precision: int = 6

    def __post_init__(self) -> None:
        _check_range(f"{self.root} precision", self.precision, 0, MAX_TIME_PRECISION)

    def parameters(self) -> str:
        return str(self.precision)


@dataclass(frozen=True)
class TimeType(_PrecisionType):
    precision: int = 0
    root: ClassVar[str] = "TIME_WITHOUT_TIME_ZONE"


@dataclass(frozen=True)
class TimestampType(_PrecisionType):
    root: ClassVar[str] = "TIMESTAMP_WITHOUT_TIME_ZONE"

    @property
    def is_compact(self) -> bool:
        return self.precision <= MAX_COMPACT_TIMESTAMP_PRECISION


@dataclass(frozen=True)
class TimestampLtzType(_PrecisionType):
    root: ClassVar[str] = "TIMESTAMP_WITH_LOCAL_TIME_ZONE"

    @property
    def is_compact(self) -> bool:
        return self.precision <= MAX_COMPACT_TIMESTAMP_PRECISION


@dataclass(frozen=True)
class ArrayType(DataType):
    element: DataType = field(default_factory=StringType)
    root: ClassVar[str] = "ARRAY"

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True)
class MapType(DataType):
    key: DataType = field(default_factory=StringType)
    value: DataType = field(default_factory=StringType)
    root: ClassVar[str] = "MAP"

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True)
class RowField:
    """A field of a ROW type. A `field_id` of -1 means that no id is assigned yet."""

    name: str
    data_type: DataType
    description: str | None = None
    field_id: int = -1


@dataclass(frozen=True)
class RowType(DataType):
    fields: tuple[RowField, ...] = ()
    root: ClassVar[str] = "ROW"

    def __str__(self) -> str:
        inner = ", ".join(f"`{f.name}` {f.data_type}" for f in self.fields)
        return f"ROW<{inner}>" + ("" if self.nullable else " NOT NULL")


_PLAIN: dict[str, type[DataType]] = {
    kind.root: kind
    for kind in (
        BooleanType, TinyIntType, SmallIntType, IntType, BigIntType, FloatType, DoubleType,
        StringType, BytesType, DateType,
    )
}  # fmt: skip
_LENGTH: dict[str, type[_LengthType]] = {kind.root: kind for kind in (CharType, BinaryType)}
_PRECISION: dict[str, type[_PrecisionType]] = {kind.root: kind for kind in (TimeType, TimestampType, TimestampLtzType)}
_SQL_NAMES = {root: root for root in (*_PLAIN, *_LENGTH, "DECIMAL", "ARRAY", "MAP", "ROW")} | {
    "INTEGER": "INT",
    "TIME_WITHOUT_TIME_ZONE": "TIME",
    "TIMESTAMP_WITHOUT_TIME_ZONE": "TIMESTAMP",
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": "TIMESTAMP_LTZ",
}


def data_type_to_json(data_type: DataType) -> JsonObject:
    """The JSON object of a type; `nullable` is written only when false.

    >>> data_type_to_json(DecimalType(12, 3, nullable=False))
    {'type': 'DECIMAL', 'nullable': False, 'precision': 12, 'scale': 3}
    """
    out: JsonObject = {"type": data_type.root}
    if not data_type.nullable:
        out["nullable"] = False
    if isinstance(data_type, _LengthType):
        out["length"] = data_type.length
    elif isinstance(data_type, DecimalType):
        out |= {"precision": data_type.precision, "scale": data_type.scale}
    elif isinstance(data_type, _PrecisionType):
        out["precision"] = data_type.precision
    elif isinstance(data_type, ArrayType):
        out["element_type"] = data_type_to_json(data_type.element)
    elif isinstance(data_type, MapType):
        out |= {"key_type": data_type_to_json(data_type.key), "value_type": data_type_to_json(data_type.value)}
    elif isinstance(data_type, RowType):
        out["fields"] = [_row_field_to_json(f) for f in data_type.fields]
    return out


def _row_field_to_json(row_field: RowField) -> JsonObject:
    out: JsonObject = {"name": row_field.name, "field_type": data_type_to_json(row_field.data_type)}
    if row_field.description is not None:
        out["description"] = row_field.description
    return out | {"field_id": row_field.field_id}


def data_type_from_json(node: object) -> DataType:
    """Read the JSON object of a type; the ValueError for an invalid one names the part that is wrong."""
    if not isinstance(node, Mapping):
        raise ValueError(f"a data type must be a JSON object, got {node!r}")
    root, nullable = node.get("type"), node.get("nullable", True)
    if not isinstance(nullable, bool):
        raise ValueError(f"'nullable' of type {root} must be true or false, got {nullable!r}")
    if not isinstance(root, str):
        raise ValueError(f"'type' of a data type must be a string, got {root!r}")
    if root in _PLAIN:
        return _PLAIN[root](nullable=nullable)
    if root in _LENGTH:
        return _LENGTH[root](node.get("length", 1), nullable=nullable)
    if root == "DECIMAL":
        return DecimalType(node.get("precision", 10), node.get("scale", 0), nullable=nullable)
    if root in _PRECISION:
        kind = _PRECISION[root]
        return kind(node.get("precision", kind().precision), nullable=nullable)
    if root == "ARRAY":
        return ArrayType(data_type_from_json(node.get("element_type")), nullable=nullable)
    if root == "MAP":
        # Map keys are never null, even if the document declares them nullable.
        key, value = data_type_from_json(node.get("key_type")), data_type_from_json(node.get("value_type"))
        return MapType(key, value, nullable=nullable)
    if root == "ROW":
        return RowType(tuple(_row_field_from_json(f) for f in _as_list(node.get("fields"))), nullable=nullable)
    raise ValueError(f"unknown data type {root!r}; known are {', '.join(sorted(_SQL_NAMES))}")


def _row_field_from_json(node: object) -> RowField:
    if not isinstance(node, Mapping) or not isinstance(node.get("name"), str):
        raise ValueError(f"a ROW field must be an object with a 'name', got {node!r}")
    field_id = node.get("field_id", -1)
    if isinstance(field_id, bool) or not isinstance(field_id, int):
        raise ValueError(f"'field_id' of ROW field {node['name']!r} must be an integer, got {field_id!r}")
    return RowField(node["name"], data_type_from_json(node.get("field_type")), node.get("description"), field_id)


def _as_list(node: object) -> list[object]:
    if not isinstance(node, list):
        raise ValueError(f"expected a JSON list, got {node!r}")
    return node
