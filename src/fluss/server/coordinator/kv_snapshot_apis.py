"""Leases on kv snapshots, and the coordinator's lists of snapshots and remote manifests.

A lease keeps snapshots for a reader: until it expires, the tablets retire none of its snapshots. It is stored first,
and the snapshots are checked afterwards. So if a tablet retires a snapshot before the lease is stored, the snapshot is
reported as unavailable; if it tries to do so afterwards, it sees the lease.

Leases belong to their user: each logged-in user has separate ids, so no user can touch the lease of another.
"""

from __future__ import annotations

from collections.abc import Iterable

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.apis.environment import Environment
from fluss.server.apis.snapshot_apis import check_primary_key
from fluss.server.catalog import TableEntry
from fluss.server.catalog.store import partition_missing
from fluss.server.runtime.handlers import ANONYMOUS_NAME, RequestContext
from fluss.server.storage.kv_snapshot import lease_from_json, lease_to_json

# A lease can be extended; without a limit, one from a clock that was ahead would keep its snapshots for years.
LONGEST_LEASE_MS = 30 * 86_400_000


class KvSnapshotApis:
    """Handlers for ACQUIRE, RELEASE and DROP of leases, LIST_KV_SNAPSHOTS and LIST_REMOTE_LOG_MANIFESTS."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._leases = environment.catalog.store.kv_snapshot_leases
        self._snapshots = environment.catalog.store.kv_snapshots

    def acquire_kv_snapshot_lease(
        self, context: RequestContext, request: pb.AcquireKvSnapshotLeaseRequest
    ) -> pb.AcquireKvSnapshotLeaseResponse:
        """Create or extend a lease; for buckets that it already has, the snapshots are replaced."""
        self._environment.catalog.refresh()
        lease_id = _owned(context, request.lease_id)
        leased = self._lease(lease_id)
        wanted: dict[TableBucket, int] = {}
        for table in request.snapshots_to_lease:
            entry = self._environment.catalog.table_by_id(table.table_id)
            if entry is None:
                raise FlussError(
                    f"table id {table.table_id} does not exist; it may have been dropped: refresh the metadata",
                    ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
                )
            self._environment.authorizer.check_table_id(context, table.table_id)
            check_primary_key(entry)
            for bucket in table.bucket_snapshots:
                partition_id = bucket.partition_id if bucket.HasField("partition_id") else None
                wanted[TableBucket(table.table_id, partition_id, bucket.bucket_id)] = bucket.snapshot_id
        now_ms = self._environment.clock()
        leased |= wanted
        if not leased:
            return pb.AcquireKvSnapshotLeaseResponse()
        expires_ms = now_ms + min(request.lease_duration_ms, LONGEST_LEASE_MS)
        self._leases.put(lease_id, lease_to_json(leased), expires_ms, now_ms)
        missing = {bucket: item for bucket, item in wanted.items() if self._snapshots.find(bucket, item) is None}
        if missing:
            kept = {bucket: item for bucket, item in leased.items() if bucket not in missing}
            self._store(lease_id, kept, expires_ms, now_ms)
        return _unavailable(missing)

    def release_kv_snapshot_lease(
        self, context: RequestContext, request: pb.ReleaseKvSnapshotLeaseRequest
    ) -> pb.ReleaseKvSnapshotLeaseResponse:
        """Remove buckets from a lease, and the lease if none are left; unknown leases and buckets are ignored."""
        self._check_read(context, (bucket.table_id for bucket in request.buckets_to_release))
        now_ms = self._environment.clock()
        lease_id = _owned(context, request.lease_id)
        found = self._leases.get(lease_id, now_ms)
        if found is None:
            return pb.ReleaseKvSnapshotLeaseResponse()
        leased = self._lease(lease_id)
        for bucket in request.buckets_to_release:
            partition_id = bucket.partition_id if bucket.HasField("partition_id") else None
            leased.pop(TableBucket(bucket.table_id, partition_id, bucket.bucket_id), None)
        self._store(lease_id, leased, found[1], now_ms)
        return pb.ReleaseKvSnapshotLeaseResponse()

    def drop_kv_snapshot_lease(
        self, context: RequestContext, request: pb.DropKvSnapshotLeaseRequest
    ) -> pb.DropKvSnapshotLeaseResponse:
        lease_id = _owned(context, request.lease_id)
        self._check_read(context, (bucket.table_id for bucket in self._lease(lease_id)))
        self._leases.delete(lease_id)
        return pb.DropKvSnapshotLeaseResponse()

    def list_kv_snapshots(
        self, context: RequestContext, request: pb.ListKvSnapshotsRequest
    ) -> pb.ListKvSnapshotsResponse:
        """Return the retained and the leased snapshots of every bucket."""
        partition_id = request.partition_id if request.HasField("partition_id") else None
        entry = self._table(request.table_id, partition_id)
        response = pb.ListKvSnapshotsResponse(table_id=entry.table_id, partition_id=partition_id)
        retained = self._environment.config.kv_snapshot_num_retained
        offered = self._snapshots.offered(entry.table_id, partition_id, retained, self._environment.clock())
        for bucket_id, snapshot_id in offered:
            response.active_snapshots.add(bucket_id=bucket_id, snapshot_id=snapshot_id)
        return response

    def list_remote_log_manifests(
        self, context: RequestContext, request: pb.ListRemoteLogManifestsRequest
    ) -> pb.ListRemoteLogManifestsResponse:
        """Return an empty list: manifests are internal to tablets, and clients learn of segments when they fetch."""
        partition_id = request.partition_id if request.HasField("partition_id") else None
        self._table(request.table_id, partition_id)
        return pb.ListRemoteLogManifestsResponse()

    def _table(self, table_id: int, partition_id: int | None) -> TableEntry:
        self._environment.catalog.refresh()
        entry = self._environment.catalog.table_by_id(table_id)
        if entry is None:
            raise FlussError(
                f"table id {table_id} does not exist; it may have been dropped: refresh the metadata",
                ErrorCode.TABLE_NOT_EXIST,
            )
        unknown = partition_id is not None and self._environment.catalog.partition(table_id, partition_id) is None
        if unknown or (entry.is_partitioned and partition_id is None):
            raise partition_missing(entry.path, f"id {partition_id}")
        return entry

    def _lease(self, lease_id: str) -> dict[TableBucket, int]:
        found = self._leases.get(lease_id, self._environment.clock())
        return {} if found is None else lease_from_json(found[0])

    def _store(self, lease_id: str, leased: dict[TableBucket, int], expires_ms: int, now_ms: int) -> None:
        """Store a lease; remove it if it has no buckets."""
        if leased:
            self._leases.put(lease_id, lease_to_json(leased), expires_ms, now_ms)
        else:
            self._leases.delete(lease_id)

    def _check_read(self, context: RequestContext, table_ids: Iterable[int]) -> None:
        """Raise code 48 unless the caller may read all of these tables; those that were dropped are skipped."""
        self._environment.catalog.refresh()
        for table_id in set(table_ids):
            if self._environment.catalog.table_by_id(table_id) is not None:
                self._environment.authorizer.check_table_id(context, table_id)


def _owned(context: RequestContext, lease_id: str) -> str:
    """The id under which a caller's lease is stored: the given one, after the user's name if there is a login."""
    if context.principal_name == ANONYMOUS_NAME:
        return lease_id
    return f"{context.principal_type}:{context.principal_name}\0{lease_id}"


def _unavailable(missing: dict[TableBucket, int]) -> pb.AcquireKvSnapshotLeaseResponse:
    response = pb.AcquireKvSnapshotLeaseResponse()
    tables: dict[int, pb.PbKvSnapshotLeaseForTable] = {}
    for bucket, snapshot_id in missing.items():
        if bucket.table_id not in tables:
            tables[bucket.table_id] = response.unavailable_snapshots.add(table_id=bucket.table_id)
        tables[bucket.table_id].bucket_snapshots.add(
            partition_id=bucket.partition_id, bucket_id=bucket.bucket_id, snapshot_id=snapshot_id
        )
    return response
