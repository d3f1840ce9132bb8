"""Records of expired partitions that are kept until the lake has all of their rows, in the catalog file.

A closing partition takes no more rows, so the ends of its logs are final: the tablets record the end of each bucket
once everything accepted before is on disk. Readers, including the tiering service, are not affected. When the lake has
reached every end, the partition is dropped together with its records.
"""

from __future__ import annotations

from collections.abc import Iterable

from fluss.model.paths import TableBucket
from fluss.server.catalog.database_file import DatabaseFile

CLOSING_SECTION = "closing_change"


class ClosingRecords:
    """Closing partitions and the final ends of their buckets. Called by the thread that owns the catalog file."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def close(self, partition_ids: Iterable[int], now_ms: int) -> None:
        """Start closing these partitions; one that is already closing keeps the time at which it started."""
        with self._file.transaction() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO closing_partitions SELECT partition_id, table_id, ? FROM partitions "
                "WHERE partition_id = ?",
                [(now_ms, partition_id) for partition_id in partition_ids],
            )
            self._file.set_counter(CLOSING_SECTION, self._file.next_change())

    def reopen(self, partition_ids: Iterable[int]) -> None:
        """Stop closing these partitions, and remove the recorded ends of their buckets."""
        with self._file.transaction() as connection:
            for partition_id in partition_ids:
                connection.execute("DELETE FROM closing_partitions WHERE partition_id = ?", (partition_id,))
                connection.execute("DELETE FROM closing_ends WHERE partition_id = ?", (partition_id,))
            self._file.set_counter(CLOSING_SECTION, self._file.next_change())

    def of_table(self, table_id: int) -> dict[int, int]:
        """Return the closing partitions of a table, as partition id -> time at which it started closing."""
        statement = "SELECT partition_id, since_time FROM closing_partitions WHERE table_id = ?"
        return dict(self._file.rows(statement, (table_id,)))

    def all(self) -> dict[int, int]:
        """Return the closing partitions of all tables, as partition id -> table id."""
        return dict(self._file.rows("SELECT partition_id, table_id FROM closing_partitions"))

    def note_end(self, bucket: TableBucket, end_offset: int) -> None:
        """Record the final end of a bucket; called by the tablet that leads it."""
        with self._file.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO closing_ends SELECT partition_id, ?, ? FROM closing_partitions "
                "WHERE partition_id = ?",
                (bucket.bucket_id, end_offset, bucket.partition_id),
            )

    def ends(self, partition_id: int) -> dict[int, int]:
        """Return the recorded ends of a closing partition, as bucket id -> final end offset."""
        statement = "SELECT bucket_id, end_offset FROM closing_ends WHERE partition_id = ?"
        return dict(self._file.rows(statement, (partition_id,)))
