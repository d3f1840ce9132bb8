"""`TableDescriptor`, the definition of a table to create, and its builder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum

import pyarrow as pa

from fluss.errors import ErrorCode, FlussError
from fluss.model import descriptor as wire
from fluss.model.properties import KV_FORMAT, LOG_FORMAT
from fluss.values.schema import Schema, model_schema


class LogFormat(str, Enum):  # noqa: UP042 - StrEnum has another str(), and this is public
    """The format in which the log of a table stores rows."""

    ARROW = "ARROW"
    INDEXED = "INDEXED"
    COMPACTED = "COMPACTED"


class KvFormat(str, Enum):  # noqa: UP042 - StrEnum has another str(), and this is public
    """The format in which a primary-key table stores its current rows."""

    INDEXED = "INDEXED"
    COMPACTED = "COMPACTED"


class TableDescriptor:
    """The definition of a table to create. Only the schema is required.

    >>> schema = Schema.builder().column("id", DataTypes.int()).primary_key("id").build()
    >>> TableDescriptor(schema, bucket_count=4).bucket_keys
    ['id']
    """

    def __init__(
        self,
        schema: Schema,
        *,
        partition_keys: Sequence[str] | None = None,
        bucket_count: int | None = None,
        bucket_keys: Sequence[str] | None = None,
        comment: str | None = None,
        log_format: str | None = None,
        kv_format: str | None = None,
        properties: Mapping[str, str] | None = None,
        custom_properties: Mapping[str, str] | None = None,
    ) -> None:
        if isinstance(schema, pa.Schema):
            schema = Schema(schema)
        if not isinstance(schema, Schema):
            raise FlussError(f"schema must be a fluss.Schema, got {type(schema).__name__}")
        settings = _texts("properties", properties)
        if log_format is not None:
            settings[LOG_FORMAT] = _format_name("log_format", LogFormat, log_format)
        if kv_format is not None:
            settings[KV_FORMAT] = _format_name("kv_format", KvFormat, kv_format)
        if bucket_count is not None and (isinstance(bucket_count, bool) or not isinstance(bucket_count, int)):
            raise FlussError(f"bucket_count must be an int, got {bucket_count!r}")
        self._inner = _completed(
            wire.TableDescriptor(
                model_schema(schema),
                comment,
                _names("partition_keys", partition_keys),
                _names("bucket_keys", bucket_keys),
                bucket_count,
                settings,
                _texts("custom_properties", custom_properties),
            )
        )
        self._schema = schema

    @staticmethod
    def builder() -> TableDescriptorBuilder:
        """A builder without any values."""
        return TableDescriptorBuilder()

    def get_schema(self) -> Schema:
        """The columns and keys of the table."""
        return self._schema

    @property
    def schema(self) -> Schema:
        """Alias of `get_schema()`."""
        return self._schema

    @property
    def partition_keys(self) -> list[str]:
        """The columns that divide the table into partitions."""
        return list(self._inner.partition_keys)

    @property
    def bucket_keys(self) -> list[str]:
        """The columns whose hash decides the bucket of a row."""
        return list(self._inner.bucket_keys)

    @property
    def bucket_count(self) -> int | None:
        """The number of buckets; None means that the server chooses it."""
        return self._inner.bucket_count

    @property
    def comment(self) -> str | None:
        """The comment that describes the table; None if it has none."""
        return self._inner.comment

    @property
    def properties(self) -> dict[str, str]:
        """The properties that the server reads; their keys start with `table.`."""
        return dict(self._inner.properties)

    @property
    def custom_properties(self) -> dict[str, str]:
        """Properties that only the user interprets."""
        return dict(self._inner.custom_properties)

    def has_primary_key(self) -> bool:
        """True for a primary-key table."""
        return self._inner.has_primary_key

    def is_partitioned(self) -> bool:
        """True for a partitioned table."""
        return self._inner.is_partitioned

    def __eq__(self, other: object) -> bool:
        return self._inner == other._inner if isinstance(other, TableDescriptor) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._schema, self._inner.partition_keys, self._inner.bucket_keys, self._inner.bucket_count))

    def __repr__(self) -> str:
        return f"TableDescriptor({self._schema}{descriptor_extras(self._inner)})"


class TableDescriptorBuilder:
    """Builds a `TableDescriptor` step by step; each method returns the builder."""

    def __init__(self) -> None:
        self._schema: Schema | None = None
        self._partition_keys: Sequence[str] = ()
        self._bucket_count: int | None = None
        self._bucket_keys: Sequence[str] = ()
        self._comment: str | None = None
        self._log_format: str | None = None
        self._kv_format: str | None = None
        self._properties: dict[str, str] = {}
        self._custom_properties: dict[str, str] = {}

    def schema(self, schema: Schema) -> TableDescriptorBuilder:
        """Set the schema, which is required."""
        self._schema = schema
        return self

    def log_format(self, log_format: str) -> TableDescriptorBuilder:
        """Set the format of the log, e.g. `LogFormat.ARROW`."""
        self._log_format = log_format
        return self

    def kv_format(self, kv_format: str) -> TableDescriptorBuilder:
        """Set the format of stored rows, e.g. `KvFormat.COMPACTED`."""
        self._kv_format = kv_format
        return self

    def property(self, key: str, value: str) -> TableDescriptorBuilder:
        """Add one property that the server understands."""
        self._properties[key] = value
        return self

    def properties(self, properties: Mapping[str, str]) -> TableDescriptorBuilder:
        """Add several properties that the server understands."""
        self._properties.update(properties)
        return self

    def custom_property(self, key: str, value: str) -> TableDescriptorBuilder:
        """Add one custom property."""
        self._custom_properties[key] = value
        return self

    def custom_properties(self, properties: Mapping[str, str]) -> TableDescriptorBuilder:
        """Add several custom properties."""
        self._custom_properties.update(properties)
        return self

    def partitioned_by(self, keys: Sequence[str]) -> TableDescriptorBuilder:
        """Set the partition columns."""
        self._partition_keys = keys
        return self

    def distributed_by(
        self, bucket_count: int | None = None, bucket_keys: Sequence[str] | None = None
    ) -> TableDescriptorBuilder:
        """Set the number of buckets and the columns that decide the bucket."""
        self._bucket_count = bucket_count
        self._bucket_keys = bucket_keys or ()
        return self

    def comment(self, comment: str) -> TableDescriptorBuilder:
        """Set the comment, which describes the table."""
        self._comment = comment
        return self

    def __repr__(self) -> str:
        given = {name.removeprefix("_"): value for name, value in vars(self).items() if value}
        return f"TableDescriptorBuilder({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def build(self) -> TableDescriptor:
        """Return the descriptor. `FlussError` if the schema is missing or the values contradict each other."""
        if self._schema is None:
            raise FlussError("the table descriptor has no schema; call schema(...) before build()")
        return TableDescriptor(
            self._schema,
            partition_keys=self._partition_keys,
            bucket_count=self._bucket_count,
            bucket_keys=self._bucket_keys,
            comment=self._comment,
            log_format=self._log_format,
            kv_format=self._kv_format,
            properties=self._properties,
            custom_properties=self._custom_properties,
        )


def model_table(descriptor: TableDescriptor) -> wire.TableDescriptor:
    """Unwrap a public descriptor: the `model.descriptor.TableDescriptor` inside it."""
    return descriptor._inner


def descriptor_extras(descriptor: wire.TableDescriptor) -> str:
    parts = {
        "partition_keys": list(descriptor.partition_keys),
        "bucket_count": descriptor.bucket_count,
        "bucket_keys": list(descriptor.bucket_keys),
        "comment": descriptor.comment,
        "properties": dict(descriptor.properties),
        "custom_properties": dict(descriptor.custom_properties),
    }
    return "".join(f", {name}={value!r}" for name, value in parts.items() if value)


def _format_name(what: str, kinds: type[Enum], value: object) -> str:
    text = value.value if isinstance(value, Enum) else value
    known = [str(kind.value) for kind in kinds]
    if not isinstance(text, str) or text.upper() not in known:
        raise FlussError(f"{what} must be one of {', '.join(known)}, got {value!r}")
    return text.upper()


def _names(what: str, names: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(names, str):
        raise FlussError(f"{what} must be a list of column names, got the string {names!r}; write [{names!r}]")
    return tuple(names or ())


def _texts(what: str, values: Mapping[str, object] | None) -> dict[str, str]:
    """Check that `values` is a dict of strings; numbers and booleans become the strings that the server reads."""
    texts = {}
    for key, value in (values or {}).items():
        if not isinstance(key, str) or not isinstance(value, (str, int, float)):
            raise FlussError(f"{what} must be a dict of str to str, got {key!r}: {value!r}")
        texts[key] = value if isinstance(value, str) else json.dumps(value)
    return texts


def _completed(descriptor: wire.TableDescriptor) -> wire.TableDescriptor:
    """The descriptor with the bucket keys of a primary-key table filled in.

    Keys that are not columns are left to the server, which refuses them with code 15 when the table is created: that is
    where programs written for pyfluss expect the error.
    """
    try:
        return wire.table_descriptor_from_json(wire.dump_json(wire.table_descriptor_to_json(descriptor)))
    except ValueError as error:
        if descriptor.has_primary_key:
            raise FlussError(f"invalid table descriptor: {error}", ErrorCode.INVALID_TABLE_EXCEPTION) from None
        return descriptor
