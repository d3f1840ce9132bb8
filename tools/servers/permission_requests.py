"""One request for every API key, about a table of a database: the requests by which the permission matrix is tested.

No request destroys what another one needs, whichever user sends it: they name nothing that can be dropped, contain no
rows, and change only what is changed back or does not matter. A key without a request here fails the test of the
matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from google.protobuf.message import Message

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import kv_range_api_pb2 as range_pb
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.protocol.api_keys import ApiKey
from tools.servers.messages import path, spec

TABLE = "t"
VICTIM = "victim"
DATABASE_TYPE, ALLOW, READ, ANY = 3, 2, 3, 1

Build = Callable[[str, int], Message]
"""A function from database and table id to a request."""


def victims_acl(database: str) -> pb.PbAclInfo:
    """A permission that can be granted and revoked without affecting the users of the test."""
    return pb.PbAclInfo(
        resource_name=database,
        resource_type=DATABASE_TYPE,
        principal_name=VICTIM,
        principal_type="User",
        host="*",
        operation_type=READ,
        permission_type=ALLOW,
    )


def _acl_filter(database: str) -> pb.PbAclFilter:
    return pb.PbAclFilter(
        resource_name=database,
        resource_type=DATABASE_TYPE,
        principal_name=VICTIM,
        principal_type="User",
        operation_type=ANY,
        permission_type=ANY,
    )


def producer(database: str) -> str:
    """The id of the producer whose offsets the test uses."""
    return f"producer-{database}"


def offsets(database: str, table: int) -> pb.RegisterProducerOffsetsRequest:
    """A request that registers offsets of the table."""
    return pb.RegisterProducerOffsetsRequest(
        producer_id=producer(database), table_offsets=[pb.PbProducerTableOffsets(table_id=table)]
    )


def _staged(kind: type[Any], **more: Any) -> Build:
    # Each request has its own transaction, because a transaction belongs to the first user who writes to it.
    return lambda _, table: kind(table_id=table, transaction=uuid4().hex, **more)


def _bucket(**more: Any) -> list[dict[str, Any]]:
    return [{"bucket_id": 0, **more}]


def _fetch(_: str, table: int) -> pb.FetchLogRequest:
    request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=1024)
    wanted = request.tables_req.add(table_id=table, projection_pushdown_enabled=False)
    wanted.buckets_req.add(bucket_id=0, fetch_offset=0, max_fetch_bytes=1024)
    return request


def _heartbeat(_: str, table: int) -> pb.LakeTieringHeartbeatRequest:
    beat = pb.PbHeartbeatReqForTable(table_id=table, coordinator_epoch=-1, tiering_epoch=-1)
    return pb.LakeTieringHeartbeatRequest(tiering_tables=[beat])


def _prepare_lake(database: str, table: int) -> pb.PrepareLakeTableSnapshotRequest:
    request = pb.PrepareLakeTableSnapshotRequest()
    request.bucket_offsets.add(table_id=table, table_path=path(TABLE, database))
    return request


def _commit_lake(_: str, table: int) -> pb.CommitLakeTableSnapshotRequest:
    request = pb.CommitLakeTableSnapshotRequest()
    request.tables_req.add(table_id=table, snapshot_id=1).buckets_req.add(bucket_id=0, log_end_offset=1 << 40)
    return request


def _of_table(kind: type[Any], **more: Any) -> Build:
    return lambda database, _: kind(table_path=path(TABLE, database), **more)


def _of_database(kind: type[Any], **more: Any) -> Build:
    return lambda database, _: kind(database_name=database, **more)


def _of_id(kind: type[Any], **more: Any) -> Build:
    return lambda _, table: kind(table_id=table, **more)


def _of_cluster(kind: type[Any], **more: Any) -> Build:
    return lambda _, __: kind(**more)


REQUESTS: dict[ApiKey, Build] = {
    ApiKey.CREATE_DATABASE: _of_cluster(pb.CreateDatabaseRequest, database_name="third", ignore_if_exists=True),
    ApiKey.ALTER_DATABASE: _of_database(pb.AlterDatabaseRequest, ignore_if_not_exists=False),
    # Users with the permission are refused too, because the database is not empty.
    ApiKey.DROP_DATABASE: _of_database(pb.DropDatabaseRequest, ignore_if_not_exists=False, cascade=False),
    ApiKey.LIST_DATABASES: _of_cluster(pb.ListDatabasesRequest),
    ApiKey.DATABASE_EXISTS: _of_database(pb.DatabaseExistsRequest),
    ApiKey.GET_DATABASE_INFO: _of_database(pb.GetDatabaseInfoRequest),
    ApiKey.CREATE_TABLE: _of_table(pb.CreateTableRequest, table_json=b"{}", ignore_if_exists=True),
    ApiKey.ALTER_TABLE: _of_table(pb.AlterTableRequest, ignore_if_not_exists=False),
    ApiKey.DROP_TABLE: lambda database, _: pb.DropTableRequest(
        table_path=path("nothing", database), ignore_if_not_exists=True
    ),
    ApiKey.LIST_TABLES: _of_database(pb.ListTablesRequest),
    ApiKey.TABLE_EXISTS: _of_table(pb.TableExistsRequest),
    ApiKey.GET_METADATA: lambda database, _: pb.MetadataRequest(table_path=[path(TABLE, database)]),
    ApiKey.GET_TABLE_INFO: _of_table(pb.GetTableInfoRequest),
    ApiKey.GET_TABLE_SCHEMA: _of_table(pb.GetTableSchemaRequest),
    ApiKey.CREATE_PARTITION: _of_table(
        pb.CreatePartitionRequest, partition_spec=spec(a="1"), ignore_if_not_exists=True
    ),
    ApiKey.DROP_PARTITION: _of_table(pb.DropPartitionRequest, partition_spec=spec(a="1"), ignore_if_not_exists=True),
    ApiKey.LIST_PARTITION_INFOS: _of_table(pb.ListPartitionInfosRequest),
    ApiKey.PRODUCE_LOG: _of_id(pb.ProduceLogRequest, acks=-1, timeout_ms=1000, buckets_req=_bucket(records=b"")),
    ApiKey.PUT_KV: _of_id(pb.PutKvRequest, acks=-1, timeout_ms=1000, buckets_req=_bucket(records=b"")),
    ApiKey.INIT_WRITER: lambda database, _: pb.InitWriterRequest(table_path=[path(TABLE, database)]),
    ApiKey.FETCH_LOG: _fetch,
    ApiKey.LOOKUP: _of_id(pb.LookupRequest, buckets_req=_bucket(keys=[b"x"])),
    ApiKey.PREFIX_LOOKUP: _of_id(pb.PrefixLookupRequest, buckets_req=_bucket(keys=[b"x"])),
    ApiKey.LIMIT_SCAN: _of_id(pb.LimitScanRequest, bucket_id=0, limit=1),
    ApiKey.SCAN_KV: lambda _, table: pb.ScanKvRequest(
        bucket_scan_req=pb.PbScanReqForBucket(table_id=table, bucket_id=0), call_seq_id=0, batch_size_bytes=1000
    ),
    ApiKey.SCAN_KV_RANGE: lambda _, table: range_pb.ScanKvRangeRequest(
        bucket_scan_req=pb.PbScanReqForBucket(table_id=table, bucket_id=0), batch_size_bytes=1000
    ),
    ApiKey.SPLIT_KV: _of_id(range_pb.SplitKvRequest, piece_bytes=1000, buckets_req=_bucket()),
    ApiKey.GET_TABLE_STATS: _of_id(pb.GetTableStatsRequest, buckets_req=_bucket()),
    ApiKey.LIST_OFFSETS: _of_id(pb.ListOffsetsRequest, follower_server_id=-1, offset_type=1, bucket_id=[0]),
    ApiKey.STAGE_LOG: _staged(
        staged_pb.StageLogRequest, batch_id=0, acks=-1, timeout_ms=1000, writer_id=1, buckets_req=_bucket(records=b"")
    ),
    ApiKey.PREPARE_STAGED: _staged(staged_pb.PrepareStagedRequest, batch_id=0),
    ApiKey.DECIDE_STAGED: _staged(staged_pb.DecideStagedRequest, batch_id=0, token="t"),
    ApiKey.APPLY_STAGED: _staged(staged_pb.ApplyStagedRequest, batch_id=0, timeout_ms=0),
    ApiKey.ABORT_STAGED: _staged(staged_pb.AbortStagedRequest, batch_id=1),
    ApiKey.GET_STAGED_COMMIT: _staged(staged_pb.GetStagedCommitRequest),
    ApiKey.REGISTER_PRODUCER_OFFSETS: offsets,
    ApiKey.GET_PRODUCER_OFFSETS: lambda database, _: pb.GetProducerOffsetsRequest(producer_id=producer(database)),
    ApiKey.DELETE_PRODUCER_OFFSETS: lambda database, _: pb.DeleteProducerOffsetsRequest(producer_id=producer(database)),
    ApiKey.GET_LATEST_KV_SNAPSHOTS: _of_table(pb.GetLatestKvSnapshotsRequest),
    ApiKey.GET_KV_SNAPSHOT_METADATA: _of_id(pb.GetKvSnapshotMetadataRequest, bucket_id=0, snapshot_id=0),
    ApiKey.LIST_KV_SNAPSHOTS: _of_id(pb.ListKvSnapshotsRequest),
    ApiKey.LIST_REMOTE_LOG_MANIFESTS: _of_id(pb.ListRemoteLogManifestsRequest),
    ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE: lambda _, table: pb.AcquireKvSnapshotLeaseRequest(
        lease_id="lease", lease_duration_ms=1000, snapshots_to_lease=[pb.PbKvSnapshotLeaseForTable(table_id=table)]
    ),
    ApiKey.RELEASE_KV_SNAPSHOT_LEASE: lambda _, table: pb.ReleaseKvSnapshotLeaseRequest(
        lease_id="lease", buckets_to_release=[pb.PbTableBucket(table_id=table, bucket_id=0)]
    ),
    ApiKey.GET_LAKE_SNAPSHOT: _of_table(pb.GetLakeSnapshotRequest),
    ApiKey.LAKE_TIERING_HEARTBEAT: _heartbeat,
    ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT: _prepare_lake,
    ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT: _commit_lake,
    ApiKey.CREATE_ACLS: lambda database, _: pb.CreateAclsRequest(acl=[victims_acl(database)]),
    ApiKey.DROP_ACLS: lambda database, _: pb.DropAclsRequest(acl_filter=[_acl_filter(database)]),
    ApiKey.LIST_ACLS: lambda database, _: pb.ListAclsRequest(acl_filter=_acl_filter(database)),
    ApiKey.DESCRIBE_CLUSTER_CONFIGS: _of_cluster(pb.DescribeClusterConfigsRequest),
    ApiKey.ALTER_CLUSTER_CONFIGS: _of_cluster(pb.AlterClusterConfigsRequest),
    ApiKey.GET_CLUSTER_HEALTH: _of_cluster(pb.GetClusterHealthRequest),
    ApiKey.ADD_SERVER_TAG: _of_cluster(pb.AddServerTagRequest, server_ids=[], server_tag=1),
    ApiKey.REMOVE_SERVER_TAG: _of_cluster(pb.RemoveServerTagRequest, server_ids=[], server_tag=1),
    ApiKey.REBALANCE: _of_cluster(pb.RebalanceRequest),
    ApiKey.LIST_REBALANCE_PROGRESS: _of_cluster(pb.ListRebalanceProgressRequest),
    ApiKey.CANCEL_REBALANCE: _of_cluster(pb.CancelRebalanceRequest),
}
