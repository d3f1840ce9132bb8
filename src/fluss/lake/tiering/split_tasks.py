"""The function that an engine runs for each split, in any process that can reach the servers and the lake's files.

`tier_split` returns even if something is wrong with its split (`SplitResult.gone`, `SplitResult.error`). It commits
nothing: its files belong to no snapshot until the driver has committed its message.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from fluss.client.engine.engine import Engine
from fluss.client.engine.table import TableAccess
from fluss.errors import ErrorCode, FlussError
from fluss.lake.reading.merge import MergeKeys
from fluss.lake.tables.interface.format import CommitMessage
from fluss.lake.tiering.changes import ChangeFold
from fluss.lake.tiering.key_files import write_changes
from fluss.lake.tiering.log_reading import SplitLog, lake_batch, same_moment, with_lake_columns
from fluss.lake.tiering.task_values import SplitResult, SplitWork, TableWork

if TYPE_CHECKING:
    import pyarrow as pa

# The bucket was dropped while it was tiered. This is no error: the other buckets of the table are tiered.
GONE_CODES = frozenset({ErrorCode.PARTITION_NOT_EXISTS, ErrorCode.TABLE_NOT_EXIST})


def tier_split(engine: Engine, work: TableWork, split: SplitWork) -> SplitResult:
    """Write the rows of one split to files, by the kind of the split."""
    table = TableAccess(engine, work.table)
    try:
        if split.kind == "log":
            return _tier_log(table, work, split)
        if split.kind == "changes":
            return _tier_changes(table, work, split)
        return _tier_state(table, work, split)
    except FlussError as error:
        if error.error_code in GONE_CODES:
            return SplitResult(split.split, gone=error.message)
        return SplitResult(split.split, error=FlussError(f"{work.table.path}: {error.message}", error.error_code))


def _tier_log(table: TableAccess, work: TableWork, split: SplitWork) -> SplitResult:
    log = SplitLog(table, work, split)
    message = work.target.write_split(split.split, (with_lake_columns(rows) for rows in log))
    return _result(split, message, log.reached, log.newest_ms)


def _tier_changes(table: TableAccess, work: TableWork, split: SplitWork) -> SplitResult:
    keys = MergeKeys(work.table)
    fold = ChangeFold(keys)
    log = SplitLog(table, work, split)
    for rows in log:
        fold.add(rows)
        if fold.is_full(work.options.max_changes_bytes):
            log.stop()
    ended = replace(split.split, end_offset=log.reached)
    message = write_changes(work, ended, split.files, fold.changes(), keys)
    return _result(split, message, log.reached, log.newest_ms)


def _tier_state(table: TableAccess, work: TableWork, split: SplitWork) -> SplitResult:
    """Tier the state of a bucket. Its rows share one offset and time: when each row changed is no longer known."""
    now_ms = int(time.time() * 1000)
    state = table.read_state(split.split.bucket, patience_seconds=work.options.patience_seconds)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in state:
            assert state.offset is not None, "a state that has rows has an offset"
            yield lake_batch(batch, *same_moment(batch.num_rows, max(state.offset - 1, 0), now_ms))

    message = work.target.write_split(split.split, batches(), split.files)
    try:
        _check_schema(table, work)
    except FlussError:
        work.target.discard([message])
        raise
    reached = split.split.end_offset if state.offset is None else state.offset
    return _result(split, message, reached, now_ms)


def _check_schema(table: TableAccess, work: TableWork) -> None:
    """Raise if columns were added after planning: the state is newer, and its rows may have values for them."""
    found = table.engine.run(table.engine.describe(table.path))
    if found.table_id != work.table.table_id:
        message = f"table {work.table.path} was dropped and created again: tier it again"
        raise FlussError(message, ErrorCode.TABLE_NOT_EXIST)
    if found.schema_id != work.table.schema_id:
        raise FlussError(
            f"columns were added to {work.table.path} while a bucket of it was read: the next round tiers the bucket",
            ErrorCode.INVALID_UPDATE_VERSION_EXCEPTION,
        )


def _result(split: SplitWork, message: CommitMessage, reached: int, newest_ms: int | None) -> SplitResult:
    ended = replace(message, split=replace(message.split, end_offset=reached))
    return SplitResult(split.split, ended, newest_ms)
