"""The owners of staged appends.

A transaction (table, name) belongs to the first user who stages rows for it or decides a batch of it; from then on no
other user may add rows to it, commit it, abort it or query it. Otherwise any user with write permission on a table
could break another user's exactly-once append: discard its rows, or decide a high batch id, so that lower ones count as
done.

Anonymous users cannot be distinguished, so what they stage has no owner: no row is kept for it, and the first logged-in
user who uses the name takes it over. This also applies to rows that were staged by versions without this table.

A row is kept as long as its table, or until there are too many. Then the user with the most rows loses the oldest ones
for which nothing was decided, so no user can crowd out the rows of others. What was staged under those names then has
no owner, and no user may commit it: a name that is claimed after such an eviction does not include attempts from before
it. Attempts are distinguished by their writer ids, which only grow (`check_attempts`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from fluss.errors import ErrorCode, FlussError
from fluss.server.catalog.database_file import DatabaseFile

# Counts transactions for which nothing was decided; up to twice as many if most of the decided ones have no owner, and
# a tenth more for each process. Decided ones have their own limit.
UNDECIDED_PER_TABLE_LIMIT_ROWS = 100_000
ANONYMOUS_USER = ""

# One in this many rows is evicted at once when there are too many, so that the search for them is rare.
EVICTED_SHARE = 10

COUNTED_TABLES_LIMIT = 1_000

# Time and writer id of the last eviction: names claimed since then own only attempts from this id on.
EVICTION_TIME_COUNTER = "staged_eviction_time"
FIRST_ID_COUNTER = "staged_eviction_writer_id"

_UNDECIDED = (
    "FROM staged_owners AS o WHERE o.table_id = ?1 AND NOT EXISTS "
    "(SELECT 1 FROM staged_transactions AS t WHERE t.table_id = ?1 AND t.name = o.name)"
)


class StagedOwners:
    """The owners in the catalog file. A user of None may touch the staged rows of all users, and becomes no owner."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._left: dict[int, int] = {}

    def check(self, table_id: int, transaction: str, user: str | None) -> bool:
        """Raise code 48 if another user owns the transaction; True if this user owns it or no owner is needed."""
        row = self._file.row("SELECT owner FROM staged_owners WHERE table_id = ? AND name = ?", (table_id, transaction))
        if row is None or user is None:
            return row is not None or user in (None, ANONYMOUS_USER)
        if row[0] != user:
            raise FlussError(
                f"transaction {transaction!r} of table id {table_id} belongs to another user; continue as that user, "
                "or use another transaction (a new checkpoint)",
                ErrorCode.AUTHORIZATION_EXCEPTION,
            )
        return True

    def claim(self, table_id: int, transaction: str, user: str | None, now_ms: int) -> None:
        """`check` the transaction and, if it has no owner, make this user its owner."""
        if not self.check(table_id, transaction, user):
            with self._file.transaction() as connection:
                self.claim_within(connection, table_id, transaction, user, now_ms)

    def claim_within(
        self, connection: sqlite3.Connection, table_id: int, transaction: str, user: str | None, now_ms: int
    ) -> None:
        """`claim` within a database transaction that the caller has started."""
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
        """The lowest writer id of attempts that belong to names claimed from now on."""
        return self._file.counter(FIRST_ID_COUNTER)

    def check_attempts(self, table_id: int, transaction: str, user: str | None, writer_ids: Iterable[int]) -> None:
        """Raise code 33 if one of these may have been staged by a previous owner of the transaction."""
        first_id = self.first_writer_id
        older = min((writer_id for writer_id in writer_ids if writer_id < first_id), default=None)
        if older is None or user is None:
            return
        row = self._file.row(
            "SELECT claimed_time FROM staged_owners WHERE table_id = ? AND name = ?", (table_id, transaction)
        )
        if row is None or row[0] >= self._file.counter(EVICTION_TIME_COUNTER):
            raise FlussError(
                f"attempt {older} is older than the known owner of transaction {transaction!r}, so its rows may be "
                "another user's; nothing was committed: stage the rows again with a new writer id",
                ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION,
            )

    def _count_room(self, connection: sqlite3.Connection, table_id: int, now_ms: int) -> int:
        """Return how many names may be claimed before they have to be counted again; counting is slow."""
        (undecided,) = connection.execute(  # a lower bound: it assumes that all decided names have owners
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
