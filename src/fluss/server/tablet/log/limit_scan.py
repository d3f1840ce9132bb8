"""LIMIT_SCAN for log tables: the last rows of a bucket, as whole batches; the client cuts to the exact number.

For primary-key tables it returns the first rows by key: see `kv.kv_limit_scan`.

The range may span segments (Apache Fluss stops at the end of one and may return fewer rows than requested). Only local
data is read: rows that are only in remote storage are left out. All bytes are slices of mapped files.
"""

from __future__ import annotations

from collections.abc import Awaitable

from fluss.codec.batches.log_batch import iter_batches
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.server_payloads import BytesLike, limit_scan_response_pieces
from fluss.server.runtime.handlers import Reply, RequestContext
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.reserved_offsets import offset_of_last_rows
from fluss.server.tablet.buckets.access import TableAccess
from fluss.server.tablet.buckets.registry import BucketRegistry
from fluss.server.tablet.kv.kv_limit_scan import first_rows
from fluss.server.tablet.kv.kv_reads import MAX_ANSWER_BYTES, KvReads


def tail_pieces(log: BucketLog, limit: int) -> list[BytesLike]:
    """The bytes of all batches that hold the last `limit` rows."""
    pieces: list[BytesLike] = []
    size = 0
    end = log.high_watermark
    offset = max(log.local_start_offset, offset_of_last_rows(log.lost, end, limit))
    while offset < end:
        segment = log.segment_of(offset)
        found = log.read(offset, MAX_ANSWER_BYTES - size)
        size += len(found.view)
        if found.position + len(found.view) < segment.committed_size:
            if size < MAX_ANSWER_BYTES:
                *_, (_, last) = iter_batches(found.view)
                log.read(last.next_offset, MAX_ANSWER_BYTES)  # raises an error that names the damage
                text = f"cannot read {segment.log_path} at offset {last.next_offset}; restore the file from a copy"
                raise FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION)
            raise FlussError(
                f"the last {limit} rows have more than {MAX_ANSWER_BYTES} bytes; request fewer, or scan the log",
                ErrorCode.RECORD_TOO_LARGE_EXCEPTION,
            )
        pieces.append(found.view)
        offset = segment.end_offset
    return pieces


class LimitScanApi:
    """Handler of LIMIT_SCAN."""

    def __init__(self, registry: BucketRegistry, access: TableAccess) -> None:
        self._registry = registry
        self._access = access
        self._kv_reads = KvReads(registry, access)

    def limit_scan(self, context: RequestContext, request: pb.LimitScanRequest) -> Reply | Awaitable[Reply]:
        """Return the last rows of a log, or the first rows of a primary-key bucket; errors are part of the response."""
        self._registry.follow_catalog()
        bucket = TableBucket(
            request.table_id, request.partition_id if request.HasField("partition_id") else None, request.bucket_id
        )

        try:
            self._check(context, request)
        except FlussError as error:
            return pb.LimitScanResponse(error_code=error.error_code, error_message=error.message)
        entry = self._registry.table(request.table_id)
        if entry is not None and entry.has_primary_key:
            return self._scan_kv(context, request, bucket)

        def answer() -> Reply:
            try:
                log, _ = self._registry.find(bucket).opened()
                pieces = tail_pieces(log, request.limit)
            except FlussError as error:
                return pb.LimitScanResponse(error_code=error.error_code, error_message=error.message)
            return limit_scan_response_pieces(pb.LimitScanResponse(is_log_table=True), pieces)

        return self._registry.when_open([bucket], answer)

    async def _scan_kv(self, context: RequestContext, request: pb.LimitScanRequest, bucket: TableBucket) -> Reply:
        try:
            await self._kv_reads.settled([bucket])
            return await first_rows(context, self._kv_reads, bucket, request.limit)
        except FlussError as error:
            return pb.LimitScanResponse(error_code=error.error_code, error_message=error.message)

    def _check(self, context: RequestContext, request: pb.LimitScanRequest) -> None:
        entry = self._registry.table(request.table_id)
        if entry is None:
            return  # Finding the bucket raises the error.
        error = self._access.error(context, entry.path)
        if error is not None:
            raise error
        if request.limit <= 0:
            raise FlussError(f"limit must be greater than zero, got {request.limit}", ErrorCode.INVALID_SCAN_REQUEST)
