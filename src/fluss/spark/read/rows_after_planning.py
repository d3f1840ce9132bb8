"""Rows that arrived after a read was planned, for `end=open`.

Spark plans the tasks of a Python source once per DataFrame or temporary view and keeps them: a view that was first read
in the morning would show the morning's rows forever. With `end=open` one more task asks the servers when it runs, and
reads the rows that the planned tasks do not include: later offsets, and new partitions. Right after planning there are
none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from fluss.spark.read.splits import BucketRange, LogSplit, StateSplit

Bucket = tuple[int | None, int]


@dataclass(frozen=True, eq=False)
class LaterSplit(InputPartition):
    """The earlier plan: the end of each range, and the buckets whose state the read covers."""

    stops: tuple[tuple[Bucket, int], ...]
    state_buckets: frozenset[Bucket]


def later_split(planned: Iterable[InputPartition]) -> LaterSplit:
    """The task for the rows that arrive after these splits were planned."""
    stops: dict[Bucket, int] = {}
    state_buckets = set()
    for split in planned:
        if isinstance(split, LogSplit):
            key = (split.range.partition_id, split.range.bucket_id)
            stops[key] = max(stops.get(key, 0), split.range.stop)
        elif isinstance(split, StateSplit):
            state_buckets.add((split.partition_id, split.bucket_id))
    return LaterSplit(tuple(stops.items()), frozenset(state_buckets))


def later_ranges(split: LaterSplit, now: Sequence[BucketRange]) -> list[BucketRange]:
    """The parts of the current ranges that were not planned."""
    stops = dict(split.stops)
    found = []
    for each in now:
        start = max(each.start, stops.get((each.partition_id, each.bucket_id), each.start))
        if start < each.stop:
            found.append(replace(each, start=start))
    return found
