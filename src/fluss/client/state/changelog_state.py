"""The current rows of a primary-key table from snapshots and its changelog, for servers without SCAN_KV.

If a bucket has a snapshot, reading starts with its rows and continues with the changelog after it; otherwise with the
first offset of the changelog. It ends at the current end of the changelog, and the last row of each key counts. Rows
are merged whenever `MAX_UNMERGED_ROWS` have been read, so memory depends on the table and not on its history.

A snapshot, or the changelog after it, may expire while it is read: then the read is replanned, at most `MAX_PLANS`
times. Snapshots whose files this program cannot read are not used if the changelog is still complete. A changelog that
no longer begins at offset 0 is not enough without a snapshot: that is an error.

`BucketMerge` is used by one task at a time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fluss.client.calls.bucket_offsets import EARLIEST, list_bucket_offsets
from fluss.client.decode.decode_pool import decode_pool
from fluss.client.decode.log_rows import LogRows
from fluss.client.decode.scan_plan import ScanPlan
from fluss.client.keys.lookup_keys import table_key_plan
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.client.scan.scanner_core import ScannerCore
from fluss.client.state.row_selection import Selection
from fluss.client.state.snapshot_plan import MAX_PLANS, PLAN_ANEW_CODES, KvSnapshot, SnapshotLease, latest_snapshots
from fluss.client.state.snapshot_rows import snapshot_batches
from fluss.codec.keys.encoding import encode_keys
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import ChangeType
from fluss.values.basic import TableBucket

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Bools, Int64s

MAX_UNMERGED_ROWS = 500_000
MAX_SNAPSHOTS_AT_ONCE = 2

logger = logging.getLogger(__name__)


class BucketMerge:
    """The rows of one bucket after the changes seen so far."""

    def __init__(self, table: ClientTable) -> None:
        plan = table_key_plan(table)
        self._positions = [table.schema.position(name) for name in plan.primary_columns]
        self._types = [table.schema.data_types[position] for position in self._positions]
        self._encoding = plan.primary_encoding
        self._batches: list[pa.RecordBatch] = []
        self._deletes: list[Bools] = []
        self._unmerged = 0

    def add(self, rows: LogRows) -> None:
        """Add the next rows of the changelog."""
        self.add_batch(*newest_images(rows))

    def add_current(self, batch: pa.RecordBatch) -> None:
        """Add current rows, each key once, before any change."""
        assert not self._unmerged
        self._batches.append(batch)
        self._deletes.append(np.zeros(batch.num_rows, np.bool_))

    def add_batch(self, batch: pa.RecordBatch, deleted: Bools) -> None:
        """Add the next changes as rows, with a NumPy mask of deletions."""
        self._batches.append(batch)
        self._deletes.append(deleted)
        self._unmerged += batch.num_rows
        if self._unmerged >= MAX_UNMERGED_ROWS:
            self.merge()

    @property
    def size_bytes(self) -> int:
        """The memory of the rows of the last merge and since then."""
        return sum(int(batch.get_total_buffer_size()) for batch in self._batches)

    def merge(self) -> pa.RecordBatch | None:
        """Merge to one record batch with the current rows; None if there are none."""
        if not self._batches:
            return None
        joined = pa.Table.from_batches(self._batches).combine_chunks()
        (batch,) = joined.to_batches() or [self._batches[0]]
        if self._unmerged:
            columns = [batch.column(position) for position in self._positions]
            last = last_of_each(encode_keys(columns, self._types, self._encoding, batch.num_rows))
            deleted = np.concatenate(self._deletes)
            batch = batch.take(pa.array(last[~deleted[last]]))
        self._batches, self._deletes, self._unmerged = [batch], [np.zeros(batch.num_rows, np.bool_)], 0
        return batch


def last_of_each(keys: pa.Array) -> Int64s:
    """The positions of the last occurrence of each key, ascending.

    >>> last_of_each(pa.array([b"a", b"b", b"a"])).tolist()
    [1, 2]
    """
    encoded = keys.dictionary_encode()
    last = np.zeros(len(encoded.dictionary), np.int64)
    last[np.asarray(encoded.indices)] = np.arange(len(keys))  # written in order, so that the last position stays
    last.sort()
    return last


def newest_images(rows: LogRows) -> tuple[pa.RecordBatch, Bools]:
    """The rows of a part of a changelog without old images, and the mask of deletions."""
    batch = rows.rows
    if rows.change_types is None:
        return batch, np.zeros(batch.num_rows, np.bool_)
    types = np.frombuffer(rows.change_types, np.uint8)
    kept = np.flatnonzero(types != ChangeType.UPDATE_BEFORE)
    if len(kept) < len(types):
        batch = batch.take(pa.array(kept))
    return batch, types[kept] == ChangeType.DELETE


async def read_changelog(
    session: Session, table: ClientTable, selection: Selection, buckets: Sequence[TableBucket]
) -> list[pa.RecordBatch]:
    """The record batches of all buckets; awaited in the user's event loop."""
    reason = ""
    for _ in range(MAX_PLANS):
        snapshots = await session.awaitable(latest_snapshots(session.cluster, table, buckets))
        try:
            return await _read(session, table, selection, buckets, snapshots)
        except FlussError as error:
            if error.error_code not in PLAN_ANEW_CODES or not snapshots:
                raise
            reason = error.message
            logger.info("table %s is read again: %s", table.path, reason)
    try:
        return await _read(session, table, selection, buckets, {})
    except FlussError as error:
        raise FlussError(f"{error.message}. Its snapshots cannot be used: {reason}", error.error_code) from None


async def _read(
    session: Session,
    table: ClientTable,
    selection: Selection,
    buckets: Sequence[TableBucket],
    snapshots: Mapping[TableBucket, KvSnapshot],
) -> list[pa.RecordBatch]:
    loop, pool = asyncio.get_running_loop(), decode_pool()
    merges = {bucket: BucketMerge(table) for bucket in buckets}
    if snapshots:
        await _read_snapshots(session, table, snapshots, merges)
    starts = {bucket: snapshots[bucket].log_offset if bucket in snapshots else 0 for bucket in buckets}
    earliest = await session.awaitable(list_bucket_offsets(session.cluster, table.path, buckets, EARLIEST))
    for bucket, start in starts.items():
        if earliest[bucket] > start:
            raise _expired(table, bucket, start, earliest[bucket])
    core = ScannerCore(session, table, ScanPlan())
    try:
        await loop.run_in_executor(None, core.subscribe, starts)
        subscriptions = await session.awaitable(core.begin_bounded())
        while (taken := await core.next_bounded_async(subscriptions)) is not None:
            for rows in taken:
                await loop.run_in_executor(pool, merges[rows.bucket].add, rows)
    finally:
        core.close()
    batches = []
    for merge in merges.values():
        batch = await loop.run_in_executor(pool, merge.merge)
        if batch is not None and batch.num_rows:
            batches.append(selection.apply(batch))
    return batches


async def _read_snapshots(
    session: Session,
    table: ClientTable,
    snapshots: Mapping[TableBucket, KvSnapshot],
    merges: Mapping[TableBucket, BucketMerge],
) -> None:
    """Add the rows of snapshots to the merges of their buckets, a few at a time."""
    lease = SnapshotLease(session.cluster, snapshots)
    stopped = threading.Event()

    def read(bucket: TableBucket) -> None:
        session.run(lease.renew())
        for batch in snapshot_batches(session, table, bucket, snapshots[bucket].snapshot_id):
            if stopped.is_set():
                return
            merges[bucket].add_current(batch)

    # Separate threads: a snapshot takes long, and all scanners share the decoding threads.
    pool = ThreadPoolExecutor(MAX_SNAPSHOTS_AT_ONCE, thread_name_prefix="fluss-snapshot-read")
    try:
        await session.awaitable(lease.acquire())
        loop = asyncio.get_running_loop()
        await asyncio.gather(*[loop.run_in_executor(pool, read, bucket) for bucket in snapshots])
    finally:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
        await session.awaitable(lease.drop())


def _expired(table: ClientTable, bucket: TableBucket, start: int, earliest: int) -> FlussError:
    if start:
        text = f"the changelog of {bucket} of {table.path} has moved on from {start} to {earliest} since its snapshot"
        return FlussError(text, ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION)
    text = f"the server cannot scan primary-key tables, and the changelog of {bucket} of {table.path} begins at offset "
    text += f"{earliest}: older changes have expired, so without a snapshot the table cannot be read as a whole"
    return FlussError(text, ErrorCode.UNSUPPORTED_VERSION)
