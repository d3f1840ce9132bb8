"""Reads rows of a primary-key table: a bucket now or as of an offset, or the last rows of changed keys.

Filters are applied to whole rows at the end, never to changes: an old row that matches must not hide a newer row that
does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fluss.client.engine.keys import ALL_KEYS
from fluss.client.engine.rows import BucketState, ScanPlan, Selection
from fluss.errors import ErrorCode, FlussError
from fluss.spark.read.splits import StateSplit, WindowSplit
from fluss.spark.sessions.connection_cache import OpenTable
from fluss.values.basic import TableBucket
from fluss.values.predicates import Predicate

if TYPE_CHECKING:
    import pyarrow as pa


def read_state(
    opened: OpenTable,
    split: StateSplit,
    columns: Iterable[str],
    patience_seconds: float,
    *,
    snapshot_will_do: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a bucket or of a range of its keys; only the given columns have values."""
    bucket = TableBucket.with_partition(opened.info.table_id, split.partition_id, split.bucket_id)
    table = opened.access
    state = table.read_state(
        bucket,
        split.offset,
        patience_seconds=patience_seconds,
        snapshot_will_do=snapshot_will_do,
        wanted=[table.schema.position(name) for name in columns],
        key_range=split.key_range,
    )
    return iter(state) if split.key_range == ALL_KEYS else _piece(state, bucket)


def _piece(state: BucketState, bucket: TableBucket) -> Iterator[pa.RecordBatch]:
    try:
        yield from state
    except FlussError as error:
        if error.error_code != ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION:
            raise
        raise FlussError(
            f"{bucket} was planned at offset {state.offset}, but changes since then have expired, so that state "
            "can no longer be read: create the DataFrame again",
            error.error_code,
        ) from error


def read_window(opened: OpenTable, split: WindowSplit, patience_seconds: float) -> Iterator[pa.RecordBatch]:
    """Return the last row of each key that changed in a range and was not deleted, with all columns."""
    each = split.range
    return opened.access.read_changed_keys(
        TableBucket.with_partition(opened.info.table_id, each.partition_id, each.bucket_id),
        each.start,
        each.stop,
        timestamps=(each.since_ms, each.until_ms),
        patience_seconds=patience_seconds,
    )


def selected(
    opened: OpenTable, batches: Iterable[pa.RecordBatch], columns: Sequence[str], predicate: Predicate | None
) -> Iterator[pa.RecordBatch]:
    """Return the wanted columns of those rows that satisfy the filter."""
    table = opened.access.description
    positions = tuple(table.schema.position(name) for name in columns)
    selection = Selection(table, ScanPlan(projection=positions, predicate=predicate))
    for batch in batches:
        yield selection.apply(batch)
