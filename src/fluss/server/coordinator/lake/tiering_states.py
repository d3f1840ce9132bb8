"""The states of tables with a lake: which table is tiered when, and by which service. No I/O, no clock of its own.

```
            track                        due (freshness is over)            take
   (none) ----------> SCHEDULED ------------------------------> PENDING ----------> TIERING
                         ^  ^                                      ^                 | | |
                         |  +-- finish ----------------------------|-----------------+ | |
                         |                                         +-- finish, forced -+ |
                         |                                         +-- fail, or silence -+
   forget: from anywhere to (none)
```

A table enters PENDING with a new epoch and waits in line; TIERING ends when its service reports so or sends no
heartbeat for too long. A service with an older epoch is refused with code 50. Epochs of a table only grow: they
continue from the stored one when the table is tracked, and `take` hands out an epoch only after `remember` has made it
durable. There are no timers: `update` makes the changes that depend on time, and every caller calls it first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TablePath

logger = logging.getLogger(__name__)

TABLES_NAMED = 5


class TieringState(Enum):
    """The states of a table with a lake; the module docstring has the transitions."""

    SCHEDULED = "scheduled"
    PENDING = "pending"
    TIERING = "tiering"


@dataclass
class TieredTable:
    """One table with a lake. Times are in milliseconds; `since_ms` is when it entered its state."""

    table_id: int
    path: TablePath
    freshness_ms: int
    epoch: int
    last_tiered_ms: int
    state: TieringState
    since_ms: int
    heartbeat_ms: int = 0
    due_again: bool = False
    failures: int = 0
    duration_ms: int | None = None
    file_size: int | None = None
    record_count: int | None = None


class TieringStates:
    """All tables with a lake. Called by one thread."""

    def __init__(self, clock: Callable[[], int], timeout_ms: int, remember: Callable[[int, int], None]) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._remember = remember
        self._tables: dict[int, TieredTable] = {}
        self._line: dict[int, None] = {}  # the line: keys in order of arrival

    @property
    def tables(self) -> dict[int, TieredTable]:
        """All tables by id; read-only for callers."""
        return self._tables

    def count(self, state: TieringState) -> int:
        """Return how many tables are in a state."""
        return sum(table.state is state for table in self._tables.values())

    # Tracking tables

    def track(self, table_id: int, path: TablePath, freshness_ms: int, epoch: int, last_tiered_ms: int) -> TieredTable:
        """Add a table with a lake: one that exists at the start, or whose lake was just enabled.

        `epoch` is the last one that was handed out for it.
        """
        assert table_id not in self._tables
        table = TieredTable(table_id, path, freshness_ms, epoch, last_tiered_ms, TieringState.SCHEDULED, self._clock())
        self._tables[table_id] = table
        return table

    def forget(self, table_id: int) -> None:
        """Remove a table that was dropped or whose lake was disabled."""
        self._tables.pop(table_id, None)
        self._line.pop(table_id, None)

    def make_due(self, table_id: int) -> None:
        """Make the table due now; if it is being tiered, make it due again right after."""
        table = self._tables.get(table_id)
        if table is None:
            return
        if table.state is TieringState.TIERING:
            table.due_again = True
        elif table.state is TieringState.SCHEDULED:
            self._enter_line(table)

    # Changes by time

    def update(self) -> None:
        """Put tables that are due, or whose service sends no heartbeat, into the line."""
        now_ms = self._clock()
        silent: list[TieredTable] = []
        for table in self._tables.values():
            if table.state is TieringState.SCHEDULED and now_ms - table.last_tiered_ms >= table.freshness_ms:
                self._enter_line(table)
            elif table.state is TieringState.TIERING and now_ms - table.heartbeat_ms >= self._timeout_ms:
                silent.append(table)
                table.failures += 1
                self._enter_line(table)
        if silent:
            logger.warning(
                "no heartbeat from the services of %d tables (%s%s) for %d ms or more; reassigning the tables",
                len(silent),
                ", ".join(str(table.path) for table in silent[:TABLES_NAMED]),
                ", ..." if len(silent) > TABLES_NAMED else "",
                self._timeout_ms,
            )

    # Requests of tiering services

    def take(self, may_have: Callable[[TablePath], bool]) -> TieredTable | None:
        """Hand out the table that has waited longest of those that the caller may tier."""
        table_id = next((waiting for waiting in self._line if may_have(self._tables[waiting].path)), None)
        if table_id is None:
            return None
        table = self._tables[table_id]
        self._remember(table_id, table.epoch)
        del self._line[table_id]
        self._enter(table, TieringState.TIERING)
        table.heartbeat_ms = table.since_ms
        table.due_again = False
        return table

    def renew(self, table_id: int, epoch: int) -> None:
        """Record a heartbeat of the service that tiers the table."""
        table = self._checked(table_id, epoch)
        if table.state is not TieringState.TIERING:
            raise FlussError(
                f"table {table.path} is {table.state.value} and not being tiered, so its heartbeat was ignored; "
                "request a table again",
                ErrorCode.UNKNOWN_SERVER_ERROR,
            )
        table.heartbeat_ms = self._clock()

    def finish(
        self, table_id: int, epoch: int, forced: bool, file_size: int | None = None, record_count: int | None = None
    ) -> bool:
        """End a round. `forced`: it was cut short, so the next one follows at once. False if it had already ended."""
        table = self._checked(table_id, epoch)
        if table.state is not TieringState.TIERING:
            logger.info("table %s was reported as finished while it is %s", table.path, table.state.value)
            return False
        now_ms = self._clock()
        table.duration_ms = now_ms - table.since_ms
        table.last_tiered_ms = now_ms
        table.file_size = table.file_size if file_size is None else file_size
        table.record_count = table.record_count if record_count is None else record_count
        if forced or table.due_again:
            self._enter_line(table)
        else:
            self._enter(table, TieringState.SCHEDULED)
        return True

    def fail(self, table_id: int, epoch: int) -> None:
        """End a failed round: the table goes to the end of the line."""
        table = self._checked(table_id, epoch)
        if table.state is not TieringState.TIERING:
            logger.info("table %s was reported as failed while it is %s", table.path, table.state.value)
            return
        table.failures += 1
        self._enter_line(table)

    def _checked(self, table_id: int, epoch: int) -> TieredTable:
        table = self._tables.get(table_id)
        if table is None:
            raise FlussError(
                f"table id {table_id} was dropped or its lake was disabled; give up the round",
                ErrorCode.TABLE_NOT_EXIST,
            )
        if epoch != table.epoch:
            raise FlussError(
                f"table {table.path} was handed out again: its epoch is {table.epoch}, not {epoch}; give up the round",
                ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION,
            )
        return table

    def _enter_line(self, table: TieredTable) -> None:
        table.epoch += 1
        table.due_again = False
        self._enter(table, TieringState.PENDING)
        self._line[table.table_id] = None

    def _enter(self, table: TieredTable, state: TieringState) -> None:
        table.state = state
        table.since_ms = self._clock()
