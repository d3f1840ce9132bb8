"""Opening the store of a bucket: bring it to the end of its changelog.

The note in the store says how far it is. Three cases: the store is behind (after a crash: replay the rest); it is ahead
of the log (power was lost and the log, which was not synced with every write, lost its tail: make it anew); its files
cannot be opened (make it anew). Making it anew means replaying the whole changelog, which for primary-key tables is
never deleted. The old files are put aside, not removed. Runs in the opening thread.
"""

from __future__ import annotations

import logging
from pathlib import Path

from fluss.codec.log_batch import CorruptBatch
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.kv.limits import REPLAY_GROUP_ROWS, KvResources
from fluss.server.storage.kv.log_tail import TailBatch, read_tail
from fluss.server.storage.kv.store import UNKNOWN_ROW_COUNT, Applied, KvStore, StoreDamagedError, put_aside
from fluss.server.storage.kv.table_format import KvTableFormat
from fluss.server.storage.log.bucket_log import BucketLog

_logger = logging.getLogger(__name__)


def open_store(directory: Path, log: BucketLog, table_format: KvTableFormat, resources: KvResources) -> KvStore:
    """The store of a bucket, with everything in it that its log has."""
    store = _open_usable(directory, log, resources)
    try:
        if replay(store, log, table_format):
            # Or a server that crashes again and again would replay more and more.
            store.flush()
    except BaseException:
        store.abandon()
        raise
    return store


def _open_usable(directory: Path, log: BucketLog, resources: KvResources) -> KvStore:
    try:
        store = KvStore.open(directory, resources)
    except StoreDamagedError as error:
        reason = str(error)
    else:
        if store.applied_offset <= log.log_end_offset:
            return store
        reason = f"it contains the changelog up to {store.applied_offset}, which ends at {log.log_end_offset}"
        store.abandon()
    if log.local_start_offset > 0:
        text = f"the store in {directory} cannot be used ({reason}) and the changelog before offset "
        text += f"{log.local_start_offset} is not here to build it anew; nothing was removed"
        raise FlussError(text, ErrorCode.KV_STORAGE_EXCEPTION)
    _logger.warning("the store in %s is built anew from its changelog: %s", directory, reason)
    put_aside(directory)
    return KvStore.open(directory, resources)


def replay(store: KvStore, log: BucketLog, table_format: KvTableFormat) -> int:
    """Apply what the log has and the store has not; returns the number of changelog rows."""
    start = store.applied
    if start.log_offset < log.local_start_offset:
        text = f"the store in {store.directory} needs the changelog from offset {start.log_offset} on, "
        text += f"but it begins at {log.local_start_offset}"
        raise FlussError(text, ErrorCode.KV_STORAGE_EXCEPTION)
    group: dict[bytes, bytes | None] = {}
    grouped, total, row_count = 0, 0, start.row_count
    last: TailBatch | None = None
    for last in read_tail(log, start.log_offset, start.segment_base, start.position):
        entries, added = _entries(table_format, last, log)
        # Later values of a key replace earlier ones, but keep their place: order among keys does not matter.
        group.update(entries)
        row_count = row_count + added if table_format.counts_rows else UNKNOWN_ROW_COUNT
        grouped += last.header.record_count
        if grouped >= REPLAY_GROUP_ROWS:
            store.write(group, _applied(last, row_count))
            total, grouped, group = total + grouped, 0, {}
    if last is not None and store.applied_offset < last.header.next_offset:
        store.write(group, _applied(last, row_count))
    if total + grouped:
        _logger.info(
            "%s: replayed %d changelog rows from offset %d", store.directory, total + grouped, start.log_offset
        )
    return total + grouped


def _entries(table_format: KvTableFormat, batch: TailBatch, log: BucketLog) -> tuple[dict[bytes, bytes | None], int]:
    try:
        columns, change_types = table_format.changelog.decode(batch.view, batch.position, header=batch.header)
        return table_format.entries(columns, change_types)
    except (CorruptBatch, ValueError) as error:
        text = (
            f"the changelog in {log.directory} has a batch at offset {batch.header.base_offset} that cannot be read: "
        )
        raise FlussError(text + str(error), ErrorCode.CORRUPT_RECORD_EXCEPTION) from error


def _applied(batch: TailBatch, row_count: int) -> Applied:
    return Applied(batch.header.next_offset, row_count, batch.segment_base, batch.end_position)
