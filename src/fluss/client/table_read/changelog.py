"""The current rows of a primary-key table from its changelog, for servers without SCAN_KV.

The changelog of each bucket is read from its first offset to its end of now, and the last row of each key counts. What
was read is merged whenever `MAX_UNMERGED_ROWS` rows have come, so memory follows the table and not its history. A
changelog that no longer begins at offset 0 cannot give the table: that is an error.

`BucketMerge` is used by one task at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fluss.client.lookup.keys import table_key_plan
from fluss.client.metadata import ClientTable
from fluss.client.scan_plan import ScanPlan
from fluss.client.scanner.core import ScannerCore
from fluss.client.scanner.decode_pool import decode_pool
from fluss.client.scanner.log_rows import LogRows
from fluss.client.scanner.offsets import EARLIEST, list_bucket_offsets
from fluss.client.session import Session
from fluss.client.table_read.selection import Selection
from fluss.client.values import EARLIEST_OFFSET, TableBucket
from fluss.codec.keys import encode_keys
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import ChangeType

MAX_UNMERGED_ROWS = 500_000


class BucketMerge:
    """The rows of one bucket after the changes seen so far."""

    def __init__(self, table: ClientTable) -> None:
        plan = table_key_plan(table)
        self._positions = [table.schema.position(name) for name in plan.primary_columns]
        self._types = [table.schema.data_types[position] for position in self._positions]
        self._encoding = plan.primary_encoding
        self._batches: list[Any] = []
        self._deletes: list[Any] = []
        self._unmerged = 0

    def add(self, rows: LogRows) -> None:
        """The next rows of the changelog."""
        batch = rows.rows
        if rows.change_types is None:
            deleted = np.zeros(batch.num_rows, np.bool_)
        else:
            types = np.frombuffer(rows.change_types, np.uint8)
            kept = np.flatnonzero(types != ChangeType.UPDATE_BEFORE)
            if len(kept) < len(types):
                batch = batch.take(pa.array(kept))
            deleted = types[kept] == ChangeType.DELETE
        self._batches.append(batch)
        self._deletes.append(deleted)
        self._unmerged += batch.num_rows
        if self._unmerged >= MAX_UNMERGED_ROWS:
            self.merge()

    def merge(self) -> Any:
        """One record batch with the rows that are there now; None when there are none."""
        if not self._batches:
            return None
        joined = pa.Table.from_batches(self._batches).combine_chunks()
        (batch,) = joined.to_batches() or [self._batches[0]]
        if self._unmerged:
            columns = [batch.column(position) for position in self._positions]
            keys = encode_keys(columns, self._types, self._encoding, batch.num_rows).dictionary_encode()
            last = np.zeros(len(keys.dictionary), np.int64)
            last[np.asarray(keys.indices)] = np.arange(batch.num_rows)  # of equal keys the last one stays
            last.sort()
            deleted = np.concatenate(self._deletes)
            batch = batch.take(pa.array(last[~deleted[last]]))
        self._batches, self._deletes, self._unmerged = [batch], [np.zeros(batch.num_rows, np.bool_)], 0
        return batch


async def read_changelog(
    session: Session, table: ClientTable, selection: Selection, buckets: Sequence[TableBucket]
) -> list[Any]:
    """The record batches of all buckets; awaited in the user's event loop."""
    starts = await session.awaitable(list_bucket_offsets(session.cluster, table.path, buckets, EARLIEST))
    for bucket, start in starts.items():
        if start > 0:
            raise FlussError(
                f"the server cannot scan primary-key tables, and the changelog of {bucket} of {table.path} begins at "
                f"offset {start}: older changes have expired, so the table cannot be read as a whole",
                ErrorCode.UNSUPPORTED_VERSION,
            )
    loop, pool = asyncio.get_running_loop(), decode_pool()
    merges = {bucket: BucketMerge(table) for bucket in buckets}
    core = ScannerCore(session, table, ScanPlan())
    try:
        await loop.run_in_executor(None, core.subscribe, dict.fromkeys(buckets, EARLIEST_OFFSET))
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
