"""Named cursors: positions in the log of a table that the server stores for readers that cannot store them elsewhere.

The protocol has no call for cursors. It only has one that stores offsets of a producer under a name and never replaces
them. So a cursor consists of two such entries, which are written in turn; each is deleted just before it is written.
Whenever a program dies, one of the two is complete. The entry that expires later is the valid one. Coroutines run on
the I/O thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fluss.client.net.cluster import Cluster
from fluss.errors import ErrorCode, FlussError
from fluss.model.names import check_cursor_name
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.values.basic import TableBucket

LIFE_MS = 366 * 24 * 3600 * 1000
"""A cursor that is not moved for a year is deleted."""
ZOOKEEPER_GONE = "NoNodeException"
OFFSETS_FILE_GONE = "Offsets file not found"
READ_ATTEMPTS = 10
_CREATED = 0


class _Entry(NamedTuple):
    expires_at_ms: int
    offsets: dict[TableBucket, int]


class Cursor:
    """A named cursor of one table, for one program at a time: if two move it at once, one may get error 63."""

    def __init__(self, cluster: Cluster, table_id: int, name: str) -> None:
        self._cluster = cluster
        self._table_id = table_id
        check_cursor_name(name)
        self._name = name
        self._older: int | None = None
        """The entry that the next move writes; None until the entries were read."""

    async def load(self) -> dict[TableBucket, int] | None:
        """The next offset of each bucket; None if there is no such cursor."""
        entries = [await self._read(number) for number in range(2)]
        found = [(entry, number) for number, entry in enumerate(entries) if entry is not None]
        if not found:
            self._older = 0
            return None
        newest, number = max(found, key=lambda pair: (pair[0].expires_at_ms, sum(pair[0].offsets.values())))
        self._older = 1 - number
        return newest.offsets

    async def move(self, offsets: Mapping[TableBucket, int]) -> None:
        """Store new offsets. Requires permission to write the table, because the server takes them for a producer's."""
        for bucket, offset in offsets.items():
            if not isinstance(bucket, TableBucket) or bucket.table_id != self._table_id:
                raise FlussError(f"cursor buckets must be TableBuckets of table id {self._table_id}, got {bucket!r}")
            if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
                raise FlussError(f"the offset of {bucket} must be an int >= 0, got {offset!r}")
        if self._older is None:
            await self.load()
        number = self._older or 0
        await self._delete(number)
        request = pb.RegisterProducerOffsetsRequest(producer_id=self._id(number), ttl_ms=LIFE_MS)
        table = request.table_offsets.add(table_id=self._table_id)
        for bucket, offset in offsets.items():
            table.bucket_offsets.add(
                partition_id=bucket.partition_id, bucket_id=bucket.bucket_id, log_end_offset=offset
            )
        answer = await self._cluster.call_coordinator(ApiKey.REGISTER_PRODUCER_OFFSETS, request)
        if answer.result != _CREATED:
            self._older = None
            raise FlussError(
                f"cursor {self._name!r} was moved by another program at the same time, and has its offsets or the "
                "previous ones: give each reader its own cursor, or move it again",
                ErrorCode.INVALID_PRODUCER_ID_EXCEPTION,
            )
        self._older = 1 - number

    async def drop(self) -> None:
        """Delete the cursor. Does not raise if it does not exist."""
        await self.load()
        older = self._older or 0
        for number in (older, 1 - older):  # the current one last
            await self._delete(number)
        self._older = None

    async def _read(self, number: int) -> _Entry | None:
        request = pb.GetProducerOffsetsRequest(producer_id=self._id(number))
        for attempt in range(1, READ_ATTEMPTS + 1):
            try:
                answer = await self._cluster.call_coordinator(ApiKey.GET_PRODUCER_OFFSETS, request, idempotent=True)
                break
            except FlussError as error:
                # Apache Fluss looks up the file of the offsets first and opens it later. Another program may have
                # replaced the file in between.
                if attempt == READ_ATTEMPTS or OFFSETS_FILE_GONE not in error.message:
                    raise
        if not answer.HasField("producer_id"):
            return None
        offsets = {}
        for table in answer.table_offsets:
            for each in table.bucket_offsets:
                partition_id = each.partition_id if each.HasField("partition_id") else None
                bucket = TableBucket.with_partition(table.table_id, partition_id, each.bucket_id)
                offsets[bucket] = each.log_end_offset
        return _Entry(answer.expiration_time, offsets)

    async def _delete(self, number: int) -> None:
        request = pb.DeleteProducerOffsetsRequest(producer_id=self._id(number))
        try:
            await self._cluster.call_coordinator(ApiKey.DELETE_PRODUCER_OFFSETS, request)
        except FlussError as error:
            # Apache Fluss returns this error, which has no code of its own, if another program deleted the entry first.
            if error.error_code != ErrorCode.UNKNOWN_SERVER_ERROR or ZOOKEEPER_GONE not in error.message:
                raise

    def _id(self, number: int) -> str:
        return f"cursor-{self._table_id}-{self._name}-{number}"
