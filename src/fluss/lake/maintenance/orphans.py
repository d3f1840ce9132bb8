"""Removal of orphans: files that no snapshot knows, left by rounds that died before their commit.

A running round has such files too. Only age distinguishes them, so the minimum is far longer than a round. Just before
the removal the table is loaded again: a file that was committed since the listing stays.

The catalog of the lake may be an old copy that lacks the newest snapshots. Their files look like orphans, so nothing
that is newer than the newest known snapshot is removed automatically; only a person can decide that.
"""

from __future__ import annotations

from dataclasses import dataclass

from fluss.lake.maintenance.file_removal import remove_files
from fluss.lake.maintenance.options import MINUTE_MS, MaintenanceOptions
from fluss.lake.maintenance.task_runners import TaskRunner
from fluss.lake.tables.interface.format import LakeTable


@dataclass(frozen=True)
class OrphanPlan:
    """The files that would be removed; `print` it to see the plan."""

    table: str
    older_than_ms: int
    age_ms: int
    files: tuple[str, ...]

    def __str__(self) -> str:
        head = (
            f"clean {self.table}: {len(self.files)} files that no snapshot knows are older than "
            f"{self.age_ms // MINUTE_MS} min"
        )
        return "\n".join([head, *(f"  {path}" for path in self.files)])


@dataclass(frozen=True)
class OrphanResult:
    """The number of orphans that were removed."""

    file_count: int = 0

    def __str__(self) -> str:
        return f"{self.file_count} files removed that no snapshot knew"


def plan_orphans(
    table: LakeTable, options: MaintenanceOptions, now_ms: int, *, is_automatic: bool = False
) -> OrphanPlan:
    """List the orphans that may be removed now; if `is_automatic`, only those older than the newest snapshot."""
    older_than_ms = now_ms - options.orphan_age_ms
    if is_automatic:
        history = table.history()
        older_than_ms = min(older_than_ms, history[0].timestamp_ms if history else 0)
    files = table.unreferenced_files(older_than_ms)
    return OrphanPlan(str(table), older_than_ms, options.orphan_age_ms, tuple(files))


def remove_orphans(table: LakeTable, plan: OrphanPlan, runner: TaskRunner) -> OrphanResult:
    """Remove the planned files that are still unknown to the table."""
    if not plan.files:
        return OrphanResult()
    fresh = table.refreshed()
    still_unknown = set(fresh.unreferenced_files(plan.older_than_ms))
    files = [path for path in plan.files if path in still_unknown]
    remove_files(fresh, files, runner)
    return OrphanResult(len(files))
