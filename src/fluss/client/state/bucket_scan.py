"""One scan of one bucket, or of a range of its keys, streamed: its rows as of its start, in key order.

States: new -> open (the server holds a view, its log offset is known) -> done, or failed. A failed scan has ended:
`bucket_state.py` decides about the rows that were delivered already.

Two threads work on it. The user's thread calls `open` and iterates. A task on the I/O thread requests the next answer
while earlier ones are decoded and consumed; at most `MAX_ANSWERS_AHEAD` answers wait between the two.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from fluss.client.decode.decode_pool import decode_pool
from fluss.client.keys.stored_values import RowReader
from fluss.client.net.metadata import ClientTable
from fluss.client.net.rpc import RpcConnection
from fluss.client.net.session import Session
from fluss.client.state.key_ranges import ALL_KEYS, KeyRange
from fluss.codec.batches.log_batch import CorruptBatch
from fluss.codec.batches.value_batch import decode_value_batch
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import kv_range_api_pb2 as range_pb
from fluss.protocol.api_keys import ApiKey
from fluss.protocol.client_payloads import ScanAnswer

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ANSWERS_AHEAD = 3
BATCH_BYTES = 4 * 1024 * 1024

_Answers = asyncio.Queue["asyncio.Future[pa.RecordBatch] | FlussError | None"]


class BucketScan:
    """Batches have all columns of the table; those that are not `wanted`, by position, may be all nulls.

    Close it if it is not read to its end.
    """

    def __init__(
        self,
        session: Session,
        table: ClientTable,
        bucket: TableBucket,
        limit: int | None = None,
        wanted: Collection[int] | None = None,
        key_range: KeyRange = ALL_KEYS,
    ) -> None:
        self._session = session
        self._table = table
        self._bucket = bucket
        self._limit = limit
        self._wanted = wanted
        self._key_range = key_range
        self._rows = RowReader(session, table)
        self._answers: _Answers | None = None
        self._producer: asyncio.Task[None] | None = None

    def open(self) -> int:
        """Begin; return the log offset of the rows: changes from it on are not in them."""
        offset: int = self._session.run(self._open())
        return offset

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            while (batch := self._session.run(self._next())) is not None:
                yield batch
        finally:
            self.close()

    def close(self) -> None:
        """Stop, and let the server drop the scan. May be called twice."""
        if self._producer is not None:
            with contextlib.suppress(FlussError):  # the connection is closed, and the scan with it
                self._session.io.call_soon(self._producer.cancel)

    # ---- on the I/O thread ----

    async def _open(self) -> int:
        self._answers = asyncio.Queue(MAX_ANSWERS_AHEAD)
        connection = await self._session.cluster.leader(self._bucket, self._table.path)
        if not connection.supports(ApiKey.SCAN_KV):
            raise FlussError("the server cannot scan primary-key tables", ErrorCode.UNSUPPORTED_VERSION)
        request = self._request(connection)
        wanted = request.bucket_scan_req
        wanted.table_id, wanted.bucket_id = self._bucket.table_id, self._bucket.bucket_id
        if self._bucket.partition_id is not None:
            wanted.partition_id = self._bucket.partition_id
        if self._limit is not None:
            wanted.limit = self._limit
        answer = await self._ask(connection, request)
        self._producer = asyncio.get_running_loop().create_task(self._produce(connection, answer))
        return int(answer.message.log_offset)

    def _request(self, connection: RpcConnection) -> pb.ScanKvRequest | range_pb.ScanKvRangeRequest:
        if self._key_range == ALL_KEYS:
            return pb.ScanKvRequest(call_seq_id=0, batch_size_bytes=BATCH_BYTES)
        connection.version(ApiKey.SCAN_KV_RANGE)  # raises if the server does not serve it
        first_key, end_key = self._key_range
        return range_pb.ScanKvRangeRequest(batch_size_bytes=BATCH_BYTES, first_key=first_key, end_key=end_key)

    async def _produce(self, connection: RpcConnection, answer: ScanAnswer) -> None:
        assert self._answers is not None
        scanner_id = _scanner_of(answer)
        sequence = 0
        try:
            while True:
                if answer.records is not None:
                    await self._answers.put(asyncio.ensure_future(self._decode(answer.records)))
                if scanner_id is None:
                    await self._answers.put(None)
                    return
                sequence += 1
                request = pb.ScanKvRequest(scanner_id=scanner_id, call_seq_id=sequence, batch_size_bytes=BATCH_BYTES)
                answer = await self._ask(connection, request)
                scanner_id = _scanner_of(answer)
        except FlussError as error:
            scanner_id = None  # the server has dropped it
            await self._answers.put(error)
        finally:
            if scanner_id is not None and not connection.closed:
                end = pb.ScanKvRequest(scanner_id=scanner_id, close_scanner=True)
                connection.scan(end).add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _ask(
        self, connection: RpcConnection, request: pb.ScanKvRequest | range_pb.ScanKvRangeRequest
    ) -> ScanAnswer:
        answer = await connection.scan(request)
        if answer.message.error_code:
            text = answer.message.error_message or f"{self._bucket} of {self._table.path} cannot be scanned"
            raise FlussError(text, answer.message.error_code)
        return answer

    async def _decode(self, records: memoryview) -> pa.RecordBatch:
        loop, pool = asyncio.get_running_loop(), decode_pool()
        try:
            values = await loop.run_in_executor(pool, decode_value_batch, records)
        except CorruptBatch as error:
            text = f"{self._bucket} of {self._table.path}: {error}"
            raise FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION) from None
        unknown = await loop.run_in_executor(pool, self._rows.unknown_schemas_of, values)
        if unknown:
            await self._rows.learn_on_io(unknown)
        return await loop.run_in_executor(pool, self._rows.batch, values, self._wanted)

    async def _next(self) -> pa.RecordBatch | None:
        assert self._answers is not None, "open() must be called first"
        waiting = await self._answers.get()
        if isinstance(waiting, FlussError):
            raise waiting
        return None if waiting is None else await waiting


def _scanner_of(answer: ScanAnswer) -> bytes | None:
    """The scanner id for the next request; None after the last answer."""
    return answer.message.scanner_id if answer.message.has_more_results else None
