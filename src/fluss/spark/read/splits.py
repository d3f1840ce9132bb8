"""The tasks of a batch read as plain values, and the rules for dividing buckets into tasks. No I/O here.

A split is one task. Every bucket is at least one task; a large range of offsets is cut into equal pieces so that every
core is busy and a failed task is cheap to repeat. The current state of a bucket is cut by its keys, if the server
can do that (`state_pieces`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from pyspark.sql.datasource import InputPartition

from fluss.client.engine.keys import ALL_KEYS, KeyRange

TARGET_SPLIT_BYTES = 64 * 1024 * 1024
MIN_SPLIT_BYTES = 16 * 1024 * 1024
TASKS_PER_CORE = 2
# Buckets are never equally large: a small margin keeps the larger ones from getting one task too many.
UNEVENNESS = 1.2
# Below this a bucket is one task, whatever the size of its rows: starting more tasks would take longer.
MIN_SPLIT_ROWS = 20_000
MAX_SPLITS_PER_BUCKET = 10_000

Piece = TypeVar("Piece")


@dataclass(frozen=True)
class BucketRange:
    """Offsets `[start, stop)` of a bucket, and the bounds of the commit time if the user gave times."""

    partition_id: int | None
    bucket_id: int
    start: int
    stop: int
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def count(self) -> int:
        """The number of offsets."""
        return max(self.stop - self.start, 0)


@dataclass(frozen=True, eq=False)
class Task(InputPartition):
    """The value that Spark passes to a task: the split, and the id of the table that it was planned for."""

    table_id: int
    split: InputPartition


@dataclass(frozen=True, eq=False)
class LogSplit(InputPartition):
    """Rows of a log table, or changes of a primary-key table."""

    range: BucketRange


@dataclass(frozen=True, eq=False)
class StateSplit(InputPartition):
    """The rows of a primary-key bucket, or of a range of its keys, as of an offset; None: when the task starts."""

    partition_id: int | None
    bucket_id: int
    offset: int | None = None
    key_range: KeyRange = ALL_KEYS


@dataclass(frozen=True, eq=False)
class WindowSplit(InputPartition):
    """The last row of each key that changed in a range."""

    range: BucketRange


@dataclass(frozen=True, eq=False)
class LookupSplit(InputPartition):
    """Rows by key: `names` is the primary key, or the prefix that the table can be looked up by."""

    names: tuple[str, ...]
    keys: tuple[tuple[object, ...], ...]
    by_prefix: bool


@dataclass(frozen=True, eq=False)
class LimitedSplit(InputPartition):
    """Splits that are read one after another, until there are enough rows."""

    splits: tuple[InputPartition, ...]
    limit: int


def first_rows(ranges: Iterable[BucketRange], limit: int) -> list[BucketRange]:
    """Cut the ranges to `limit` offsets in all; exact if every offset is a row."""
    chosen = []
    missing = limit
    for each in ranges:
        if missing <= 0:
            break
        stop = min(each.stop, each.start + missing)
        missing -= stop - each.start
        chosen.append(_with_bounds(each, each.start, stop))
    return chosen


def split_bytes(total_bytes: float, cores: int) -> int:
    """The default size of a task: small enough to keep all cores busy, large enough to be worth a task."""
    share = UNEVENNESS * total_bytes / max(cores * TASKS_PER_CORE, 1)
    return int(min(max(share, MIN_SPLIT_BYTES), TARGET_SPLIT_BYTES))


def cut(each: BucketRange, max_rows: int | None, max_bytes: int | None, row_bytes: float) -> list[BucketRange]:
    """Cut a range into equal pieces of at most `max_rows` rows and about `max_bytes` bytes."""
    if not each.count:
        return []
    pieces = 1
    if max_rows is not None:
        pieces = math.ceil(each.count / max_rows)
    if max_bytes is not None:
        pieces = max(pieces, math.ceil(each.count * row_bytes / max_bytes))
    pieces = min(pieces, each.count, MAX_SPLITS_PER_BUCKET)
    bounds = [each.start + each.count * number // pieces for number in range(pieces + 1)]
    return [_with_bounds(each, low, high) for low, high in pairwise(bounds)]


def interleaved(groups: Sequence[Sequence[Piece]]) -> list[Piece]:
    """The first pieces of all buckets, then the second ones, so that concurrent tasks read different buckets."""
    depth = max((len(group) for group in groups), default=0)
    return [group[level] for level in range(depth) for group in groups if level < len(group)]


def _with_bounds(each: BucketRange, start: int, stop: int) -> BucketRange:
    return BucketRange(each.partition_id, each.bucket_id, start, stop, each.since_ms, each.until_ms)
