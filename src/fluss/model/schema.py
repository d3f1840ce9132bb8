"""Columns and schemas: names, types, stable ids, keys, and their JSON form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fluss.model.types import (
    ArrayType,
    DataType,
    MapType,
    RowField,
    RowType,
    data_type_from_json,
    data_type_to_json,
)

if TYPE_CHECKING:
    from fluss.model.json_types import JsonObject


@dataclass(frozen=True)
class Column:
    """One top-level column. A `column_id` of -1 means that no id is assigned yet."""

    name: str
    data_type: DataType
    comment: str | None = None
    column_id: int = -1
    agg_function: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Schema:
    """The columns of a table. `primary_key` is empty for log tables."""

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    auto_increment_column: str | None = None
    highest_field_id: int = -1
    _positions: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._positions.update((column.name, index) for index, column in enumerate(self.columns))

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def data_types(self) -> tuple[DataType, ...]:
        return tuple(column.data_type for column in self.columns)

    def position(self, name: str) -> int:
        """The position of a column; the KeyError for an unknown name lists the columns."""
        try:
            return self._positions[name]
        except KeyError:
            raise KeyError(f"unknown column {name!r}; the columns are {', '.join(self.column_names)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def all_ids(self) -> Iterator[int]:
        """Ids of columns and nested fields, depth first."""
        for column in self.columns:
            yield column.column_id
            yield from _nested_ids(column.data_type)

    def numbered(self) -> Schema:
        """The schema with ids assigned depth first from 0; for schemas that were built without ids."""
        next_id = 0
        columns = []
        for column in self.columns:
            data_type, after = assign_field_ids(column.data_type, next_id + 1)
            columns.append(replace(column, column_id=next_id, data_type=data_type))
            next_id = after
        return replace(self, columns=tuple(columns), highest_field_id=next_id - 1)


def assign_field_ids(data_type: DataType, next_id: int) -> tuple[DataType, int]:
    """Number the ROW fields inside `data_type` from `next_id` on, depth first; return the type and the next free id."""
    if isinstance(data_type, ArrayType):
        element, next_id = assign_field_ids(data_type.element, next_id)
        return replace(data_type, element=element), next_id
    if isinstance(data_type, MapType):
        key, next_id = assign_field_ids(data_type.key, next_id)
        value, next_id = assign_field_ids(data_type.value, next_id)
        return replace(data_type, key=key, value=value), next_id
    if isinstance(data_type, RowType):
        fields: list[RowField] = []
        for row_field in data_type.fields:
            own_id = next_id
            inner, next_id = assign_field_ids(row_field.data_type, next_id + 1)
            fields.append(replace(row_field, data_type=inner, field_id=own_id))
        return replace(data_type, fields=tuple(fields)), next_id
    return data_type, next_id


def _nested_ids(data_type: DataType) -> Iterator[int]:
    if isinstance(data_type, ArrayType):
        yield from _nested_ids(data_type.element)
    elif isinstance(data_type, MapType):
        yield from _nested_ids(data_type.key)
        yield from _nested_ids(data_type.value)
    elif isinstance(data_type, RowType):
        for row_field in data_type.fields:
            yield row_field.field_id
            yield from _nested_ids(row_field.data_type)


def schema_to_json(schema: Schema) -> JsonObject:
    """The JSON object of a schema, with ids."""
    out: JsonObject = {"version": 1, "columns": [_column_to_json(column) for column in schema.columns]}
    if schema.primary_key:
        out["primary_key"] = list(schema.primary_key)
    if schema.auto_increment_column is not None:
        out["auto_increment_column"] = [schema.auto_increment_column]
    return out | {"highest_field_id": schema.highest_field_id}


def _column_to_json(column: Column) -> JsonObject:
    out: JsonObject = {"name": column.name, "data_type": data_type_to_json(column.data_type)}
    if column.comment is not None:
        out["comment"] = column.comment
    if column.agg_function is not None:
        out["agg_function"] = dict(column.agg_function)
    return out | {"id": column.column_id}


def schema_from_json(node: object) -> Schema:
    """Read and check a schema document; raises ValueError that names the broken rule."""
    if not isinstance(node, Mapping):
        raise ValueError(f"a schema must be a JSON object, got {node!r}")
    columns = tuple(_column_from_json(item) for item in _list(node, "columns"))
    primary_key = tuple(_names(node, "primary_key"))
    if "primary_key" in node and not primary_key:
        raise ValueError("'primary_key' must not be an empty list; leave it out for a log table")
    auto_increment = _names(node, "auto_increment_column")
    if len(auto_increment) > 1:
        raise ValueError(f"at most one auto-increment column is allowed, got {', '.join(auto_increment)}")
    columns = tuple(
        replace(column, data_type=column.data_type.not_null()) if column.name in primary_key else column
        for column in columns
    )
    highest = node.get("highest_field_id", -1)
    if isinstance(highest, bool) or not isinstance(highest, int):
        raise ValueError(f"'highest_field_id' must be an integer, got {highest!r}")
    schema = Schema(columns, primary_key, auto_increment[0] if auto_increment else None, highest)
    _check_names(schema)
    return _with_checked_ids(schema)


def _check_names(schema: Schema) -> None:
    _check_distinct("column name", schema.column_names)
    _check_distinct("primary-key column", schema.primary_key)
    for name in schema.primary_key:
        if name not in schema:
            names = ", ".join(schema.column_names)
            raise ValueError(f"primary-key column {name!r} is not a column of the table; the columns are {names}")
    for column in schema.columns:
        if column.agg_function is not None and column.name in schema.primary_key:
            raise ValueError(f"primary-key column {column.name!r} must not have an aggregation function; remove it")
    name_or_none = schema.auto_increment_column
    if name_or_none is None:
        return
    if name_or_none not in schema:
        names = ", ".join(schema.column_names)
        raise ValueError(f"auto-increment column {name_or_none!r} is not a column; the columns are {names}")
    if not schema.primary_key or name_or_none in schema.primary_key:
        raise ValueError(f"auto-increment column {name_or_none!r} must be a non-key column of a primary-key table")
    data_type = schema.columns[schema.position(name_or_none)].data_type
    if data_type.root not in ("INTEGER", "BIGINT"):
        raise ValueError(f"auto-increment column {name_or_none!r} must be INT or BIGINT, not {data_type}")


def _with_checked_ids(schema: Schema) -> Schema:
    missing = [column.name for column in schema.columns if column.column_id < 0]
    if len(missing) == len(schema.columns):
        return schema.numbered()
    if missing:
        raise ValueError(f"all columns or none must have an id; these have none: {', '.join(missing)}")
    ids = list(schema.all_ids())
    _check_distinct("column or field id", ids)
    highest = max(ids)
    if schema.highest_field_id == -1:
        return replace(schema, highest_field_id=highest)
    if schema.highest_field_id < highest:
        raise ValueError(f"'highest_field_id' must be at least {highest}, got {schema.highest_field_id}")
    return schema


def _check_distinct(what: str, values: Sequence[object]) -> None:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"duplicate {what} {value!r}; each must be used once")
        seen.add(value)


def _column_from_json(node: object) -> Column:
    if not isinstance(node, Mapping) or not isinstance(node.get("name"), str):
        raise ValueError(f"a column must be an object with a 'name', got {node!r}")
    column_id = node.get("id", -1)
    if isinstance(column_id, bool) or not isinstance(column_id, int):
        raise ValueError(f"'id' of column {node['name']!r} must be an integer, got {column_id!r}")
    try:
        data_type = data_type_from_json(node.get("data_type"))
    except ValueError as error:
        raise ValueError(f"column {node['name']!r}: {error}") from None
    return Column(node["name"], data_type, node.get("comment"), column_id, node.get("agg_function"))


def _list(node: Mapping[str, object], key: str) -> list[Any]:
    value = node.get(key)
    if not isinstance(value, list):
        raise ValueError(f"{key!r} must be a JSON list, got {value!r}")
    return value


def _names(node: Mapping[str, object], key: str) -> list[str]:
    names = _list(node, key) if node.get(key) is not None else []
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{key!r} must be a list of names, got {names!r}")
    return names
