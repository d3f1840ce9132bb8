"""Whose a staged append is.

A transaction (table, name) belongs to the first user who stages rows for it or decides a batch of it; from then on
nobody else may add rows to it, commit, abort or ask about it. Otherwise everybody who may write to a table could end
the exactly-once append of somebody else: throw its rows away, or decide a high batch id, so that lower ones count as
done.

Users who have not logged in are all the same, so what they stage belongs to nobody: no row is kept for it, and the
first user who has logged in takes it over. The same goes for what versions without this table staged.

A row stays as long as its table, or until there are too many. Then the user who has most of them loses the oldest for
which nothing was decided, so nobody can crowd out the rows of others.
"""

from __future__ import annotations

import sqlite3

from fluss.errors import ErrorCode, FlussError
from fluss.server.catalog.database_file import DatabaseFile

# Of transactions for which nothing was decided; the decided ones have a limit of their own.
UNDECIDED_PER_TABLE_LIMIT_ROWS = 100_000
ANONYMOUS_USER = ""

# Share of the rows that goes at once when there are too many, so that looking for them is paid rarely.
EVICTED_SHARE = 10

_UNDECIDED = (
    "FROM staged_owners AS o WHERE o.table_id = ?1 AND NOT EXISTS "
    "(SELECT 1 FROM staged_transactions AS t WHERE t.table_id = ?1 AND t.name = o.name)"
)


class StagedOwners:
    """The owners in the catalog file. A user of None may touch what everybody has staged, and takes nothing over."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def check(self, table_id: int, transaction: str, user: str | None) -> bool:
        """FlussError 48 if the transaction is another user's; returns whether it is this user's or needs no owner."""
        row = self._file.row("SELECT owner FROM staged_owners WHERE table_id = ? AND name = ?", (table_id, transaction))
        if row is None or user is None:
            return row is not None or user in (None, ANONYMOUS_USER)
        if row[0] != user:
            raise FlussError(
                f"transaction {transaction!r} of the table with id {table_id} belongs to another user; go on as "
                "that user, or with another transaction (a new checkpoint)",
                ErrorCode.AUTHORIZATION_EXCEPTION,
            )
        return True

    def claim(self, table_id: int, transaction: str, user: str | None, now_ms: int) -> None:
        """`check`, and if it is nobody's yet, it is this user's when this returns."""
        if not self.check(table_id, transaction, user):
            with self._file.transaction() as connection:
                self.claim_within(connection, table_id, transaction, user, now_ms)

    def claim_within(
        self, connection: sqlite3.Connection, table_id: int, transaction: str, user: str | None, now_ms: int
    ) -> None:
        """The same as a part of a transaction under way."""
        if self.check(table_id, transaction, user):
            return
        (count,) = connection.execute("SELECT count(*) FROM staged_owners WHERE table_id = ?", (table_id,)).fetchone()
        if count >= UNDECIDED_PER_TABLE_LIMIT_ROWS:
            self._make_room(connection, table_id)
        connection.execute("INSERT INTO staged_owners VALUES (?, ?, ?, ?)", (table_id, transaction, user, now_ms))

    def _make_room(self, connection: sqlite3.Connection, table_id: int) -> None:
        rows = connection.execute(f"SELECT owner, count(*) {_UNDECIDED} GROUP BY owner", (table_id,)).fetchall()
        if sum(count for _, count in rows) >= UNDECIDED_PER_TABLE_LIMIT_ROWS:
            owner, count = max(rows, key=lambda row: int(row[1]))
            connection.execute(
                f"DELETE FROM staged_owners WHERE table_id = ?1 AND name IN (SELECT o.name {_UNDECIDED} "
                "AND o.owner = ?2 ORDER BY o.claimed_time LIMIT ?3)",
                (table_id, owner, max(1, count // EVICTED_SHARE)),
            )
