"""Records of lake snapshots and tiering, in the catalog file.

Four tables. `lake_snapshots`: the registered snapshots, in the order of registration, each with its offsets document
and the file in which a tiering service finds the same document. `lake_offsets`: the end offset of each bucket in the
lake; tablets may remove the log up to there. `lake_tiering`: the last epoch that was assigned, so that none is assigned
twice, and when the table was last tiered. `lake_prepared`: offsets files that were announced and are not registered
yet. All rows are removed with their table.

Invariants: the offset of a bucket never decreases while the table has its lake; the newest snapshot is never removed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.interface.offsets import dump_offsets, load_offsets
from fluss.model.paths import TableBucket
from fluss.server.catalog.database_file import DatabaseFile

KEEP_ALL_SNAPSHOTS = -1
# Also applies if a tiering service wants to keep more: readers of older snapshots use the lake itself.
SNAPSHOT_LIMIT_PER_TABLE = 1000

_SNAPSHOT_COLUMNS = "snapshot_id, tiered_path, readable_path, tiered_offsets, readable_offsets, registered_time"


@dataclass(frozen=True)
class LakeSnapshotEntry:
    """A registered snapshot: paths of offsets files, and the documents in them; the readable ones may be absent."""

    snapshot_id: int
    tiered_path: str
    readable_path: str | None
    tiered_offsets: str
    readable_offsets: str | None
    registered_time: int

    @property
    def paths(self) -> set[str]:
        """The offsets files that this entry refers to."""
        return {path for path in (self.tiered_path, self.readable_path) if path}


@dataclass(frozen=True)
class TieringEntry:
    """The stored tiering state of a table: the last epoch handed out, and time, size and rows as of the last round."""

    tiering_epoch: int
    last_tiered_time: int | None
    file_size: int | None
    record_count: int | None


class LakeRecords:
    """Snapshots, offsets and tiering of the lake in the catalog. Called by the thread that owns the catalog file."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    # Snapshots

    def register(self, table_id: int, entry: LakeSnapshotEntry, earliest_snapshot_id: int | None) -> set[str] | None:
        """Add a snapshot and remove older ones; return the files no longer needed, or None if the table was dropped.

        Repeating the call changes nothing. Code 50 for a snapshot that is behind the newest one.
        """
        _, offsets = load_offsets(entry.tiered_offsets)
        with self._file.transaction() as connection:
            if connection.execute("SELECT 1 FROM tables WHERE table_id = ?", (table_id,)).fetchone() is None:
                return None
            _forget_dropped_partitions(connection, table_id)
            entries = self.snapshots(table_id)
            is_known = any(each.snapshot_id == entry.snapshot_id for each in entries)
            if _is_behind(self.offsets(table_id), offsets):
                if is_known:
                    return set()  # a late repetition of a call that succeeded
                raise FlussError(
                    f"lake snapshot {entry.snapshot_id} is behind the newest registered one; "
                    "another service has tiered the table in the meantime, so give up this round",
                    ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION,
                )
            kept = _kept(entries, earliest_snapshot_id, entry.snapshot_id)[1 - SNAPSHOT_LIMIT_PER_TABLE :]
            gone = [each for each in entries if each not in kept]
            connection.executemany(
                "DELETE FROM lake_snapshots WHERE table_id = ? AND snapshot_id = ?",
                [(table_id, each.snapshot_id) for each in gone],
            )
            _insert(connection, table_id, entry)
            _put_offsets(connection, offsets)
            _forget_prepared(connection, entry.paths)
            needed = {path for each in (*kept, entry) for path in each.paths}
            return {path for each in gone for path in each.paths} - needed

    def reset(self, table_id: int, entry: LakeSnapshotEntry | None) -> None:
        """Replace all snapshots and offsets of a table by the newest snapshot in the lake, when its lake is enabled."""
        with self._file.transaction() as connection:
            connection.execute("DELETE FROM lake_offsets WHERE table_id = ?", (table_id,))
            connection.execute("DELETE FROM lake_snapshots WHERE table_id = ?", (table_id,))
            if entry is not None:
                _insert(connection, table_id, entry)
                _put_offsets(connection, load_offsets(entry.tiered_offsets)[1])

    def snapshots(self, table_id: int) -> list[LakeSnapshotEntry]:
        """Return all registered snapshots, newest last."""
        statement = f"SELECT {_SNAPSHOT_COLUMNS} FROM lake_snapshots WHERE table_id = ? ORDER BY entry_id"
        return [LakeSnapshotEntry(*row) for row in self._file.rows(statement, (table_id,))]

    def latest(self, table_id: int, *, readable: bool = False) -> LakeSnapshotEntry | None:
        """Return the newest snapshot, or the newest one with readable offsets; None if there is none."""
        condition = "AND readable_offsets IS NOT NULL" if readable else ""
        statement = (
            f"SELECT {_SNAPSHOT_COLUMNS} FROM lake_snapshots WHERE table_id = ? {condition} "
            "ORDER BY entry_id DESC LIMIT 1"
        )
        row = self._file.row(statement, (table_id,))
        return None if row is None else LakeSnapshotEntry(*row)

    def find(self, table_id: int, snapshot_id: int) -> LakeSnapshotEntry | None:
        """Return the registered snapshot of a table with this id; None if there is none."""
        statement = f"SELECT {_SNAPSHOT_COLUMNS} FROM lake_snapshots WHERE table_id = ? AND snapshot_id = ?"
        row = self._file.row(statement, (table_id, snapshot_id))
        return None if row is None else LakeSnapshotEntry(*row)

    # Offsets files that are not registered yet

    def note_prepared(self, table_id: int, path: str, now_ms: int) -> None:
        """Announce a file that is about to be written; ignored if its table was dropped."""
        with self._file.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO lake_prepared SELECT ?, table_id, ? FROM tables WHERE table_id = ?",
                (path, now_ms, table_id),
            )

    def prepared_before(self, table_id: int, before_ms: int) -> list[str]:
        """Return the files that were announced before a time and never registered."""
        statement = "SELECT path FROM lake_prepared WHERE table_id = ? AND prepared_time < ?"
        return [path for (path,) in self._file.rows(statement, (table_id, before_ms))]

    def forget_prepared(self, paths: Iterable[str]) -> None:
        """Remove the announcements of files that were deleted."""
        with self._file.transaction() as connection:
            _forget_prepared(connection, paths)

    # Offsets

    def offsets(self, table_id: int) -> dict[TableBucket, int]:
        """Return the end offset of each bucket in the lake."""
        statement = "SELECT partition_id, bucket_id, end_offset FROM lake_offsets WHERE table_id = ?"
        rows = self._file.rows(statement, (table_id,))
        return {TableBucket(table_id, partition_id, bucket_id): offset for partition_id, bucket_id, offset in rows}

    def end_offset(self, bucket: TableBucket) -> int:
        """Return the end offset of one bucket in the lake, 0 if none of its rows are there."""
        statement = "SELECT end_offset FROM lake_offsets WHERE table_id = ? AND partition_id IS ? AND bucket_id = ?"
        row = self._file.row(statement, bucket)
        return 0 if row is None else int(row[0])

    def note_times(self, table_id: int, times: Mapping[TableBucket, int]) -> None:
        """Store the time of the newest row in the lake, by bucket; for metrics."""
        with self._file.transaction() as connection:
            connection.executemany(
                "UPDATE lake_offsets SET max_timestamp = max(ifnull(max_timestamp, ?1), ?1) "
                "WHERE table_id = ?2 AND partition_id IS ?3 AND bucket_id = ?4",
                [(time_ms, table_id, bucket.partition_id, bucket.bucket_id) for bucket, time_ms in times.items()],
            )

    def newest_time(self, table_id: int) -> int | None:
        """Return the time of the newest row of a table in the lake, or None if unknown."""
        statement = "SELECT max(max_timestamp) FROM lake_offsets WHERE table_id = ?"
        (newest,) = self._file.row(statement, (table_id,))
        return None if newest is None else int(newest)

    # Tiering

    def tiering(self, table_id: int) -> TieringEntry:
        """Return the tiering state of a table; epoch 0 if it was never handed out."""
        statement = (
            "SELECT tiering_epoch, last_tiered_time, file_size, record_count FROM lake_tiering WHERE table_id = ?"
        )
        row = self._file.row(statement, (table_id,))
        return TieringEntry(0, None, None, None) if row is None else TieringEntry(*row)

    def record_epoch(self, table_id: int, tiering_epoch: int) -> None:
        """Store an epoch before it is given to a service."""
        with self._file.transaction() as connection:
            connection.execute(
                "INSERT INTO lake_tiering (table_id, tiering_epoch) SELECT table_id, ? FROM tables WHERE table_id = ? "
                "ON CONFLICT (table_id) DO UPDATE SET tiering_epoch = excluded.tiering_epoch",
                (tiering_epoch, table_id),
            )

    def record_round(self, table_id: int, now_ms: int, file_size: int | None, record_count: int | None) -> None:
        """Store that a round finished, and the size of the lake table if known."""
        with self._file.transaction() as connection:
            connection.execute(
                "UPDATE lake_tiering SET last_tiered_time = ?, file_size = ifnull(?, file_size), "
                "record_count = ifnull(?, record_count) WHERE table_id = ?",
                (now_ms, file_size, record_count, table_id),
            )


def merged_document(table_id: int, known: Mapping[TableBucket, int], given: Mapping[TableBucket, int]) -> str:
    """Return the offsets document of a round: the offsets it reached, and the known ones of all other buckets."""
    return dump_offsets(table_id, {**known, **given})


def _insert(connection: sqlite3.Connection, table_id: int, entry: LakeSnapshotEntry) -> None:
    connection.execute(
        f"INSERT INTO lake_snapshots (table_id, {_SNAPSHOT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            table_id,
            entry.snapshot_id,
            entry.tiered_path,
            entry.readable_path,
            entry.tiered_offsets,
            entry.readable_offsets,
            entry.registered_time,
        ),
    )


def _forget_dropped_partitions(connection: sqlite3.Connection, table_id: int) -> None:
    """Remove the offsets of dropped partitions, whose logs are gone."""
    connection.execute(
        "DELETE FROM lake_offsets WHERE table_id = ?1 AND partition_id IS NOT NULL "
        "AND partition_id NOT IN (SELECT partition_id FROM partitions WHERE table_id = ?1)",
        (table_id,),
    )


def _is_behind(known: Mapping[TableBucket, int], offsets: Mapping[TableBucket, int]) -> bool:
    return any(offsets.get(bucket, 0) < offset for bucket, offset in known.items())


def _kept(
    entries: list[LakeSnapshotEntry], earliest_snapshot_id: int | None, snapshot_id: int
) -> list[LakeSnapshotEntry]:
    """The older entries to keep: none if no earliest one is given, all if the earliest one is unknown."""
    others = [entry for entry in entries if entry.snapshot_id != snapshot_id]
    if earliest_snapshot_id is None or earliest_snapshot_id == snapshot_id:
        return []
    ids = [entry.snapshot_id for entry in others]
    return others[ids.index(earliest_snapshot_id) :] if earliest_snapshot_id in ids else others


def _forget_prepared(connection: sqlite3.Connection, paths: Iterable[str]) -> None:
    connection.executemany("DELETE FROM lake_prepared WHERE path = ?", ((path,) for path in paths))


def _put_offsets(connection: sqlite3.Connection, offsets: Mapping[TableBucket, int]) -> None:
    connection.executemany(
        "INSERT INTO lake_offsets (table_id, partition_id, bucket_id, end_offset) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (table_id, ifnull(partition_id, -1), bucket_id) DO UPDATE SET end_offset = excluded.end_offset "
        "WHERE end_offset != excluded.end_offset",
        [(*bucket, offset) for bucket, offset in offsets.items()],
    )
