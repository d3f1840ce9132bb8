"""Planning a batch read of a table with a lake: files of the registered snapshot, and the log after it.

| asked for | log table | primary-key table |
|---|---|---|
| the whole table | tasks for files, tasks for the log after the snapshot | a task per bucket merges the two |
| read.optimized, snapshot_id, as_of, `$lake` | tasks for files | the same |
| union=false, a start, an end, a time range, changes | the log alone, as without a lake | live rows, changelog |

`start=earliest`, `start=full` and `end=latest` select the whole table, so they are planned like a read without options.

The rows are the same as without the lake, plus those that have expired from the log and those of expired partitions. A
partition that a filter leaves out is read neither from the lake nor from the log. Runs on the driver and blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from fluss.client.engine.admin import TableInfo
from fluss.codec.keys.partition_names import split_partition_name
from fluss.errors import ErrorCode, FlussError
from fluss.lake.reading.options import LakeOptions
from fluss.lake.reading.plan import MAX_PLANS, PLAN_ANEW_CODES, UnionPlan, UnionSplit, plan_union
from fluss.lake.reading.split_rows import lake_rows, read_union
from fluss.lake.tables.interface.format import SYSTEM_COLUMNS
from fluss.model.properties import DATALAKE_ENABLED, property_value
from fluss.model.schema import Schema
from fluss.model.types import TimestampLtzType, TimestampType, TimeType
from fluss.spark.options.parsing import FlussOptions
from fluss.spark.read import partition_pruning
from fluss.spark.read.offset_ranges import has_start
from fluss.spark.read.pushdown import Pushed
from fluss.spark.read.splits import TARGET_SPLIT_BYTES, BucketRange
from fluss.spark.sessions.connection_cache import OpenTable
from fluss.values.predicates import Predicate
from fluss.values.schema import model_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss.lake.tables.interface.format import LakeFile

# Digits of a second that the lake stores.
LAKE_TIME_PRECISION = 6
_TIMES = (TimeType, TimestampType, TimestampLtzType)
_NESTED_ROOTS = frozenset(("ARRAY", "MAP", "ROW"))


@dataclass(frozen=True, eq=False)
class UnionTask(InputPartition):
    """Files of a bucket, its log after them, or both."""

    split: UnionSplit


@dataclass(frozen=True, eq=False)
class LateUnionTask(InputPartition):
    """The buckets of the task with this number, planned when it runs, for plans that Spark keeps (`end=open`)."""

    number: int
    count: int


def lake_options_of(options: FlussOptions, info: TableInfo) -> LakeOptions | None:
    """Return the options for the lake, or None if the read does not use it."""
    read = options.read
    has_lake = bool(property_value(info.get_properties(), DATALAKE_ENABLED))
    if read.snapshot_id is not None or read.as_of_ms is not None:
        if options.mode in ("changelog", "binlog"):
            raise FlussError(
                f"snapshot_id and as_of read the lake, which has no changes: leave mode={options.mode} out"
            )
        return LakeOptions(snapshot_id=read.snapshot_id, timestamp_ms=read.as_of_ms)
    if options.mode == "lake":
        if not has_lake:
            raise FlussError(
                f"table {info.table_path} has no lake: set its property {DATALAKE_ENABLED}=true, and tier it",
                ErrorCode.LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION,
            )
        return LakeOptions(read_optimized=True)
    if not has_lake or read.union is False or options.mode in ("changelog", "binlog"):
        return None
    if read.read_optimized:
        return LakeOptions(read_optimized=True)
    has_end = read.end is not None and read.end.kind != "latest"
    if has_start(read) or has_end:
        return None  # a part of the log
    return LakeOptions(union=True)


def lake_keeps_digits(schema: Schema) -> bool:
    """True if no column has times with more digits than the lake; False for nested columns, which may have some."""
    for data_type in schema.data_types:
        is_finer = isinstance(data_type, _TIMES) and data_type.precision > LAKE_TIME_PRECISION
        if is_finer or data_type.root in _NESTED_ROOTS:
            return False
    return True


def make_plan(opened: OpenTable, lake: LakeOptions, pushed: Pushed) -> UnionPlan | None:
    """Return the plan, or None if the table is read without its lake, because the lake has no rows yet."""
    for attempts_left in reversed(range(MAX_PLANS)):
        try:
            plan = plan_union(opened.access, predicate=pushed.predicate, options=lake)
        except FlussError as error:
            if error.error_code not in PLAN_ANEW_CODES or not attempts_left or lake.is_time_travel:
                raise
        else:
            return None if plan is None else replace(plan, splits=tuple(_chosen(opened.info, plan.splits, pushed)))
    raise AssertionError("the last attempt returns or raises")


@dataclass(frozen=True)
class _Named:
    """A partition in the form that `partition_pruning` needs."""

    partition_spec: dict[str, str]
    splits: list[UnionSplit]


def _chosen(info: TableInfo, splits: Iterable[UnionSplit], pushed: Pushed) -> Iterator[UnionSplit]:
    """The splits of partitions that satisfy the filters, including partitions that are only in the lake."""
    schema = model_schema(info.get_schema())
    keys = info.get_partition_keys()
    by_name: dict[str | None, list[UnionSplit]] = {}
    for split in splits:
        by_name.setdefault(split.partition_name, []).append(split)
    condition = pushed.only(partition_pruning.readable_columns(schema, keys))
    named = [_Named({} if name is None else split_partition_name(name, keys), group) for name, group in by_name.items()]
    for partition in partition_pruning.matching(named, condition, schema):
        yield from partition.splits


def split_files(split: UnionSplit, max_bytes: int | None) -> list[UnionTask]:
    """Divide the files of a bucket of a log table into tasks of neighbouring files, without the log after them."""
    most = max_bytes or TARGET_SPLIT_BYTES
    groups: list[list[LakeFile]] = []
    size = 0
    for file in split.files:
        if not groups or size + file.size_bytes > most:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size_bytes
    return [UnionTask(replace(split, files=tuple(group), start=0, stop=0)) for group in groups]


def log_range(split: UnionSplit) -> BucketRange | None:
    """The offsets of a bucket's log after its files; None if there are none."""
    if not split.log_count or split.bucket_id is None:
        return None
    return BucketRange(split.partition_id, split.bucket_id, split.start, split.stop)


def read_lake_task(
    opened: OpenTable,
    task: UnionTask,
    columns: Sequence[str],
    predicate: Predicate | None,
    patience_seconds: float,
) -> Iterator[pa.RecordBatch]:
    """Return record batches with at least the wanted columns."""
    if any(name in SYSTEM_COLUMNS for name in columns):  # `$lake`: no filter is pushed and there is no log
        return lake_rows(opened.access, task.split.target, task.split.files, columns)
    return read_union(
        opened.access,
        task.split,
        columns,
        predicate=predicate,
        patience_seconds=patience_seconds,
    )


def of_task(splits: Iterable[UnionSplit], task: LateUnionTask) -> list[UnionSplit]:
    """The splits of those buckets that belong to a task."""
    return [split for split in splits if (split.bucket_id or 0) % task.count == task.number]


def exact_rows(plan: UnionPlan, has_primary_key: bool) -> int | None:
    """Return the number of rows of a plan if it is known without reading them, else None."""
    if any(file.deleted_rows for split in plan.splits for file in split.files):
        return None  # two deletes may be of the same row
    if has_primary_key and any(split.log_count or split.is_live for split in plan.splits):
        return None
    return sum(split.lake_rows + split.log_count for split in plan.splits)
