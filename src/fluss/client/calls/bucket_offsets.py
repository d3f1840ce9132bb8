"""Offsets of many buckets at once, also across partitions. Runs on the I/O thread."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fluss.client.net.cluster import Cluster
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.values.basic import TableBucket

if TYPE_CHECKING:
    from fluss.client.net.rpc import RpcConnection

EARLIEST, LATEST, TIMESTAMP = 0, 1, 2
_FOLLOWER_NONE = -1
# The leader moved, does not know yet that it leads, or cannot be reached: ask for it again.
_MOVED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIME_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
        ErrorCode.LEADER_NOT_AVAILABLE_EXCEPTION,
        ErrorCode.FENCED_LEADER_EPOCH_EXCEPTION,
    }
)


async def list_offsets_at(
    cluster: Cluster, path: TablePath, buckets: Sequence[TableBucket], timestamp_ms: int
) -> dict[TableBucket, int]:
    """Offsets at or before the first row of each bucket with this commit time or a later one.

    For a time that is in the future by the leader's clock, which alone counts, it is the end of the log. The ends are
    requested first, so that no row can arrive between the two requests and be missed.
    """
    ends = await list_bucket_offsets(cluster, path, buckets, LATEST)
    return await list_bucket_offsets(cluster, path, buckets, TIMESTAMP, timestamp_ms, ends)


async def list_bucket_offsets(
    cluster: Cluster,
    path: TablePath,
    buckets: Sequence[TableBucket],
    kind: int,
    timestamp_ms: int | None = None,
    if_to_come: Mapping[TableBucket, int] | None = None,
) -> dict[TableBucket, int]:
    """One offset per bucket; asks all leaders at the same time, and retries where a leader has moved.

    `if_to_come` holds the offsets for times later than the leader's clock, which are errors without it.
    """
    found: dict[TableBucket, int] = {}
    missing = list(buckets)
    pauses = cluster.pauses()
    while True:
        trouble = await _ask(cluster, path, missing, kind, timestamp_ms, found, if_to_come or {})
        missing = [bucket for bucket in missing if bucket not in found]
        if not missing:
            return found
        if trouble is None:
            raise FlussError(f"the server's answer has no offset of {missing[0]}", ErrorCode.CORRUPT_MESSAGE)
        if trouble.error_code not in _MOVED or (pause := next(pauses, None)) is None:
            raise trouble
        for bucket in missing:
            cluster.invalidate(bucket)
        await asyncio.sleep(pause)


async def _ask(
    cluster: Cluster,
    path: TablePath,
    buckets: Sequence[TableBucket],
    kind: int,
    timestamp_ms: int | None,
    found: dict[TableBucket, int],
    if_to_come: Mapping[TableBucket, int],
) -> FlussError | None:
    groups: dict[tuple[int, int | None], tuple[RpcConnection, list[TableBucket]]] = {}
    for bucket in buckets:
        connection = await _leader(cluster, path, bucket)
        groups.setdefault((id(connection), bucket.partition_id), (connection, []))[1].append(bucket)
    calls = [
        connection.call(ApiKey.LIST_OFFSETS, _request(group, kind, timestamp_ms))
        for connection, group in groups.values()
    ]
    trouble: FlussError | None = None
    for (_, group), answer in zip(groups.values(), await asyncio.gather(*calls, return_exceptions=True), strict=True):
        if isinstance(answer, FlussError):
            trouble = answer
            continue
        if isinstance(answer, BaseException):
            raise answer
        by_id = {bucket.bucket_id: bucket for bucket in group}
        for entry in answer.buckets_resp:
            asked = by_id.get(entry.bucket_id)
            is_to_come = entry.error_code == ErrorCode.INVALID_TIMESTAMP_EXCEPTION
            if is_to_come and asked is not None and asked in if_to_come:
                found[asked] = if_to_come[asked]
            elif entry.HasField("error_code") and entry.error_code:
                trouble = FlussError(entry.error_message or "the offset cannot be listed", entry.error_code)
            elif entry.HasField("offset") and asked is not None:
                found[asked] = entry.offset
    return trouble


async def _leader(cluster: Cluster, path: TablePath, bucket: TableBucket) -> RpcConnection:
    """The leader of a bucket; waits for it as long as for an answer at most."""
    timeout_ms = cluster.config.request_timeout_ms
    try:
        return await asyncio.wait_for(cluster.leader(bucket, path), timeout_ms / 1000)
    except TimeoutError:
        text = f"{bucket} of {path}: its leader could not be reached within {timeout_ms} ms"
        raise FlussError(text, ErrorCode.REQUEST_TIME_OUT) from None


def _request(buckets: Sequence[TableBucket], kind: int, timestamp_ms: int | None) -> pb.ListOffsetsRequest:
    return pb.ListOffsetsRequest(
        follower_server_id=_FOLLOWER_NONE,
        offset_type=kind,
        table_id=buckets[0].table_id,
        partition_id=buckets[0].partition_id,
        bucket_id=[bucket.bucket_id for bucket in buckets],
        startTimestamp=timestamp_ms,
    )
