"""The snapshots with which a read of a primary-key table begins, and the lease that keeps them meanwhile.

All coroutines here run on the I/O thread. The server deletes a snapshot when newer ones exist, unless it is leased. If
a server has no leases, or refuses one, the read continues without it: if files vanish, the reader replans.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fluss.client.calls.admin import AdminCalls
from fluss.client.net.cluster import Cluster
from fluss.client.net.metadata import ClientTable
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.values.basic import TableBucket

logger = logging.getLogger(__name__)

# How often a read is replanned when its snapshots vanish or cannot be read; then it does not use any.
MAX_PLANS = 3
PLAN_ANEW_CODES = frozenset(
    {
        ErrorCode.KV_SNAPSHOT_NOT_EXIST,
        ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION,
        ErrorCode.STORAGE_EXCEPTION,
        ErrorCode.CORRUPT_RECORD_EXCEPTION,
    }
)
LEASE_SECONDS = 1800.0
RENEW_AFTER_SECONDS = 600.0


class KvSnapshot(NamedTuple):
    """A snapshot of a bucket: its rows are those of the changelog before `log_offset`."""

    snapshot_id: int
    log_offset: int


async def latest_snapshots(
    cluster: Cluster, table: ClientTable, buckets: Iterable[TableBucket]
) -> dict[TableBucket, KvSnapshot]:
    """The newest snapshot of each bucket that has one."""
    wanted = set(buckets)
    if not (await cluster.coordinator()).supports(ApiKey.GET_LATEST_KV_SNAPSHOTS):
        return {}
    names: dict[int | None, str | None] = {None: None}
    if table.is_partitioned:
        infos = await AdminCalls(cluster).list_partition_infos(table.path, None)
        used = {bucket.partition_id for bucket in wanted}
        names = {info.partition_id: info.partition_name for info in infos if info.partition_id in used}
    found: dict[TableBucket, KvSnapshot] = {}
    for partition_id, name in names.items():
        for bucket_id, snapshot in (await _latest(cluster, table, name)).items():
            bucket = TableBucket.with_partition(table.table_id, partition_id, bucket_id)
            if bucket in wanted:
                found[bucket] = snapshot
    return found


async def _latest(cluster: Cluster, table: ClientTable, partition_name: str | None) -> dict[int, KvSnapshot]:
    request = pb.GetLatestKvSnapshotsRequest(partition_name=partition_name)
    request.table_path.database_name = table.path.database_name
    request.table_path.table_name = table.path.table_name
    try:
        answer = await cluster.call_coordinator(ApiKey.GET_LATEST_KV_SNAPSHOTS, request, idempotent=True)
    except FlussError as error:
        if error.error_code == ErrorCode.PARTITION_NOT_EXISTS:
            return {}  # dropped since the partitions were listed
        raise
    if answer.table_id != table.table_id:
        return {}  # the table was recreated; reading its buckets reports that
    return {
        item.bucket_id: KvSnapshot(item.snapshot_id, item.log_offset)
        for item in answer.latest_snapshots
        if item.HasField("snapshot_id")
    }


class SnapshotLease:
    """Keeps snapshots from `acquire` to `drop`; `renew` extends the lease."""

    def __init__(self, cluster: Cluster, snapshots: Mapping[TableBucket, KvSnapshot]) -> None:
        self._cluster = cluster
        self._snapshots = snapshots
        self._id = f"read-{uuid.uuid4()}"
        self._acquired_at: float | None = None

    async def acquire(self) -> None:
        """Take the lease; FlussError 41 if a snapshot was already deleted."""
        if not (await self._cluster.coordinator()).supports(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE):
            return
        request = pb.AcquireKvSnapshotLeaseRequest(lease_id=self._id, lease_duration_ms=int(LEASE_SECONDS * 1000))
        tables: dict[int, pb.PbKvSnapshotLeaseForTable] = {}
        for bucket, snapshot in self._snapshots.items():
            if bucket.table_id not in tables:
                tables[bucket.table_id] = request.snapshots_to_lease.add(table_id=bucket.table_id)
            tables[bucket.table_id].bucket_snapshots.add(
                partition_id=bucket.partition_id, bucket_id=bucket.bucket_id, snapshot_id=snapshot.snapshot_id
            )
        try:
            answer = await self._cluster.call_coordinator(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, request)
        except FlussError as error:
            logger.info("snapshots are read without a lease: %s", error)
            return
        self._acquired_at = time.monotonic()
        if answer.unavailable_snapshots:
            raise FlussError("a snapshot was superseded before it was leased", ErrorCode.KV_SNAPSHOT_NOT_EXIST)

    async def renew(self) -> None:
        """Extend the lease; called periodically."""
        if self._acquired_at is not None and time.monotonic() - self._acquired_at > RENEW_AFTER_SECONDS:
            await self.acquire()

    async def drop(self) -> None:
        """End the lease; if the request does not arrive, it expires."""
        if self._acquired_at is None or self._cluster.closed:
            return
        with contextlib.suppress(FlussError):
            self._acquired_at = None
            request = pb.DropKvSnapshotLeaseRequest(lease_id=self._id)
            await self._cluster.call_coordinator(ApiKey.DROP_KV_SNAPSHOT_LEASE, request)
