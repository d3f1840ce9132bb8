"""The rows of a bounded scan of a log table that are only in the lake, because they have expired from the log.

For a scan that begins with `EARLIEST_OFFSET`, a time or an offset, the lake has the older rows if the log begins later.
They are read from there up to the current beginning of the log, where the subscription continues. A scan of everything
(`subscribe_all()`, `from_timestamp()`) also finds partitions that are only in the lake, and the old rows of those that
were created again under their name.

Everything here blocks and must run in a thread other than the I/O thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.engine.rows import Everything, ScanPlan
from fluss.client.engine.table import TableAccess
from fluss.errors import ErrorCode, FlussError
from fluss.lake.reading.lake_access import load_lake_table, registered_snapshot, snapshot_files
from fluss.lake.reading.plan import MAX_PLANS, files_by_place, is_needed, lake_condition, live_partitions
from fluss.lake.reading.split_rows import Wanted, lake_rows
from fluss.lazy_imports import import_lock
from fluss.values.basic import EARLIEST_OFFSET, LakeSnapshot, TableBucket

if TYPE_CHECKING:
    from fluss.lake.tables.interface.format import LakeFile, LakeTarget


@dataclass(frozen=True)
class _Part:
    """Rows of one bucket in the lake: offsets from `start` up to `stop`, or without an end."""

    files: tuple[LakeFile, ...]
    start: int
    stop: int | None


class LakeHistory:
    """The rows that a scan reads from the lake. `moves` has the offsets at which its subscriptions continue."""

    def __init__(
        self,
        table: TableAccess,
        plan: ScanPlan,
        positions: Mapping[TableBucket, int],
        everything: Everything | None,
    ) -> None:
        self._table = table
        self._since_ms = None if everything is None else everything.since_ms
        names = table.schema.column_names
        columns = None if plan.projection is None else [names[position] for position in plan.projection]
        self._wanted = Wanted(table, columns, plan.predicate)
        self._condition = None if plan.predicate is None else lake_condition(table, plan.predicate)
        self._target: LakeTarget | None = None
        self._parts: list[_Part] = []
        self.moves: dict[TableBucket, int] = {}
        self._plan(positions, is_everything=everything is not None)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, ordered by offset within each bucket."""
        for part in self._parts:
            yield from self._wanted.apply(self._rows(part))

    def collected(self) -> list[pa.RecordBatch]:
        """All rows, as a list of batches."""
        return list(self.batches())

    # ---- planning ----

    def _plan(self, positions: Mapping[TableBucket, int], *, is_everything: bool) -> None:
        table = self._table
        partitions = live_partitions(table) if is_everything else {}
        begins = table.engine.run(table.earliest(list(positions)))
        # The log begins here now. If more rows expire before they are fetched, the scanner notices.
        self.moves = {bucket: begins[bucket] for bucket in positions if positions[bucket] == EARLIEST_OFFSET}
        expired = {
            bucket: begins[bucket] for bucket in positions if self._is_expired(positions[bucket], begins[bucket])
        }
        if not expired and not (is_everything and table.is_partitioned):
            return
        snapshot = registered_snapshot(table)
        if snapshot is None:
            return
        has_more = is_everything and is_needed(table, snapshot, partitions)
        tiered = {bucket: begin for bucket, begin in expired.items() if self._check_tiered(snapshot, bucket, begin)}
        if not tiered and not has_more:
            return
        self._plan_files(snapshot, positions, tiered, has_more)

    def _is_expired(self, position: int, begin: int) -> bool:
        """True if rows from `position` on may have expired. For a scan from a time, it is then where the log begins."""
        if self._since_ms is not None:
            return begin > 0 and 0 <= position <= begin
        return begin > 0 and (position == EARLIEST_OFFSET or 0 <= position < begin)

    def _check_tiered(self, snapshot: LakeSnapshot, bucket: TableBucket, begin: int) -> bool:
        """True if the lake has rows of a bucket; raise if rows are missing between lake and log."""
        end = snapshot.get_bucket_offset(bucket)
        if end is not None and end < begin:
            raise FlussError(
                f"{bucket} of {self._table.path}: the lake ends at offset {end} and the log begins at {begin}, so the "
                f"rows in between expired before they were tiered. Subscribe from {begin} on, or read the lake",
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION,
            )
        return end is not None

    def _plan_files(
        self,
        snapshot: LakeSnapshot,
        positions: Mapping[TableBucket, int],
        tiered: Mapping[TableBucket, int],
        has_more: bool,
    ) -> None:
        lake = load_lake_table(self._table, snapshot)
        self._target = lake.target()
        snapshot, found = snapshot_files(lake, self._table, snapshot, self._condition)
        files = files_by_place(found)
        if has_more:
            # Rows of a dropped partition look like those of one that was created again under its name: the whole lake
            # is read, and each log from where the lake ends.
            self._parts = [_Part(group, 0, None) for group in files.values()]
            ends = {bucket: snapshot.get_bucket_offset(bucket) for bucket in positions}
            self.moves |= {bucket: end for bucket, end in ends.items() if end is not None and end > positions[bucket]}
            return
        names = live_partitions(self._table)
        for bucket, begin in tiered.items():
            group = files.get((names.get(bucket.partition_id), bucket.bucket_id), ())
            start = 0 if self._since_ms is not None else max(positions[bucket], 0)
            self._parts.append(_Part(tuple(file for file in group if _overlaps(file, start, begin)), start, begin))
            self.moves[bucket] = begin

    # ---- rows ----

    def _rows(self, part: _Part) -> Iterator[pa.RecordBatch]:
        with import_lock:
            from fluss.lake.tables.interface.format import OFFSET_COLUMN, TIMESTAMP_COLUMN

        columns = [*self._wanted.needed, OFFSET_COLUMN, TIMESTAMP_COLUMN]
        since = None if self._since_ms is None else pa.scalar(self._since_ms, pa.timestamp("ms", "UTC"))
        for batch in lake_rows(self._table, self._target, part.files, columns):
            offsets, times = batch.column(len(columns) - 2), batch.column(len(columns) - 1)
            mask = pc.greater_equal(offsets, part.start)
            if part.stop is not None:
                mask = pc.and_(mask, pc.less(offsets, part.stop))
            if since is not None:
                mask = pc.and_(mask, pc.greater_equal(times, since.cast(times.type)))
            yield batch if mask.true_count == batch.num_rows else batch.filter(mask)


def _overlaps(file: LakeFile, start: int, stop: int) -> bool:
    return (file.first_offset is None or file.first_offset < stop) and (
        file.last_offset is None or file.last_offset >= start
    )


def collect_history(
    table: TableAccess,
    plan: ScanPlan,
    positions: Mapping[TableBucket, int],
    everything: Everything | None,
) -> tuple[list[pa.RecordBatch], dict[TableBucket, int]]:
    """Return all batches and the `moves`; plan again if a snapshot expires during the read."""
    for attempts_left in reversed(range(MAX_PLANS)):
        try:
            history = LakeHistory(table, plan, positions, everything)
            return history.collected(), history.moves
        except FlussError as error:
            if error.error_code != ErrorCode.LAKE_SNAPSHOT_NOT_EXIST or not attempts_left:
                raise
    raise AssertionError("the last attempt returns or raises")
