"""Who may use which numbers for auto-increment columns, in the catalog file.

A table has one counter, from which its buckets take blocks of numbers, beginning with 1. The record of a bucket says
how much of its block is reserved: everything below `next` may be in use, everything from there to the end of the block
is not. A reservation is on disk before the first of its numbers is used, so no number is ever given twice, whatever
crashes. What a tablet has reserved and not used it gives back when it stops. The records of a dropped table or
partition go with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from fluss.model.paths import TableBucket
from fluss.server.catalog.database_file import DatabaseFile

_OF_BUCKET = "table_id = ? AND partition_id IS ? AND bucket_id = ?"


class RowNumberRecords:
    """See the module's text. Called by the thread that owns the catalog file."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def reserve(self, bucket: TableBucket, count: int, block: int) -> tuple[int, int]:
        """The first of at most `count` numbers for a bucket, and where they end; new blocks have so many numbers."""
        assert block > 0
        assert count > 0
        with self._file.transaction() as connection:
            statement = f"SELECT next, block_end FROM row_numbers WHERE {_OF_BUCKET}"
            first, end = connection.execute(statement, bucket).fetchone() or (0, 0)
            if first == end:
                first = 1 + self._file.add_to_counter(row_number_counter(bucket.table_id), block)
                end = first + block
            reserved = min(first + count, end)
            connection.execute("INSERT OR REPLACE INTO row_numbers VALUES (?, ?, ?, ?, ?)", (*bucket, reserved, end))
        return first, reserved

    def give_back(self, unused: Mapping[TableBucket, tuple[int, int]]) -> None:
        """Numbers of the last reservations of some buckets, from the first unused one to the end of the reservation."""
        with self._file.transaction() as connection:
            connection.executemany(
                f"UPDATE row_numbers SET next = ? WHERE {_OF_BUCKET} AND next = ?",
                [(first, *bucket, reserved) for bucket, (first, reserved) in unused.items()],
            )


def row_number_counter(table_id: int) -> str:
    """The name of a table's counter."""
    return f"row_number_{table_id}"
