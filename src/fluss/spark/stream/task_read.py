"""Tasks of a streaming query: they read ranges of the log, the state of a bucket at an offset, or files of the lake.

A task reads the same rows in the same order whenever it runs, even in another process after a crash. With
`failOnDataLoss=false` it reads fewer rows if some have expired or the partition was dropped in between. Servers that
restart only delay a task.

| option mode | primary-key table | log table |
|---|---|---|
| changelog | every change, with the columns about it | every row, with these columns |
| binlog | every change as one row, with the old and the new row in it | refused |
| state | rows as inserts and updates left them; deletes are left out | refused |
| not given | as with `state`, but a delete ends the query with an error | every row |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from fluss.client.engine.rows import LogRange, LogRows, ScanPlan
from fluss.errors import ErrorCode, FlussError
from fluss.lake.reading.split_rows import lake_rows
from fluss.lake.tables.interface.format import OFFSET_COLUMN, TIMESTAMP_COLUMN
from fluss.model.paths import ChangeType
from fluss.spark.convert.types import CHANGE_TYPE_COLUMN, COMMIT_TIMESTAMP_COLUMN, LOG_OFFSET_COLUMN
from fluss.spark.options.parsing import FlussOptions
from fluss.spark.read.binlog import BinlogColumns, Pairing, binlog_columns, look_back, state_images
from fluss.spark.read.log_reader import bad_batch_plan, cheapest_column
from fluss.spark.read.output_batches import METADATA_COLUMNS, with_change_columns
from fluss.spark.sessions.connection_cache import OpenTable, open_table
from fluss.spark.sessions.outage_retries import patience_seconds, patiently
from fluss.spark.stream.data_loss import Loss, LossPolicy
from fluss.spark.stream.offsets import BucketKey
from fluss.spark.stream.table_watch import bucket_text, dropped_table_error, other_table_error
from fluss.spark.stream.tasks import LakeFiles, StreamTask
from fluss.values.basic import TableBucket

STATE_CHANGE_TYPE = "insert"
MAX_HELD_BYTES = 32 * 1024 * 1024
"""Limit of bytes held for buckets whose turn has not come; beyond it, buckets are read one after another."""


def read_task(options: FlussOptions, schema: StructType, task: StreamTask) -> Iterator[pa.RecordBatch]:
    """Return record batches with at least the wanted columns, in offset order within each bucket."""
    binlog = binlog_columns(schema) if options.mode == "binlog" else None
    with contextlib.ExitStack() as stack:
        seconds = patience_seconds(options)
        try:
            opened = patiently(lambda: stack.enter_context(open_table(options)), seconds)
        except FlussError as error:
            raise dropped_table_error(str(options.table), error) from error
        if opened.info.table_id != task.table_id:
            raise other_table_error(str(options.table), task.table_id, opened.info.table_id)
        if task.files is not None:
            yield from _lake(opened, schema.names, binlog, task.files)
        if task.state is not None:
            yield from _state(opened, schema.names, binlog, task, seconds)
        if task.ranges:
            yield from _LogTask(options, opened, schema.names, binlog, task, seconds).batches()


# ---- state ----


def _state(
    opened: OpenTable, columns: Sequence[str], binlog: BinlogColumns | None, task: StreamTask, seconds: float
) -> Iterator[pa.RecordBatch]:
    assert task.state is not None
    assert task.state_time_ms is not None
    key, offset = task.state
    bucket = TableBucket.with_partition(task.table_id, *key)
    for batch in opened.access.read_state(bucket, offset, patience_seconds=seconds):
        rows = batch if binlog is None else state_images(batch, binlog)
        yield _with_state_columns(rows, columns, offset, task.state_time_ms)


def _with_state_columns(
    batch: pa.RecordBatch, columns: Sequence[str], offset: int, state_time_ms: int
) -> pa.RecordBatch:
    """Add the columns about the change to rows of the state before `offset`, whose commit times are no longer known."""
    count = batch.num_rows
    values: dict[str, pa.Scalar] = {
        CHANGE_TYPE_COLUMN: pa.scalar(STATE_CHANGE_TYPE),
        LOG_OFFSET_COLUMN: pa.scalar(offset - 1, pa.int64()),
        COMMIT_TIMESTAMP_COLUMN: pa.scalar(state_time_ms * 1_000, pa.timestamp("us", "UTC")),
    }
    names = [name for name in columns if name in METADATA_COLUMNS]
    if not names:
        return batch
    arrays = [*batch.columns, *(pa.repeat(values[name], count) for name in names)]
    return pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, *names])


# ---- lake ----


def _lake(
    opened: OpenTable, columns: Sequence[str], binlog: BinlogColumns | None, files: LakeFiles
) -> Iterator[pa.RecordBatch]:
    """Read rows of the lake as inserts, with the offset and the time that the lake has for them."""
    table = opened.access
    own = [name for name in columns if name not in METADATA_COLUMNS] or [cheapest_column(table.schema)]
    wanted = own if binlog is None else list(table.schema.column_names)
    extra = [name for name in columns if name in METADATA_COLUMNS]
    system = [OFFSET_COLUMN, TIMESTAMP_COLUMN] if extra else []
    for batch in lake_rows(table, files.target, files.files, [*wanted, *system]):
        rows = batch.select(wanted)
        if binlog is not None:
            rows = state_images(rows, binlog)
        arrays = [*rows.columns, *(_lake_column(batch, name) for name in extra)]
        yield pa.RecordBatch.from_arrays(arrays, names=[*rows.schema.names, *extra])


def _lake_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name == CHANGE_TYPE_COLUMN:
        return pa.repeat(pa.scalar(STATE_CHANGE_TYPE), batch.num_rows)
    return batch.column(OFFSET_COLUMN if name == LOG_OFFSET_COLUMN else TIMESTAMP_COLUMN)


# ---- log ----


class _LogTask:
    """Reads ranges of the log, and keeps the position in each bucket, to continue there after an accepted loss."""

    def __init__(
        self,
        options: FlussOptions,
        opened: OpenTable,
        columns: Sequence[str],
        binlog: BinlogColumns | None,
        task: StreamTask,
        seconds: float,
    ) -> None:
        self._options = options
        self._opened = opened
        self._since_ms = task.since_ms
        self._partition_names = task.partition_names
        self._seconds = seconds
        self._policy = LossPolicy(str(options.table), fail=options.stream.fail_on_data_loss)
        self._missing = {
            TableBucket.with_partition(task.table_id, *each.key): (each.start, each.stop) for each in task.ranges
        }
        schema = opened.access.schema
        self._binlog = binlog
        self._pairings: dict[TableBucket, Pairing] = {}
        self._extra = [name for name in columns if name in METADATA_COLUMNS]
        if binlog is not None:
            self._plan = binlog.plan(schema)
            return
        own = [name for name in columns if name not in METADATA_COLUMNS] or [cheapest_column(schema)]
        positions = tuple(schema.position(name) for name in own)
        is_whole = positions == tuple(range(len(schema.columns)))  # then servers send the batches unchanged
        plan = ScanPlan(projection=None if is_whole else positions)
        self._plan = bad_batch_plan(plan, skips=options.read.skips_bad_batches)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return batches until everything is read or known to be lost."""
        while self._missing:
            try:
                yield from self._read()
                return
            except FlussError as error:
                losses = self._losses(error)
                if not losses:
                    raise
                self._policy.judge(losses, {loss.key: self._name(loss.key) for loss in losses})
                self._continue_after(losses)

    def _read(self) -> Iterator[pa.RecordBatch]:
        """Read all buckets at once, but return them one after another, so that a repeated task has the same order."""
        order = list(self._missing)
        held: dict[TableBucket, list[LogRows]] = {bucket: [] for bucket in order}
        held_bytes = 0
        with self._log(self._missing) as log:
            for rows in log:
                if rows.bucket == order[0]:
                    yield from self._returned(rows)
                    continue
                held[rows.bucket].append(rows)
                held_bytes += rows.rows.nbytes
                if held_bytes > MAX_HELD_BYTES:
                    break
        if held_bytes > MAX_HELD_BYTES:
            yield from self._one_by_one(order)
            return
        for bucket in order:
            for rows in held[bucket]:
                yield from self._returned(rows)

    def _one_by_one(self, order: Sequence[TableBucket]) -> Iterator[pa.RecordBatch]:
        """Read the buckets one after another from their positions; rows that were held are read again."""
        for bucket in order:
            with self._log({bucket: self._missing[bucket]}) as log:
                for rows in log:
                    yield from self._returned(rows)

    def _log(self, ranges: Mapping[TableBucket, tuple[int, int]]) -> LogRange:
        return self._opened.access.read_log(ranges, self._plan, patience_seconds=self._seconds)

    def _returned(self, rows: LogRows) -> Iterator[pa.RecordBatch]:
        batch = self._batch(rows)
        if batch is not None:
            yield batch
        self._missing[rows.bucket] = (rows.last_offset + 1, self._missing[rows.bucket][1])

    def _batch(self, rows: LogRows) -> pa.RecordBatch | None:
        changes = None if self._binlog is None else self._pairing(self._binlog, rows.bucket).changes(rows)
        if self._since_ms is not None and rows.timestamp < self._since_ms:
            return None
        if changes is not None:
            return changes
        if self._options.mode != "changelog" and rows.change_types is not None:
            kept = self._after_images(rows)
            if kept is not None:
                return rows.rows.take(kept) if len(kept) else None
        return with_change_columns(rows, self._extra) if self._extra else rows.rows

    def _pairing(self, columns: BinlogColumns, bucket: TableBucket) -> Pairing:
        if bucket not in self._pairings:
            back = look_back(self._opened, bucket, self._plan, self._seconds)
            self._pairings[bucket] = Pairing(columns, back, str(self._options.table))
        return self._pairings[bucket]

    def _after_images(self, rows: LogRows) -> pa.Array | None:
        """A mask of the rows that inserts and updates produced, or None if all rows are of that kind."""
        assert rows.change_types is not None
        kinds = np.frombuffer(rows.change_types, np.uint8)
        deletes = np.flatnonzero(kinds == ChangeType.DELETE)
        if len(deletes) and self._options.mode is None:
            raise FlussError(
                f"table {self._options.table}: a row was deleted at offset {rows.offset_of(int(deletes[0]))} of "
                f"{self._name((rows.bucket.partition_id, rows.bucket.bucket_id))}, which a stream of plain rows cannot "
                "show. Use .option('mode', 'changelog') to get every change with its _change_type, or "
                ".option('mode', 'state') to leave deletes out"
            )
        kept = np.flatnonzero((kinds != ChangeType.DELETE) & (kinds != ChangeType.UPDATE_BEFORE))
        return None if len(kept) == len(kinds) else pa.array(kept)

    def _name(self, key: BucketKey) -> str:
        return bucket_text(key, self._partition_names.get(key[0]))

    # ---- losses ----

    def _losses(self, error: FlussError) -> list[Loss]:
        if error.error_code == ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION:
            begins = self._opened.run(self._opened.access.earliest(list(self._missing)))
            return [
                Loss("expired", (bucket.partition_id, bucket.bucket_id), start, begins[bucket])
                for bucket, (start, _) in self._missing.items()
                if start < begins[bucket]
            ]
        if error.error_code == ErrorCode.PARTITION_NOT_EXISTS:
            infos = self._opened.run(self._opened.admin.list_partition_infos(self._opened.info.table_path, None))
            there = {info.partition_id for info in infos}
            return [
                Loss("dropped", (bucket.partition_id, bucket.bucket_id), start, stop)
                for bucket, (start, stop) in self._missing.items()
                if bucket.partition_id not in there
            ]
        return []

    def _continue_after(self, losses: list[Loss]) -> None:
        for loss in losses:
            bucket = TableBucket.with_partition(self._opened.info.table_id, *loss.key)
            _, stop = self._missing.pop(bucket)
            if loss.kind == "expired" and loss.available is not None and loss.available < stop:
                self._missing[bucket] = (loss.available, stop)
