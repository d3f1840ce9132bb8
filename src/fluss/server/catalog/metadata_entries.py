"""What the catalog knows about a database, a table, a partition."""

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
    """One database."""

    name: str
    descriptor: DatabaseDescriptor
    created_time: int
    modified_time: int


@dataclass(frozen=True)
class PartitionEntry:
    """One partition; `name` is the values joined with `$` in partition-key order."""

    partition_id: int
    name: str

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the partition keys, in their order."""
        return tuple(self.name.split(PARTITION_NAME_SEPARATOR))


@dataclass(frozen=True)
class TableEntry:
    """One table as of the last refresh.

    An alteration makes a new entry; `partitions` alone is kept up to date in place by the catalog, in name order of
    creation. Callers read it and never change it.
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
    """What users of the entry have worked out from it, each under a key of its own: it goes when the entry goes."""

    @cached_property
    def table_json(self) -> bytes:
        """The descriptor as clients get it."""
        return dump_json(table_descriptor_to_json(self.descriptor))

    @property
    def schema(self) -> Schema:
        """The newest schema."""
        return self.descriptor.schema

    @property
    def is_partitioned(self) -> bool:
        return self.descriptor.is_partitioned

    @property
    def has_primary_key(self) -> bool:
        return self.descriptor.has_primary_key

    @property
    def bucket_count(self) -> int:
        """Buckets of the table, or of each of its partitions."""
        count = self.descriptor.bucket_count
        assert count is not None, f"table {self.path} was stored without a bucket count"
        return count

    def property(self, key: str) -> Any:
        """Typed value of a `table.*` property, or its default."""
        return property_value(self.descriptor.properties, key)
