"""Plans of reads of lake and log, made before any row is read: one split per bucket, which any process can read.

    lake files of the snapshot          the log
    |------------------------------|----------------------|
                              `start`                  `stop`

The snapshot is the one that is registered with the coordinator: its offset of a bucket is where the log continues.
The order of the requests matters. Partitions are listed first, then the snapshot is requested, then the ends of the
logs: a partition that expired before the listing was tiered to its end, so the snapshot has all of it; the ends are
after the snapshot's offsets, because logs only grow.

| bucket | log table | primary-key table |
|---|---|---|
| in the snapshot | its files, then the log from its offset on | its files, corrected by the changelog after it |
| unknown to the snapshot | the log from its beginning | the live rows (`is_live`) |
| of a partition that is only in the lake | its files | its files |

Everything here blocks and must run in a thread other than the I/O thread.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fluss.client.engine.rows import RowFilter
from fluss.client.engine.table import TableAccess
from fluss.codec.filters.predicate import CompoundFunction, read_predicate
from fluss.errors import ErrorCode, FlussError
from fluss.lake.reading.lake_access import load_lake_table, registered_snapshot, snapshot_files
from fluss.lake.reading.options import DEFAULT_LAKE_OPTIONS, LakeOptions
from fluss.values.basic import LakeSnapshot, TableBucket
from fluss.values.predicates import Combination, Predicate

if TYPE_CHECKING:
    from fluss.codec.filters.predicate import Predicate as LakePredicate
    from fluss.lake.tables.interface.format import LakeFile, LakeTarget

logger = logging.getLogger(__name__)

# How often a read is planned, because files, snapshots, partitions or the beginning of a log disappear during it.
MAX_PLANS = 3
PLAN_ANEW_CODES = frozenset(
    {
        ErrorCode.LAKE_SNAPSHOT_NOT_EXIST,
        ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION,
        ErrorCode.PARTITION_NOT_EXISTS,
    }
)

Place = tuple[str | None, int | None]


@dataclass(frozen=True)
class UnionSplit:
    """One bucket, or a part of it: rows of `files`, and of the log from `start` up to `stop`. Can be pickled.

    `partition_id` is None in a table without partitions and for a partition that is only in the lake. `is_live`: the
    rows come from the server as they are at `stop` (primary-key tables only).
    """

    partition_name: str | None
    partition_id: int | None
    bucket_id: int | None
    files: tuple[LakeFile, ...]
    start: int = 0
    stop: int = 0
    is_live: bool = False
    target: LakeTarget | None = field(default=None, repr=False)

    @property
    def log_count(self) -> int:
        """The number of offsets of the log that the split reads."""
        return 0 if self.is_live else max(self.stop - self.start, 0)

    @property
    def lake_rows(self) -> int:
        """The number of rows in the files, without deleted ones."""
        return sum(file.row_count - file.deleted_rows for file in self.files)

    @property
    def lake_bytes(self) -> int:
        """The size of the files."""
        return sum(file.size_bytes for file in self.files)

    def bucket(self, table_id: int) -> TableBucket:
        """The bucket whose log is read."""
        assert self.bucket_id is not None
        return TableBucket.with_partition(table_id, self.partition_id, self.bucket_id)


@dataclass(frozen=True)
class UnionPlan:
    """The splits of a read; together they have every row once. `snapshot_id` None: the lake has no rows."""

    table_id: int
    snapshot_id: int | None
    splits: tuple[UnionSplit, ...]


def plan_union(
    table: TableAccess,
    *,
    predicate: Predicate | None = None,
    options: LakeOptions = DEFAULT_LAKE_OPTIONS,
) -> UnionPlan | None:
    """Plan a read; None if the lake is empty, or is not needed and cannot be read from here.

    `predicate` leaves out files and must be given to `read_union` too. Codes: 19 rows expired from the log before they
    were tiered; 36 a partition was dropped meanwhile; 40 the lake cannot be opened from here; 53 a snapshot does not
    exist (any more). After 19, 36 and 53 it is worth planning again, see `PLAN_ANEW_CODES`.

    ```python
    plan = plan_union(table, predicate=col("id") > 7)
    for split in plan.splits:  # in any process
        for batch in read_union(table, split, ["id", "name"], predicate=col("id") > 7):
            ...
    ```
    """
    if options.is_lake_only:
        return _plan_lake(table, predicate, options)
    partitions = live_partitions(table)
    snapshot = registered_snapshot(table)
    if snapshot is None:
        return None
    buckets = [
        TableBucket.with_partition(table.table_id, partition_id, bucket_id)
        for partition_id in partitions
        for bucket_id in range(table.bucket_count)
    ]
    earliest, latest = table.engine.run(_ends(table, buckets))
    condition = _for_files(table, predicate)
    try:
        lake = load_lake_table(table, snapshot)
        snapshot, found = snapshot_files(lake, table, snapshot, condition)
    except FlussError as error:
        if is_needed(table, snapshot, partitions, earliest):
            raise
        logger.info("reading table %s without its lake, which has no other rows: %s", table.path, error.message)
        return None
    files = files_by_place(found)
    target = lake.target()
    splits = []
    for bucket in buckets:
        place = (partitions[bucket.partition_id], bucket.bucket_id)
        split = _split(table, bucket, place, files.pop(place, ()), target, snapshot, earliest[bucket], latest[bucket])
        if split is not None:
            splits.append(split)
    splits += _lake_splits(table, files, target)
    return UnionPlan(table.table_id, snapshot.snapshot_id, tuple(splits))


def is_needed(
    table: TableAccess,
    snapshot: LakeSnapshot,
    partitions: Mapping[int | None, str | None],
    earliest: Mapping[TableBucket, int] | None = None,
) -> bool:
    """True if rows are only in the lake: of dropped partitions, or of logs whose beginning has expired.

    Primary-key tables have their current rows in Fluss, whatever has expired from the changelog.
    """
    if any(bucket.partition_id not in partitions for bucket in snapshot.get_table_buckets()):
        return True
    return not table.has_primary_key and any(offset > 0 for offset in (earliest or {}).values())


def plan_lake_partitions(
    table: TableAccess,
    snapshot: LakeSnapshot,
    live_names: Collection[str | None],
    predicate: Predicate | None = None,
) -> UnionPlan:
    """Plan the files of partitions that are only in the lake: those whose name is not in Fluss.

    The partitions must have been listed before the snapshot was requested.
    """
    lake = load_lake_table(table, snapshot)
    condition = None if predicate is None else lake_condition(table, predicate)
    snapshot, found = snapshot_files(lake, table, snapshot, condition)
    files = files_by_place(found)
    only = {place: group for place, group in files.items() if place[0] not in live_names}
    return UnionPlan(table.table_id, snapshot.snapshot_id, tuple(_lake_splits(table, only, lake.target())))


def _plan_lake(table: TableAccess, predicate: Predicate | None, options: LakeOptions) -> UnionPlan:
    # No merge follows, so any filter may leave out files.
    condition = None if predicate is None else lake_condition(table, predicate)
    snapshot_id = options.snapshot_id
    if not options.is_time_travel:
        snapshot = registered_snapshot(table)
        if snapshot is None:
            return UnionPlan(table.table_id, None, ())
        lake = load_lake_table(table, snapshot)
        snapshot, found = snapshot_files(lake, table, snapshot, condition)
        splits = _lake_splits(table, files_by_place(found), lake.target())
        return UnionPlan(table.table_id, snapshot.snapshot_id, tuple(splits))
    lake = load_lake_table(table)
    if options.timestamp_ms is not None:
        snapshot_id = lake.snapshot_at(options.timestamp_ms)
        if snapshot_id is None:
            raise FlussError(
                f"the lake table {table.path} has no snapshot from {options.timestamp_ms} ms since 1970 or earlier: it "
                "is younger, or snapshots of that time have expired. Choose a later time",
                ErrorCode.LAKE_SNAPSHOT_NOT_EXIST,
            )
    files = files_by_place(lake.plan_files(snapshot_id, table.schema, condition))
    return UnionPlan(table.table_id, snapshot_id, tuple(_lake_splits(table, files, lake.target())))


def live_partitions(table: TableAccess) -> dict[int | None, str | None]:
    """Names of the partitions in Fluss by their ids; `{None: None}` for a table without partitions."""
    return table.engine.run(table.list_partitions()) if table.is_partitioned else {None: None}


async def _ends(
    table: TableAccess, buckets: Sequence[TableBucket]
) -> tuple[dict[TableBucket, int], dict[TableBucket, int]]:
    if not buckets:
        return {}, {}
    await table.find_leaders({bucket.partition_id for bucket in buckets})
    earliest = await table.earliest(buckets)
    return earliest, await table.latest(buckets)


def files_by_place(files: Iterable[LakeFile]) -> dict[Place, tuple[LakeFile, ...]]:
    """The files of each partition and bucket, by offset."""
    found: dict[Place, list[LakeFile]] = {}
    for file in files:
        found.setdefault((file.partition_name, file.bucket_id), []).append(file)
    return {place: tuple(group) for place, group in found.items()}


def _lake_splits(
    table: TableAccess, files: Mapping[Place, tuple[LakeFile, ...]], target: LakeTarget
) -> list[UnionSplit]:
    """The splits of files without a log after them."""
    if table.has_primary_key and any(bucket_id is None for _, bucket_id in files):
        raise FlussError(
            f"the partitions of the lake table {table.path} were changed from outside: its files cannot be separated "
            "by bucket, so they cannot be merged with the changelog. union=False reads the table without its lake",
            ErrorCode.INVALID_TABLE_EXCEPTION,
        )
    return [UnionSplit(name, None, bucket_id, group, target=target) for (name, bucket_id), group in files.items()]


def _split(
    table: TableAccess,
    bucket: TableBucket,
    place: Place,
    files: tuple[LakeFile, ...],
    target: LakeTarget,
    snapshot: LakeSnapshot,
    earliest: int,
    latest: int,
) -> UnionSplit | None:
    """The split of a bucket that is in Fluss, or None if it cannot have rows."""
    name, _ = place
    tiered = snapshot.get_bucket_offset(bucket)
    is_behind = tiered is None or tiered < earliest
    if table.has_primary_key and is_behind:
        # Files of such a bucket are those of an earlier partition of this name, or too old to be corrected.
        live = UnionSplit(name, bucket.partition_id, bucket.bucket_id, (), 0, latest, is_live=True, target=target)
        return live if latest else None
    if tiered is not None and is_behind:
        raise FlussError(
            f"{bucket} of {table.path}: the lake ends at offset {tiered} and the log begins at {earliest}, so the "
            "rows in between expired before they were tiered. read_optimized=True reads the lake, union=False the log",
            ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION,
        )
    start = earliest if tiered is None else max(tiered, earliest)
    if not files and start >= latest:
        return None
    return UnionSplit(name, bucket.partition_id, bucket.bucket_id, files, start, max(start, latest), target=target)


# ---- filters ----


def key_part(predicate: Predicate | None, columns: Iterable[str]) -> Predicate | None:
    """The conditions of a conjunction that use only these columns."""
    if predicate is None:
        return None
    known = frozenset(columns)
    is_and = isinstance(predicate, Combination) and predicate.function is CompoundFunction.AND
    parts: Sequence[Predicate] = predicate.children if isinstance(predicate, Combination) and is_and else (predicate,)
    said = [part for part in parts if known.issuperset(part.column_names())]
    if len(said) <= 1:
        return said[0] if said else None
    return Combination(CompoundFunction.AND, tuple(said))


def safe_part(table: TableAccess, predicate: Predicate | None) -> Predicate | None:
    """The part of a filter that may be applied before the merge: all of it in a log table, else conditions on the key.

    A condition on another column could drop a newer row of a key, and an older row that matches would reappear.
    """
    return key_part(predicate, table.schema.primary_key) if table.has_primary_key else predicate


def _for_files(table: TableAccess, predicate: Predicate | None) -> LakePredicate | None:
    safe = safe_part(table, predicate)
    return None if safe is None else lake_condition(table, safe)


def lake_condition(table: TableAccess, predicate: Predicate) -> LakePredicate | None:
    """The predicate in the form of the lake: every matching row satisfies it, and possibly others."""
    pushed = RowFilter(predicate, table.schema).pushed
    if pushed is None:
        return None
    try:
        return read_predicate(pushed, table.schema)
    except ValueError:  # the condition is too large to be useful
        return None
