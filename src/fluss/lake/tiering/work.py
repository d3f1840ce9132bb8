"""What the tasks of a round get and give back, as plain values that pickle.

A round has one `TableWork`, which all its tasks share, and one `SplitWork` per task. A task never raises for what is
wrong with its split: it says so in its `SplitResult`, so that the driver knows the files of all the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from fluss.client.engine.admin import ClientTable
from fluss.errors import FlussError
from fluss.lake.tables.interface.format import CommitMessage, LakeFile, LakeSplit, LakeTarget
from fluss.lake.tiering.options import TieringOptions
from fluss.model.paths import TableBucket

Kind = Literal["log", "changes", "state"]


@dataclass(frozen=True)
class TableWork:
    """The table as it was when the round was planned; rows of later schemas are behind the ends of its splits."""

    table: ClientTable
    target: LakeTarget
    options: TieringOptions
    deadline: float
    """`time.time()` at which splits end where they are."""


@dataclass(frozen=True)
class SplitWork:
    """One task.

    - log: a range of a log table.
    - changes: a range of a changelog, folded into the files of its bucket.
    - state: the rows of a primary-key bucket as they are when the task runs, in place of all files of the bucket.
    """

    kind: Kind
    split: LakeSplit
    read_from: int
    """Where rows begin: `split.start_offset`, or later where rows are lost or the log does not begin at 0."""
    files: tuple[LakeFile, ...] = ()
    """The files of a primary-key bucket."""

    @property
    def offset_count(self) -> int:
        """How many offsets it covers."""
        return max(self.split.end_offset - self.read_from, 0)


@dataclass(frozen=True)
class SplitResult:
    """What became of a split. `message` None: nothing, because the bucket is gone, it failed, or time was up."""

    split: LakeSplit
    message: CommitMessage | None = None
    newest_ms: int | None = None
    """Commit time of the newest row that was read."""
    gone: str | None = None
    error: FlussError | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it reached the end that was planned."""
        return self.message is not None and self.message.split.end_offset >= self.split.end_offset


@dataclass(frozen=True)
class Joined:
    """One message per bucket, and those that cannot be committed because something before them is missing."""

    messages: list[CommitMessage]
    unusable: list[CommitMessage]


def join_messages(results: list[SplitResult]) -> Joined:
    """The results of a round as what can be committed: per bucket the pieces that follow each other without a gap."""
    by_bucket: dict[TableBucket, list[CommitMessage]] = {}
    for result in results:
        if result.message is not None:
            by_bucket.setdefault(result.split.bucket, []).append(result.message)
    planned_start = _planned_starts(results)
    joined, unusable = [], []
    for bucket, messages in by_bucket.items():
        whole: CommitMessage | None = None
        for message in sorted(messages, key=lambda each: each.split.start_offset or 0):
            expected = planned_start[bucket] if whole is None else whole.split.end_offset
            if message.split.start_offset != expected:
                unusable.append(message)
            else:
                whole = message if whole is None else _appended(whole, message)
        if whole is not None and (whole.split.end_offset > (whole.split.start_offset or 0) or whole.removed):
            joined.append(whole)
        elif whole is not None:
            unusable.append(whole)
    return Joined(joined, unusable)


def _planned_starts(results: list[SplitResult]) -> dict[TableBucket, int]:
    starts: dict[TableBucket, int] = {}
    for result in results:
        start = result.split.start_offset or 0
        starts[result.split.bucket] = min(start, starts.get(result.split.bucket, start))
    return starts


def _appended(whole: CommitMessage, more: CommitMessage) -> CommitMessage:
    return CommitMessage(
        replace(whole.split, end_offset=more.split.end_offset),
        whole.row_count + more.row_count,
        (*whole.added, *more.added),
        (*whole.removed, *more.removed),
        (*whole.position_deletes, *more.position_deletes),
    )
