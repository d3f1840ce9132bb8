"""The maintenance of one table: all due jobs after a round, or a single job whose plan can be looked at first.

with open_maintenance(engine_of(connection), TablePath("shop", "orders")) as maintenance:
    print(maintenance.plan_compaction())     # changes nothing
    print(maintenance.compact())
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from fluss.client.engine.engine import Engine
from fluss.errors import ErrorCode, FlussError
from fluss.lake.coordinator_calls import TieringCalls
from fluss.lake.maintenance.compaction import CompactionPlan, CompactionResult, compact, plan_compaction
from fluss.lake.maintenance.expiry import ExpiryPlan, ExpiryResult, expire, plan_expiry
from fluss.lake.maintenance.options import MaintenanceOptions
from fluss.lake.maintenance.orphans import OrphanPlan, OrphanResult, plan_orphans, remove_orphans
from fluss.lake.maintenance.snapshot_registry import CoordinatorRegistry, SnapshotRegistry
from fluss.lake.maintenance.task_runners import LocalRunner, TaskRunner
from fluss.lake.tables.interface.format import LakeTable
from fluss.lake.tables.open_lake import lake_of
from fluss.model.paths import TablePath
from fluss.model.properties import DATALAKE_AUTO_COMPACTION, DATALAKE_AUTO_EXPIRE_SNAPSHOT, property_value

logger = logging.getLogger(__name__)

# Stored in the lake table, so that the interval also holds for tiering services that run for one round only.
ORPHANS_CHECKED_PROPERTY = "maintenance.orphans.checked-ms"


def wall_clock_ms() -> int:
    """The current time, in the unit of snapshots and files."""
    return int(time.time() * 1000)


class TableMaintenance:
    """The jobs on one lake table, used by one thread at a time. Each job loads the current table."""

    def __init__(
        self,
        table: LakeTable,
        table_id: int,
        *,
        runner: TaskRunner | None = None,
        registry: SnapshotRegistry | None = None,
        options: MaintenanceOptions | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._table, self._table_id = table, table_id
        self._runner = runner or LocalRunner()
        self._registry = registry
        self._options = options or MaintenanceOptions.of(table.properties)
        self._clock_ms = clock_ms

    @property
    def options(self) -> MaintenanceOptions:
        """The limits that apply to this table."""
        return self._options

    def plan_compaction(self) -> CompactionPlan:
        """Plan the work of `compact`."""
        self._table = self._table.refreshed()
        return plan_compaction(self._table, self._table_id, self._options)

    def compact(self, plan: CompactionPlan | None = None) -> CompactionResult:
        """Rewrite many small files as a few large ones, without hidden rows."""
        chosen = plan or self.plan_compaction()
        if not chosen.tasks:
            return CompactionResult()
        return compact(self._table, self._table_id, chosen, self._runner, self._registry)

    def plan_expiry(self) -> ExpiryPlan:
        """Plan the work of `expire`."""
        self._table = self._table.refreshed()
        return self._expiry_of(self._table)

    def _expiry_of(self, table: LakeTable) -> ExpiryPlan:
        registered_id = None if self._registry is None else self._registry.newest()
        return plan_expiry(table, self._table_id, self._options, self._clock_ms(), registered_id)

    def expire(self) -> ExpiryResult:
        """Remove old snapshots and the files that only they needed."""
        return expire(self._table, self._expiry_of, self._runner)

    def plan_orphans(self, *, is_automatic: bool = False) -> OrphanPlan:
        """Plan the work of `remove_orphans`; if `is_automatic`, without files newer than the newest snapshot."""
        self._table = self._table.refreshed()
        return plan_orphans(self._table, self._options, self._clock_ms(), is_automatic=is_automatic)

    def remove_orphans(self, plan: OrphanPlan | None = None) -> OrphanResult:
        """Remove old files that no snapshot knows."""
        result = remove_orphans(self._table, plan or self.plan_orphans(), self._runner)
        # The time is recorded last, so that the search is repeated after a crash.
        self._table = self._table.refreshed()
        self._table.set_properties({ORPHANS_CHECKED_PROPERTY: str(self._clock_ms())})
        return result

    def are_orphans_due(self) -> bool:
        """True if no search ran for `orphan_interval_ms`. Rounds may leave orphans even if none has succeeded yet."""
        history = self._table.history()
        oldest_ms = history[-1].timestamp_ms if history else 0
        checked_ms = int(self._table.properties.get(ORPHANS_CHECKED_PROPERTY, oldest_ms))
        return self._clock_ms() - checked_ms >= self._options.orphan_interval_ms

    def is_expiry_due(self) -> bool:
        """True if enough snapshots can be removed. Uses only the lake; the coordinator is asked during the expiry."""
        plan = plan_expiry(self._table, self._table_id, self._options, self._clock_ms())
        return len(plan.snapshots) >= max(self._options.expiry_batch, 1)


@dataclass(frozen=True)
class MaintenanceReport:
    """The results of maintenance after a round; None: it was not due, or had nothing to do.

    Errors do not fail the round; they are listed here and logged.
    """

    compaction: CompactionResult | None = None
    expiry: ExpiryResult | None = None
    orphans: OrphanResult | None = None
    errors: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        parts = [str(part) for part in (self.compaction, self.expiry, self.orphans) if part is not None]
        return "; ".join([*parts, *self.errors]) or "nothing was due"


def maintain_if_due(
    table: LakeTable,
    table_id: int,
    table_properties: Mapping[str, str],
    *,
    runner: TaskRunner | None = None,
    registry: SnapshotRegistry | None = None,
    clock_ms: Callable[[], int] = wall_clock_ms,
) -> MaintenanceReport:
    """Do the maintenance that is due on a table. Called by tiering services between two rounds of the table.

    Args:
        table: the lake table, loaded at any time.
        table_id: id of the Fluss table.
        table_properties: properties of the Fluss table, with the switches.
        runner: rewrites and removes files; threads of this process if None.
        registry: the snapshots that the coordinator knows; None only if there is no coordinator.
        clock_ms: the current time; replaced in tests.
    """
    compaction: CompactionResult | None = None
    expiry: ExpiryResult | None = None
    orphans: OrphanResult | None = None
    errors: list[str] = []
    try:
        # Requested before the table is loaded: so the lake contains it, or has lost it.
        registered_id = None if registry is None else registry.newest()
        fresh = table.refreshed()
        _check_not_older(fresh, registered_id)
        maintenance = TableMaintenance(fresh, table_id, runner=runner, registry=registry, clock_ms=clock_ms)
        if property_value(table_properties, DATALAKE_AUTO_COMPACTION):
            plan = maintenance.plan_compaction()
            if plan.tasks:
                compaction = maintenance.compact(plan)
        if property_value(table_properties, DATALAKE_AUTO_EXPIRE_SNAPSHOT):
            if maintenance.is_expiry_due():
                expiry = maintenance.expire()
            if maintenance.are_orphans_due():
                removed = maintenance.remove_orphans(maintenance.plan_orphans(is_automatic=True))
                orphans = removed if removed.file_count else None
    except FlussError as error:
        # The rows of the round are in the lake; maintenance is tried again after the next round.
        logger.warning("maintenance of lake table %s failed: %s", table, error.message)
        errors.append(f"maintenance failed: {error.message}")
    return MaintenanceReport(compaction, expiry, orphans, tuple(errors))


def _check_not_older(table: LakeTable, registered_id: int | None) -> None:
    """Raise code 53 if the lake table lacks the registered snapshot.

    Its catalog is then an old copy, or the table was rolled back: files of the missing snapshots look like orphans, and
    an older state would be compacted and registered.
    """
    if registered_id is not None and registered_id not in {entry.snapshot_id for entry in table.history()}:
        raise FlussError(
            f"lake table {table} does not have snapshot {registered_id}, which is registered with the server: its "
            "catalog is older than its files, or the table was rolled back. Nothing is compacted or removed; restore "
            "the newest catalog of the lake",
            ErrorCode.LAKE_SNAPSHOT_NOT_EXIST,
        )


@contextlib.contextmanager
def open_maintenance(
    engine: Engine,
    path: TablePath,
    *,
    runner: TaskRunner | None = None,
    lake_overrides: Mapping[str, str] | None = None,
    clock_ms: Callable[[], int] = wall_clock_ms,
) -> Iterator[TableMaintenance]:
    """Open the maintenance of a table for the `with` block. Code 40 if the table has no lake.

    `lake_overrides` are catalog properties that the server does not send, such as secrets. They win over the client
    option `lake.properties`.
    """
    info = engine.run(engine.admin.get_table_info(path))
    lake = lake_of(info.properties, {**json.loads(engine.config.lake_properties), **(lake_overrides or {})})
    try:
        registry = CoordinatorRegistry(TieringCalls(engine), info.table_id, path)
        table = lake.load(path, registry.snapshot())
        yield TableMaintenance(table, info.table_id, runner=runner, registry=registry, clock_ms=clock_ms)
    finally:
        lake.close()
