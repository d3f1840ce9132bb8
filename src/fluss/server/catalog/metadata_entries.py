"""Databases, tables and partitions as the catalog returns them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fluss.model.descriptor import DatabaseDescriptor, TableDescriptor, dump_json, table_descriptor_to_json
from fluss.model.names import PARTITION_NAME_SEPARATOR
from fluss.model.paths import TablePath
from fluss.model.properties import property_value
from fluss.model.schema import Schema


@dataclass(frozen=True)
class DatabaseEntry:
    """A database in the catalog. Times are in epoch milliseconds."""

    name: str
    descriptor: DatabaseDescriptor
    created_time: int
    modified_time: int


@dataclass(frozen=True)
class PartitionEntry:
    """A partition of a table. `name` is its values, joined with `$` in the order of the partition keys."""

    partition_id: int
    name: str

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the partition keys, in their order."""
        return tuple(self.name.split(PARTITION_NAME_SEPARATOR))


@dataclass(frozen=True)
class TableEntry:
    """A table as of the last refresh.

    Altering the table creates a new entry; only `partitions` is updated in place by the catalog, in order of creation.
    Callers read it and never change it.
    """

    path: TablePath
    table_id: int
    schema_id: int
    schemas: dict[int, Schema]
    descriptor: TableDescriptor
    created_time: int
    modified_time: int
    partitions: dict[str, PartitionEntry] = field(default_factory=dict)
    derived: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """Values that callers have derived from the entry, each under its own key; discarded together with the entry."""

    @cached_property
    def table_json(self) -> bytes:
        """The descriptor in the form that is sent to clients."""
        return dump_json(table_descriptor_to_json(self.descriptor))

    @property
    def schema(self) -> Schema:
        """The newest schema of the table."""
        return self.descriptor.schema

    @property
    def is_partitioned(self) -> bool:
        return self.descriptor.is_partitioned

    @property
    def has_primary_key(self) -> bool:
        return self.descriptor.has_primary_key

    @property
    def bucket_count(self) -> int:
        """The number of buckets of the table, or of each of its partitions."""
        count = self.descriptor.bucket_count
        assert count is not None, f"table {self.path} was stored without a bucket count"
        return count

    def property(self, key: str) -> Any:
        """Return the typed value of a `table.*` property, or its default."""
        return property_value(self.descriptor.properties, key)
