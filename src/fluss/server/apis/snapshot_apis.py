"""The snapshots of a table, and how clients reach their files.

Snapshots of primary-key tables are registered in the catalog by the tablets that take them. Where a bucket has none,
readers start at the earliest changelog offset: no part of a changelog is deleted before there is a snapshot. Lake
snapshots are registered by tiering services, through the coordinator.
"""

from __future__ import annotations

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.interface.offsets import load_offsets
from fluss.model.descriptor import dump_json
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.apis.environment import Environment, table_path
from fluss.server.catalog import TableEntry
from fluss.server.catalog.store import partition_missing
from fluss.server.runtime.handlers import RequestContext

LOCAL_SCHEME = "file"
# Option of the server -> property name that clients of object stores read.
_S3_CLIENT_PROPERTIES = {
    "s3.endpoint": "fs.s3a.endpoint",
    "s3.region": "fs.s3a.endpoint.region",
    "s3.path-style-access": "fs.s3a.path.style.access",
}
_CLIENT_ACCESS_KEY = "s3.client.access-key"
_CLIENT_SECRET_KEY = "s3.client.secret-key"


class SnapshotApis:
    """Handlers for kv snapshots, lake snapshots, and the file-system token."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def get_latest_kv_snapshots(
        self, context: RequestContext, request: pb.GetLatestKvSnapshotsRequest
    ) -> pb.GetLatestKvSnapshotsResponse:
        """Return one entry per bucket, without a snapshot id for a bucket that has no snapshot."""
        entry = self._environment.fresh_table(table_path(request.table_path))
        check_primary_key(entry)
        response = pb.GetLatestKvSnapshotsResponse(table_id=entry.table_id)
        partition_id: int | None = None
        named = request.HasField("partition_name")
        if named and not entry.is_partitioned:
            raise FlussError(
                f"table '{entry.path}' is not partitioned; send no partition name, got {request.partition_name!r}",
                ErrorCode.TABLE_NOT_PARTITIONED_EXCEPTION,
            )
        if entry.is_partitioned:
            if not named:
                raise FlussError(
                    f"table '{entry.path}' is partitioned; send the name of one partition",
                    ErrorCode.PARTITION_NOT_EXISTS,
                )
            partition = entry.partitions.get(request.partition_name)
            if partition is None:
                raise partition_missing(entry.path, request.partition_name)
            partition_id = response.partition_id = partition.partition_id
        latest = self._environment.catalog.store.kv_snapshots.latest(entry.table_id, partition_id)
        for bucket_id in range(entry.bucket_count):
            snapshot_id, log_offset = latest.get(bucket_id, (None, None))
            response.latest_snapshots.add(bucket_id=bucket_id, snapshot_id=snapshot_id, log_offset=log_offset)
        return response

    def get_kv_snapshot_metadata(
        self, context: RequestContext, request: pb.GetKvSnapshotMetadataRequest
    ) -> pb.GetKvSnapshotMetadataResponse:
        """Return the remote paths of a snapshot's files, and the local names under which they form a database."""
        self._environment.catalog.refresh()
        partition_id = request.partition_id if request.HasField("partition_id") else None
        bucket = TableBucket(request.table_id, partition_id, request.bucket_id)
        snapshot = self._environment.catalog.store.kv_snapshots.find(bucket, request.snapshot_id)
        if snapshot is None:
            raise FlussError(
                f"bucket {request.bucket_id} of table id {request.table_id} has no kv snapshot {request.snapshot_id}; "
                "use the latest one, or read the changelog from its earliest offset",
                ErrorCode.KV_SNAPSHOT_NOT_EXIST,
            )
        response = pb.GetKvSnapshotMetadataResponse(log_offset=snapshot.log_offset)
        for file in snapshot.files:
            response.snapshot_files.add(remote_path=file.path, local_file_name=file.local_name)
        return response

    def get_lake_snapshot(
        self, context: RequestContext, request: pb.GetLakeSnapshotRequest
    ) -> pb.GetLakeSnapshotResponse:
        """Return the newest snapshot, the newest readable one, or one by id, with the offsets of its buckets."""
        entry = self._environment.fresh_table(table_path(request.table_path))
        has_id = request.HasField("snapshot_id")
        if has_id and request.readable:
            raise FlussError(
                f"snapshot_id {request.snapshot_id} and readable=true exclude each other; send one of them",
                ErrorCode.UNKNOWN_SERVER_ERROR,
            )
        records = self._environment.catalog.store.lake
        if has_id:
            found = records.find(entry.table_id, request.snapshot_id)
        else:
            found = records.latest(entry.table_id, readable=request.readable)
        if found is None:
            wanted = (
                f"lake snapshot {request.snapshot_id}; use the newest one"
                if has_id
                else "lake snapshot yet; tier it first"
            )
            raise FlussError(f"table '{entry.path}' has no {wanted}", ErrorCode.LAKE_SNAPSHOT_NOT_EXIST)
        response = pb.GetLakeSnapshotResponse(table_id=entry.table_id, snapshotId=found.snapshot_id)
        document = found.readable_offsets if request.readable else found.tiered_offsets
        assert document is not None, "a readable snapshot has readable offsets"
        _, offsets = load_offsets(document)
        for bucket, offset in offsets.items():
            response.bucket_snapshots.add(
                partition_id=bucket.partition_id, bucket_id=bucket.bucket_id, log_offset=offset
            )
        return response

    def get_file_system_security_token(
        self, context: RequestContext, request: pb.GetFileSystemSecurityTokenRequest
    ) -> pb.GetFileSystemSecurityTokenResponse:
        """Return the options that clients need to open remote segments; for local files there are none.

        The server's own S3 keys are never handed out, since every reader gets this answer; an operator gives clients
        separate read-only keys with `s3.client.access-key` and `s3.client.secret-key`. A caller that may read nothing
        gets no keys and no error, because clients send this request before they know whether they need keys.
        """
        config = self._environment.config
        scheme, colon, _ = config.remote_data_dir.partition("://")
        if not colon:
            return pb.GetFileSystemSecurityTokenResponse(schema=LOCAL_SCHEME, token=b"")
        response = pb.GetFileSystemSecurityTokenResponse(schema=scheme, token=b"")
        if scheme == LOCAL_SCHEME:
            return response
        for option, name in _S3_CLIENT_PROPERTIES.items():
            if option in config.values:
                response.addition_info.add(key=name, value=config.values[option])
        self._environment.catalog.refresh()
        has_keys = _CLIENT_ACCESS_KEY in config.values and _CLIENT_SECRET_KEY in config.values
        if has_keys and self._environment.authorizer.permits_any(context):
            response.token = dump_json(
                {
                    "version": 1,
                    "access_key_id": config.values[_CLIENT_ACCESS_KEY],
                    "access_key_secret": config.values[_CLIENT_SECRET_KEY],
                    "security_token": None,
                }
            )
        return response


def check_primary_key(entry: TableEntry) -> None:
    """Raise code 20 for a log table, which has no kv snapshots."""
    if not entry.has_primary_key:
        raise FlussError(
            f"table '{entry.path}' has no primary key; only primary-key tables have kv snapshots",
            ErrorCode.NON_PRIMARY_KEY_TABLE_EXCEPTION,
        )
