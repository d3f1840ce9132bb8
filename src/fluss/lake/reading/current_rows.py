"""`to_arrow()` of a table with a lake: rows of the lake and of the log, or live rows and those only in the lake.

| table | how |
|---|---|
| log table | files of the snapshot, then the log after it; rows of a bucket by offset |
| primary-key table | the live rows, and partitions that are only in the lake |
| large primary-key table, or `union=True` | files of the snapshot, corrected by the changelog after it |
| `read_optimized`, `lake_snapshot`, `as_of` | files of that snapshot |

The live rows of a primary-key table are complete, and reading them depends on nothing else. But files are read several
times as fast as keys are scanned: from `MIN_UNION_ROWS` rows on the lake is used, if it has most of them, keeps every
digit and can be read. A smaller table is scanned in the time that planning a read of the lake takes.

Files of a snapshot that expires, a partition, or the beginning of a log may disappear during a read. Then the read is
planned again, at most `MAX_PLANS` times; no rows were returned yet.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from fluss.client.engine.rows import ScanPlan
from fluss.client.engine.table import TableAccess
from fluss.errors import ErrorCode, FlussError
from fluss.lake.reading.lake_access import registered_snapshot
from fluss.lake.reading.options import LakeOptions
from fluss.lake.reading.plan import (
    MAX_PLANS,
    PLAN_ANEW_CODES,
    UnionPlan,
    UnionSplit,
    is_needed,
    live_partitions,
    plan_lake_partitions,
    plan_union,
)
from fluss.lake.reading.split_rows import Wanted, read_union
from fluss.model.types import TimestampLtzType, TimestampType, TimeType
from fluss.values.basic import TableBucket

MAX_SPLITS_AT_ONCE = 4
MIN_UNION_ROWS = 200_000
# A merge is faster only if the changes since the snapshot are at most this share of the rows.
MAX_TAIL_SHARE = 0.5
# Digits of a second that the lake stores.
LAKE_TIME_PRECISION = 6

_TIMES = (TimeType, TimestampType, TimestampLtzType)

T = TypeVar("T")

logger = logging.getLogger(__name__)

LiveRead = Callable[[ScanPlan, Sequence[TableBucket]], Awaitable[pa.Table]]


async def read_with_lake(
    table: TableAccess, plan: ScanPlan, options: LakeOptions, read_live: LiveRead
) -> pa.Table | None:
    """Return a `pyarrow.Table`, or None if the lake is not needed. Awaited in the user's event loop.

    `read_live` reads the live rows of some buckets of a primary-key table.
    """
    for attempts_left in reversed(range(MAX_PLANS)):
        try:
            if table.has_primary_key and options.union is None and not options.is_lake_only:
                return await _live_and_lake(table, plan, read_live)
            return await _union(table, plan, options)
        except FlussError as error:
            # A snapshot that the user chose does not come back, so another attempt is useless.
            if error.error_code not in PLAN_ANEW_CODES or options.is_time_travel or not attempts_left:
                raise
            logger.info("reading table %s again: %s", table.path, error.message)
    raise AssertionError("the last attempt returns or raises")


async def _union(table: TableAccess, plan: ScanPlan, options: LakeOptions) -> pa.Table | None:
    read = _Read(table, plan)
    return await read.in_thread(lambda: read.union(options))


async def _live_and_lake(table: TableAccess, plan: ScanPlan, read_live: LiveRead) -> pa.Table | None:
    """Live rows, and rows of partitions that Fluss has dropped. One listing of partitions decides which are live."""
    merged = await _merged_if_faster(table, plan)
    if merged is not None:
        return merged
    if not table.is_partitioned:
        return None  # Fluss has all rows of the table
    read = _Read(table, plan)
    partitions, lake_plan = await read.in_thread(read.plan_partitions)
    found = await read_live(
        plan,
        [
            TableBucket.with_partition(table.table_id, partition_id, bucket_id)
            for partition_id in partitions
            for bucket_id in range(table.bucket_count)
        ],
    )
    gone = set(partitions) - set(await read.in_thread(lambda: live_partitions(table)))
    if gone:
        raise FlussError(
            f"partition {partitions[gone.pop()]} of {table.path} was dropped while the table was read: read it again",
            ErrorCode.PARTITION_NOT_EXISTS,
        )
    missing = None if plan.limit is None else plan.limit - found.num_rows
    if lake_plan is None or missing == 0:
        return found
    rest = _Read(table, replace(plan, limit=missing))
    return pa.concat_tables([found, await rest.in_thread(lambda: rest.rows(lake_plan))])


async def _merged_if_faster(table: TableAccess, plan: ScanPlan) -> pa.Table | None:
    """The rows of lake and changelog; None if reading the live rows is faster, or the only way."""
    if plan.limit is not None or not _keeps_every_digit(table):
        return None
    read = _Read(table, plan)
    try:
        count = await read.in_thread(read.live_rows)
        if count < MIN_UNION_ROWS:
            return None
        return await read.in_thread(lambda: read.union_of_most(count))
    except FlussError as error:
        logger.info("reading table %s without its lake: %s", table.path, error.message)
        return None


def _keeps_every_digit(table: TableAccess) -> bool:
    """True if no column has times with more digits than the lake; False for nested columns, which may have some."""
    for data_type in table.schema.data_types:
        if data_type.root in ("ARRAY", "MAP", "ROW"):
            return False
        if isinstance(data_type, _TIMES) and data_type.precision > LAKE_TIME_PRECISION:
            return False
    return True


class _Read:
    """One attempt to read; its methods block, except `in_thread`."""

    def __init__(self, table: TableAccess, plan: ScanPlan) -> None:
        self._table = table
        self._plan = plan
        names = table.schema.column_names
        self._columns = None if plan.projection is None else [names[position] for position in plan.projection]
        self._schema = Wanted(table, self._columns, plan.predicate).schema
        self._stopped = threading.Event()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do the work in another thread, which stops soon if the caller is cancelled."""
        try:
            return await asyncio.get_running_loop().run_in_executor(None, work)
        except asyncio.CancelledError:
            self._stopped.set()
            raise

    def plan_partitions(self) -> tuple[dict[int | None, str | None], UnionPlan | None]:
        """The partitions that are in Fluss, and a plan for those that are only in the lake."""
        partitions = live_partitions(self._table)
        snapshot = registered_snapshot(self._table)
        if snapshot is None or not is_needed(self._table, snapshot, partitions):
            return partitions, None
        names = set(partitions.values())
        return partitions, plan_lake_partitions(self._table, snapshot, names, self._plan.predicate)

    def live_rows(self) -> int:
        """The number of rows in Fluss; 0 if a server does not count."""
        table = self._table
        buckets = [
            TableBucket.with_partition(table.table_id, partition_id, bucket_id)
            for partition_id in live_partitions(table)
            for bucket_id in range(table.bucket_count)
        ]
        counts = table.engine.run(table.row_counts(buckets)) if buckets else None
        return 0 if counts is None else sum(counts.values())

    def union_of_most(self, count: int) -> pa.Table | None:
        """All rows, if the lake has most of the `count` rows of the table, else None."""
        plan = plan_union(self._table, predicate=self._plan.predicate)
        if plan is None:
            return None
        changes = sum(split.stop - split.start for split in plan.splits)
        return self.rows(plan) if changes <= count * MAX_TAIL_SHARE else None

    def union(self, options: LakeOptions) -> pa.Table | None:
        """All rows of a plan of lake and log, or None if the lake is not needed."""
        plan = plan_union(self._table, predicate=self._plan.predicate, options=options)
        return None if plan is None else self.rows(plan)

    def rows(self, plan: UnionPlan) -> pa.Table:
        """The rows of a plan as a table."""
        pieces, log = self._pieces(plan)
        if self._plan.limit is not None:
            return self._first_rows(pieces, log)
        with ThreadPoolExecutor(MAX_SPLITS_AT_ONCE, thread_name_prefix="fluss-lake-read") as pool:
            try:
                reads = [pool.submit(self._collected, piece) for piece in pieces]
                newest = list(self._log_rows(log))
                batches = [batch for read in reads for batch in read.result()]
            finally:
                self._stopped.set()  # after an error the other threads need not read on
                pool.shutdown(wait=False, cancel_futures=True)
        return pa.Table.from_batches([*batches, *newest], self._schema)

    def _pieces(self, plan: UnionPlan) -> tuple[list[UnionSplit], list[UnionSplit]]:
        """The parts that can be read in parallel (merged buckets, else single files), and the logs."""
        if self._table.has_primary_key:
            return list(plan.splits), []
        files = [replace(split, files=(file,), start=0, stop=0) for split in plan.splits for file in split.files]
        return files, [split for split in plan.splits if split.log_count]

    def _first_rows(self, pieces: list[UnionSplit], log: list[UnionSplit]) -> pa.Table:
        missing = self._plan.limit or 0
        batches = []
        for source in (*(self._batches(piece) for piece in pieces), self._log_rows(log)):
            for batch in source:
                batches.append(batch.slice(0, missing))
                missing -= batches[-1].num_rows
                if not missing:
                    return pa.Table.from_batches(batches, self._schema)
        return pa.Table.from_batches(batches, self._schema)

    def _collected(self, split: UnionSplit) -> list[pa.RecordBatch]:
        return list(self._batches(split))

    def _batches(self, split: UnionSplit) -> Iterator[pa.RecordBatch]:
        for batch in read_union(self._table, split, self._columns, predicate=self._plan.predicate):
            if self._stopped.is_set():
                return
            yield batch

    def _log_rows(self, splits: list[UnionSplit]) -> Iterator[pa.RecordBatch]:
        if not splits:
            return
        ranges = {split.bucket(self._table.table_id): (split.start, split.stop) for split in splits}
        with self._table.read_log(ranges, replace(self._plan, limit=None)) as log:
            for rows in log:
                if self._stopped.is_set():
                    return
                yield rows.rows
