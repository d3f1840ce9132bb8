"""Records of the numbers that buckets may use for auto-increment columns, in the catalog file.

A table has one counter, from which its buckets take blocks of numbers, starting at 1. The record of a bucket states how
much of its block is reserved: everything below `next` may be in use, everything from there to the end of the block is
not. A reservation is on disk before the first of its numbers is used, so no number is used twice, even after a crash.
A tablet gives unused numbers back when it stops. The records are removed with their table or partition.
"""

from __future__ import annotations

from collections.abc import Mapping

from fluss.model.paths import TableBucket
from fluss.server.catalog.database_file import DatabaseFile

_OF_BUCKET = "table_id = ? AND partition_id IS ? AND bucket_id = ?"


class RowNumberRecords:
    """The numbers that buckets have reserved. Called by the thread that owns the catalog file."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def reserve(self, bucket: TableBucket, count: int, block: int) -> tuple[int, int]:
        """Reserve up to `count` numbers for a bucket, as (first, end); a new block has `block` numbers."""
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
        """Give back unused numbers, by bucket: the first unused one and the end of the bucket's last reservation."""
        with self._file.transaction() as connection:
            connection.executemany(
                f"UPDATE row_numbers SET next = ? WHERE {_OF_BUCKET} AND next = ?",
                [(first, *bucket, reserved) for bucket, (first, reserved) in unused.items()],
            )


def row_number_counter(table_id: int) -> str:
    """Return the name of the counter in the catalog from which the buckets of a table take their numbers."""
    return f"row_number_{table_id}"
