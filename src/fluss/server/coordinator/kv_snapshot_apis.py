"""Leases on kv snapshots, and the coordinator's lists of snapshots and remote manifests.

A lease keeps snapshots alive for a reader. This server makes no snapshots yet, so a lease protects nothing; it is
stored all the same, because readers acquire, renew and drop leases as a matter of course.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from fluss.errors import ErrorCode, FlussError
from fluss.model.descriptor import dump_json
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.catalog import TableEntry
from fluss.server.catalog.store import partition_missing
from fluss.server.environment import Environment
from fluss.server.network.service import RequestContext
from fluss.server.security.authorizer import Operation
from fluss.server.snapshot_apis import check_primary_key


class KvSnapshotApis:
    """ACQUIRE, RELEASE and DROP of leases; LIST_KV_SNAPSHOTS; LIST_REMOTE_LOG_MANIFESTS."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._leases = environment.catalog.store.kv_snapshot_leases

    def acquire_kv_snapshot_lease(
        self, context: RequestContext, request: pb.AcquireKvSnapshotLeaseRequest
    ) -> pb.AcquireKvSnapshotLeaseResponse:
        """The same lease again replaces the snapshots of its buckets and extends the time."""
        self._environment.catalog.refresh()
        leased = self._lease(request.lease_id)
        for table in request.snapshots_to_lease:
            entry = self._environment.catalog.table_by_id(table.table_id)
            if entry is None:
                raise FlussError(
                    f"table id {table.table_id} does not exist; refresh the metadata",
                    ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
                )
            self._environment.authorizer.check_table(context, Operation.READ, entry.path)
            check_primary_key(entry)
            for bucket in table.bucket_snapshots:
                partition_id = bucket.partition_id if bucket.HasField("partition_id") else None
                leased[TableBucket(table.table_id, partition_id, bucket.bucket_id)] = bucket.snapshot_id
        now_ms = self._environment.clock()
        self._leases.put(request.lease_id, _document(leased), now_ms + request.lease_duration_ms, now_ms)
        return pb.AcquireKvSnapshotLeaseResponse()

    def release_kv_snapshot_lease(
        self, context: RequestContext, request: pb.ReleaseKvSnapshotLeaseRequest
    ) -> pb.ReleaseKvSnapshotLeaseResponse:
        """A lease without buckets disappears; unknown ones are a success."""
        self._check_read(context, (bucket.table_id for bucket in request.buckets_to_release))
        now_ms = self._environment.clock()
        found = self._leases.get(request.lease_id, now_ms)
        if found is None:
            return pb.ReleaseKvSnapshotLeaseResponse()
        leased = self._lease(request.lease_id)
        for bucket in request.buckets_to_release:
            partition_id = bucket.partition_id if bucket.HasField("partition_id") else None
            leased.pop(TableBucket(bucket.table_id, partition_id, bucket.bucket_id), None)
        if leased:
            self._leases.put(request.lease_id, _document(leased), found[1], now_ms)
        else:
            self._leases.delete(request.lease_id)
        return pb.ReleaseKvSnapshotLeaseResponse()

    def drop_kv_snapshot_lease(
        self, context: RequestContext, request: pb.DropKvSnapshotLeaseRequest
    ) -> pb.DropKvSnapshotLeaseResponse:
        self._check_read(context, (bucket.table_id for bucket in self._lease(request.lease_id)))
        self._leases.delete(request.lease_id)
        return pb.DropKvSnapshotLeaseResponse()

    def list_kv_snapshots(
        self, context: RequestContext, request: pb.ListKvSnapshotsRequest
    ) -> pb.ListKvSnapshotsResponse:
        """Snapshots that are kept because someone leases them; there are no others."""
        partition_id = request.partition_id if request.HasField("partition_id") else None
        entry = self._table(context, request.table_id, partition_id)
        response = pb.ListKvSnapshotsResponse(table_id=entry.table_id, partition_id=partition_id)
        leased: set[tuple[int, int]] = set()
        for document in self._leases.all(self._environment.clock()).values():
            for bucket, snapshot_id in _buckets(document).items():
                if (bucket.table_id, bucket.partition_id) == (entry.table_id, partition_id):
                    leased.add((bucket.bucket_id, snapshot_id))
        for bucket_id, snapshot_id in sorted(leased):
            response.active_snapshots.add(bucket_id=bucket_id, snapshot_id=snapshot_id)
        return response

    def list_remote_log_manifests(
        self, context: RequestContext, request: pb.ListRemoteLogManifestsRequest
    ) -> pb.ListRemoteLogManifestsResponse:
        """Manifests are each tablet's own business here; clients learn of segments when they fetch."""
        partition_id = request.partition_id if request.HasField("partition_id") else None
        self._table(context, request.table_id, partition_id)
        return pb.ListRemoteLogManifestsResponse()

    def _table(self, context: RequestContext, table_id: int, partition_id: int | None) -> TableEntry:
        self._environment.catalog.refresh()
        entry = self._environment.catalog.table_by_id(table_id)
        if entry is None:
            raise FlussError(f"table id {table_id} does not exist; it may have been dropped", ErrorCode.TABLE_NOT_EXIST)
        self._environment.authorizer.check_table(context, Operation.DESCRIBE, entry.path)
        unknown = partition_id is not None and self._environment.catalog.partition(table_id, partition_id) is None
        if unknown or (entry.is_partitioned and partition_id is None):
            raise partition_missing(entry.path, f"id {partition_id}")
        return entry

    def _lease(self, lease_id: str) -> dict[TableBucket, int]:
        found = self._leases.get(lease_id, self._environment.clock())
        return {} if found is None else _buckets(found[0])

    def _check_read(self, context: RequestContext, table_ids: Iterable[int]) -> None:
        """READ on every table that still exists."""
        self._environment.catalog.refresh()
        for table_id in set(table_ids):
            if self._environment.catalog.table_by_id(table_id) is not None:
                self._environment.authorizer.check_table_id(context, Operation.READ, table_id)


def _document(leased: dict[TableBucket, int]) -> str:
    return dump_json([[*bucket, snapshot_id] for bucket, snapshot_id in leased.items()]).decode()


def _buckets(document: str) -> dict[TableBucket, int]:
    return {TableBucket(*row[:3]): row[3] for row in json.loads(document)}
