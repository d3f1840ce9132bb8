"""The description of a table by the servers."""

from __future__ import annotations

from fluss.client.net.metadata import ClientTable
from fluss.values.basic import TablePath, as_table_path
from fluss.values.descriptors import descriptor_extras
from fluss.values.schema import Schema, public_schema


class TableInfo:
    """A table as the servers know it."""

    def __init__(self, table: ClientTable) -> None:
        self._table = table

    @property
    def table_id(self) -> int:
        """The id of the table, never reused in the cluster."""
        return self._table.table_id

    @property
    def table_path(self) -> TablePath:
        """Database and name."""
        return as_table_path(self._table.path)

    @property
    def schema_id(self) -> int:
        """Id of the newest schema."""
        return self._table.schema_id

    @property
    def num_buckets(self) -> int:
        """Number of buckets of the table, or of each partition."""
        return self._table.bucket_count

    @property
    def comment(self) -> str | None:
        """A description of the table."""
        return self._table.descriptor.comment

    @property
    def created_time(self) -> int:
        """Time of creation in milliseconds since 1970."""
        return self._table.created_time

    @property
    def modified_time(self) -> int:
        """Time of the last change in milliseconds since 1970."""
        return self._table.modified_time

    @property
    def remote_data_dir(self) -> str | None:
        """The directory of remote segments, if the server reports it."""
        return self._table.remote_data_dir

    def get_primary_keys(self) -> list[str]:
        """Primary-key columns; empty for a log table."""
        return list(self._table.schema.primary_key)

    def get_partition_keys(self) -> list[str]:
        """Partition columns."""
        return list(self._table.descriptor.partition_keys)

    def get_bucket_keys(self) -> list[str]:
        """Columns whose hash decides the bucket of a row."""
        return list(self._table.descriptor.bucket_keys)

    def has_primary_key(self) -> bool:
        """True for a primary-key table."""
        return self._table.has_primary_key

    def is_partitioned(self) -> bool:
        """True for a partitioned table."""
        return self._table.is_partitioned

    def get_schema(self) -> Schema:
        """The newest schema."""
        return public_schema(self._table.schema)

    def get_column_names(self) -> list[str]:
        """Names of all columns."""
        return list(self._table.schema.column_names)

    def get_column_count(self) -> int:
        """Number of columns."""
        return len(self._table.schema.columns)

    def get_properties(self) -> dict[str, str]:
        """Properties that the server understands, including defaults that it has filled in."""
        return dict(self._table.descriptor.properties)

    def get_custom_properties(self) -> dict[str, str]:
        """Properties that only the user interprets."""
        return dict(self._table.descriptor.custom_properties)

    @property
    def schema(self) -> Schema:
        """Alias of `get_schema()`."""
        return self.get_schema()

    @property
    def primary_keys(self) -> list[str]:
        """Alias of `get_primary_keys()`."""
        return self.get_primary_keys()

    @property
    def partition_keys(self) -> list[str]:
        """Alias of `get_partition_keys()`."""
        return self.get_partition_keys()

    @property
    def bucket_keys(self) -> list[str]:
        """Alias of `get_bucket_keys()`."""
        return self.get_bucket_keys()

    @property
    def properties(self) -> dict[str, str]:
        """Alias of `get_properties()`."""
        return self.get_properties()

    @property
    def custom_properties(self) -> dict[str, str]:
        """Alias of `get_custom_properties()`."""
        return self.get_custom_properties()

    def __eq__(self, other: object) -> bool:
        return self._table == other._table if isinstance(other, TableInfo) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._table.table_id, self._table.schema_id, self._table.modified_time))

    def __repr__(self) -> str:
        table = self._table
        return f"TableInfo({table.path}, id={table.table_id}, {self.get_schema()}{descriptor_extras(table.descriptor)})"
