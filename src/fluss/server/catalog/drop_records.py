"""Records of dropped tables and partitions that may still have files, in the catalog file.

Files are deleted because their table or partition was dropped, never because it is missing from the catalog: a catalog
may be lost, damaged or older than the files. So the transaction of a drop also adds a record here, which stays until
the files are gone. Earlier versions recorded drops only as tombstones, some of which may have been pruned. Ids are
never reused, so what was dropped once stays dropped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from fluss.server.catalog.database_file import DatabaseFile

TABLE_KIND = "table"
PARTITION_KIND = "partition"


class Dropped(NamedTuple):
    """Ids of tables and partitions that are known to have been dropped."""

    tables: frozenset[int]
    partitions: frozenset[int]


class DropRecords:
    """The ids of dropped tables and partitions, in the catalog. Called by the thread that owns the catalog file."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def note(self, kind: str, identifier: int, change: int) -> None:
        """Record the drop of a table or partition. Call within the transaction that drops it."""
        assert self._file.connection.in_transaction
        self._file.connection.execute("INSERT OR IGNORE INTO drops VALUES (?, ?, ?)", (kind, identifier, change))

    def contains(self, table_id: int, partition_id: int | None) -> bool:
        """True if there is a record that the table or the partition was dropped, so its files may still exist."""
        found = self._file.row(
            "SELECT 1 FROM drops WHERE (kind = 'table' AND id = ?) OR (kind = 'partition' AND id = ?)",
            (table_id, partition_id),
        )
        return found is not None

    def all(self) -> Dropped:
        """Return everything that is known to be dropped and may have files."""
        return dropped_in(self._file.connection)

    def forget(self, notes: Iterable[tuple[str, int]]) -> None:
        """Remove the records of drops, given as (kind, id), whose files are gone."""
        with self._file.transaction() as connection:
            connection.executemany("DELETE FROM drops WHERE kind = ? AND id = ?", notes)

    def noted(self) -> set[tuple[str, int]]:
        """Return the records of drops as (kind, id), without the tombstones of earlier versions."""
        return set(self._file.rows("SELECT kind, id FROM drops"))


def dropped_in(connection: sqlite3.Connection) -> Dropped:
    """Return what a catalog knows to be dropped; catalogs of earlier versions have only tombstones."""
    found: dict[str, set[int]] = {TABLE_KIND: set(), PARTITION_KIND: set()}
    is_known = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'drops'").fetchone()
    sources = ["tombstones", "drops"] if is_known else ["tombstones"]
    for source in sources:
        for kind, identifier in connection.execute(f"SELECT kind, id FROM {source}"):
            if kind in found:
                found[kind].add(int(identifier))
    return Dropped(frozenset(found[TABLE_KIND]), frozenset(found[PARTITION_KIND]))
