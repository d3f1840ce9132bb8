"""The Arrow batches that a task returns: columns about the change, Spark's types, sizes that suit Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
import pyarrow as pa

from fluss.client.engine.rows import LogRows, StoredBatch
from fluss.model.paths import ChangeType
from fluss.spark.convert.types import CHANGE_TYPE_COLUMN, COMMIT_TIMESTAMP_COLUMN, LOG_OFFSET_COLUMN

# Every batch costs a message and some set-up in Spark, so small batches are combined. That copies them, which no longer
# pays off above these sizes.
MIN_BATCH_ROWS = 4_096
MIN_BATCH_BYTES = 1024 * 1024
MAX_BATCH_ROWS = 65_536
MAX_BATCH_BYTES = 16 * 1024 * 1024

CHANGE_NAMES = {
    ChangeType.APPEND_ONLY: "insert",
    ChangeType.INSERT: "insert",
    ChangeType.UPDATE_BEFORE: "update_before",
    ChangeType.UPDATE_AFTER: "update_after",
    ChangeType.DELETE: "delete",
}
METADATA_COLUMNS = frozenset((CHANGE_TYPE_COLUMN, LOG_OFFSET_COLUMN, COMMIT_TIMESTAMP_COLUMN))
_TIMESTAMP = pa.timestamp("us", "UTC")


@cache
def _names() -> pa.Array:
    """The names of the change types. Created at first use: Arrow loads pandas for it, which takes a while."""
    return pa.array([CHANGE_NAMES[kind] for kind in ChangeType], pa.string())


def change_columns(rows: LogRows, wanted: Iterable[str]) -> dict[str, pa.Array]:
    """Return those columns about the changes that are in `wanted`, by name."""
    count = len(rows)
    found: dict[str, pa.Array] = {}
    for name in wanted:
        if name == CHANGE_TYPE_COLUMN:
            kinds = bytes(count) if rows.change_types is None else rows.change_types
            found[name] = _names().take(pa.array(np.frombuffer(kinds, np.uint8)))
        elif name == LOG_OFFSET_COLUMN:
            offsets = rows.offsets
            if offsets is None:
                offsets = np.arange(rows.base_offset, rows.base_offset + count)
            found[name] = pa.array(offsets, pa.int64())
        elif name == COMMIT_TIMESTAMP_COLUMN:
            found[name] = pa.array(np.full(count, rows.timestamp * 1_000, np.int64)).cast(_TIMESTAMP)
    return found


def with_change_columns(rows: LogRows, wanted: Iterable[str]) -> pa.RecordBatch:
    """Return the rows with the wanted columns about the changes after their own columns."""
    extra = change_columns(rows, wanted)
    arrays = [*rows.rows.columns, *extra.values()]
    return pa.RecordBatch.from_arrays(arrays, names=[*rows.rows.schema.names, *extra])


def sized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Regroup rows into batches that are neither tiny nor huge; stored batches are not changed."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if isinstance(batch, StoredBatch):
            yield from _pieces(waiting)
            yield batch
            waiting, rows, size = [], 0, 0
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.get_total_buffer_size()
        if rows >= MIN_BATCH_ROWS or size >= MIN_BATCH_BYTES:
            yield from _pieces(waiting)
            waiting, rows, size = [], 0, 0
    yield from _pieces(waiting)


def _pieces(waiting: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if not waiting:
        return
    whole = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
    rows = MAX_BATCH_ROWS
    if whole.get_total_buffer_size() > MAX_BATCH_BYTES:  # for a slice, the bytes of the whole batch
        rows = max(1, min(rows, whole.num_rows * MAX_BATCH_BYTES // whole.nbytes))
    for start in range(0, whole.num_rows, rows):
        yield whole.slice(start, rows)


def limited(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Return the first `limit` rows of the batches."""
    missing = limit
    for batch in batches:
        piece = batch.slice(0, missing)
        missing -= piece.num_rows
        yield piece
        if not missing:
            return
