"""Cuts a micro-batch into tasks. Pure functions.

Starting a task costs Spark more than reading a thousand rows, so buckets with few rows share a task. The rows of a
bucket stay together and in order, unless the user asks for smaller pieces (`scan.maxRecordsPerPartition`) or the bucket
of a log table has very many rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from fluss.lake.tables.interface.format import LakeFile, LakeTarget
from fluss.spark.stream.next_batch import FIRST_OFFSET
from fluss.spark.stream.offsets import BucketKey, StreamOffsets, sorted_keys

MAX_SHARED_TASK_ROWS = 20_000
"""Buckets share a task up to this many rows."""
MAX_LOG_TASK_ROWS = 2_000_000
"""A bucket of a log table with more rows than this is split, so that it can keep several cores busy."""

MAX_LAKE_TASK_BYTES = 64 * 1024 * 1024
"""Files of the lake share a task up to this many bytes."""


@dataclass(frozen=True)
class BucketRange:
    """Rows `[start, stop)` of a bucket."""

    key: BucketKey
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """The number of offsets, which is at least the number of rows."""
        return self.stop - self.start


@dataclass(frozen=True)
class LakeFiles:
    """Files of a snapshot, in order, and the lake target that reads them."""

    files: tuple[LakeFile, ...]
    target: LakeTarget


class StreamTask(InputPartition):
    """The work of one task: ranges of the log (at most one per bucket), the state of a bucket at an offset, or files of
    the lake."""

    def __init__(
        self,
        table_id: int,
        ranges: tuple[BucketRange, ...] = (),
        state: tuple[BucketKey, int] | None = None,
        state_time_ms: int | None = None,
        since_ms: int | None = None,
        partition_names: Mapping[int | None, str | None] | None = None,
        files: LakeFiles | None = None,
    ) -> None:
        super().__init__((table_id, ranges, state, state_time_ms, since_ms, files))
        self.table_id = table_id
        self.ranges = ranges
        self.state = state
        self.state_time_ms = state_time_ms
        self.since_ms = since_ms
        self.partition_names = dict(partition_names or {})
        self.files = files

    def __repr__(self) -> str:
        return f"StreamTask(table_id={self.table_id}, ranges={self.ranges}, state={self.state})"


def plan_tasks(
    start: StreamOffsets,
    end: StreamOffsets,
    max_rows: int | None,
    names: Mapping[int | None, str | None] | None = None,
) -> list[StreamTask]:
    """Plan the tasks of the batch between two offsets, each with at most `max_rows` rows of a bucket if that is set.

    `names` are the names of partitions, as far as known, for messages.
    """
    tasks = [
        StreamTask(start.table_id, state=(key, start.positions[key]), state_time_ms=start.state_time_ms)
        for key in sorted_keys(start.unread_state - end.unread_state)
        if key in end.positions
    ]
    most = MAX_SHARED_TASK_ROWS if max_rows is None else min(MAX_SHARED_TASK_ROWS, max_rows)
    shared: dict[BucketKey, BucketRange] = {}
    rows = 0
    for piece in batch_ranges(start, end, max_rows):
        if shared and (rows + piece.rows > most or piece.key in shared):
            tasks.append(_log_task(start, shared, names or {}))
            shared, rows = {}, 0
        shared[piece.key] = piece
        rows += piece.rows
    if shared:
        tasks.append(_log_task(start, shared, names or {}))
    return tasks


def plan_lake_tasks(table_id: int, files: Sequence[LakeFile], target: LakeTarget) -> list[StreamTask]:
    """The tasks for files of the lake; neighbouring files share a task up to `MAX_LAKE_TASK_BYTES`."""
    groups: list[list[LakeFile]] = []
    size = 0
    for file in files:
        if not groups or size + file.size_bytes > MAX_LAKE_TASK_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size_bytes
    return [StreamTask(table_id, files=LakeFiles(tuple(group), target)) for group in groups]


def _log_task(
    start: StreamOffsets, shared: Mapping[BucketKey, BucketRange], names: Mapping[int | None, str | None]
) -> StreamTask:
    own = {partition_id: names.get(partition_id) for partition_id, _ in shared}
    return StreamTask(start.table_id, tuple(shared.values()), since_ms=start.since_ms, partition_names=own)


def batch_ranges(start: StreamOffsets, end: StreamOffsets, max_rows: int | None) -> list[BucketRange]:
    """The log ranges of a batch, smallest first, so that small ranges end up in one task."""
    found = []
    for key, stop in end.positions.items():
        first = start.positions.get(key, FIRST_OFFSET)
        if first < stop:
            found += _pieces(BucketRange(key, first, stop), max_rows)
    return sorted(found, key=lambda piece: (piece.rows, piece.key[0] or 0, piece.key[1], piece.start))


def _pieces(whole: BucketRange, max_rows: int | None) -> list[BucketRange]:
    if max_rows is None or whole.rows <= max_rows:
        return [whole]
    count = -(-whole.rows // max_rows)
    cuts = [whole.start + whole.rows * index // count for index in range(count + 1)]
    return [BucketRange(whole.key, first, stop) for first, stop in pairwise(cuts)]
