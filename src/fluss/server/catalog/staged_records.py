"""Records of staged appends, in the catalog file: decided batches, and the work that remains to append them.

Theory. A commit is decided by one transaction here (`decide`): it raises the last batch id of (table, transaction name)
and adds one row of work per bucket. From then on the rows of the batch will be appended, whichever process dies;
without it they never will be. Tablets take the work of their buckets, append it and remove the row (`applied`).

Revoking. A tablet that wants to remove a staged file which a driver may be about to commit must call `revoke` first: it
records the writer ids of attempts that can no longer be decided, unless they already are. Both are transactions on one
file, so for every attempt exactly one of the two happens first and excludes the other. Revoked ids are kept up to a
limit; ids only grow, so the counter `staged_revoked_floor` covers everything older: an attempt below it counts as
revoked.

Numbers: `staged_work_id` counts rows of work; readers compare it to see whether there is new work. None of this is part
of what a `Catalog` shows, so it does not raise the change number. Rows are removed with their table or partition.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.server.catalog.database_file import DatabaseFile
from fluss.server.catalog.staged_owners import EVICTED_SHARE, StagedOwners

# Beyond this many transaction names of a table, the user with the most names loses the least recently used ones.
TRANSACTIONS_PER_TABLE_LIMIT_ROWS = 100_000
REVOKED_LIMIT_ROWS = 10_000
WORK_COUNTER = "staged_work_id"
REVOKED_FLOOR_COUNTER = "staged_revoked_floor"


class StagedFileEntry(NamedTuple):
    """The decided part of one staged file: the attempt by its writer id, and how many of its batches and bytes."""

    writer_id: int
    batch_count: int
    size_bytes: int


class StagedWork(NamedTuple):
    """The staged files that one bucket must append for a decided batch, in the order of `files`."""

    work_id: int
    bucket: TableBucket
    transaction: str
    batch_id: int
    files: tuple[StagedFileEntry, ...]


class Decision(NamedTuple):
    """The result of `decide`: True if this call, or an earlier one with its token, was accepted; the last batch id."""

    accepted: bool
    last_batch_id: int


class StagedRecords:
    """Decisions, work and revocations. Called by the thread that owns the catalog file."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self.owners = StagedOwners(file)

    def decide(
        self,
        table_id: int,
        transaction: str,
        batch_id: int,
        token: str,
        buckets: Sequence[tuple[TableBucket, Sequence[StagedFileEntry]]],
        now_ms: int,
        user: str | None = None,
    ) -> Decision:
        """Decide a batch, once. `token` distinguishes a repeated call from a different one with the same batch id.

        Afterwards `user` owns the transaction; code 48 if another user does.
        """
        with self._file.transaction() as connection:
            self.owners.claim_within(connection, table_id, transaction, user, now_ms)
            row = connection.execute(
                "SELECT last_batch_id, token FROM staged_transactions WHERE table_id = ? AND name = ?",
                (table_id, transaction),
            ).fetchone()
            if row is not None and row[0] >= batch_id:
                return Decision(row == (batch_id, token), row[0])
            writer_ids = {file.writer_id for _, files in buckets for file in files}
            self._check_not_revoked(connection, writer_ids)
            self.owners.check_attempts(table_id, transaction, user, writer_ids)
            if row is None:
                self._make_room(connection, table_id)
            connection.execute(
                "INSERT OR REPLACE INTO staged_transactions VALUES (?, ?, ?, ?, ?)",
                (table_id, transaction, batch_id, token, now_ms),
            )
            work_id = self._file.add_to_counter(WORK_COUNTER, max(1, len(buckets))) + 1
            for position, (bucket, files) in enumerate(buckets):
                connection.execute(
                    "INSERT INTO staged_work VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (work_id + position, *bucket, transaction, batch_id, json.dumps(files)),
                )
            return Decision(True, batch_id)

    def _check_not_revoked(self, connection: sqlite3.Connection, writer_ids: set[int]) -> None:
        floor = self._file.counter(REVOKED_FLOOR_COUNTER)
        revoked = {row[0] for row in connection.execute("SELECT writer_id FROM staged_revoked")}
        gone = sorted(writer_id for writer_id in writer_ids if writer_id in revoked or writer_id < floor)
        if gone:
            raise FlussError(
                f"attempt {gone[0]} was aborted or has expired, so its staged rows are gone; nothing was committed: "
                "stage the rows again",
                ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION,
            )

    def _make_room(self, connection: sqlite3.Connection, table_id: int) -> None:
        (count,) = connection.execute(
            "SELECT count(*) FROM staged_transactions WHERE table_id = ?", (table_id,)
        ).fetchone()
        if count < TRANSACTIONS_PER_TABLE_LIMIT_ROWS:
            return
        owned = (
            "FROM staged_transactions AS t LEFT JOIN staged_owners AS o ON o.table_id = t.table_id AND o.name = t.name "
            "WHERE t.table_id = ?1"
        )
        owner, count = connection.execute(
            f"SELECT ifnull(o.owner, ''), count(*) {owned} GROUP BY 1 ORDER BY 2 DESC LIMIT 1", (table_id,)
        ).fetchone()
        connection.execute(
            f"DELETE FROM staged_transactions WHERE table_id = ?1 AND name IN (SELECT t.name {owned} "
            "AND ifnull(o.owner, '') = ?2 ORDER BY t.updated_time LIMIT ?3)",
            (table_id, owner, max(1, count // EVICTED_SHARE)),
        )

    def last_batch_id(self, table_id: int, transaction: str) -> int | None:
        """Return the last decided batch id of a transaction, or None."""
        row = self._file.row(
            "SELECT last_batch_id FROM staged_transactions WHERE table_id = ? AND name = ?", (table_id, transaction)
        )
        return None if row is None else int(row[0])

    def unapplied_buckets(self, table_id: int, transaction: str) -> int:
        """Return how many buckets still have to append decided rows of this transaction."""
        (count,) = self._file.row(
            "SELECT count(*) FROM staged_work WHERE table_id = ? AND name = ?", (table_id, transaction)
        )
        return int(count)

    def work_counter(self) -> int:
        """Return a number that changes with every decision."""
        return self._file.counter(WORK_COUNTER)

    def work(self) -> list[StagedWork]:
        """Return all work that is decided and not applied, in the order of the decisions."""
        rows = self._file.rows("SELECT * FROM staged_work ORDER BY work_id")
        return [
            StagedWork(
                work_id,
                TableBucket(table_id, partition_id, bucket_id),
                name,
                batch_id,
                tuple(StagedFileEntry(*file) for file in json.loads(files)),
            )
            for work_id, table_id, partition_id, bucket_id, name, batch_id, files in rows
        ]

    def applied(self, work_ids: Iterable[int]) -> None:
        """Remove work whose rows are durable in their logs."""
        with self._file.transaction() as connection:
            connection.executemany("DELETE FROM staged_work WHERE work_id = ?", ((number,) for number in work_ids))

    def revoke(self, writer_ids: Iterable[int]) -> set[int]:
        """Make sure that these attempts are never decided; return those for which this is now guaranteed.

        An attempt that is decided and not yet applied is not among them.
        """
        with self._file.transaction() as connection:
            decided = {
                file[0]
                for (files,) in connection.execute("SELECT files FROM staged_work")
                for file in json.loads(files)
            }
            revoked = set(writer_ids) - decided
            connection.executemany(
                "INSERT OR IGNORE INTO staged_revoked VALUES (?)", ((number,) for number in sorted(revoked))
            )
            (floor,) = connection.execute(
                "SELECT max(writer_id) FROM (SELECT writer_id FROM staged_revoked ORDER BY writer_id DESC "
                "LIMIT -1 OFFSET ?)",
                (REVOKED_LIMIT_ROWS,),
            ).fetchone()
            if floor is not None:
                connection.execute("DELETE FROM staged_revoked WHERE writer_id <= ?", (floor,))
                self._file.set_counter(REVOKED_FLOOR_COUNTER, floor + 1)
            return revoked
