"""Table and database descriptors and their JSON form.

The functions that read JSON check everything that depends on the document alone: the schema, partition keys, bucket
keys. They raise ValueErrors, which the server turns into code 15. Rules about properties and cluster limits are in the
coordinator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fluss.model.aggregation import normalized_function
from fluss.model.option_values import INT32_MAX
from fluss.model.schema import Schema, schema_from_json, schema_to_json

if TYPE_CHECKING:
    from fluss.model.json_types import JsonObject


@dataclass(frozen=True)
class TableDescriptor:
    """The definition of a table, as given by a user. Do not change its dicts."""

    schema: Schema
    comment: str | None = None
    partition_keys: tuple[str, ...] = ()
    bucket_keys: tuple[str, ...] = ()
    bucket_count: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    custom_properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_partitioned(self) -> bool:
        return bool(self.partition_keys)

    @property
    def has_primary_key(self) -> bool:
        return bool(self.schema.primary_key)

    @property
    def physical_primary_key(self) -> tuple[str, ...]:
        """The primary key without the partition keys, in primary-key order; it identifies a row within a partition."""
        return tuple(name for name in self.schema.primary_key if name not in self.partition_keys)


@dataclass(frozen=True)
class DatabaseDescriptor:
    """The definition of a database, as given by a user. Do not change its dict."""

    comment: str | None = None
    custom_properties: Mapping[str, str] = field(default_factory=dict)


def dump_json(node: object) -> bytes:
    """A JSON document as compact UTF-8, its form on the wire."""
    return json.dumps(node, ensure_ascii=False, separators=(",", ":")).encode()


def load_json(document: bytes | str) -> object:
    """Parse a JSON document; ValueError describes where it is invalid."""
    try:
        return json.loads(document, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"the JSON document of {len(document)} characters is nested too deeply to be read") from None
    except ValueError as error:
        raise ValueError(f"not a JSON document: {error}") from None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not allowed in JSON; use a number or a string")


def table_descriptor_to_json(descriptor: TableDescriptor) -> JsonObject:
    """The JSON object of a table descriptor. Keys that Apache Fluss requires are present even if they are empty."""
    out: dict[str, object] = {"version": 1, "schema": schema_to_json(descriptor.schema)}
    if descriptor.comment is not None:
        out["comment"] = descriptor.comment
    out["partition_key"] = list(descriptor.partition_keys)
    out["bucket_key"] = list(descriptor.bucket_keys)
    if descriptor.bucket_count is not None:
        out["bucket_count"] = descriptor.bucket_count
    out["properties"] = dict(descriptor.properties)
    out["custom_properties"] = dict(descriptor.custom_properties)
    return out


def table_descriptor_from_json(document: bytes | str) -> TableDescriptor:
    """Read and check a table descriptor; raises ValueError that names the broken rule."""
    node = _json_object(load_json(document), "a table descriptor")
    descriptor = TableDescriptor(
        schema=_with_known_functions(schema_from_json(node.get("schema"))),
        comment=_text_or_none(node, "comment"),
        partition_keys=tuple(_names(node, "partition_key")),
        bucket_keys=tuple(_names(node, "bucket_key")),
        bucket_count=_bucket_count(node),
        properties=_text_map(node, "properties"),
        custom_properties=_text_map(node, "custom_properties"),
    )
    return _with_checked_keys(descriptor)


def database_descriptor_to_json(descriptor: DatabaseDescriptor) -> JsonObject:
    """The JSON object of a database descriptor."""
    out: dict[str, object] = {"version": 1}
    if descriptor.comment is not None:
        out["comment"] = descriptor.comment
    out["custom_properties"] = dict(descriptor.custom_properties)
    return out


def database_descriptor_from_json(document: bytes | str) -> DatabaseDescriptor:
    """Read a database descriptor; raises ValueError that names the broken rule."""
    node = _json_object(load_json(document), "a database descriptor")
    return DatabaseDescriptor(_text_or_none(node, "comment"), _text_map(node, "custom_properties"))


def _with_known_functions(schema: Schema) -> Schema:
    if all(column.agg_function is None for column in schema.columns):
        return schema
    columns = tuple(
        column
        if column.agg_function is None
        else replace(column, agg_function=normalized_function(column.agg_function))
        for column in schema.columns
    )
    return replace(schema, columns=columns)


def _with_checked_keys(descriptor: TableDescriptor) -> TableDescriptor:
    """Check partition and bucket keys against the schema; fill in the bucket keys of a primary-key table."""
    schema = descriptor.schema
    columns = ", ".join(schema.column_names)
    _check_distinct("partition key", descriptor.partition_keys)
    _check_distinct("bucket key", descriptor.bucket_keys)
    for name in descriptor.partition_keys:
        if name not in schema:
            raise ValueError(f"partition key {name!r} is not a column of the table; its columns are {columns}")
        if schema.primary_key and name not in schema.primary_key:
            raise ValueError(
                f"partition key {name!r} must be part of the primary key ({', '.join(schema.primary_key)})"
            )
    for name in descriptor.bucket_keys:
        if name not in schema:
            raise ValueError(f"bucket key {name!r} is not a column of the table; its columns are {columns}")
        if name in descriptor.partition_keys:
            raise ValueError(f"bucket key {name!r} must not be a partition key as well; remove it from one of the two")
        if schema.primary_key and name not in schema.primary_key:
            raise ValueError(f"bucket key {name!r} must be part of the primary key ({', '.join(schema.primary_key)})")
    if not schema.primary_key or descriptor.bucket_keys:
        return descriptor
    if not descriptor.physical_primary_key:
        raise ValueError(
            f"the primary key ({', '.join(schema.primary_key)}) consists of partition keys only; "
            "add a column to it that identifies a row inside a partition"
        )
    return replace(descriptor, bucket_keys=descriptor.physical_primary_key)


def _check_distinct(what: str, names: Sequence[str]) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"duplicate {what} {name!r}; name it once")


def _json_object(node: object, what: str) -> Mapping[str, object]:
    if not isinstance(node, Mapping):
        raise ValueError(f"{what} must be a JSON object, got {type(node).__name__}")
    return node


def _bucket_count(node: Mapping[str, object]) -> int | None:
    count = node.get("bucket_count")
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, int) or abs(count) > INT32_MAX:
        raise ValueError(f"'bucket_count' must be a 32-bit integer, got {count!r}")
    return count


def _text_or_none(node: Mapping[str, object], key: str) -> str | None:
    value = node.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key!r} must be a string, got {value!r}")
    return value


def _names(node: Mapping[str, object], key: str) -> list[str]:
    names = node.get(key)
    if names is None:
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{key!r} must be a list of column names, got {names!r}")
    return names


def _text_map(node: Mapping[str, object], key: str) -> dict[str, str]:
    """The dict of strings under `key`. Numbers and booleans become their JSON text, as in Apache Fluss."""
    value = node.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{key!r} must be a JSON object of strings, got {value!r}")
    out: dict[str, str] = {}
    for name, text in value.items():
        if not isinstance(text, str | int | float):
            raise ValueError(f"{key}[{name!r}] must be a string, got {text!r}")
        out[name] = text if isinstance(text, str) else json.dumps(text)
    return out
