"""Plans the splits of a round from a table, its log and the lake. Blocks for a few requests to the servers.

The order of the requests matters. First come the ends of the logs, then the table, then the registered snapshot, then
the lake table. So the table has the schemas of all rows before the ends, and the lake table has all columns of the
table and the registered snapshot.

| bucket | first time | later |
|---|---|---|
| log table | from the earliest offset | from the lake's offset |
| primary key, changelog complete | changes from 0 | changes from the lake's offset |
| primary key, changelog begins later | the state of the bucket | the state, in place of all its files |

A primary-key bucket of a partition that was created again under its name begins with its state, which replaces the
files of the earlier partition. A bucket without new rows gets no split. Rows of a log table that expired before they
were tiered are an error, unless the options allow it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from fluss.client.engine.admin import ClientTable
from fluss.client.engine.engine import Engine
from fluss.client.engine.table import TableAccess
from fluss.errors import ErrorCode, FlussError
from fluss.lake.coordinator_calls import TieringCalls
from fluss.lake.maintenance.snapshot_registry import CoordinatorRegistry
from fluss.lake.tables.interface.format import (
    LakeCommit,
    LakeFile,
    LakeFormat,
    LakeSplit,
    LakeTable,
    RegisteredSnapshot,
)
from fluss.lake.tiering.options import TieringOptions
from fluss.lake.tiering.task_values import SplitWork, TableWork
from fluss.model.paths import TablePath
from fluss.model.properties import DATALAKE_FRESHNESS, property_value
from fluss.values.basic import TableBucket, public_bucket

logger = logging.getLogger(__name__)

# A range with fewer rows is one task, whatever their size: measuring it would take longer.
MIN_SPLIT_ROWS = 20_000
CALL_SECONDS = 60.0

Offsets = Mapping[TableBucket, int]
PartitionNames = Mapping[int | None, str | None]


@dataclass(frozen=True)
class RoundPlan:
    """The plan of a round of one table, based on the lake table as loaded (`lake`), whose newest round is `last`.

    `registered` is the newest snapshot that the coordinator knew before the lake table was loaded.
    """

    work: TableWork
    lake: LakeTable
    registered: RegisteredSnapshot | None
    last: LakeCommit | None
    splits: tuple[SplitWork, ...]
    planned_at: float
    """`time.time()`; after a whole round, every row that existed then is in the lake."""

    @property
    def committed(self) -> Offsets:
        """The offsets that the lake already has."""
        return {} if self.last is None else {public_bucket(each): end for each, end in self.last.offsets.items()}

    @property
    def offset_count(self) -> int:
        """The number of offsets in all splits."""
        return sum(split.offset_count for split in self.splits)


@dataclass(frozen=True)
class LogEnds:
    """The beginnings and ends of the logs of a table."""

    table_id: int
    names: PartitionNames
    earliest: Offsets
    latest: Offsets


def plan_round(engine: Engine, path: TablePath, lake: LakeFormat, options: TieringOptions) -> RoundPlan:
    """Plan the next round. Code 7 if the table does not exist."""
    ends = read_log_ends(engine, path)
    planned_at = time.time()
    access = TableAccess.open(engine, path, CALL_SECONDS)
    table = access.description
    if table.table_id != ends.table_id:
        message = f"table {path} was dropped and created again during planning: plan again"
        raise FlussError(message, ErrorCode.TABLE_NOT_EXIST)
    registered = CoordinatorRegistry(TieringCalls(engine), table.table_id, path).snapshot()
    lake_table = lake.load(path, registered)
    last = lake_table.last_commit(table.table_id)
    work = TableWork(table, lake_table.target(), options, planned_at + round_seconds(table, options))
    plan = RoundPlan(work, lake_table, registered, last, (), planned_at)
    splits = _key_splits(plan, ends) if table.has_primary_key else _log_splits(access, plan, ends)
    return replace(plan, splits=tuple(splits))


def round_seconds(table: ClientTable, options: TieringOptions) -> float:
    """How long a round of the table may take before it is cut short."""
    freshness_ms: int = property_value(table.descriptor.properties, DATALAKE_FRESHNESS)
    return min(max(freshness_ms / 1000, options.min_round_seconds), options.max_round_seconds)


def read_log_ends(engine: Engine, path: TablePath) -> LogEnds:
    """The offsets of all buckets of the current partitions."""
    return engine.run(_read_log_ends(engine, path), CALL_SECONDS)


async def _read_log_ends(engine: Engine, path: TablePath) -> LogEnds:
    table = TableAccess(engine, await engine.describe(path))
    names = await table.list_partitions()
    await table.find_leaders(names)
    buckets = [
        TableBucket.with_partition(table.table_id, partition_id, bucket_id)
        for partition_id in names
        for bucket_id in range(table.bucket_count)
    ]
    if not buckets:
        return LogEnds(table.table_id, names, {}, {})
    latest = await table.latest(buckets)
    earliest = await table.earliest(buckets)
    return LogEnds(table.table_id, names, earliest, latest)


# ---- log tables ----


def _log_splits(table: TableAccess, plan: RoundPlan, ends: LogEnds) -> list[SplitWork]:
    whole = [split for bucket in ends.latest if (split := _log_split(plan, ends, bucket)) is not None]
    return _cut(table, plan.work, whole)


def _log_split(plan: RoundPlan, ends: LogEnds, bucket: TableBucket) -> SplitWork | None:
    earliest, latest = ends.earliest[bucket], ends.latest[bucket]
    start = plan.committed.get(bucket)
    read_from = earliest if start is None else start
    if start is not None and start < earliest:
        _report_lost_rows(plan.work, ends, bucket, start, earliest)
        read_from = earliest
    if latest <= (read_from if start is None else start):
        return None
    first = read_from if start is None else start
    return SplitWork("log", LakeSplit(bucket, ends.names[bucket.partition_id], first, latest), min(read_from, latest))


def _report_lost_rows(work: TableWork, ends: LogEnds, bucket: TableBucket, start: int, earliest: int) -> None:
    name = ends.names[bucket.partition_id]
    where = f"bucket {bucket.bucket_id}" + ("" if name is None else f" of partition {name!r}")
    text = (
        f"{where} of {work.table.path} is in the lake up to offset {start}, but its log begins at {earliest}: "
        f"{earliest - start} rows expired before they were tiered"
    )
    if work.options.on_data_loss == "fail":
        raise FlussError(
            f"{text}. To tier the remaining rows, run once with --on-data-loss skip (on_data_loss='skip')",
            ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION,
        )
    logger.warning("%s; they are skipped", text)


def _cut(table: TableAccess, work: TableWork, whole: Sequence[SplitWork]) -> list[SplitWork]:
    """Cut large ranges into equal pieces, so that all cores are busy and a failed task costs little."""
    if sum(split.offset_count for split in whole) < MIN_SPLIT_ROWS:
        return list(whole)
    starts = {public_bucket(split.split.bucket): split.read_from for split in whole}
    sizes = table.engine.run(table.row_bytes(starts), CALL_SECONDS)
    some = max(sizes.values(), default=1.0)
    weights = {split: split.offset_count * sizes.get(public_bucket(split.split.bucket), some) for split in whole}
    options = work.options
    share = sum(weights.values()) / max(options.cores, 1)
    piece_bytes = min(max(share, options.min_split_bytes), options.max_split_bytes)
    groups = [_pieces(split, math.ceil(weights[split] / piece_bytes)) for split in whole]
    depth = max(map(len, groups), default=0)
    # The first piece of every bucket, then the second ones: if time runs out, there are no gaps.
    return [group[level] for level in range(depth) for group in groups if level < len(group)]


def _pieces(split: SplitWork, count: int) -> list[SplitWork]:
    count = max(1, min(count, split.offset_count))
    bounds = [split.read_from + split.offset_count * number // count for number in range(count + 1)]
    pieces = []
    for number, (low, high) in enumerate(pairwise(bounds)):
        start = split.split.start_offset if number == 0 else low
        pieces.append(SplitWork("log", LakeSplit(split.split.bucket, split.split.partition_name, start, high), low))
    return pieces


# ---- primary-key tables ----


def _key_splits(plan: RoundPlan, ends: LogEnds) -> list[SplitWork]:
    places = {bucket: (ends.names[bucket.partition_id], bucket.bucket_id) for bucket in ends.latest}
    has_gone = any(bucket.partition_id not in ends.names for bucket in plan.committed)
    looked_at = [
        bucket
        for bucket in ends.latest
        if ends.latest[bucket] > plan.committed.get(bucket, 0) or (has_gone and bucket not in plan.committed)
    ]
    files: dict[tuple[str | None, int | None], list[LakeFile]] = {}
    if looked_at and plan.last is not None:
        for file in plan.lake.plan_files(buckets=[places[bucket] for bucket in looked_at]):
            files.setdefault((file.partition_name, file.bucket_id), []).append(file)
    splits = []
    for bucket in looked_at:
        start, earliest = plan.committed.get(bucket, 0), ends.earliest[bucket]
        split = LakeSplit(bucket, ends.names[bucket.partition_id], start, ends.latest[bucket])
        mine = tuple(files.get(places[bucket], ()))
        # Files of a bucket that was never tiered are those of an earlier partition of this name: they are replaced,
        # even if there are no new rows.
        is_anew = bool(mine) and bucket not in plan.committed
        if is_anew or ends.latest[bucket] > start:
            splits.append(SplitWork("state" if earliest > start or is_anew else "changes", split, start, mine))
    # The largest first, so that the last splits are small.
    return sorted(splits, key=lambda each: -each.offset_count)
