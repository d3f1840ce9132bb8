"""One round of one table: plan, run the splits, commit once, register.

What happens if the process dies:

| died | left behind | the next round |
|---|---|---|
| before the lake's commit | files that no snapshot knows, perhaps an offsets file at the coordinator | repeats it |
| after the lake's commit | the snapshot, which the coordinator does not know | finds it in the lake, registers it |
| after registering | nothing to do | continues |

The lake is authoritative: a round starts at the offsets of its newest snapshot. If others have rewritten the table and
that snapshot has expired, the round starts at the newest offsets that lake and coordinator know, never before them. Its
commit succeeds only on the state on which the plan is based, so of two services that tier one table one wins, even
without heartbeats; the other removes its files. If the result of a commit is unknown, the files stay.

A `TableRound` is used once, by one thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fluss.client.engine.engine import Engine
from fluss.errors import ErrorCode, FlussError
from fluss.lake.coordinator_calls import KEEP_ALL_SNAPSHOTS, TieringCalls
from fluss.lake.tables.interface.format import (
    COMMIT_USER,
    COMMIT_USER_PROPERTY,
    OFFSETS_PATH_PROPERTY,
    CommitMessage,
    LakeCommit,
    LakeFormat,
    LakeTable,
)
from fluss.lake.tiering.options import TieringOptions
from fluss.lake.tiering.planning import CALL_SECONDS, RoundPlan, plan_round
from fluss.lake.tiering.task_values import SplitResult, SplitWork, TableWork, join_messages
from fluss.model.paths import TableBucket, TablePath

logger = logging.getLogger(__name__)

# At most this many other changes of the lake table (a new column, maintenance) may precede a commit.
COMMIT_ATTEMPTS = 5


class SplitRunner(Protocol):
    """An engine that runs splits. `run` may be called by several threads at the same time."""

    name: str

    def run(
        self, work: TableWork, splits: Sequence[SplitWork], on_result: Callable[[SplitResult], None]
    ) -> list[SplitResult]:
        """Run all splits; `on_result` is called for each as soon as the engine has its result."""

    def close(self) -> None:
        """Release the resources of the engine."""


class Watcher(Protocol):
    """Receives the progress of rounds; may be called by several threads."""

    def planned(self, path: TablePath, plan: RoundPlan) -> None:
        """A round is planned: its splits are known."""

    def split_done(self, path: TablePath, result: SplitResult) -> None:
        """A split has ended, with or without an error."""

    def step(self, path: TablePath, name: str) -> None:
        """A step is done: planned, written, prepared, committed or registered."""


@dataclass(frozen=True)
class RoundReport:
    """The result of a round."""

    path: TablePath
    table_id: int
    snapshot_id: int | None
    """None if there was nothing to commit."""
    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    is_cut: bool = False
    """More rows can be tiered at once: time ran out, or a bucket had more changes than fit into one round."""
    lag_seconds: float = 0.0
    """Rows older than this at the end of the round are in the lake, unless the round was cut short."""
    seconds: float = 0.0
    total_rows: int | None = None
    total_bytes: int | None = None
    """The size of the whole lake table, if known."""
    error: FlussError | None = None
    """Why some buckets were skipped; the others were committed."""


class TableRound:
    """One round of one table. `fence` returns the error with which the round must stop, or None."""

    def __init__(
        self,
        engine: Engine,
        path: TablePath,
        lake: LakeFormat,
        runner: SplitRunner,
        options: TieringOptions,
        watcher: Watcher,
        fence: Callable[[], FlussError | None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._calls = TieringCalls(engine)
        self._path, self._lake, self._runner, self._options = path, lake, runner, options
        self._watcher, self._fence = watcher, fence
        self._began = time.monotonic()

    def run(self) -> RoundReport:
        """Run the whole round. An error means that nothing was committed, unless its message states otherwise."""
        plan = plan_round(self._engine, self._path, self._lake, self._options)
        table_id = plan.work.table.table_id
        if plan.last is not None:
            self._register_missing(plan, plan.last)
        self._watcher.planned(self._path, plan)
        self._step("planned")
        if not plan.splits:
            return RoundReport(self._path, table_id, None, seconds=self._seconds())
        results = self._runner.run(plan.work, plan.splits, lambda result: self._watcher.split_done(self._path, result))
        self._step("written")
        return self._finish(plan, results)

    def _finish(self, plan: RoundPlan, results: list[SplitResult]) -> RoundReport:
        joined = join_messages(results)
        target = plan.work.target
        if joined.unusable:
            target.discard(joined.unusable)
        for result in results:
            if result.gone is not None:
                logger.info("%s: a bucket was dropped while it was tiered: %s", self._path, result.gone)
        error = next((result.error for result in results if result.error is not None), None)
        if not joined.messages:
            if any(result.gone is not None for result in results):
                self._check(plan)  # the whole table may have been dropped
            if error is not None:
                raise error
            is_cut = any(not result.is_whole for result in results if result.gone is None)
            return RoundReport(self._path, plan.work.table.table_id, None, is_cut=is_cut, seconds=self._seconds())
        try:
            self._check(plan)
            offsets_path = self._prepare(plan, joined.messages)
            self._check(plan)
            lake, snapshot_id = self._commit(plan, joined.messages, offsets_path)
        except FlussError as failure:
            if failure.error_code != ErrorCode.STORAGE_EXCEPTION:  # then the result of the commit is unknown
                target.discard(joined.messages)
            raise
        self._step("committed")
        self._register(plan, lake, joined.messages, snapshot_id, offsets_path, results)
        self._step("registered")
        return self._report(plan, lake, joined.messages, snapshot_id, results, error)

    # ---- before the commit ----

    def _check(self, plan: RoundPlan) -> None:
        """Raise if the round must not commit, because its assignment was lost or the table was recreated."""
        reason = self._fence()
        if reason is not None:
            raise reason
        found = self._engine.run(self._engine.describe(self._path), CALL_SECONDS)
        if found.table_id != plan.work.table.table_id:
            raise FlussError(
                f"table {self._path} was dropped and created again while it was tiered: the round is abandoned",
                ErrorCode.TABLE_NOT_EXIST,
            )

    def _prepare(self, plan: RoundPlan, messages: Sequence[CommitMessage]) -> str:
        ends: dict[TableBucket, int] = dict(plan.committed.items())
        ends.update({message.split.bucket: message.split.end_offset for message in messages})
        offsets_path = self._calls.prepare(plan.work.table.table_id, self._path, ends)
        self._step("prepared")
        return offsets_path

    # ---- the commit ----

    def _commit(self, plan: RoundPlan, messages: Sequence[CommitMessage], offsets_path: str) -> tuple[LakeTable, int]:
        """Commit on the planned state, or on a later one with the same offsets, where all splits still fit."""
        table_id, lake = plan.work.table.table_id, plan.lake
        for attempts_left in reversed(range(COMMIT_ATTEMPTS)):
            try:
                return lake, lake.commit(table_id, messages, properties={OFFSETS_PATH_PROPERTY: offsets_path})
            except FlussError as error:
                if error.error_code != ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION or not attempts_left:
                    raise
                lake = lake.refreshed()
                now = lake.last_commit(table_id)
                if (now.offsets if now is not None else {}) != (plan.last.offsets if plan.last is not None else {}):
                    raise
                logger.info("%s: committing again after a change of the lake table: %s", self._path, error.message)
        raise AssertionError("the last attempt returns or raises")

    # ---- the coordinator ----

    def _register_missing(self, plan: RoundPlan, last: LakeCommit) -> None:
        """Register a snapshot that only the lake has, because of a round that died, maintenance, or a rewrite."""
        if plan.registered is not None and plan.registered.snapshot_id == last.snapshot_id:
            return
        table_id = plan.work.table.table_id
        offsets_path = last.properties.get(OFFSETS_PATH_PROPERTY)
        logger.info("%s: registering snapshot %d, which is already in the lake", self._path, last.snapshot_id)
        if offsets_path is not None:
            try:
                self._calls.commit(table_id, last.snapshot_id, offsets_path, earliest_snapshot_id=KEEP_ALL_SNAPSHOTS)
                return
            except FlussError as error:
                if error.is_retriable or error.error_code == ErrorCode.TABLE_NOT_EXIST:
                    raise
                logger.info(
                    "%s: the offsets in %s cannot be used and are sent again: %s", self._path, offsets_path, error
                )
        offsets_path = self._calls.prepare(table_id, self._path, last.offsets, ignore_previous=True)
        self._calls.commit(table_id, last.snapshot_id, offsets_path, earliest_snapshot_id=KEEP_ALL_SNAPSHOTS)

    def _register(
        self,
        plan: RoundPlan,
        lake: LakeTable,
        messages: Sequence[CommitMessage],
        snapshot_id: int,
        offsets_path: str,
        results: Sequence[SplitResult],
    ) -> None:
        newest: dict[TableBucket, int] = {}
        for result in results:
            if result.newest_ms is not None:
                bucket = result.split.bucket
                newest[bucket] = max(result.newest_ms, newest.get(bucket, 0))
        times = {
            message.split.bucket: (message.split.end_offset, newest[message.split.bucket])
            for message in messages
            if message.split.bucket in newest
        }
        try:
            self._calls.commit(
                plan.work.table.table_id,
                snapshot_id,
                offsets_path,
                earliest_snapshot_id=_oldest_commit(lake),
                max_timestamps=times,
            )
        except FlussError as error:
            raise FlussError(
                f"{self._path}: snapshot {snapshot_id} is in the lake, but could not be registered; the next "
                f"round registers it: {error.message}",
                error.error_code,
            ) from error

    # ---- reporting ----

    def _report(
        self,
        plan: RoundPlan,
        lake: LakeTable,
        messages: Sequence[CommitMessage],
        snapshot_id: int,
        results: Sequence[SplitResult],
        error: FlussError | None,
    ) -> RoundReport:
        commit = lake.last_commit(plan.work.table.table_id)
        totals: Mapping[str, str] = {} if commit is None else commit.properties
        return RoundReport(
            self._path,
            plan.work.table.table_id,
            snapshot_id,
            rows=sum(message.row_count for message in messages),
            files=sum(len(message.added) + len(message.position_deletes) for message in messages),
            size_bytes=sum(message.byte_count for message in messages),
            is_cut=any(not result.is_whole for result in results if result.gone is None and result.error is None),
            lag_seconds=time.time() - plan.planned_at,
            seconds=self._seconds(),
            total_rows=_number(totals.get("total-records")),
            total_bytes=_number(totals.get("total-files-size")),
            error=error,
        )

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _step(self, name: str) -> None:
        self._watcher.step(self._path, name)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _oldest_commit(lake: LakeTable) -> int:
    """The oldest snapshot of a round in the lake: the coordinator keeps rounds for as long as the lake does."""
    ours = [each for each in lake.history() if each.properties.get(COMMIT_USER_PROPERTY) == COMMIT_USER]
    return ours[-1].snapshot_id if ours else KEEP_ALL_SNAPSHOTS
