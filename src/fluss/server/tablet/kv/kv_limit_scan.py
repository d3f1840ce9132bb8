"""LIMIT_SCAN of primary-key tables: the first rows of a bucket in key order, as one value batch."""

from __future__ import annotations

from fluss.codec.batches.value_batch import encode_value_batch
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.server_payloads import limit_scan_response_pieces
from fluss.server.runtime.handlers import Reply, RequestContext
from fluss.server.tablet.kv.kv_reads import MAX_ANSWER_BYTES, KvReads, RowCursor, too_large


async def first_rows(context: RequestContext, reads: KvReads, bucket: TableBucket, limit: int) -> Reply:
    """The answer with the first `limit` rows; FlussError if the bucket cannot be read or the answer is too large."""
    local, store = await reads.whole_store(bucket)
    cursor = RowCursor(local, store)
    values: list[bytes] = []
    try:
        async for step in cursor.steps(limit, MAX_ANSWER_BYTES):
            values += step
            context.collect(sum(map(len, step)))
            await context.room()
        if cursor.has_more and len(values) < limit:
            raise too_large(f"the first {limit} rows")
    finally:
        cursor.close()
    return limit_scan_response_pieces(pb.LimitScanResponse(is_log_table=False), [encode_value_batch(values)])
