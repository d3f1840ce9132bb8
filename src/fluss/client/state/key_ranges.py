"""Ranges of keys of about equal size in primary-key buckets, if the server can provide them.

Only this project's server can do so, and only it can scan ranges (docs/formats/protocol.md). Coroutines run on the I/O
thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow.compute as pc

from fluss.client.net.cluster import Cluster
from fluss.client.net.metadata import ClientTable
from fluss.client.net.rpc import RpcConnection
from fluss.errors import FlussError
from fluss.protocol import kv_range_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.values.basic import TableBucket

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class KeyRange(NamedTuple):
    """Stored keys from the first one up to the end, which is excluded; they are ordered as bytes."""

    first_key: bytes = b""
    end_key: bytes | None = None

    def contains(self, keys: pa.Array) -> pa.Array:
        """The mask of the keys of a binary array that are inside, without nulls."""
        inside = pc.greater_equal(keys, self.first_key)
        return inside if self.end_key is None else pc.and_(inside, pc.less(keys, self.end_key))


ALL_KEYS = KeyRange()


class BucketPieces(NamedTuple):
    """The keys at which a bucket can be split (ascending), and its changelog offset at that time."""

    offset: int
    cuts: Sequence[bytes]

    def ranges(self, max_pieces: int | None = None) -> list[KeyRange]:
        """Ranges that contain all keys together.

        >>> BucketPieces(0, [b"d", b"k", b"q"]).ranges(2)
        [KeyRange(first_key=b'', end_key=b'k'), KeyRange(first_key=b'k', end_key=None)]
        """
        finest = len(self.cuts) + 1
        pieces = finest if max_pieces is None else min(max_pieces, finest)
        chosen = [self.cuts[finest * number // pieces - 1] for number in range(1, pieces)]
        return [KeyRange(*bounds) for bounds in zip([b"", *chosen], [*chosen, None], strict=True)]


async def split_buckets(
    cluster: Cluster, table: ClientTable, buckets: Iterable[TableBucket], piece_bytes: int, piece_rows: int | None
) -> dict[TableBucket, BucketPieces]:
    """Buckets whose server cannot answer, or not now, are omitted."""
    asked = list(buckets)
    leaders = await _unless_refused(cluster.leader(bucket, table.path) for bucket in asked)
    groups: dict[int, tuple[RpcConnection, list[TableBucket]]] = {}
    for bucket, connection in zip(asked, leaders, strict=True):
        if connection is not None and connection.supports(ApiKey.SPLIT_KV):
            groups.setdefault(id(connection), (connection, []))[1].append(bucket)
    calls = []
    for connection, group in groups.values():
        request = pb.SplitKvRequest(table_id=table.table_id, piece_bytes=piece_bytes, piece_rows=piece_rows)
        for bucket in group:
            request.buckets_req.add(partition_id=bucket.partition_id, bucket_id=bucket.bucket_id)
        calls.append(connection.call(ApiKey.SPLIT_KV, request))
    found = {}
    for answer in await _unless_refused(calls):
        for each in () if answer is None else answer.buckets_resp:
            if not each.error_code:
                partition_id = each.partition_id if each.HasField("partition_id") else None
                bucket = TableBucket.with_partition(table.table_id, partition_id, each.bucket_id)
                found[bucket] = BucketPieces(each.log_offset, list(each.first_keys))
    return found


async def _unless_refused(calls: Iterable[Awaitable[T]]) -> list[T | None]:
    """All answers; None for an error, which the scan of the whole bucket will meet again unless it was temporary."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, FlussError):
            raise answer
    return [None if isinstance(answer, BaseException) else answer for answer in answers]
