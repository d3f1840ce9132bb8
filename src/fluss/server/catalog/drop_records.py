"""What was dropped and may still have files, in the catalog file.

Files are deleted because somebody dropped their table or partition, never because the catalog does not have it: a
catalog may be lost, damaged or older than the files. So a drop notes here, in its own transaction, what it dropped; the
note stays until the files are gone. Tombstones say the same about drops by earlier versions, as far as they were not
pruned yet. Ids are never used twice, so what was dropped once stays dropped.
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
    """See the module's text. Called by the thread that owns the catalog file."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def note(self, kind: str, identifier: int, change: int) -> None:
        """Something is dropped; call inside the transaction that drops it."""
        assert self._file.connection.in_transaction
        self._file.connection.execute("INSERT OR IGNORE INTO drops VALUES (?, ?, ?)", (kind, identifier, change))

    def contains(self, table_id: int, partition_id: int | None) -> bool:
        """Whether this version has dropped the table, or the partition of it, and files may be left."""
        found = self._file.row(
            "SELECT 1 FROM drops WHERE (kind = 'table' AND id = ?) OR (kind = 'partition' AND id = ?)",
            (table_id, partition_id),
        )
        return found is not None

    def all(self) -> Dropped:
        """Everything that is known to be dropped and may have files."""
        return dropped_in(self._file.connection)

    def forget(self, notes: Iterable[tuple[str, int]]) -> None:
        """Nothing is left of these (kind and id)."""
        with self._file.transaction() as connection:
            connection.executemany("DELETE FROM drops WHERE kind = ? AND id = ?", notes)

    def noted(self) -> set[tuple[str, int]]:
        """The notes themselves: kind and id."""
        return set(self._file.rows("SELECT kind, id FROM drops"))


def dropped_in(connection: sqlite3.Connection) -> Dropped:
    """What a catalog knows to be dropped; one of an earlier version has tombstones alone."""
    found: dict[str, set[int]] = {TABLE_KIND: set(), PARTITION_KIND: set()}
    is_known = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'drops'").fetchone()
    sources = ["tombstones", "drops"] if is_known else ["tombstones"]
    for source in sources:
        for kind, identifier in connection.execute(f"SELECT kind, id FROM {source}"):
            if kind in found:
                found[kind].add(int(identifier))
    return Dropped(frozenset(found[TABLE_KIND]), frozenset(found[PARTITION_KIND]))
