"""Opening the store of a bucket and bringing it up to the end of its changelog.

The `Applied` note in the store gives the changelog offset up to which it is complete. After a crash the store is
usually behind: the rest is replayed. The store has to be rebuilt if it is ahead of the log (power was lost, and the
log, which was not synced with every write, lost its tail), if the log no longer has the offsets after the note, or if
the store's files are missing or cannot be opened.

A rebuild starts from the newest available snapshot that matches the log (`Restore`), or else from an empty store, which
needs the whole changelog. The changelog after the oldest snapshot is never deleted, nor any of it while there is no
snapshot. The old files are moved aside, not removed, and only when the new ones are complete. Runs in the opening
thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from fluss.codec.batches.log_batch import CorruptBatch
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.kv.limits import REPLAY_GROUP_ROWS, KvResources
from fluss.server.storage.kv.log_tail import TailBatch, read_tail
from fluss.server.storage.kv.store import (
    UNKNOWN_ROW_COUNT,
    Applied,
    KvStore,
    StoreDamagedError,
    put_aside,
    put_in_place,
    remove,
)
from fluss.server.storage.kv.table_format import KvTableFormat
from fluss.server.storage.log.bucket_log import BucketLog

_logger = logging.getLogger(__name__)

# Restores a store into a directory that does not exist yet, from a snapshot that contains the changelog up to an offset
# between the two given ones. Returns False if there is no such snapshot.
Restore: TypeAlias = Callable[[Path, int, int], bool]
_RESTORED_SUFFIX = ".restored"


def open_store(
    directory: Path,
    log: BucketLog,
    table_format: KvTableFormat,
    resources: KvResources,
    restore: Restore | None = None,
) -> KvStore:
    """Open the store of a bucket and apply everything that its log has."""
    store, is_new = _open_usable(directory, log, resources, restore)
    try:
        if replay(store, log, table_format):
            # Without this flush, a server that crashes repeatedly would replay more each time. A rebuilt store has to
            # be in files before the changelog after a snapshot may be deleted.
            store.flush(wait=is_new)
    except BaseException:
        store.abandon()
        raise
    return store


def _open_usable(
    directory: Path, log: BucketLog, resources: KvResources, restore: Restore | None
) -> tuple[KvStore, bool]:
    """A store that a replay can bring to the end of the log, and whether it was rebuilt."""
    reason = ""
    if directory.exists():
        try:
            store = KvStore.open(directory, resources)
        except StoreDamagedError as error:
            reason = str(error)
        else:
            reason = _mismatch(store, log)
            if not reason:
                return store, False
            store.abandon()
    return _rebuild(directory, log, resources, restore, reason), True


def _mismatch(store: KvStore, log: BucketLog) -> str:
    """The reason why a replay of the log cannot complete a store; empty if it can."""
    if store.applied_offset > log.log_end_offset:
        return f"it contains changelog offsets up to {store.applied_offset}, but the log ends at {log.log_end_offset}"
    for first, following in log.lost:
        if first < store.applied_offset < following:
            return f"it contains changelog offsets up to {store.applied_offset}, but the log lost those from {first} on"
    if store.applied_offset < log.local_start_offset:
        return f"it needs the changelog from {store.applied_offset} on, but the log begins at {log.local_start_offset}"
    return ""


def _rebuild(directory: Path, log: BucketLog, resources: KvResources, restore: Restore | None, reason: str) -> KvStore:
    restored = directory.with_name(directory.name + _RESTORED_SUFFIX)
    remove(restored)  # an earlier attempt may have been cut short
    found = restore is not None and restore(restored, log.local_start_offset, log.log_end_offset)
    if not found and log.local_start_offset > 0:
        text = (
            f"the store in {directory} cannot be used ({reason or 'it is missing'}) and cannot be rebuilt: the "
            f"changelog before offset {log.local_start_offset} is not on this disk, and no snapshot is available; "
            "nothing was removed. Restore the store or a snapshot from a copy"
        )
        raise FlussError(text, ErrorCode.KV_STORAGE_EXCEPTION)
    if reason:
        source = "a snapshot" if found else "its changelog"
        _logger.warning("rebuilding the store in %s from %s: %s", directory, source, reason)
    put_aside(directory)
    if found:
        put_in_place(restored, directory)
    return KvStore.open(directory, resources)


def replay(store: KvStore, log: BucketLog, table_format: KvTableFormat) -> int:
    """Apply the part of the log that the store lacks; returns the number of changelog rows."""
    start = store.applied
    assert log.local_start_offset <= start.log_offset <= log.log_end_offset, "checked when the store was opened"
    group: dict[bytes, bytes | None] = {}
    grouped, total, row_count = 0, 0, start.row_count
    last: TailBatch | None = None
    for last in read_tail(log, start.log_offset, start.segment_base, start.position):
        entries, added = _entries(table_format, last, log)
        # A later value of a key replaces the earlier one at its place in the dict: the order of keys does not matter.
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
        text = f"cannot read the changelog batch at offset {batch.header.base_offset} in {log.directory}: {error}"
        raise FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION) from error


def _applied(batch: TailBatch, row_count: int) -> Applied:
    return Applied(batch.header.next_offset, row_count, batch.segment_base, batch.end_position)
