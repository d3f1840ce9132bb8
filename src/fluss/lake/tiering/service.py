"""A tierer: rounds of all tables with a lake, once or for as long as it runs.

Two ways to a round, both safe beside any number of other tierers:

- handed out: the coordinator says which table is due (`table.datalake.freshness`), and watches by heartbeats;
- asked for: a round now, whatever the schedule says. `once` does this with the tables that were not due, and a tierer
  that is told which tables to work on does nothing else.

Two rounds of one table at the same time cost work and nothing else: the lake takes one of them.

The loop threads (`tables_at_once`) share one connection and one engine. `stop` ends the service when the rounds that
run are over. A failed round is told to the watcher and never ends the service.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from fluss.client.admin_calls import AdminCalls
from fluss.client.lake_calls import TieringCalls, TieringTable
from fluss.client.session import Session
from fluss.errors import ErrorCode, FlussError
from fluss.lake.maintenance.registry import CoordinatorRegistry
from fluss.lake.maintenance.running import TaskRunner
from fluss.lake.maintenance.service import MaintenanceReport, maintain_if_due
from fluss.lake.tables.format import LakeFormat
from fluss.lake.tables.opening import lake_of, lake_properties_of
from fluss.lake.tiering.heartbeats import Heartbeats
from fluss.lake.tiering.options import TieringOptions
from fluss.lake.tiering.rounds import RoundReport, SplitRunner, TableRound, Watcher
from fluss.model.paths import TablePath
from fluss.model.properties import DATALAKE_ENABLED, property_value

logger = logging.getLogger(__name__)

# A table that fails is handed out again at once: without a pause the same error would come in a hot loop.
FAILURE_PAUSE_SECONDS = 5.0
# A round that somebody else was faster with, or that was cut, is done again so often by `once`.
ROUNDS_PER_TABLE = 100
FENCED_ATTEMPTS = 3
# The table is not there to be tiered any more: no failure of the tierer.
_GONE_CODES = frozenset({ErrorCode.TABLE_NOT_EXIST, ErrorCode.DATABASE_NOT_EXIST})


class ServiceWatcher(Watcher, Protocol):
    """Is also told how rounds end."""

    def finished(self, report: RoundReport) -> None:
        """A round is over; its report may name an error of some buckets."""

    def failed(self, path: TablePath, error: FlussError) -> None:
        """A round committed nothing."""

    def maintained(self, path: TablePath, report: MaintenanceReport) -> None:
        """Upkeep after a round has ended."""


class TieringService:
    """Used by one thread, which runs `once` or `run_until`.

    `tables`: only these, whatever the coordinator says. `upkeep`: who rewrites files, threads of this process if None.
    """

    def __init__(
        self,
        session: Session,
        runner: SplitRunner,
        watcher: ServiceWatcher,
        options: TieringOptions | None = None,
        tables: Sequence[TablePath] | None = None,
        upkeep: TaskRunner | None = None,
    ) -> None:
        self._session = session
        self._runner = runner
        self._watcher = watcher
        self._options = options or TieringOptions()
        self._tables = None if tables is None else list(tables)
        self._upkeep = upkeep
        self._calls = AdminCalls(session.cluster)
        self._lakes: dict[tuple[str, tuple[tuple[str, str], ...]], LakeFormat] = {}
        self._lock = threading.Lock()

    # ---- the two ways to run ----

    def once(self) -> list[RoundReport | FlussError]:
        """Tier everything that is there now; one result per table, an error for a table that failed."""
        done: dict[int, RoundReport | FlussError] = {}
        if self._tables is None:
            heartbeats = Heartbeats(TieringCalls(self._session), self._options.heartbeat_seconds)
            try:
                self._in_threads(lambda: self._drain(heartbeats, done))
            finally:
                heartbeats.close()
        rest = iter(self._lake_tables(done))
        self._in_threads(lambda: self._ask_for_rounds(rest, done))
        return list(done.values())

    def run_until(self, stop: threading.Event, every_seconds: float) -> None:
        """Until `stop` is set. `every_seconds`: how often to ask again when nothing is due."""
        if self._tables is not None:
            while not stop.is_set():
                self.once()
                stop.wait(every_seconds)
            return
        heartbeats = Heartbeats(TieringCalls(self._session), self._options.heartbeat_seconds)
        try:
            self._in_threads(lambda: self._serve(heartbeats, stop, every_seconds))
        finally:
            heartbeats.close()

    def close(self) -> None:
        """Close the catalogs."""
        with self._lock:
            lakes, self._lakes = list(self._lakes.values()), {}
        for lake in lakes:
            lake.close()

    def _in_threads(self, work: Callable[[], None]) -> None:
        count = max(self._options.tables_at_once, 1)
        with ThreadPoolExecutor(count, thread_name_prefix="fluss-tier-table") as pool:
            for future in [pool.submit(work) for _ in range(count)]:
                future.result()

    # ---- handed out ----

    def _serve(self, heartbeats: Heartbeats, stop: threading.Event, every_seconds: float) -> None:
        while not stop.is_set():
            try:
                table = heartbeats.take()
            except FlussError as error:
                logger.warning("the coordinator cannot be asked for a table now: %s", error)
                table = None
            if table is None:
                stop.wait(every_seconds)
            elif isinstance(self._handed_out(heartbeats, table), FlussError):
                stop.wait(FAILURE_PAUSE_SECONDS)

    def _drain(self, heartbeats: Heartbeats, done: dict[int, RoundReport | FlussError]) -> None:
        """Every table that is due; one that failed and comes back is left to others."""
        while (table := heartbeats.take()) is not None:
            with self._lock:
                known = done.get(table.table_id)
            if known is None or (isinstance(known, RoundReport) and known.is_cut):
                result = self._handed_out(heartbeats, table)
                with self._lock:
                    done[table.table_id] = result
                continue
            heartbeats.fail(table)
            return

    def _handed_out(self, heartbeats: Heartbeats, table: TieringTable) -> RoundReport | FlussError:
        result = self._told_round(table.path, lambda: heartbeats.reason_lost(table))
        if isinstance(result, FlussError) or result.error is not None:
            heartbeats.fail(table)
        else:
            heartbeats.finish(table, result)
        return result

    # ---- asked for ----

    def _lake_tables(self, done: dict[int, RoundReport | FlussError]) -> list[tuple[int, TablePath]]:
        """Tables with a lake that were not tiered yet, or were cut."""
        paths = self._session.run(self._all_tables()) if self._tables is None else self._tables
        found = []
        for path in paths:
            try:
                info = self._session.run(self._calls.get_table_info(path))
            except FlussError as error:
                if self._tables is None and error.error_code in (*_GONE_CODES, ErrorCode.AUTHORIZATION_EXCEPTION):
                    continue  # dropped meanwhile, or none of our business
                raise
            enabled = property_value(info.properties, DATALAKE_ENABLED)
            if self._tables is not None and not enabled:
                raise FlussError(
                    f"table {path} has no lake: set table.datalake.enabled=true",
                    ErrorCode.LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION,
                )
            known = done.get(info.table_id)
            if enabled and (known is None or (isinstance(known, RoundReport) and known.is_cut)):
                found.append((info.table_id, TablePath(path.database_name, path.table_name)))
        return found

    async def _all_tables(self) -> list[TablePath]:
        paths = []
        for database in await self._calls.list_databases():
            paths += [TablePath(database, name) for name in await self._calls.list_tables(database)]
        return paths

    def _ask_for_rounds(self, rest: Iterator[tuple[int, TablePath]], done: dict[int, RoundReport | FlussError]) -> None:
        while True:
            with self._lock:
                item = next(rest, None)
            if item is None:
                return
            table_id, path = item
            result = self._whole(path)
            with self._lock:
                done[table_id] = result

    def _whole(self, path: TablePath) -> RoundReport | FlussError:
        """Rounds until everything that was there is in the lake."""
        fenced = 0
        for _ in range(ROUNDS_PER_TABLE):
            result = self._told_round(path, lambda: None, tell_fenced=fenced == FENCED_ATTEMPTS)
            if isinstance(result, FlussError):
                if result.error_code != ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION or fenced == FENCED_ATTEMPTS:
                    return result
                fenced += 1
            elif not result.is_cut:
                return result
        return result

    # ---- a round ----

    def _told_round(
        self, path: TablePath, fence: Callable[[], FlussError | None], *, tell_fenced: bool = True
    ) -> RoundReport | FlussError:
        """A round whose end the watcher is told; errors of any kind are results."""
        try:
            lake = self._lake_of(path)
            report = TableRound(self._session, path, lake, self._runner, self._options, self._watcher, fence).run()
        except FlussError as error:
            if tell_fenced or error.error_code != ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION:
                self._watcher.failed(path, error)
            return error
        except Exception as error:  # an engine's own error, or a mistake of ours: other tables go on
            logger.exception("a round of %s ended with an unexpected error", path)
            unexpected = FlussError(f"a round of {path} failed: {type(error).__name__}: {error}")
            self._watcher.failed(path, unexpected)
            return unexpected
        self._watcher.finished(report)
        if self._options.maintenance and report.snapshot_id is not None and fence() is None:
            self._maintain(report, lake)
        return report

    def _maintain(self, report: RoundReport, lake: LakeFormat) -> None:
        """Errors of upkeep do not count as errors of the round: its rows are safe."""
        registry = CoordinatorRegistry(TieringCalls(self._session), report.table_id, report.path)
        try:
            properties = self._session.run(self._calls.get_table_info(report.path)).properties
            table = lake.load(report.path)
            done = maintain_if_due(table, report.table_id, properties, runner=self._upkeep, registry=registry)
        except FlussError as error:
            done = MaintenanceReport(errors=(f"upkeep could not begin: {error.message}",))
        self._watcher.maintained(report.path, done)

    def _lake_of(self, path: TablePath) -> LakeFormat:
        """Catalogs are kept: tables of one cluster are in one lake, mostly."""
        properties = self._session.run(self._calls.get_table_info(path)).properties
        lake_format, shown = lake_properties_of(properties)
        key = lake_format, tuple(sorted(shown.items()))
        with self._lock:
            if key not in self._lakes:
                self._lakes[key] = lake_of(properties, self._options.lake_overrides)
            return self._lakes[key]
