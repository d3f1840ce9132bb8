"""Whose a staged append is.

A transaction (table, name) belongs to the first user who stages rows for it or decides a batch of it; from then on
nobody else may add rows to it, commit, abort or ask about it. Otherwise everybody who may write to a table could end
the exactly-once append of somebody else: throw its rows away, or decide a high batch id, so that lower ones count as
done.

Users who have not logged in are all the same, so what they stage belongs to nobody: no row is kept for it, and the
first user who has logged in takes it over. The same goes for what versions without this table staged.

A row stays as long as its table, or until there are too many. Then the user who has most of them loses the oldest for
which nothing was decided, so nobody can crowd out the rows of others. What was staged for those is nobody's then, and
nobody may have it: a name that is claimed after such a loss takes over no attempt from before it. Attempts are told
apart by their writer ids, which only grow (`check_attempts`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from fluss.errors import ErrorCode, FlussError
from fluss.server.catalog.database_file import DatabaseFile

# Of transactions for which nothing was decided, up to twice as many where most of the decided ones are nobody's, and a
# tenth more for each process. The decided ones have a limit of their own.
UNDECIDED_PER_TABLE_LIMIT_ROWS = 100_000
ANONYMOUS_USER = ""

# Share of the rows that goes at once when there are too many, so that looking for them is paid rarely.
EVICTED_SHARE = 10

COUNTED_TABLES_LIMIT = 1_000

# Of the last time when there were too many: names that are claimed from then on have attempts from this id on.
EVICTION_TIME_COUNTER = "staged_eviction_time"
FIRST_ID_COUNTER = "staged_eviction_writer_id"

_UNDECIDED = (
    "FROM staged_owners AS o WHERE o.table_id = ?1 AND NOT EXISTS "
    "(SELECT 1 FROM staged_transactions AS t WHERE t.table_id = ?1 AND t.name = o.name)"
)


class StagedOwners:
    """The owners in the catalog file. A user of None may touch what everybody has staged, and takes nothing over."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._left: dict[int, int] = {}

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
        left = self._left.get(table_id, 0)
        if left <= 0:
            left = self._count_room(connection, table_id, now_ms)
        if len(self._left) >= COUNTED_TABLES_LIMIT:
            self._left.clear()
        self._left[table_id] = left - 1
        claimed_time = max(now_ms, self._file.counter(EVICTION_TIME_COUNTER))  # clocks may be set back
        connection.execute("INSERT INTO staged_owners VALUES (?, ?, ?, ?)", (table_id, transaction, user, claimed_time))

    @property
    def first_writer_id(self) -> int:
        """Attempts of names that are claimed from now on need at least this writer id."""
        return self._file.counter(FIRST_ID_COUNTER)

    def check_attempts(self, table_id: int, transaction: str, user: str | None, writer_ids: Iterable[int]) -> None:
        """FlussError 33 if one of these may have been staged by somebody who has lost the transaction since."""
        first_id = self.first_writer_id
        older = min((writer_id for writer_id in writer_ids if writer_id < first_id), default=None)
        if older is None or user is None:
            return
        row = self._file.row(
            "SELECT claimed_time FROM staged_owners WHERE table_id = ? AND name = ?", (table_id, transaction)
        )
        if row is None or row[0] >= self._file.counter(EVICTION_TIME_COUNTER):
            raise FlussError(
                f"attempt {older} is older than what is known about transaction {transaction!r}, so its rows may be "
                "another user's; nothing was committed, stage the rows again with a new writer id",
                ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION,
            )

    def _count_room(self, connection: sqlite3.Connection, table_id: int, now_ms: int) -> int:
        """How many names may be claimed before this is asked again: to count them takes long."""
        (undecided,) = connection.execute(  # at least so many, if all that was decided has an owner
            "SELECT (SELECT count(*) FROM staged_owners WHERE table_id = ?1)"
            " - (SELECT count(*) FROM staged_transactions WHERE table_id = ?1)",
            (table_id,),
        ).fetchone()
        if undecided >= UNDECIDED_PER_TABLE_LIMIT_ROWS:
            self._make_room(connection, table_id, now_ms)
        return max(1, (UNDECIDED_PER_TABLE_LIMIT_ROWS - max(0, int(undecided))) // EVICTED_SHARE)

    def _make_room(self, connection: sqlite3.Connection, table_id: int, now_ms: int) -> None:
        owner, count = connection.execute(
            f"SELECT owner, count(*) {_UNDECIDED} GROUP BY owner ORDER BY 2 DESC LIMIT 1", (table_id,)
        ).fetchone()
        connection.execute(
            f"DELETE FROM staged_owners WHERE table_id = ?1 AND name IN (SELECT o.name {_UNDECIDED} "
            "AND o.owner = ?2 ORDER BY o.claimed_time LIMIT ?3)",
            (table_id, owner, max(1, count // EVICTED_SHARE)),
        )
        self._file.set_counter(EVICTION_TIME_COUNTER, max(now_ms, self._file.counter(EVICTION_TIME_COUNTER)))
        self._file.set_counter(FIRST_ID_COUNTER, self._file.counter("writer_id"))
