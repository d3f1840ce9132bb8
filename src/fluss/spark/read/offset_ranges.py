"""Offset ranges of buckets from the options `start`, `end` and `scan.incremental.*`. Runs on the driver and blocks.

Start and end of the read are fixed here: rows that arrive later belong to the next query. Servers convert times to
offsets, but their index may be coarse, so the times are kept with the ranges and compared with those of every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from fluss.client.engine.table import TableAccess
from fluss.errors import ErrorCode, FlussError
from fluss.model.offsets import MIN_LOST_OFFSETS
from fluss.spark.options.log_positions import Position
from fluss.spark.options.parsing import ReadOptions
from fluss.spark.read.splits import BucketRange
from fluss.spark.sessions.connection_cache import OpenTable
from fluss.values.basic import TableBucket

Offsets = dict[TableBucket, int]
AskOffsets = Callable[[TableAccess, Sequence[TableBucket]], Coroutine[Any, Any, Offsets]]


class TableBuckets:
    """The buckets of a table in some of its partitions, and their offsets; each kind of offset is requested once."""

    def __init__(self, opened: OpenTable, partitions: Sequence[Any] | None) -> None:
        self._opened = opened
        self.path = opened.info.table_path
        table_id, count = opened.info.table_id, opened.info.num_buckets
        self.names: dict[int | None, str | None] = {None: None}
        if partitions is not None:
            self.names = {each.partition_id: each.partition_name for each in partitions}
        self.buckets = [
            TableBucket.with_partition(table_id, partition_id, bucket_id)
            for partition_id in self.names
            for bucket_id in range(count)
        ]
        self._known: dict[str, Offsets] = {}

    def _offsets(self, name: str, ask: AskOffsets) -> Offsets:
        """The offsets of all buckets, from the cache under `name` or from the servers."""
        if not self.buckets:
            return {}
        if name not in self._known:
            self._known[name] = self._opened.run(self._ask(ask))
        return self._known[name]

    async def _ask(self, ask: AskOffsets) -> Offsets:
        """Request the offsets on the I/O thread; one request finds the leaders of all partitions."""
        table = self._opened.access
        unled = {bucket.partition_id for bucket in self.buckets if not table.is_led(bucket)}
        if len(unled) > 1:
            await table.find_leaders(unled)
        return await ask(table, self.buckets)

    def earliest(self) -> Offsets:
        """The offsets at which the logs begin."""
        return self._offsets("earliest", TableAccess.earliest)

    def latest(self) -> Offsets:
        """The offsets at which the logs end."""
        return self._offsets("latest", TableAccess.latest)

    def have_gaps(self) -> bool:
        """True if some offsets of these logs may have no row. Only for log tables; in changelogs this is usual.

        The row counts are requested after the offsets. A lower count means that offsets have no row, and a slightly
        higher count that rows have arrived since. A server that may have lost rows skips many offsets at once, so after
        a large increase some of the new offsets may have no row.
        """
        if not self.buckets:
            return False
        earliest, latest = self.earliest(), self.latest()
        found = self._opened.run(self._opened.access.row_counts(self.buckets))
        if found is None:
            return False  # servers other than ours do not report row counts
        more = [found[bucket] - (latest[bucket] - earliest[bucket]) for bucket in self.buckets]
        return not all(0 <= each < MIN_LOST_OFFSETS for each in more)

    def at(self, timestamp_ms: int) -> Offsets:
        """Offsets at or before the first row with this commit time or a later one; the end for times in the future."""
        time_ms = max(timestamp_ms, 0)
        return self._offsets(f"at {time_ms}", lambda table, buckets: table.offsets_at(buckets, time_ms))

    def text(self, bucket: TableBucket) -> str:
        """Describe a bucket of this table for messages."""
        name = self.names[bucket.partition_id]
        where = f"bucket {bucket.bucket_id}" if name is None else f"bucket {bucket.bucket_id} of partition {name!r}"
        return f"{where} of {self.path}"


def has_range(read: ReadOptions) -> bool:
    """True if the user asked for a part of the log."""
    return read.start is not None or read.end is not None or read.incremental_start_ms is not None


def has_start(read: ReadOptions) -> bool:
    """True if the user asked for changes since some moment, rather than for everything."""
    if read.incremental_start_ms is not None:
        return True
    return read.start is not None and read.start.kind not in ("full", "earliest")


def resolve(buckets: TableBuckets, read: ReadOptions) -> list[BucketRange]:
    """Resolve the range of each bucket; empty ranges are left out.

    A range that ends before it begins is an error, unless one end is a time and the other an offset: which offset a
    time means depends on the rows of a bucket, and other buckets can still be read.
    """
    since, until = _times(read)
    if _kind(read.start) == "latest" and _kind(read.end) == "earliest":
        raise FlussError("start=latest with end=earliest is a range that ends before it begins: swap them")
    is_by_time = since is not None or until is not None
    starts = _starts(buckets, read, since)
    stops = _stops(buckets, read, until)
    found = []
    for bucket in buckets.buckets:
        start, stop = starts[bucket], stops[bucket]
        if start > stop and not is_by_time:
            raise FlussError(
                f"{buckets.text(bucket)}: the start offset must not exceed the end offset, got {start} and {stop}"
            )
        if start < stop:
            found.append(BucketRange(bucket.partition_id, bucket.bucket_id, start, stop, since, until))
    return found


def resolve_ends(buckets: TableBuckets, read: ReadOptions) -> list[BucketRange]:
    """The ranges of a read of the state as of `end`, which has all earlier rows, even those expired from the log."""
    _, until = _times(read)
    stops = _stops(buckets, read, until)
    return [BucketRange(bucket.partition_id, bucket.bucket_id, 0, stops[bucket]) for bucket in buckets.buckets]


def _times(read: ReadOptions) -> tuple[int | None, int | None]:
    since, until = read.incremental_start_ms, read.incremental_end_ms
    if read.start is not None and read.start.kind == "timestamp":
        since = read.start.timestamp_ms
    if read.end is not None and read.end.kind == "timestamp":
        until = read.end.timestamp_ms
    if since is not None and until is not None and since >= until:
        raise FlussError(f"the start of the read must be before its end, got {since} ms and {until} ms")
    return since, until


def _starts(buckets: TableBuckets, read: ReadOptions, since: int | None) -> Mapping[TableBucket, int]:
    if since is not None:
        return buckets.at(since)
    if read.start is None or read.start.kind in ("full", "earliest"):
        return buckets.earliest()
    if read.start.kind == "latest":
        return buckets.latest()
    return _explicit(buckets, "start", read.start, buckets.earliest())


def _stops(buckets: TableBuckets, read: ReadOptions, until: int | None) -> Mapping[TableBucket, int]:
    if until is not None:
        return buckets.at(until)
    if read.end is None or read.end.kind == "latest":
        return buckets.latest()
    if read.end.kind == "earliest":
        return buckets.earliest()
    return _explicit(buckets, "end", read.end, buckets.latest())


def _kind(position: Position | None) -> str | None:
    return None if position is None else position.kind


def _explicit(buckets: TableBuckets, option: str, position: Position, rest: Offsets) -> Offsets:
    """Return the offsets that the user gave, which must exist in the log; other buckets get those of `rest`."""
    by_name = {(buckets.names[bucket.partition_id], bucket.bucket_id): bucket for bucket in buckets.buckets}
    chosen = dict(rest)
    earliest, latest = buckets.earliest(), buckets.latest()
    for name, bucket_id, offset in position.offsets:
        bucket = by_name.get((name, bucket_id))
        if bucket is None:
            names = sorted(str(each) for each in buckets.names.values() if each is not None)
            form = f"partitions {', '.join(names)}" if names else "no partitions"
            count = 1 + max((number for _, number in by_name), default=-1)
            where = f"bucket {bucket_id}" if name is None else f"bucket {bucket_id} of partition {name!r}"
            raise FlussError(
                f"option {option} names {where}, which does not exist in table {buckets.path}: it has {form}, and "
                f"{count} buckets each"
            )
        if not earliest[bucket] <= offset <= latest[bucket]:
            raise FlussError(
                f"option {option}: {buckets.text(bucket)} has offsets {earliest[bucket]} to {latest[bucket]}, "
                f"not {offset}: older rows have expired, and newer ones do not exist yet",
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION,
            )
        chosen[bucket] = offset
    return chosen
