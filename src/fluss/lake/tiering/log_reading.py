"""A range of a bucket's log as Arrow batches with the columns of the lake, until its end or until time runs out."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from fluss.client.engine.rows import LogRows
from fluss.client.engine.table import TableAccess
from fluss.lake.tables.interface.format import OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss.lake.tiering.task_values import SplitWork, TableWork
from fluss.values.basic import public_bucket

_MILLISECONDS = pa.timestamp("ms", "UTC")


class SplitLog:
    """Reads one split, in one thread; blocks. Iterate over it once; `reached` is then the offset after the last row.

    If time is up before a split begins, it reads nothing, so that rounds end; a split that has begun reads at least one
    batch, so that rounds make progress.
    """

    def __init__(self, table: TableAccess, work: TableWork, split: SplitWork) -> None:
        self._table, self._work, self._split = table, work, split
        self.reached = split.split.start_offset or 0
        self.newest_ms: int | None = None
        self._stopped = False

    def stop(self) -> None:
        """End after the last returned batch."""
        self._stopped = True

    def __iter__(self) -> Iterator[LogRows]:
        if self._is_time_up():
            return
        split = self._split
        bucket = public_bucket(split.split.bucket)
        stop = split.split.end_offset
        patience = self._work.options.patience_seconds
        ranges = {bucket: (split.read_from, stop)}
        with self._table.read_log(ranges, patience_seconds=patience) as log:
            for rows in log:
                yield rows
                self.reached = rows.last_offset + 1
                self.newest_ms = max(rows.timestamp, self.newest_ms or 0)
                if self._stopped or self._is_time_up():
                    return
        self.reached = stop  # offsets without rows may follow the last row

    def _is_time_up(self) -> bool:
        return time.time() >= self._work.deadline


def with_lake_columns(rows: LogRows) -> pa.RecordBatch:
    """Add the columns for offset and commit time to the rows."""
    count = len(rows)
    offsets = rows.offsets
    if offsets is None:
        offsets = np.arange(rows.base_offset, rows.base_offset + count, dtype=np.int64)
    times = pa.array(np.full(count, rows.timestamp, np.int64)).cast(_MILLISECONDS)
    return lake_batch(rows.rows, pa.array(offsets, pa.int64()), times)


def lake_batch(rows: pa.RecordBatch, offsets: pa.Array, times: pa.Array) -> pa.RecordBatch:
    """Return rows of the table, followed by the columns for offset and commit time."""
    names = [*rows.schema.names, OFFSET_COLUMN, TIMESTAMP_COLUMN]
    return pa.RecordBatch.from_arrays([*rows.columns, offsets, times], names)


def same_moment(count: int, offset: int, timestamp_ms: int) -> tuple[pa.Array, pa.Array]:
    """The columns for offset and commit time, for rows that share both."""
    offsets = pa.array(np.full(count, offset, np.int64))
    return offsets, pa.array(np.full(count, timestamp_ms, np.int64)).cast(_MILLISECONDS)
