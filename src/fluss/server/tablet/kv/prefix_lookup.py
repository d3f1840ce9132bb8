"""PREFIX_LOOKUP: all rows whose key begins with given bytes, in key order.

The server only compares bytes; the client ensures that a prefix of columns is a prefix of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.server_payloads import encode_varint
from fluss.protocol.wire_fields import LENGTH_DELIMITED
from fluss.server.runtime.handlers import Reply, RequestContext
from fluss.server.runtime.time_slices import TimeSlices
from fluss.server.tablet.kv.bucket_answers import answer_by_bucket
from fluss.server.tablet.kv.kv_reads import KvReads, RowCursor, end_of_prefix, too_large

_LIST_TAG = bytes((5 << 3 | LENGTH_DELIMITED,))
_VALUE_TAG = bytes((1 << 3 | LENGTH_DELIMITED,))
_CACHED_LENGTHS = 4096


@lru_cache(_CACHED_LENGTHS)
def _value_prefix(length: int) -> bytes:
    return _VALUE_TAG + encode_varint(length)


class PrefixLookupApi:
    """Handler of PREFIX_LOOKUP."""

    def __init__(self, reads: KvReads) -> None:
        self._reads = reads

    async def prefix_lookup(self, context: RequestContext, request: pb.PrefixLookupRequest) -> Reply:
        """Look up the prefixes of each bucket; an error is the result of its bucket."""

        async def rows(bucket: TableBucket, item: pb.PbPrefixLookupReqForBucket, max_bytes: int) -> bytes:
            return await self._lists(context, bucket, item.keys, max_bytes)

        return await answer_by_bucket(
            self._reads,
            request.table_id,
            request.buckets_req,
            pb.PbPrefixLookupRespForBucket,
            rows,
            lambda: self._reads.check_table(context, request.table_id),
        )

    async def _lists(
        self, context: RequestContext, bucket: TableBucket, prefixes: Sequence[bytes], max_bytes: int
    ) -> bytes:
        pieces: list[bytes] = []
        size = 0
        turns = TimeSlices()
        for prefix in prefixes:
            await turns.yield_if_over()
            content = await self._list(context, bucket, prefix, max_bytes - size)
            head = _LIST_TAG + encode_varint(len(content))
            pieces += (head, content)
            size += len(head) + len(content)
        return b"".join(pieces)

    async def _list(self, context: RequestContext, bucket: TableBucket, prefix: bytes, max_bytes: int) -> bytes:
        """Return the values of all keys that begin with a prefix, encoded for the answer."""
        local, store = self._reads.store(bucket)
        cursor = RowCursor(local, store, prefix, end_of_prefix(prefix))
        pieces: list[bytes] = []
        try:
            async for values in cursor.steps(None, max_bytes):
                context.collect(sum(map(len, values)))
                await context.room()
                for value in values:
                    pieces.append(_value_prefix(len(value)))
                    pieces.append(value)
            if cursor.has_more:
                raise too_large("the rows of these prefixes")
        finally:
            cursor.close()
        return b"".join(pieces)
