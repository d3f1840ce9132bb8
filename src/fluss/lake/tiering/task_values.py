"""The inputs and results of the tasks of a round, as plain values that can be pickled.

A round has one `TableWork`, which all its tasks share, and one `SplitWork` per task. A task never raises because of its
split: the error is in its `SplitResult`, so that the driver knows the files of all the others.
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
    """The table as it was when the round was planned; its splits end before any rows of later schemas."""

    table: ClientTable
    target: LakeTarget
    options: TieringOptions
    deadline: float
    """The `time.time()` at which splits stop."""


@dataclass(frozen=True)
class SplitWork:
    """The work of one task.

    - log: a range of a log table.
    - changes: a range of a changelog, folded into the files of its bucket.
    - state: the rows of a primary-key bucket as they are when the task runs, in place of all files of the bucket.
    """

    kind: Kind
    split: LakeSplit
    read_from: int
    """The first offset with rows: `split.start_offset`, or later if rows are lost or the log does not begin at 0."""
    files: tuple[LakeFile, ...] = ()
    """The files of a primary-key bucket."""

    @property
    def offset_count(self) -> int:
        """The number of offsets in the range that is read."""
        return max(self.split.end_offset - self.read_from, 0)


@dataclass(frozen=True)
class SplitResult:
    """The result of a split. `message` is None if the bucket was dropped, the split failed, or time was up."""

    split: LakeSplit
    message: CommitMessage | None = None
    newest_ms: int | None = None
    """Commit time of the newest row that was read."""
    gone: str | None = None
    error: FlussError | None = None

    @property
    def is_whole(self) -> bool:
        """True if the split reached its planned end."""
        return self.message is not None and self.message.split.end_offset >= self.split.end_offset


@dataclass(frozen=True)
class Joined:
    """One message per bucket, and the messages that cannot be committed because rows before them are missing."""

    messages: list[CommitMessage]
    unusable: list[CommitMessage]


def join_messages(results: list[SplitResult]) -> Joined:
    """Join the results of a round into what can be committed: the pieces of each bucket without a gap."""
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
