"""Answers with one result per bucket: small fields as a message, rows as bytes beside it.

Used by LOOKUP and PREFIX_LOOKUP, whose answers have the same shape: field 1 repeats for each bucket, and every error
belongs to a bucket. The handlers encode rows themselves, without message objects: an object per row would cost more
than finding the row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from fluss.errors import FlussError
from fluss.model.paths import TableBucket
from fluss.protocol.server_payloads import BytesLike, encode_varint
from fluss.protocol.wire_fields import LENGTH_DELIMITED
from fluss.server.runtime.handlers import Reply
from fluss.server.runtime.time_slices import TimeSlices
from fluss.server.tablet.buckets.requested_buckets import bucket_of
from fluss.server.tablet.kv.kv_reads import MAX_ANSWER_BYTES, KvReads

_BUCKET_TAG = bytes((1 << 3 | LENGTH_DELIMITED,))

RowsOfBucket = Callable[[TableBucket, Any, int], Awaitable[bytes]]
"""Returns the encoded rows of a bucket for its part of the request; the last argument is the maximum in bytes."""


async def answer_by_bucket(
    reads: KvReads,
    table_id: int,
    items: Iterable[Any],
    new_result: Callable[..., Any],
    rows: RowsOfBucket,
    check: Callable[[], None],
) -> Reply:
    """Call `rows` for each bucket of a request, in order; `new_result` creates the message with the small fields.

    `check` is called first and raises errors that apply to all buckets.
    """
    reads.registry.follow_catalog()
    refused: FlussError | None = None
    try:
        check()
    except FlussError as error:
        refused = error
    asked = [(bucket_of(table_id, item), item) for item in items]
    if refused is None:
        await reads.settled([bucket for bucket, _ in asked])
    answer: list[BytesLike] = []
    size = 0
    turns = TimeSlices()
    for bucket, item in asked:
        await turns.yield_if_over()
        result = new_result(bucket_id=bucket.bucket_id)
        if bucket.partition_id is not None:
            result.partition_id = bucket.partition_id
        payload = b""
        try:
            if refused is not None:
                raise refused
            payload = await rows(bucket, item, MAX_ANSWER_BYTES - size)
        except FlussError as error:
            result.error_code, result.error_message = error.error_code, error.message
        size += len(payload)
        fields = result.SerializeToString()
        answer += [_BUCKET_TAG + encode_varint(len(fields) + len(payload)) + fields, payload]
    return answer
