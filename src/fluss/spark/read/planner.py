"""Planning the splits of a batch read on the driver. Blocks for a few requests to the servers.

| table | asked for | splits |
|---|---|---|
| log | rows, or mode=changelog | offset ranges |
| primary key | state (default) | lookups if the filters fix the keys, else scans of buckets, in pieces if large |
| primary key | state with `end` | one scan per bucket, as of that offset |
| primary key | state with a start | the last rows of the keys that changed since then |
| primary key | mode=changelog, mode=binlog | offset ranges of the changelog |

A table with a lake is also read from there: `lake_planner`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence

from pyspark.sql.datasource import InputPartition

from fluss.errors import FlussError
from fluss.lake.reading.options import LakeOptions
from fluss.lake.reading.plan import UnionPlan, UnionSplit
from fluss.model.properties import LOG_TTL, property_value
from fluss.spark.options.parsing import FlussOptions, ReadOptions
from fluss.spark.read import partition_pruning
from fluss.spark.read.key_access import lookup_split, places_of_keys
from fluss.spark.read.lake_planner import (
    LateUnionTask,
    UnionTask,
    lake_keeps_digits,
    lake_options_of,
    log_range,
    make_plan,
    of_task,
    split_files,
)
from fluss.spark.read.log_reader import cheapest_column, share_of_columns
from fluss.spark.read.offset_ranges import TableBuckets, has_range, has_start, resolve, resolve_ends
from fluss.spark.read.pushdown import Pushed
from fluss.spark.read.rows_after_planning import LaterSplit, later_ranges, later_split
from fluss.spark.read.splits import (
    MIN_SPLIT_ROWS,
    BucketRange,
    LimitedSplit,
    LogSplit,
    StateSplit,
    WindowSplit,
    cut,
    first_rows,
    interleaved,
    split_bytes,
)
from fluss.spark.read.state_pieces import cut_states
from fluss.spark.sessions.connection_cache import OpenTable
from fluss.values.basic import PartitionInfo, TableBucket

# Even rows of few columns have a minimum cost.
MIN_SHARE_OF_COLUMNS = 0.1

Resolve = Callable[[TableBuckets, ReadOptions], list[BucketRange]]

logger = logging.getLogger(__name__)


class Planner:
    """Plans one read; used once."""

    def __init__(self, opened: OpenTable, options: FlussOptions, columns: Sequence[str], pushed: Pushed) -> None:
        self._opened = opened
        self._columns = columns
        self._options = options
        self._pushed = pushed
        self._info = opened.info
        self._schema = opened.access.schema

    def splits(self) -> list[InputPartition]:
        """Return the splits of all tasks; an empty list if no row can match."""
        self._warn_about_expired_rows()
        limit = self._options.limit
        if limit == 0:
            return []
        lake = lake_options_of(self._options, self._info)
        if lake is not None:
            found = self._lake_splits(lake, limit)
            if found is not None:
                return found
        if self._is_log_read:
            return self._log_splits(limit)
        if has_start(self._options.read):
            return _limited([WindowSplit(each) for each in self._ranges()], limit)
        if not has_range(self._options.read):
            lookup = self._lookup(limit)
            if lookup is not None:
                return lookup
        states = self._state_splits()
        if limit is not None:
            return _limited(states, limit)
        return list(cut_states(self._opened, states, self._options.read) if self._may_cut_states else states)

    @property
    def _may_cut_states(self) -> bool:
        """True if buckets may be cut by key. Pieces show the state at planning, so only one query may read them."""
        read = self._options.read
        return self._options.own_scan and not (read.read_optimized or has_range(read))

    def _lookup(self, limit: int | None) -> list[InputPartition] | None:
        lookup = lookup_split(self._opened.table, self._pushed) if limit is None else None
        if lookup is None:
            return None
        return [lookup] if lookup.keys else []

    # ---- lake ----

    def _lake_splits(self, lake: LakeOptions, limit: int | None) -> list[InputPartition] | None:
        """The splits of lake and log, or None if the lake has no rows yet."""
        if self._info.has_primary_key() and not lake.is_lake_only:
            lookup = self._lookup(limit)  # also finds rows that are only in the lake
            if lookup is not None:
                return lookup
        if self._options.read.open_end and not self._options.own_scan:
            count = self._info.num_buckets
            return _limited([LateUnionTask(number, count) for number in range(count)], limit)
        plan = make_plan(self._opened, lake, self._pushed)
        return None if plan is None else _limited(self._union_tasks(plan, lake), limit)

    def late_splits(self, task: LateUnionTask) -> list[InputPartition]:
        """Plan the buckets of the task as they are now. Called in the task."""
        lake = lake_options_of(self._options, self._info)
        plan = None if lake is None else make_plan(self._opened, lake, self._pushed)
        if plan is not None and lake is not None:
            return [self._key_task(split, lake) for split in of_task(plan.splits, task)]
        if self._is_log_read:
            ranges = [each for each in self._ranges() if each.bucket_id % task.count == task.number]
            return [LogSplit(each) for each in ranges]
        return [split for split in self._state_splits() if split.bucket_id % task.count == task.number]

    def _union_tasks(self, plan: UnionPlan, lake: LakeOptions) -> list[InputPartition]:
        if self._info.has_primary_key():
            return [self._key_task(split, lake) for split in plan.splits]
        max_bytes = self._options.read.max_bytes_per_partition
        tasks: list[InputPartition] = [task for split in plan.splits for task in split_files(split, max_bytes)]
        ranges = [each for each in map(log_range, plan.splits) if each is not None]
        return tasks + [LogSplit(each) for each in self._cut(ranges)]

    def with_later_rows(self, splits: list[InputPartition]) -> list[InputPartition]:
        """Add the task that reads rows unknown to these splits, if the read includes later rows (`end=open`)."""
        read = self._options.read
        is_part = self._options.limit is not None or (has_start(read) and not self._is_log_read)
        is_part |= any(isinstance(split, LateUnionTask) for split in splits)  # these include later rows themselves
        return [*splits, later_split(splits)] if read.open_end and not is_part else splits

    def later_splits(self, planned: LaterSplit) -> list[InputPartition]:
        """Plan the rows that have arrived since `planned` was made. Called in its task."""
        if self._is_log_read:
            return [LogSplit(each) for each in later_ranges(planned, self._ranges())]
        known = planned.state_buckets
        return [split for split in self._state_splits() if (split.partition_id, split.bucket_id) not in known]

    @property
    def _is_log_read(self) -> bool:
        return not self._info.has_primary_key() or self._options.mode in ("changelog", "binlog")

    def _key_task(self, split: UnionSplit, lake: LakeOptions) -> InputPartition:
        """The task of a bucket of a primary-key table. Reads live rows if the lake has cut wanted digits of times."""
        is_gone = split.partition_name is not None and split.partition_id is None
        is_cut = self._options.nanos_as == "bigint" and not lake_keeps_digits(self._schema)
        if lake.is_lake_only or is_gone or not is_cut or split.bucket_id is None:
            return UnionTask(split)
        return StateSplit(split.partition_id, split.bucket_id)

    # ---- buckets ----

    def _partitions(self) -> list[PartitionInfo] | None:
        if not self._info.is_partitioned():
            return None
        return self._opened.run(self._opened.admin.list_partition_infos(self._info.table_path, None))

    def _chosen(self, partitions: list[PartitionInfo] | None) -> list[PartitionInfo] | None:
        if partitions is None:
            return None
        columns = partition_pruning.readable_columns(self._schema, self._info.get_partition_keys())
        return partition_pruning.matching(partitions, self._pushed.only(columns), self._schema)

    def _ranges(self, resolve_range: Resolve = resolve) -> list[BucketRange]:
        """Resolve the offset ranges. Explicit offsets are checked against all partitions, even those filtered out."""
        read = self._options.read
        partitions = self._partitions()
        chosen = self._chosen(partitions)
        named = any(position is not None and position.offsets for position in (read.start, read.end))
        ranges = resolve_range(TableBuckets(self._opened, partitions if named else chosen), read)
        names: dict[int | None, str | None] = {None: None}
        if chosen is not None:
            names = {each.partition_id: each.partition_name for each in chosen}
        places = places_of_keys(self._opened.table, self._pushed) if self._info.has_primary_key() else None
        return [
            each
            for each in ranges
            if each.partition_id in names and (places is None or (names[each.partition_id], each.bucket_id) in places)
        ]

    # ---- log and changelog ----

    def _log_splits(self, limit: int | None) -> list[InputPartition]:
        ranges = self._ranges()
        if limit is not None and self._info.has_primary_key():
            # Some offsets of a changelog have no row, so rows must be counted one range after another.
            return _limited([LogSplit(each) for each in ranges], limit)
        if limit is not None and any(each.since_ms is not None or each.until_ms is not None for each in ranges):
            return _limited([LogSplit(each) for each in ranges], limit)
        if limit is not None and TableBuckets(self._opened, self._chosen(self._partitions())).have_gaps():
            return _limited([LogSplit(each) for each in ranges], limit)
        if limit is not None:
            ranges = first_rows(ranges, limit)
        return [LogSplit(each) for each in self._cut(ranges)]

    def _cut(self, ranges: Sequence[BucketRange]) -> list[BucketRange]:
        read = self._options.read
        max_rows, max_bytes = read.max_records_per_partition, read.max_bytes_per_partition
        total_rows = sum(each.count for each in ranges)
        row_bytes = {}
        if max_bytes is not None or (max_rows is None and total_rows >= MIN_SPLIT_ROWS):
            row_bytes = self._row_bytes(ranges)
            if max_bytes is None:
                wanted = self._columns or [cheapest_column(self._schema)]
                share = max(share_of_columns(self._schema, wanted), MIN_SHARE_OF_COLUMNS)
                row_bytes = {key: size * share for key, size in row_bytes.items()}
                total = sum(each.count * row_bytes.get(_key(each), 0.0) for each in ranges)
                max_bytes = split_bytes(total, os.cpu_count() or 1)
        return interleaved([cut(each, max_rows, max_bytes, row_bytes.get(_key(each), 0.0)) for each in ranges])

    def _row_bytes(self, ranges: Sequence[BucketRange]) -> dict[tuple[int | None, int], float]:
        """The average size of a row, sampled in each bucket; buckets without a sample get the average of the others."""
        positions = {
            TableBucket.with_partition(self._info.table_id, each.partition_id, each.bucket_id): each.start
            for each in ranges
        }
        found = self._opened.run(self._opened.access.row_bytes(positions))
        average = sum(found.values()) / len(found) if found else 0.0
        return {(bucket.partition_id, bucket.bucket_id): found.get(bucket, average) for bucket in positions}

    # ---- state ----

    def _state_splits(self) -> list[StateSplit]:
        read = self._options.read
        if read.end is None or read.end.kind == "latest":
            buckets = TableBuckets(self._opened, self._chosen(self._partitions())).buckets
            return [StateSplit(bucket.partition_id, bucket.bucket_id) for bucket in buckets]
        ranges = self._ranges(resolve_ends)
        return [StateSplit(each.partition_id, each.bucket_id, each.stop) for each in ranges if each.stop]

    # ---- warnings ----

    def _warn_about_expired_rows(self) -> None:
        read = self._options.read
        since = read.incremental_start_ms
        if read.start is not None and read.start.kind == "timestamp":
            since = read.start.timestamp_ms
        ttl_ms = property_value(self._info.get_properties(), LOG_TTL)
        if since is not None and ttl_ms and since < time.time() * 1000 - ttl_ms:
            logger.warning(
                "table %s keeps its log for %d s: older rows of the time range may have expired",
                self._info.table_path,
                ttl_ms // 1000,
            )


def _key(each: BucketRange) -> tuple[int | None, int]:
    return each.partition_id, each.bucket_id


def _limited(splits: Sequence[InputPartition], limit: int | None) -> list[InputPartition]:
    if limit is None or not splits:
        return list(splits)
    return [LimitedSplit(tuple(splits), limit)]


def check_table_id(opened: OpenTable, table_id: int) -> None:
    """Raise if the table is no longer the one that was planned. Called in tasks."""
    if opened.info.table_id != table_id:
        raise FlussError(
            f"table {opened.info.table_path} was dropped and created again after the read was planned: "
            "run the query again"
        )
