"""Compaction: small files of a bucket become large ones, and rows that position deletes hide are dropped.

What is rewritten: files that are neighbours by offset, so that the files of a bucket remain consecutive ranges. A file
that is larger than all small files after it together is not rewritten, or it would be copied again every few rounds.

How it is committed: like a round of tiering, on the state that was loaded, with the offsets of the newest round, so
that this snapshot alone shows what is in the lake. If another commit came first, the table is loaded again and the
rewrites that still fit are committed: those whose files still exist with the same deletes. The rest is discarded; the
next plan covers it. A process that dies before the commit leaves files that no snapshot knows. If it dies between
commit and registration, the next round of tiering finds the snapshot in the lake and registers it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fluss.errors import ErrorCode, FlussError
from fluss.lake.maintenance.options import MIB, MaintenanceOptions
from fluss.lake.maintenance.snapshot_registry import SnapshotRegistry
from fluss.lake.maintenance.task_runners import TaskRunner
from fluss.lake.tables.interface.format import (
    COMMIT_USER,
    COMMIT_USER_PROPERTY,
    OFFSETS_PATH_PROPERTY,
    CommitMessage,
    LakeFile,
    LakeSplit,
    LakeTable,
    LakeTarget,
)
from fluss.model.paths import TableBucket

logger = logging.getLogger(__name__)

COMMIT_ATTEMPTS = 5


@dataclass(frozen=True)
class RewriteTask:
    """Files of one bucket to be rewritten as fewer. Can be pickled."""

    split: LakeSplit
    files: tuple[LakeFile, ...]
    target: LakeTarget = field(repr=False)

    def __str__(self) -> str:
        where = f"bucket {self.split.bucket.bucket_id}"
        if self.split.partition_name is not None:
            where = f"partition {self.split.partition_name}, {where}"
        size = sum(file.size_bytes for file in self.files) / MIB
        deleted = sum(file.deleted_rows for file in self.files)
        rows = sum(file.row_count for file in self.files) - deleted
        hidden = f", {deleted} hidden rows removed" if deleted else ""
        return f"{where}: {len(self.files)} files, {size:.1f} MiB, {rows} rows{hidden}"


Done = tuple[RewriteTask, CommitMessage]


@dataclass(frozen=True)
class CompactionPlan:
    """The planned rewrites; `print` it to see them."""

    table: str
    snapshot_id: int | None
    tasks: tuple[RewriteTask, ...]

    def __str__(self) -> str:
        count = sum(len(task.files) for task in self.tasks)
        head = f"compact {self.table}: {count} files in {len(self.tasks)} groups"
        return "\n".join([head, *(f"  {task}" for task in self.tasks)])


@dataclass(frozen=True)
class CompactionResult:
    """The result of a compaction. `snapshot_id` None: nothing was due, or no rewrite fitted the table any more."""

    snapshot_id: int | None = None
    files_before: int = 0
    files_after: int = 0
    bytes_written: int = 0
    groups_given_up: int = 0

    def __str__(self) -> str:
        if self.snapshot_id is None:
            return "nothing compacted" + (": the table changed in the meantime" if self.groups_given_up else "")
        written = f"{self.files_before} files became {self.files_after} ({self.bytes_written / MIB:.1f} MiB)"
        return f"{written} in snapshot {self.snapshot_id}"


def plan_compaction(table: LakeTable, table_id: int, options: MaintenanceOptions) -> CompactionPlan:
    """Plan the rewrites that are worthwhile in the newest snapshot of the loaded table."""
    tasks: list[RewriteTask] = []
    if table.last_commit(table_id) is not None:  # else these are files of another writer, or of an earlier table
        target = table.target()
        buckets: dict[tuple[str | None, int], list[LakeFile]] = {}
        for file in table.plan_files():
            if file.bucket_id is not None:  # else the layout was changed from outside
                buckets.setdefault((file.partition_name, file.bucket_id), []).append(file)
        for (partition_name, bucket_id), files in buckets.items():
            for group in groups_worth_rewriting(files, options):
                end = max((file.last_offset or 0) + 1 for file in group)
                # The id of the partition is not known in the lake, and not needed: no offsets change.
                split = LakeSplit(TableBucket(table_id, None, bucket_id), partition_name, None, end)
                tasks.append(RewriteTask(split, tuple(group), target))
    return CompactionPlan(str(table), table.snapshot_id, tuple(tasks))


def groups_worth_rewriting(files: Iterable[LakeFile], options: MaintenanceOptions) -> list[list[LakeFile]]:
    """Divide the files of one bucket into groups of neighbours, each for about one new file."""
    small_below = options.target_file_bytes * options.small_file_share
    groups: list[list[LakeFile]] = []
    current: list[LakeFile] = []

    def close() -> None:
        kept = _without_large_leading_files(current, options)
        if len(kept) >= options.compaction_min_files or any(_has_many_deletes(file, options) for file in kept):
            groups.append(kept)
        current.clear()

    ordered = sorted(files, key=lambda file: (file.first_offset or 0, file.last_offset or 0, file.path))
    for file in ordered:
        if file.size_bytes >= small_below and not _has_many_deletes(file, options):
            close()
            continue
        if current and sum(each.size_bytes for each in current) + file.size_bytes > options.target_file_bytes:
            close()
        current.append(file)
    close()
    return groups


def _has_many_deletes(file: LakeFile, options: MaintenanceOptions) -> bool:
    is_hollow = file.deleted_rows > file.row_count * options.compaction_max_deleted_share
    return file.deleted_rows > 0 and (is_hollow or file.delete_file_count >= options.compaction_max_delete_files)


def _without_large_leading_files(files: Sequence[LakeFile], options: MaintenanceOptions) -> list[LakeFile]:
    kept = list(files)
    while kept and not _has_many_deletes(kept[0], options):
        if kept[0].size_bytes <= sum(file.size_bytes for file in kept[1:]):
            break
        kept.pop(0)
    return kept


def rewrite(task: RewriteTask) -> CommitMessage:
    """Rewrite the files of one task, without a commit."""
    return task.target.rewrite_files(task.split, task.files)


def compact(
    table: LakeTable,
    table_id: int,
    plan: CompactionPlan,
    runner: TaskRunner,
    registry: SnapshotRegistry | None = None,
) -> CompactionResult:
    """Do the planned rewrites and commit them in one snapshot.

    Args:
        table: the lake table; it is loaded again for the commit.
        table_id: id of the Fluss table.
        plan: from `plan_compaction`.
        runner: runs the rewrites.
        registry: where readers find the snapshot; if None, the next round of tiering registers it.
    """
    done: list[Done] = list(zip(plan.tasks, runner.run(rewrite, plan.tasks), strict=True))
    given_up = 0
    for attempts_left in reversed(range(COMMIT_ATTEMPTS)):
        table = table.refreshed()
        fitting, stale = _fitting(table, done)
        given_up += len(stale)
        table.target().discard(message for _, message in stale)
        done = fitting
        newest = table.last_commit(table_id)
        if not done or newest is None:
            break
        offsets_path = None if registry is None else registry.prepare(newest.offsets)
        properties = {} if offsets_path is None else {OFFSETS_PATH_PROPERTY: offsets_path}
        try:
            snapshot_id = table.commit(table_id, [message for _, message in done], properties=properties)
        except FlussError as error:
            if error.error_code != ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION:
                raise  # it may have succeeded: the files must stay
            logger.info("compaction of %s lost to another commit, %d attempts left", table, attempts_left)
            continue
        # From here on the files belong to the table, whatever happens.
        if registry is not None and offsets_path is not None:
            _register(table, table_id, snapshot_id, offsets_path, registry)
        return _result(snapshot_id, done, given_up)
    table.target().discard(message for _, message in done)
    return CompactionResult(groups_given_up=given_up + len(done))


def _register(table: LakeTable, table_id: int, snapshot_id: int, offsets_path: str, registry: SnapshotRegistry) -> None:
    """Register the snapshot. If that fails, readers keep using the previous one until the next round registers it."""
    newest = table.refreshed().last_commit(table_id)
    if newest is None or newest.snapshot_id != snapshot_id:
        return  # a round has committed since then and registers its own snapshot, which must stay the newest one
    try:
        registry.register(snapshot_id, offsets_path, _oldest_round(table))
    except FlussError as error:
        logger.warning(
            "snapshot %d of %s could not be registered; the next round registers it: %s",
            snapshot_id,
            table,
            error.message,
        )


def _result(snapshot_id: int, done: Sequence[Done], given_up: int) -> CompactionResult:
    messages = [message for _, message in done]
    return CompactionResult(
        snapshot_id,
        sum(len(task.files) for task, _ in done),
        sum(len(message.added) for message in messages),
        sum(message.byte_count for message in messages),
        given_up,
    )


def _oldest_round(table: LakeTable) -> int | None:
    """The oldest snapshot of a round in the lake: the coordinator keeps snapshots for as long as the lake does."""
    rounds = [each for each in table.history() if each.properties.get(COMMIT_USER_PROPERTY) == COMMIT_USER]
    return rounds[-1].snapshot_id if rounds else None


def _fitting(table: LakeTable, done: Sequence[Done]) -> tuple[list[Done], list[Done]]:
    """Divide the rewrites into those whose files still exist as they were read, and the others."""
    wanted = {(task.split.partition_name, task.split.bucket.bucket_id) for task, _ in done}
    present = {file.path: _deletes(file) for file in table.plan_files(buckets=wanted)}
    fitting: list[Done] = []
    stale: list[Done] = []
    for task, message in done:
        is_unchanged = all(present.get(file.path) == _deletes(file) for file in task.files)
        (fitting if is_unchanged else stale).append((task, message))
    return fitting, stale


def _deletes(file: LakeFile) -> tuple[int, int]:
    """The numbers of deleted rows and delete files. Deletes are only ever added: equal numbers mean equal deletes."""
    return file.deleted_rows, file.delete_file_count
