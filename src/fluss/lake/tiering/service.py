"""The tiering service: rounds of all tables with a lake, once or continuously.

A round starts in one of two ways, both safe beside any number of other services:

- assigned: the coordinator decides which table is due (`table.datalake.freshness`), and watches by heartbeats;
- requested: a round now, whatever the schedule. `once` does this for the tables that were not due, and a service that
  is given the tables to work on does nothing else.

Two rounds of one table at the same time waste work but are safe: the lake accepts one of them.

The loop threads (`tables_at_once`) share one connection and one engine. `stop` ends the service after the running
rounds. A failed round is reported to the watcher and never ends the service; its table is paused, and an assignment of
it is kept for that time, so that it does not come back at once to this service or to another one.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from fluss.client.engine.admin import TableInfo
from fluss.client.engine.engine import Engine
from fluss.errors import ErrorCode, FlussError
from fluss.lake.coordinator_calls import TieringCalls, TieringTable
from fluss.lake.maintenance.service import MaintenanceReport, maintain_if_due
from fluss.lake.maintenance.snapshot_registry import CoordinatorRegistry
from fluss.lake.maintenance.task_runners import TaskRunner
from fluss.lake.tables.interface.format import LakeFormat
from fluss.lake.tables.open_lake import lake_of, lake_properties_of
from fluss.lake.tiering.failure_pauses import FIRST_PAUSE_SECONDS, FailingTables
from fluss.lake.tiering.heartbeats import Heartbeats
from fluss.lake.tiering.options import TieringOptions
from fluss.lake.tiering.rounds import RoundReport, SplitRunner, TableRound, Watcher
from fluss.model.paths import TablePath
from fluss.model.properties import DATALAKE_ENABLED, property_value

logger = logging.getLogger(__name__)

# Maintenance is due after every round that commits, and this often if rounds have nothing to commit or fail: planning
# it reads the manifests of the table.
IDLE_MAINTENANCE_SECONDS = 600.0
# How often `once` repeats a round that lost to another service or was cut short.
ROUNDS_PER_TABLE = 100
FENCED_ATTEMPTS = 3
# The table no longer exists, which is not a failure of the service.
_GONE_CODES = frozenset({ErrorCode.TABLE_NOT_EXIST, ErrorCode.DATABASE_NOT_EXIST})
# The table may no longer exist: a missing lake table has the first code too, a bucket that moves has the last one.
_PERHAPS_GONE_CODES = _GONE_CODES | {ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION}

Result = RoundReport | FlussError


class ServiceWatcher(Watcher, Protocol):
    """A watcher that also receives the results of rounds and of maintenance."""

    def finished(self, report: RoundReport) -> None:
        """A round is over; its report may have an error of some buckets."""

    def failed(self, path: TablePath, error: FlussError) -> None:
        """A round failed and committed nothing."""

    def maintained(self, path: TablePath, report: MaintenanceReport) -> None:
        """The maintenance that follows a round has ended."""


class TieringService:
    """Runs rounds of tiering and maintenance. Used by one thread, which calls `once` or `run_until`.

    `tables`: tier only these, whatever the coordinator assigns. `maintenance_runner`: runs maintenance tasks; threads
    of this process if None.
    """

    def __init__(
        self,
        engine: Engine,
        runner: SplitRunner,
        watcher: ServiceWatcher,
        options: TieringOptions | None = None,
        tables: Sequence[TablePath] | None = None,
        maintenance_runner: TaskRunner | None = None,
    ) -> None:
        self._engine = engine
        self._runner = runner
        self._watcher = watcher
        self._options = options or TieringOptions()
        self._tables = None if tables is None else list(tables)
        self._maintenance_runner = maintenance_runner
        self._calls = engine.admin
        self._lake_overrides = {**json.loads(engine.config.lake_properties), **self._options.lake_overrides}
        self._lakes: dict[tuple[str, tuple[tuple[str, str], ...]], LakeFormat] = {}
        self._failing = FailingTables()
        self._kept: set[TieringTable] = set()
        self._maintained_at: dict[int, float] = {}
        self._lock = threading.Lock()

    # ---- running once or continuously ----

    def once(self) -> list[Result]:
        """Tier all existing rows; return one result per table, an error for a table that failed."""
        done: dict[int, Result] = {}
        if self._tables is None:
            heartbeats = Heartbeats(TieringCalls(self._engine), self._options.heartbeat_seconds)
            try:
                self._in_threads(lambda: self._drain(heartbeats, done))
            finally:
                heartbeats.close()
        rest = iter(self._lake_tables(done))
        self._in_threads(lambda: self._ask_for_rounds(rest, done))
        return list(done.values())

    def run_until(self, stop: threading.Event, every_seconds: float) -> None:
        """Tier tables until `stop` is set. `every_seconds`: how often to ask again if no table is due."""
        if self._tables is not None:
            while not stop.is_set():
                self._named_rounds(self._tables)
                stop.wait(every_seconds)
            return
        heartbeats = Heartbeats(TieringCalls(self._engine), self._options.heartbeat_seconds)
        try:
            self._in_threads(lambda: self._serve(heartbeats, stop, every_seconds))
            self._report_unpaused(heartbeats, is_end=True)
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

    # ---- assigned rounds ----

    def _serve(self, heartbeats: Heartbeats, stop: threading.Event, every_seconds: float) -> None:
        while not stop.is_set():
            self._report_unpaused(heartbeats)
            try:
                table = heartbeats.take()
            except FlussError as error:
                logger.warning("the coordinator did not answer the request for a table: %s", error)
                table = None
            if table is None:
                stop.wait(self._idle_seconds(every_seconds))
            elif self._failing.seconds_left(table.table_id):  # a restarted coordinator does not know about the pause
                self._hold(table)
            elif _is_fenced(self._run_assigned(heartbeats, table, self._hold)):
                stop.wait(FIRST_PAUSE_SECONDS)

    def _hold(self, table: TieringTable) -> None:
        """Keep a paused table assigned: heartbeats continue, and no other service gets it."""
        with self._lock:
            self._kept.add(table)

    def _report_unpaused(self, heartbeats: Heartbeats, *, is_end: bool = False) -> None:
        """Report tables whose pause is over as failed, so that they are due again."""
        with self._lock:
            rested = {each for each in self._kept if is_end or not self._failing.seconds_left(each.table_id)}
            self._kept -= rested
        for table in rested:
            heartbeats.fail(table)

    def _idle_seconds(self, every_seconds: float) -> float:
        with self._lock:
            resting = [table.table_id for table in self._kept]
        return min(every_seconds, self._failing.seconds_left(*resting)) if resting else every_seconds

    def _drain(self, heartbeats: Heartbeats, done: dict[int, Result]) -> None:
        """Tier every table that is due; a table that failed and is assigned again is left to others."""
        while (table := heartbeats.take()) is not None:
            with self._lock:
                known = done.get(table.table_id)
            if known is None or (isinstance(known, RoundReport) and known.is_cut):
                result = self._run_assigned(heartbeats, table, heartbeats.fail)
                with self._lock:
                    done[table.table_id] = result
                continue
            heartbeats.fail(table)
            return

    def _run_assigned(
        self, heartbeats: Heartbeats, table: TieringTable, on_failure: Callable[[TieringTable], None]
    ) -> Result:
        result = self._run_and_report(table.path, lambda: heartbeats.reason_lost(table))
        if isinstance(result, RoundReport) and result.error is None:
            heartbeats.finish(table, result)
            self._failing.went_well(table.table_id)
        elif _is_fenced(result) or heartbeats.reason_lost(table) is not None:
            heartbeats.fail(table)
        else:
            self._failing.failed(table.table_id)
            on_failure(table)
        return result

    # ---- requested rounds ----

    def _named_rounds(self, paths: Sequence[TablePath]) -> None:
        """Run a round of each table of the service; an error of one is reported and does not affect the others."""
        found = []
        for path in paths:
            try:
                table_id, table_path = self._named_table(path)
            except FlussError as error:
                self._watcher.failed(path, error)
                continue
            if not self._failing.seconds_left(table_id):
                found.append((table_id, table_path))
        rest = iter(found)
        self._in_threads(lambda: self._ask_for_rounds(rest, {}))

    def _named_table(self, path: TablePath) -> tuple[int, TablePath]:
        info = self._engine.run(self._calls.get_table_info(path))
        if not property_value(info.properties, DATALAKE_ENABLED):
            raise FlussError(
                f"table {path} has no lake: set table.datalake.enabled=true",
                ErrorCode.LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION,
            )
        return info.table_id, TablePath(path.database_name, path.table_name)

    def _lake_tables(self, done: dict[int, Result]) -> list[tuple[int, TablePath]]:
        """Tables with a lake that this run has not tiered yet, or whose round was cut short."""
        if self._tables is not None:
            return [self._named_table(path) for path in self._tables]
        found = []
        for path in self._engine.run(self._all_tables()):
            try:
                info = self._engine.run(self._calls.get_table_info(path))
            except FlussError as error:
                if error.error_code in (*_GONE_CODES, ErrorCode.AUTHORIZATION_EXCEPTION):
                    continue  # dropped meanwhile, or not accessible to this service
                raise
            known = done.get(info.table_id)
            is_done = known is not None and not (isinstance(known, RoundReport) and known.is_cut)
            if property_value(info.properties, DATALAKE_ENABLED) and not is_done:
                found.append((info.table_id, path))
        return found

    async def _all_tables(self) -> list[TablePath]:
        paths = []
        for database in await self._calls.list_databases():
            paths += [TablePath(database, name) for name in await self._calls.list_tables(database)]
        return paths

    def _ask_for_rounds(self, rest: Iterator[tuple[int, TablePath]], done: dict[int, Result]) -> None:
        while True:
            with self._lock:
                item = next(rest, None)
            if item is None:
                return
            table_id, path = item
            result = self._run_until_whole(path)
            if isinstance(result, FlussError) or result.error is not None:
                self._failing.failed(table_id)
            else:
                self._failing.went_well(table_id)
            with self._lock:
                done[table_id] = result

    def _run_until_whole(self, path: TablePath) -> Result:
        """Run rounds until all rows that existed at the start are in the lake."""
        fenced = 0
        for _ in range(ROUNDS_PER_TABLE):
            result = self._run_and_report(path, lambda: None, tell_fenced=fenced == FENCED_ATTEMPTS)
            if isinstance(result, FlussError):
                if not _is_fenced(result) or fenced == FENCED_ATTEMPTS:
                    return result
                fenced += 1
            elif not result.is_cut:
                return result
        return result

    # ---- a round ----

    def _run_and_report(
        self, path: TablePath, fence: Callable[[], FlussError | None], *, tell_fenced: bool = True
    ) -> Result:
        """Run a round and report its end to the watcher; errors of any kind are results."""
        info: TableInfo | None = None
        lake: LakeFormat | None = None
        result: Result
        try:
            info = self._engine.run(self._calls.get_table_info(path))
            lake = self._lake_of(info.properties)
            result = TableRound(self._engine, path, lake, self._runner, self._options, self._watcher, fence).run()
        except FlussError as error:
            if self._is_gone(path, info, error):
                logger.info("%s was dropped while it was tiered: %s", path, error.message)
                result = RoundReport(path, -1 if info is None else info.table_id, None)
                self._watcher.finished(result)
                return result
            if tell_fenced or not _is_fenced(error):
                self._watcher.failed(path, error)
            result = error
        except Exception as error:  # an engine's own error, or a bug: other tables continue
            logger.exception("a round of %s ended with an unexpected error", path)
            result = FlussError(f"a round of {path} failed: {type(error).__name__}: {error}")
            self._watcher.failed(path, result)
        else:
            self._watcher.finished(result)
        if self._options.maintenance and info is not None and lake is not None and not _is_fenced(result):
            self._maintain_if_time(path, info, lake, result, fence)
        return result

    def _is_gone(self, path: TablePath, info: TableInfo | None, error: FlussError) -> bool:
        """True if the table of a failed round no longer exists; another table may have its name."""
        if error.error_code not in _PERHAPS_GONE_CODES:
            return False
        try:
            found = self._engine.run(self._calls.get_table_info(path))
        except FlussError as answer:
            return answer.error_code in _GONE_CODES
        return info is not None and found.table_id != info.table_id

    def _maintain_if_time(
        self,
        path: TablePath,
        info: TableInfo,
        lake: LakeFormat,
        result: Result,
        fence: Callable[[], FlussError | None],
    ) -> None:
        """Maintain after a commit, and sometimes without one: failed rounds leave files, and old snapshots age."""
        now = time.monotonic()
        has_committed = isinstance(result, RoundReport) and result.snapshot_id is not None
        with self._lock:
            last = self._maintained_at.get(info.table_id)
            if not has_committed and last is not None and now - last < IDLE_MAINTENANCE_SECONDS:
                return
            self._maintained_at[info.table_id] = now
        if fence() is not None:
            return
        report = self._maintain(path, info, lake)
        if isinstance(result, RoundReport) or not report.errors:  # otherwise it repeats the error of the round
            self._watcher.maintained(path, report)

    def _maintain(self, path: TablePath, info: TableInfo, lake: LakeFormat) -> MaintenanceReport:
        """Run maintenance. Its errors do not count as errors of the round, whose rows are safe."""
        registry = CoordinatorRegistry(TieringCalls(self._engine), info.table_id, path)
        try:
            table = lake.load(path)
            return maintain_if_due(
                table, info.table_id, info.properties, runner=self._maintenance_runner, registry=registry
            )
        except FlussError as error:
            return MaintenanceReport(errors=(f"maintenance could not start: {error.message}",))
        except Exception as error:  # an engine's own error, or a bug: rounds continue
            logger.exception("maintenance of %s ended with an unexpected error", path)
            return MaintenanceReport(errors=(f"maintenance failed: {type(error).__name__}: {error}",))

    def _lake_of(self, properties: Mapping[str, str]) -> LakeFormat:
        """The catalog of a lake. Catalogs are kept, since tables of one cluster are mostly in one lake."""
        lake_format, shown = lake_properties_of(properties)
        key = lake_format, tuple(sorted(shown.items()))
        with self._lock:
            if key not in self._lakes:
                self._lakes[key] = lake_of(properties, self._lake_overrides)
            return self._lakes[key]


def _is_fenced(result: Result) -> bool:
    """True if another service committed first, or has the table now."""
    return isinstance(result, FlussError) and result.error_code == ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION
