"""Row counts of buckets, as reported by their leaders. Runs on the I/O thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fluss.client.net.cluster import Cluster
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.values.basic import TableBucket

if TYPE_CHECKING:
    from fluss.client.net.rpc import RpcConnection


async def count_bucket_rows(
    cluster: Cluster, path: TablePath, buckets: Sequence[TableBucket]
) -> dict[TableBucket, int] | None:
    """Readable rows of a log table, or keys of a primary-key table; None if a server cannot tell.

    It cannot for tables whose changelog has no old images. Older servers never can.
    """
    groups: dict[int, tuple[RpcConnection, list[TableBucket]]] = {}
    for bucket in buckets:
        connection = await cluster.leader(bucket, path)
        if not connection.supports(ApiKey.GET_TABLE_STATS):
            return None
        groups.setdefault(id(connection), (connection, []))[1].append(bucket)
    calls = [connection.call(ApiKey.GET_TABLE_STATS, _request(group)) for connection, group in groups.values()]
    found: dict[TableBucket, int] = {}
    for (_, group), answer in zip(groups.values(), await asyncio.gather(*calls), strict=True):
        by_key = {(bucket.partition_id, bucket.bucket_id): bucket for bucket in group}
        for entry in answer.buckets_resp:
            if entry.HasField("error_code") and entry.error_code:
                if entry.error_code == ErrorCode.INVALID_TABLE_EXCEPTION:
                    return None
                raise FlussError(entry.error_message or f"rows of {path} cannot be counted", entry.error_code)
            if not entry.HasField("row_count") or entry.row_count < 0:
                return None
            found[by_key[entry.partition_id if entry.HasField("partition_id") else None, entry.bucket_id]] = (
                entry.row_count
            )
    return found if len(found) == len(buckets) else None


def _request(buckets: Sequence[TableBucket]) -> pb.GetTableStatsRequest:
    request = pb.GetTableStatsRequest(table_id=buckets[0].table_id)
    for bucket in buckets:
        request.buckets_req.add(partition_id=bucket.partition_id, bucket_id=bucket.bucket_id)
    return request
