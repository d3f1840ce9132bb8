"""Identifiers of tables, partitions and buckets, and change types."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


@dataclass(frozen=True, order=True)
class TablePath:
    """The database and the name of a table.

    >>> str(TablePath("fluss", "events"))
    'fluss.events'
    """

    database_name: str
    table_name: str

    def __str__(self) -> str:
        return f"{self.database_name}.{self.table_name}"


@dataclass(frozen=True, order=True)
class PhysicalTablePath:
    """The path of a table, or of one of its partitions."""

    table_path: TablePath
    partition_name: str | None = None

    def __str__(self) -> str:
        return str(self.table_path) + (f"(p={self.partition_name})" if self.partition_name is not None else "")


class TableBucket(NamedTuple):
    """One bucket of a table or partition; `partition_id` is None if the table has no partitions."""

    table_id: int
    partition_id: int | None
    bucket_id: int


class ChangeType(IntEnum):
    """The kind of change that a log record describes. The number is the byte on the wire."""

    APPEND_ONLY = 0
    INSERT = 1
    UPDATE_BEFORE = 2
    UPDATE_AFTER = 3
    DELETE = 4

    def short_string(self) -> str:
        """`+A`, `+I`, `-U`, `+U` or `-D`."""
        return ("+A", "+I", "-U", "+U", "-D")[self]
