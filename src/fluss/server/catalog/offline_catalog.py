"""Reads a catalog file that no process has open, without changing it: before a start, and for repairs."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fluss.errors import ErrorCode, FlussError
from fluss.server.catalog.database_file import is_missing_or_empty, reading
from fluss.server.catalog.drop_records import Dropped, dropped_in
from fluss.server.catalog.wal_check import find_damage


@dataclass(frozen=True)
class OfflineCatalog:
    """The contents of a catalog file: counters, schema ids of tables, table ids of partitions, drops, databases."""

    counters: Mapping[str, int]
    tables: Mapping[int, int]
    partitions: Mapping[int, int]
    dropped: Dropped
    databases: frozenset[str] = field(default_factory=frozenset)

    def has_partition(self, table_id: int, partition_id: int) -> bool:
        """True if the partition exists and belongs to that table."""
        return self.partitions.get(partition_id) == table_id


def read_offline_catalog(path: Path) -> OfflineCatalog | None:
    """Return the catalog in a file; None if the file is missing or empty. Code 26 if it is damaged."""
    if is_missing_or_empty(path):
        return None
    log = path.with_name(f"{path.name}-wal")
    damage = find_damage(log)
    if damage is not None:
        raise _damaged(log, str(damage))
    try:
        with reading(path) as connection:
            (sound,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if sound != "ok":
                raise _damaged(path, sound)
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tombstones'").fetchone() is None:
                return None
            return OfflineCatalog(
                dict(connection.execute("SELECT name, value FROM counters")),
                dict(connection.execute("SELECT table_id, schema_id FROM tables")),
                dict(connection.execute("SELECT partition_id, table_id FROM partitions")),
                dropped_in(connection),
                frozenset(name for (name,) in connection.execute("SELECT name FROM databases")),
            )
    except sqlite3.Error as error:
        raise _damaged(path, str(error)) from None


def _damaged(path: Path, reason: str) -> FlussError:
    return FlussError(f"catalog file {path} is damaged: {reason}", ErrorCode.STORAGE_EXCEPTION)
