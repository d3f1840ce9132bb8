"""Write requests from batches, and results of batches from answers: no state, no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from fluss.client.send.bucket_queue import SEQUENCE_MASK, BucketQueue, WriteBatch
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb

ACKS = {"all": -1, "1": 1, "0": 0}
FIRST_RETRY_SECONDS = 0.01
LAST_RETRY_SECONDS = 1.0

# Partition id and bucket id.
Bucket = tuple[int | None, int]
Records = bytes | list[bytes | memoryview]


def write_request(
    table_id: int, batches: Sequence[WriteBatch], acks: int, timeout_ms: int
) -> tuple[pb.ProduceLogRequest | pb.PutKvRequest, list[Records]]:
    """The request for numbered batches of one table with the same target columns, and the record bytes of each."""
    targets = batches[0].encoder.target_columns
    message: pb.ProduceLogRequest | pb.PutKvRequest
    if targets is None:
        message = pb.ProduceLogRequest(acks=acks, table_id=table_id, timeout_ms=timeout_ms)
    else:
        message = pb.PutKvRequest(acks=acks, table_id=table_id, timeout_ms=timeout_ms, target_columns=targets)
    records: list[Records] = []
    for batch in batches:
        assert batch.bucket is not None
        message.buckets_req.add(partition_id=batch.bucket.partition_id, bucket_id=batch.bucket.bucket_id)
        if batch.writer_id < 0:
            records.append(batch.data)
        else:
            records.append(batch.encoder.numbered(batch.data, batch.writer_id, batch.sequence & SEQUENCE_MASK))
    return message, records


def retry_pause(attempts: int) -> float:
    """Seconds before the next attempt, doubling each time."""
    return float(min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(attempts - 1, 10)))


def errors_by_batch(
    batches: list[WriteBatch], answer: pb.ProduceLogResponse | pb.PutKvResponse
) -> list[FlussError | None]:
    """The result of every batch; a bucket missing in the answer has failed."""
    results: dict[Bucket, FlussError | None] = {}
    for entry in answer.buckets_resp:
        partition_id = entry.partition_id if entry.HasField("partition_id") else None
        error = FlussError(entry.error_message or "no reason given", entry.error_code) if entry.error_code else None
        results[partition_id, entry.bucket_id] = error
    errors = []
    for batch in batches:
        assert batch.bucket is not None
        key = batch.bucket[1:]
        missing = FlussError("the server's answer does not contain the bucket", ErrorCode.UNKNOWN_SERVER_ERROR)
        errors.append(results.get(key, missing))
    return errors


def pauses_by_bucket(answer: pb.ProduceLogResponse | pb.PutKvResponse, longest: float) -> dict[Bucket, float]:
    """Seconds for which a server under pressure wants no more rows, for each bucket concerned."""
    if not isinstance(answer, pb.PutKvResponse):
        return {}
    return {
        (entry.partition_id if entry.HasField("partition_id") else None, entry.bucket_id): min(
            entry.pressure**2 * longest, longest
        )
        for entry in answer.buckets_resp
        if entry.pressure > 0
    }


def in_doubt_error(queue: BucketQueue) -> FlussError:
    """The error for rows that may have been written and cannot be sent again."""
    return FlussError(
        f"rows for bucket {queue.bucket_id} of table {queue.path} may or may not have been written: the server no "
        "longer knows this writer, so sending them again could write them twice",
        ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION,
    )
