"""Expiry: old snapshots are removed from the table, together with the files that only they need.

Only the end of the history is removed, never a snapshot between two that stay: the offsets of the newest round are
found by walking back from the newest snapshot. These snapshots stay, each with all newer ones:

- the newest `min_snapshots`, and the newest snapshot that was tiered from this Fluss table;
- those that were the newest within `max_snapshot_age_ms`: a reader may have planned one just before it was superseded;
- the one that readers use now, according to the coordinator, and those with a name (branch or tag).

First one commit removes the snapshots, then the files are removed. A process that dies in between leaves files that no
snapshot knows, which the removal of orphans finds.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from dataclasses import dataclass

from fluss.errors import ErrorCode, FlussError
from fluss.lake.maintenance.file_removal import remove_files
from fluss.lake.maintenance.options import MaintenanceOptions
from fluss.lake.maintenance.task_runners import TaskRunner
from fluss.lake.tables.interface.format import LakeTable, SnapshotEntry

logger = logging.getLogger(__name__)

COMMIT_ATTEMPTS = 5


@dataclass(frozen=True)
class ExpiryPlan:
    """The snapshots that would expire, oldest first; `print` it to see the plan."""

    table: str
    snapshots: tuple[SnapshotEntry, ...]
    kept_count: int

    def __str__(self) -> str:
        head = f"expire {self.table}: {len(self.snapshots)} snapshots would expire, {self.kept_count} stay"
        return "\n".join([head, *(f"  {each.snapshot_id} of {_moment(each.timestamp_ms)}" for each in self.snapshots)])


@dataclass(frozen=True)
class ExpiryResult:
    """The numbers of snapshots and files that an expiry removed."""

    snapshot_count: int = 0
    file_count: int = 0

    def __str__(self) -> str:
        return f"{self.snapshot_count} snapshots expired, {self.file_count} files removed"


def plan_expiry(
    table: LakeTable,
    table_id: int,
    options: MaintenanceOptions,
    now_ms: int,
    registered_id: int | None = None,
) -> ExpiryPlan:
    """Plan the snapshots that can expire now. `registered_id` is the snapshot that readers use."""
    history = table.history()
    newest = table.last_commit(table_id)
    kept = min(options.min_snapshots, len(history))
    for index, entry in enumerate(history):
        is_young = entry.superseded_ms is None or entry.superseded_ms > now_ms - options.max_snapshot_age_ms
        is_last_round = newest is not None and entry.snapshot_id == newest.snapshot_id
        if is_young or is_last_round or entry.is_named or entry.snapshot_id == registered_id:
            kept = max(kept, index + 1)
    old = history[kept:][::-1]
    return ExpiryPlan(str(table), tuple(old), len(history) - len(old))


def expire(table: LakeTable, make_plan: Callable[[LakeTable], ExpiryPlan], runner: TaskRunner) -> ExpiryResult:
    """Plan on the current table, commit, remove files. Plan again if there is another commit in the meantime."""
    for attempts_left in reversed(range(COMMIT_ATTEMPTS)):
        table = table.refreshed()
        plan = make_plan(table)
        if not plan.snapshots:
            break
        try:
            files = table.expire_snapshots([entry.snapshot_id for entry in plan.snapshots])
        except FlussError as error:
            if error.error_code != ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION or not attempts_left:
                raise
            logger.info("expiry of %s lost to another commit, %d attempts left", table, attempts_left)
        else:
            remove_files(table, files, runner)
            return ExpiryResult(len(plan.snapshots), len(files))
    return ExpiryResult()


def _moment(timestamp_ms: int) -> str:
    return dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
