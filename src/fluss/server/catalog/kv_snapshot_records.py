"""Records of the snapshots of primary-key buckets that readers may use, in the catalog file.

A snapshot exists from its registration here until it is retired here: files without a record are leftovers of a crash,
and files of a retired snapshot are deleted afterwards. Registering, retiring and leasing are transactions: whatever
their order, a snapshot is never retired while a lease holds it.

The `retained` newest snapshots of a bucket are kept, and so are those that are leased. The newest one is never retired.
The records of a table or partition are removed when it is dropped.
"""

from __future__ import annotations

import sqlite3

from fluss.model.paths import TableBucket
from fluss.server.catalog.database_file import DatabaseFile
from fluss.server.catalog.records import ExpiringRecords
from fluss.server.storage.kv_snapshot import CompletedSnapshot, lease_from_json, snapshot_from_json, snapshot_to_json

_OF_BUCKET = "table_id = ? AND partition_id IS ? AND bucket_id = ?"


class KvSnapshotRecords:
    """The registered snapshots of all primary-key buckets. Called by the thread that owns the catalog file."""

    def __init__(self, file: DatabaseFile, leases: ExpiringRecords) -> None:
        self._file = file
        self._leases = leases

    def register(self, snapshot: CompletedSnapshot, retained: int, now_ms: int) -> bool:
        """Register a snapshot and retire those that it supersedes; False if its table or partition was dropped."""
        bucket = snapshot.bucket
        document = snapshot_to_json(snapshot, with_checksums=True).decode()
        with self._file.transaction() as connection:
            if not _exists(connection, bucket):
                return False
            row = (*bucket, snapshot.snapshot_id, snapshot.log_offset, document)
            connection.execute("INSERT INTO kv_snapshots VALUES (?, ?, ?, ?, ?, ?)", row)
            self._retire(connection, bucket, retained, now_ms)
        return True

    def retire(self, bucket: TableBucket, retained: int, now_ms: int) -> None:
        """Retire the snapshots that are no longer needed; writes only if there are any."""
        if self._superseded(bucket, retained, now_ms):
            with self._file.transaction() as connection:
                self._retire(connection, bucket, retained, now_ms)

    def remove_beyond(self, bucket: TableBucket, offset: int) -> int:
        """Remove the snapshots that are ahead of a changelog which ends at `offset`; return how many."""
        condition = f"{_OF_BUCKET} AND log_offset > ?"
        if self._file.row(f"SELECT 1 FROM kv_snapshots WHERE {condition}", (*bucket, offset)) is None:
            return 0
        with self._file.transaction() as connection:
            return connection.execute(f"DELETE FROM kv_snapshots WHERE {condition}", (*bucket, offset)).rowcount

    def of_bucket(self, bucket: TableBucket) -> list[CompletedSnapshot]:
        """Return all snapshots of a bucket, newest first."""
        statement = f"SELECT document FROM kv_snapshots WHERE {_OF_BUCKET} ORDER BY snapshot_id DESC"
        return [snapshot_from_json(document) for (document,) in self._file.rows(statement, bucket)]

    def find(self, bucket: TableBucket, snapshot_id: int) -> CompletedSnapshot | None:
        """Return the registered snapshot of a bucket with this id; None if there is none."""
        statement = f"SELECT document FROM kv_snapshots WHERE {_OF_BUCKET} AND snapshot_id = ?"
        row = self._file.row(statement, (*bucket, snapshot_id))
        return None if row is None else snapshot_from_json(row[0])

    def latest(self, table_id: int, partition_id: int | None) -> dict[int, tuple[int, int]]:
        """Return bucket id -> (id, log offset) of the newest snapshot, for buckets that have one."""
        statement = (
            "SELECT bucket_id, max(snapshot_id), log_offset FROM kv_snapshots "  # SQLite: from the row with the maximum
            "WHERE table_id = ? AND partition_id IS ? GROUP BY bucket_id"
        )
        rows = self._file.rows(statement, (table_id, partition_id))
        return {bucket_id: (snapshot_id, log_offset) for bucket_id, snapshot_id, log_offset in rows}

    def newest_offset(self, bucket: TableBucket) -> int | None:
        """Return the log offset of the newest snapshot, or None."""
        statement = f"SELECT log_offset FROM kv_snapshots WHERE {_OF_BUCKET} ORDER BY snapshot_id DESC LIMIT 1"
        row = self._file.row(statement, bucket)
        return None if row is None else int(row[0])

    def oldest_offset(self, bucket: TableBucket) -> int | None:
        """Return the offset of the oldest snapshot, from which on the changelog is still needed, or None."""
        statement = f"SELECT min(log_offset) FROM kv_snapshots WHERE {_OF_BUCKET}"
        (offset,) = self._file.row(statement, bucket)
        return None if offset is None else int(offset)

    def offered(self, table_id: int, partition_id: int | None, retained: int, now_ms: int) -> list[tuple[int, int]]:
        """Return (bucket id, snapshot id) of every snapshot that is kept."""
        statement = "SELECT DISTINCT bucket_id FROM kv_snapshots WHERE table_id = ? AND partition_id IS ?"
        bucket_ids = [row[0] for row in self._file.rows(statement, (table_id, partition_id))]
        found: list[tuple[int, int]] = []
        for bucket_id in sorted(bucket_ids):
            bucket = TableBucket(table_id, partition_id, bucket_id)
            gone = set(self._superseded(bucket, retained, now_ms))
            found += [(bucket_id, item) for item in sorted(_ids(self._file, bucket)) if item not in gone]
        return found

    def _retire(self, connection: sqlite3.Connection, bucket: TableBucket, retained: int, now_ms: int) -> None:
        for snapshot_id in self._superseded(bucket, retained, now_ms):
            connection.execute(
                f"DELETE FROM kv_snapshots WHERE {_OF_BUCKET} AND snapshot_id = ?", (*bucket, snapshot_id)
            )

    def _superseded(self, bucket: TableBucket, retained: int, now_ms: int) -> list[int]:
        older = _ids(self._file, bucket)[max(1, retained) :]
        if not older:
            return []
        leased = {lease_from_json(document).get(bucket) for document in self._leases.all(now_ms).values()}
        return [snapshot_id for snapshot_id in older if snapshot_id not in leased]


def _ids(file: DatabaseFile, bucket: TableBucket) -> list[int]:
    statement = f"SELECT snapshot_id FROM kv_snapshots WHERE {_OF_BUCKET} ORDER BY snapshot_id DESC"
    return [row[0] for row in file.rows(statement, bucket)]


def _exists(connection: sqlite3.Connection, bucket: TableBucket) -> bool:
    if bucket.partition_id is None:
        found = connection.execute("SELECT 1 FROM tables WHERE table_id = ?", (bucket.table_id,))
    else:
        statement = "SELECT 1 FROM partitions WHERE partition_id = ? AND table_id = ?"
        found = connection.execute(statement, (bucket.partition_id, bucket.table_id))
    return found.fetchone() is not None
