"""The average size of stored rows of buckets, estimated from the next batch of each.

One small fetch per tablet: a server answers with whole batches, at least one, whose headers have the number of rows and
bytes; for rows in remote storage it names segments, which have them too. Nothing is decoded. Coroutines
here run on the client's I/O thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fluss.client.net.cluster import Cluster
from fluss.codec.batches.log_batch import MIN_HEADER_BYTES, BatchHeader, CorruptBatch, iter_batches, read_header
from fluss.errors import FlussError
from fluss.model.paths import TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.client_payloads import FetchAnswer
from fluss.values.basic import TableBucket

if TYPE_CHECKING:
    from fluss.client.net.rpc import RpcConnection

MAX_SAMPLE_BYTES_PER_BUCKET = 64 * 1024
MAX_SAMPLE_BYTES_PER_TABLET = 8 * 1024 * 1024
_CLIENT = -1


async def sample_row_bytes(
    cluster: Cluster, path: TablePath, positions: Mapping[TableBucket, int]
) -> dict[TableBucket, float]:
    """Bytes per row at these offsets. Buckets whose server does not answer now are omitted."""
    groups: dict[int, tuple[RpcConnection, list[TableBucket]]] = {}
    for bucket in positions:
        connection = await cluster.leader(bucket, path)
        groups.setdefault(id(connection), (connection, []))[1].append(bucket)
    calls = [connection.fetch(_request(group, positions)) for connection, group in groups.values()]
    found: dict[TableBucket, float] = {}
    for (_, group), answer in zip(groups.values(), await asyncio.gather(*calls, return_exceptions=True), strict=True):
        if isinstance(answer, FetchAnswer):
            _take_sizes(group, answer, found)
        elif not isinstance(answer, FlussError):
            raise answer
    return found


def _request(buckets: list[TableBucket], positions: Mapping[TableBucket, int]) -> pb.FetchLogRequest:
    request = pb.FetchLogRequest(
        follower_server_id=_CLIENT, max_bytes=MAX_SAMPLE_BYTES_PER_TABLET, min_bytes=0, max_wait_ms=0
    )
    table = request.tables_req.add(table_id=buckets[0].table_id, projection_pushdown_enabled=False)
    for bucket in buckets:
        table.buckets_req.add(
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket_id,
            fetch_offset=positions[bucket],
            max_fetch_bytes=MAX_SAMPLE_BYTES_PER_BUCKET,
        )
    return request


def _take_sizes(asked: list[TableBucket], answer: FetchAnswer, found: dict[TableBucket, float]) -> None:
    by_key = {(bucket.partition_id, bucket.bucket_id): bucket for bucket in asked}
    entries = (entry for table in answer.message.tables_resp for entry in table.buckets_resp)
    for entry, records in zip(entries, answer.records, strict=True):
        bucket = by_key.get((entry.partition_id if entry.HasField("partition_id") else None, entry.bucket_id))
        if bucket is None or (entry.HasField("error_code") and entry.error_code):
            continue
        if entry.HasField("remote_log_fetch_info"):
            segments = entry.remote_log_fetch_info.remote_log_segments
            rows = sum(each.remote_log_end_offset - each.remote_log_start_offset for each in segments)
            size = sum(each.segment_size_in_bytes for each in segments)
        else:
            headers = _headers(records)
            rows = sum(header.record_count for header in headers)
            size = sum(header.size for header in headers)
        if rows > 0:
            found[bucket] = size / rows


def _headers(records: memoryview | None) -> list[BatchHeader]:
    """The headers of all whole batches; of a single incomplete batch the header is enough."""
    if records is None:
        return []
    headers: list[BatchHeader] = []
    with contextlib.suppress(CorruptBatch):  # a read of it reports what is wrong
        headers += (header for _, header in iter_batches(records))
        if not headers and len(records) >= MIN_HEADER_BYTES:
            headers.append(read_header(records))
    return headers
