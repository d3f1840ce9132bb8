"""The messages between a tiering service and the coordinator: assignments, heartbeats, results.

A separate thread renews all assigned tables every `heartbeat_seconds`. An assignment that the coordinator refuses to
renew is lost: its round sees that through `reason_lost` and stops. If the coordinator cannot be reached, assignments
are kept; when the coordinator is back, its answer shows which assignments it still knows.

Any thread may call the methods.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from fluss.errors import FlussError
from fluss.lake.coordinator_calls import FinishedTable, TieringCalls, TieringTable
from fluss.lake.tiering.rounds import RoundReport

logger = logging.getLogger(__name__)

STOP_SECONDS = 5.0


class Heartbeats:
    """Sends heartbeats. The constructor starts the thread, `close` ends it."""

    def __init__(self, calls: TieringCalls, heartbeat_seconds: float) -> None:
        self._calls = calls
        self._seconds = heartbeat_seconds
        self._lock = threading.Lock()
        self._in_work: set[TieringTable] = set()
        self._lost: dict[TieringTable, FlussError] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_always, name="fluss-tiering-heartbeat", daemon=True)
        self._thread.start()

    def take(self) -> TieringTable | None:
        """Take the next table that is due; None if there is none now."""
        table = self._calls.heartbeat(request_table=True).table
        if table is not None:
            with self._lock:
                self._in_work.add(table)
        return table

    def reason_lost(self, table: TieringTable) -> FlussError | None:
        """The error with which the coordinator refused to renew the table; None while it is assigned."""
        with self._lock:
            return self._lost.get(table)

    def finish(self, table: TieringTable, report: RoundReport) -> None:
        """Report a finished round, or one cut short so that the table is due again."""
        finished = FinishedTable(table, report.is_cut, report.total_bytes, report.total_rows)
        self._report(table, lambda: self._calls.heartbeat(finished=[finished]).errors.get(table))

    def fail(self, table: TieringTable) -> None:
        """Report a failed round: the table is due again."""
        self._report(table, lambda: self._calls.heartbeat(failed=[table]).errors.get(table))

    def close(self) -> None:
        """End the thread. The coordinator assigns unfinished tables to others after its heartbeat timeout."""
        self._ended.set()
        self._thread.join(STOP_SECONDS)

    def _report(self, table: TieringTable, call: Callable[[], FlussError | None]) -> None:
        with self._lock:
            self._in_work.discard(table)
            was_lost = self._lost.pop(table, None) is not None
        if was_lost:
            return  # another service has it now, and reports
        try:
            refused = call()
        except FlussError as error:
            refused = error
        if refused is not None:
            logger.info("the coordinator refused the result of a round of %s: %s", table.path, refused)

    def _renew_always(self) -> None:
        while not self._ended.wait(self._seconds):
            self.renew()

    def renew(self) -> None:
        """Send one heartbeat for all assigned tables."""
        with self._lock:
            tables = [table for table in self._in_work if table not in self._lost]
        if not tables:
            return
        try:
            answer = self._calls.heartbeat(tiering=tables)
        except FlussError as error:
            logger.warning("a heartbeat of this tiering service failed: %s", error)
            return
        with self._lock:
            for table, reason in answer.errors.items():
                if table in self._in_work:
                    logger.warning("this tiering service lost table %s: %s", table.path, reason)
                    self._lost[table] = reason
