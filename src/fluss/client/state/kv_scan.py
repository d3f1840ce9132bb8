"""Reading the buckets of a primary-key table with SCAN_KV: each bucket as of one moment.

All of it runs on the I/O thread, except decoding, which the decoding threads do while the next batch is in flight. A
bucket whose scan breaks (its leader moved, the server restarted, the scan expired) is read again from its beginning:
rows of two scans are never mixed.

A server allows a few scans of a bucket at a time. The reads of one connection share `MAX_SCANS_PER_BUCKET` of them and
wait for each other; if other clients use them all, a scan is retried until the request time-out.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fluss.client.decode.decode_pool import decode_pool
from fluss.client.decode.scan_plan import ScanPlan
from fluss.client.keys.stored_values import RowReader
from fluss.client.net.metadata import ClientTable
from fluss.client.net.rpc import RpcConnection
from fluss.client.net.session import Session
from fluss.client.state.row_selection import Selection
from fluss.codec.batches.log_batch import CorruptBatch
from fluss.codec.batches.value_batch import decode_value_batch
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb

if TYPE_CHECKING:
    import pyarrow as pa

MAX_BUCKETS_AT_ONCE = 4
MAX_SCANS_PER_BUCKET = 4
MAX_BATCHES_BEING_DECODED = 2
BATCH_BYTES = 4 * 1024 * 1024
MAX_ATTEMPTS = 7
FIRST_PAUSE_SECONDS = 0.05
LAST_PAUSE_SECONDS = 1.6

RETRIED_CODES = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIME_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
        ErrorCode.LEADER_NOT_AVAILABLE_EXCEPTION,
        ErrorCode.SCANNER_EXPIRED,
        ErrorCode.UNKNOWN_SCANNER_ID,
        ErrorCode.TOO_MANY_SCANNERS,
        ErrorCode.KV_STORAGE_EXCEPTION,
    }
)

_Gates = weakref.WeakValueDictionary[TableBucket, asyncio.Semaphore]
_gates: weakref.WeakKeyDictionary[Session, _Gates] = weakref.WeakKeyDictionary()


class ValueBatches:
    """Decodes the value batches of a table to the columns and rows of a plan. Used on the I/O thread."""

    def __init__(self, session: Session, table: ClientTable, plan: ScanPlan) -> None:
        self.selection = Selection(table, plan)
        self._path = table.path
        self._rows = RowReader(session, table)

    async def decode(self, bucket: TableBucket, records: bytes | memoryview) -> pa.RecordBatch:
        """Decode a record batch on a decoding thread."""
        loop, pool = asyncio.get_running_loop(), decode_pool()
        try:
            values = await loop.run_in_executor(pool, decode_value_batch, records)
        except CorruptBatch as error:
            text = f"{bucket} of {self._path}: {error}"
            raise FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION) from None
        unknown = await loop.run_in_executor(pool, self._rows.unknown_schemas_of, values)
        if unknown:
            await self._rows.learn_on_io(unknown)
        return await loop.run_in_executor(pool, lambda: self.selection.apply(self._rows.batch(values)))


class KvTableScan:
    """One read of a table."""

    def __init__(self, session: Session, table: ClientTable, plan: ScanPlan) -> None:
        self._cluster = session.cluster
        self._gates = _gates.setdefault(session, weakref.WeakValueDictionary())
        self._full_seconds = session.config.request_timeout_ms / 1000
        self._table = table
        self._values = ValueBatches(session, table, plan)
        self._limit = plan.limit

    async def read(self, buckets: Sequence[TableBucket]) -> list[pa.RecordBatch]:
        """The record batches of all buckets, in their order; with a limit, one bucket at a time."""
        if self._limit is None:
            gate = asyncio.Semaphore(MAX_BUCKETS_AT_ONCE)
            found = await _all_or_none([self._guarded(gate, bucket) for bucket in buckets])
            return [batch for batches in found for batch in batches]
        batches: list[pa.RecordBatch] = []
        missing = self._limit
        for bucket in buckets:
            for batch in await self._bucket(bucket, missing):
                batches.append(batch.slice(0, missing))
                missing -= batches[-1].num_rows
            if not missing:
                break
        return batches

    async def _guarded(self, gate: asyncio.Semaphore, bucket: TableBucket) -> list[pa.RecordBatch]:
        async with gate:
            return await self._bucket(bucket, None)

    async def _bucket(self, bucket: TableBucket, limit: int | None) -> list[pa.RecordBatch]:
        """Read one bucket when it is its turn: completely, or again from the start."""
        async with self._gates.setdefault(bucket, asyncio.Semaphore(MAX_SCANS_PER_BUCKET)):
            return await self._scan_with_retries(bucket, limit)

    async def _scan_with_retries(self, bucket: TableBucket, limit: int | None) -> list[pa.RecordBatch]:
        time = asyncio.get_running_loop().time
        attempt = 1
        pause = FIRST_PAUSE_SECONDS
        full_until: float | None = None
        while True:
            try:
                connection = await self._cluster.leader(bucket, self._table.path)
                return await self._scan(connection, bucket, limit)
            except FlussError as error:
                if error.error_code == ErrorCode.PARTITION_NOT_EXISTS:
                    return []  # dropped since the partitions were listed
                if error.error_code not in RETRIED_CODES or self._cluster.closed:
                    raise
                if error.error_code == ErrorCode.TOO_MANY_SCANNERS:
                    full_until = full_until or time() + self._full_seconds
                    if time() + pause > full_until:
                        raise
                elif attempt == MAX_ATTEMPTS:
                    raise
                else:
                    attempt, full_until = attempt + 1, None
                    self._cluster.invalidate(bucket)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE_SECONDS)

    async def _scan(self, connection: RpcConnection, bucket: TableBucket, limit: int | None) -> list[pa.RecordBatch]:
        request = pb.ScanKvRequest(call_seq_id=0, batch_size_bytes=BATCH_BYTES)
        wanted = request.bucket_scan_req
        wanted.table_id, wanted.bucket_id = bucket.table_id, bucket.bucket_id
        if bucket.partition_id is not None:
            wanted.partition_id = bucket.partition_id
        if limit is not None and self._values.selection.keeps_all_rows:
            wanted.limit = limit
        decoded: list[asyncio.Future[pa.RecordBatch]] = []
        batches: list[pa.RecordBatch] = []
        count = 0
        scanner_id: bytes | None = None
        try:
            while True:
                answer, records = await connection.scan(request)
                if answer.error_code:
                    scanner_id = None
                    text = answer.error_message or f"{bucket} of {self._table.path} cannot be scanned"
                    raise FlussError(text, answer.error_code)
                scanner_id = answer.scanner_id if answer.has_more_results else None
                if records is not None:
                    decoded.append(asyncio.ensure_future(self._values.decode(bucket, records)))
                more = scanner_id is not None
                while decoded and (not more or limit is not None or len(decoded) >= MAX_BATCHES_BEING_DECODED):
                    batch = await decoded.pop(0)
                    batches.append(batch)
                    count += batch.num_rows
                if not more or (limit is not None and count >= limit):
                    return batches
                sequence = request.call_seq_id + 1
                request = pb.ScanKvRequest(scanner_id=scanner_id, call_seq_id=sequence, batch_size_bytes=BATCH_BYTES)
        finally:
            for task in decoded:
                task.cancel()
            if scanner_id is not None and not connection.closed:
                _close_scanner(connection, scanner_id)


def _close_scanner(connection: RpcConnection, scanner_id: bytes) -> None:
    """Tell the server to drop the scan; the answer does not matter."""
    future = connection.scan(pb.ScanKvRequest(scanner_id=scanner_id, close_scanner=True))
    future.add_done_callback(lambda done: done.cancelled() or done.exception())


async def _all_or_none(coroutines: Sequence[Any]) -> list[list[pa.RecordBatch]]:
    """Like gather, but the first error cancels the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, FlussError):
                await task
