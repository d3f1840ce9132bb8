"""API keys of the Fluss protocol: versions, the roles that serve them, and their message types.

`APIS` is the one table of them, shared by server, client and tests. The layout of a message does not depend on its
version number: a version only states what the sender understands.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import NamedTuple

from google.protobuf.message import Message

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import kv_range_api_pb2 as range_pb
from fluss.protocol import staged_api_pb2 as staged_pb


class ApiKey(IntEnum):
    """Numbers in the frame header. 0 to 999 belong to another protocol and are never used here."""

    API_VERSIONS = 1000
    CREATE_DATABASE = 1001
    DROP_DATABASE = 1002
    LIST_DATABASES = 1003
    DATABASE_EXISTS = 1004
    CREATE_TABLE = 1005
    DROP_TABLE = 1006
    GET_TABLE_INFO = 1007
    LIST_TABLES = 1008
    LIST_PARTITION_INFOS = 1009
    TABLE_EXISTS = 1010
    GET_TABLE_SCHEMA = 1011
    GET_METADATA = 1012
    UPDATE_METADATA = 1013
    PRODUCE_LOG = 1014
    FETCH_LOG = 1015
    PUT_KV = 1016
    LOOKUP = 1017
    NOTIFY_LEADER_AND_ISR = 1018
    STOP_REPLICA = 1019
    ADJUST_ISR = 1020
    LIST_OFFSETS = 1021
    COMMIT_KV_SNAPSHOT = 1022
    GET_LATEST_KV_SNAPSHOTS = 1023
    GET_KV_SNAPSHOT_METADATA = 1024
    GET_FILESYSTEM_SECURITY_TOKEN = 1025
    INIT_WRITER = 1026
    COMMIT_REMOTE_LOG_MANIFEST = 1027
    NOTIFY_REMOTE_LOG_OFFSETS = 1028
    NOTIFY_KV_SNAPSHOT_OFFSET = 1029
    COMMIT_LAKE_TABLE_SNAPSHOT = 1030
    NOTIFY_LAKE_TABLE_OFFSET = 1031
    GET_LAKE_SNAPSHOT = 1032
    LIMIT_SCAN = 1033
    PREFIX_LOOKUP = 1034
    GET_DATABASE_INFO = 1035
    CREATE_PARTITION = 1036
    DROP_PARTITION = 1037
    AUTHENTICATE = 1038
    CREATE_ACLS = 1039
    LIST_ACLS = 1040
    DROP_ACLS = 1041
    LAKE_TIERING_HEARTBEAT = 1042
    CONTROLLED_SHUTDOWN = 1043
    ALTER_TABLE = 1044
    DESCRIBE_CLUSTER_CONFIGS = 1045
    ALTER_CLUSTER_CONFIGS = 1046
    ADD_SERVER_TAG = 1047
    REMOVE_SERVER_TAG = 1048
    REBALANCE = 1049
    LIST_REBALANCE_PROGRESS = 1050
    CANCEL_REBALANCE = 1051
    PREPARE_LAKE_TABLE_SNAPSHOT = 1052
    REGISTER_PRODUCER_OFFSETS = 1053
    GET_PRODUCER_OFFSETS = 1054
    DELETE_PRODUCER_OFFSETS = 1055
    ACQUIRE_KV_SNAPSHOT_LEASE = 1056
    RELEASE_KV_SNAPSHOT_LEASE = 1057
    DROP_KV_SNAPSHOT_LEASE = 1058
    GET_TABLE_STATS = 1059
    ALTER_DATABASE = 1060
    SCAN_KV = 1061
    GET_CLUSTER_HEALTH = 1062
    LIST_REMOTE_LOG_MANIFESTS = 1063
    LIST_KV_SNAPSHOTS = 1064

    # Extensions of this project, far above the keys of Apache Fluss. Clients use them where API_VERSIONS lists them.
    STAGE_LOG = 9001
    PREPARE_STAGED = 9002
    DECIDE_STAGED = 9003
    APPLY_STAGED = 9004
    ABORT_STAGED = 9005
    GET_STAGED_COMMIT = 9006
    SPLIT_KV = 9007
    SCAN_KV_RANGE = 9008


class Role(IntFlag):
    """Server roles; the values are the `server_type` of an API_VERSIONS answer."""

    COORDINATOR = 1
    TABLET = 2


BOTH_ROLES = Role.COORDINATOR | Role.TABLET


class Api(NamedTuple):
    """The entry of one API key in `APIS`: its versions, roles and message types."""

    min_version: int
    max_version: int
    public: bool
    roles: Role
    request: type[Message]
    response: type[Message]


APIS: dict[ApiKey, Api] = {
    ApiKey.API_VERSIONS: Api(0, 0, True, BOTH_ROLES, pb.ApiVersionsRequest, pb.ApiVersionsResponse),
    ApiKey.CREATE_DATABASE: Api(0, 0, True, Role.COORDINATOR, pb.CreateDatabaseRequest, pb.CreateDatabaseResponse),
    ApiKey.DROP_DATABASE: Api(0, 0, True, Role.COORDINATOR, pb.DropDatabaseRequest, pb.DropDatabaseResponse),
    ApiKey.LIST_DATABASES: Api(0, 0, True, BOTH_ROLES, pb.ListDatabasesRequest, pb.ListDatabasesResponse),
    ApiKey.DATABASE_EXISTS: Api(0, 0, True, BOTH_ROLES, pb.DatabaseExistsRequest, pb.DatabaseExistsResponse),
    ApiKey.CREATE_TABLE: Api(0, 0, True, Role.COORDINATOR, pb.CreateTableRequest, pb.CreateTableResponse),
    ApiKey.DROP_TABLE: Api(0, 0, True, Role.COORDINATOR, pb.DropTableRequest, pb.DropTableResponse),
    ApiKey.GET_TABLE_INFO: Api(0, 0, True, BOTH_ROLES, pb.GetTableInfoRequest, pb.GetTableInfoResponse),
    ApiKey.LIST_TABLES: Api(0, 0, True, BOTH_ROLES, pb.ListTablesRequest, pb.ListTablesResponse),
    ApiKey.LIST_PARTITION_INFOS: Api(
        0, 0, True, BOTH_ROLES, pb.ListPartitionInfosRequest, pb.ListPartitionInfosResponse
    ),
    ApiKey.TABLE_EXISTS: Api(0, 0, True, BOTH_ROLES, pb.TableExistsRequest, pb.TableExistsResponse),
    ApiKey.GET_TABLE_SCHEMA: Api(0, 0, True, BOTH_ROLES, pb.GetTableSchemaRequest, pb.GetTableSchemaResponse),
    ApiKey.GET_METADATA: Api(0, 0, True, BOTH_ROLES, pb.MetadataRequest, pb.MetadataResponse),
    ApiKey.UPDATE_METADATA: Api(0, 0, False, Role.TABLET, pb.UpdateMetadataRequest, pb.UpdateMetadataResponse),
    ApiKey.PRODUCE_LOG: Api(0, 0, True, Role.TABLET, pb.ProduceLogRequest, pb.ProduceLogResponse),
    ApiKey.FETCH_LOG: Api(0, 0, True, Role.TABLET, pb.FetchLogRequest, pb.FetchLogResponse),
    ApiKey.PUT_KV: Api(0, 2, True, Role.TABLET, pb.PutKvRequest, pb.PutKvResponse),
    ApiKey.LOOKUP: Api(0, 1, True, Role.TABLET, pb.LookupRequest, pb.LookupResponse),
    ApiKey.NOTIFY_LEADER_AND_ISR: Api(
        0, 0, False, Role.TABLET, pb.NotifyLeaderAndIsrRequest, pb.NotifyLeaderAndIsrResponse
    ),
    ApiKey.STOP_REPLICA: Api(0, 0, False, Role.TABLET, pb.StopReplicaRequest, pb.StopReplicaResponse),
    ApiKey.ADJUST_ISR: Api(0, 0, False, Role.COORDINATOR, pb.AdjustIsrRequest, pb.AdjustIsrResponse),
    ApiKey.LIST_OFFSETS: Api(0, 0, True, Role.TABLET, pb.ListOffsetsRequest, pb.ListOffsetsResponse),
    ApiKey.COMMIT_KV_SNAPSHOT: Api(
        0, 0, False, Role.COORDINATOR, pb.CommitKvSnapshotRequest, pb.CommitKvSnapshotResponse
    ),
    ApiKey.GET_LATEST_KV_SNAPSHOTS: Api(
        0, 0, True, BOTH_ROLES, pb.GetLatestKvSnapshotsRequest, pb.GetLatestKvSnapshotsResponse
    ),
    ApiKey.GET_KV_SNAPSHOT_METADATA: Api(
        0, 0, True, BOTH_ROLES, pb.GetKvSnapshotMetadataRequest, pb.GetKvSnapshotMetadataResponse
    ),
    ApiKey.GET_FILESYSTEM_SECURITY_TOKEN: Api(
        0, 0, True, BOTH_ROLES, pb.GetFileSystemSecurityTokenRequest, pb.GetFileSystemSecurityTokenResponse
    ),
    ApiKey.INIT_WRITER: Api(0, 0, True, Role.TABLET, pb.InitWriterRequest, pb.InitWriterResponse),
    ApiKey.COMMIT_REMOTE_LOG_MANIFEST: Api(
        0, 0, False, Role.COORDINATOR, pb.CommitRemoteLogManifestRequest, pb.CommitRemoteLogManifestResponse
    ),
    ApiKey.NOTIFY_REMOTE_LOG_OFFSETS: Api(
        0, 0, False, Role.TABLET, pb.NotifyRemoteLogOffsetsRequest, pb.NotifyRemoteLogOffsetsResponse
    ),
    ApiKey.NOTIFY_KV_SNAPSHOT_OFFSET: Api(
        0, 0, False, Role.TABLET, pb.NotifyKvSnapshotOffsetRequest, pb.NotifyKvSnapshotOffsetResponse
    ),
    ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT: Api(
        0, 0, False, Role.COORDINATOR, pb.CommitLakeTableSnapshotRequest, pb.CommitLakeTableSnapshotResponse
    ),
    ApiKey.NOTIFY_LAKE_TABLE_OFFSET: Api(
        0, 0, False, Role.TABLET, pb.NotifyLakeTableOffsetRequest, pb.NotifyLakeTableOffsetResponse
    ),
    ApiKey.GET_LAKE_SNAPSHOT: Api(0, 0, True, BOTH_ROLES, pb.GetLakeSnapshotRequest, pb.GetLakeSnapshotResponse),
    ApiKey.LIMIT_SCAN: Api(0, 0, True, Role.TABLET, pb.LimitScanRequest, pb.LimitScanResponse),
    ApiKey.PREFIX_LOOKUP: Api(0, 1, True, Role.TABLET, pb.PrefixLookupRequest, pb.PrefixLookupResponse),
    ApiKey.GET_DATABASE_INFO: Api(0, 0, True, BOTH_ROLES, pb.GetDatabaseInfoRequest, pb.GetDatabaseInfoResponse),
    ApiKey.CREATE_PARTITION: Api(0, 0, True, Role.COORDINATOR, pb.CreatePartitionRequest, pb.CreatePartitionResponse),
    ApiKey.DROP_PARTITION: Api(0, 0, True, Role.COORDINATOR, pb.DropPartitionRequest, pb.DropPartitionResponse),
    ApiKey.AUTHENTICATE: Api(0, 0, True, BOTH_ROLES, pb.AuthenticateRequest, pb.AuthenticateResponse),
    ApiKey.CREATE_ACLS: Api(0, 0, True, Role.COORDINATOR, pb.CreateAclsRequest, pb.CreateAclsResponse),
    ApiKey.LIST_ACLS: Api(0, 0, True, BOTH_ROLES, pb.ListAclsRequest, pb.ListAclsResponse),
    ApiKey.DROP_ACLS: Api(0, 0, True, Role.COORDINATOR, pb.DropAclsRequest, pb.DropAclsResponse),
    ApiKey.LAKE_TIERING_HEARTBEAT: Api(
        0, 0, False, Role.COORDINATOR, pb.LakeTieringHeartbeatRequest, pb.LakeTieringHeartbeatResponse
    ),
    ApiKey.CONTROLLED_SHUTDOWN: Api(
        0, 0, False, Role.COORDINATOR, pb.ControlledShutdownRequest, pb.ControlledShutdownResponse
    ),
    ApiKey.ALTER_TABLE: Api(0, 0, True, Role.COORDINATOR, pb.AlterTableRequest, pb.AlterTableResponse),
    ApiKey.DESCRIBE_CLUSTER_CONFIGS: Api(
        0, 0, True, BOTH_ROLES, pb.DescribeClusterConfigsRequest, pb.DescribeClusterConfigsResponse
    ),
    ApiKey.ALTER_CLUSTER_CONFIGS: Api(
        0, 0, True, Role.COORDINATOR, pb.AlterClusterConfigsRequest, pb.AlterClusterConfigsResponse
    ),
    ApiKey.ADD_SERVER_TAG: Api(0, 0, True, Role.COORDINATOR, pb.AddServerTagRequest, pb.AddServerTagResponse),
    ApiKey.REMOVE_SERVER_TAG: Api(0, 0, True, Role.COORDINATOR, pb.RemoveServerTagRequest, pb.RemoveServerTagResponse),
    ApiKey.REBALANCE: Api(0, 0, True, Role.COORDINATOR, pb.RebalanceRequest, pb.RebalanceResponse),
    ApiKey.LIST_REBALANCE_PROGRESS: Api(
        0, 0, True, Role.COORDINATOR, pb.ListRebalanceProgressRequest, pb.ListRebalanceProgressResponse
    ),
    ApiKey.CANCEL_REBALANCE: Api(0, 0, True, Role.COORDINATOR, pb.CancelRebalanceRequest, pb.CancelRebalanceResponse),
    ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT: Api(
        0, 0, False, Role.COORDINATOR, pb.PrepareLakeTableSnapshotRequest, pb.PrepareLakeTableSnapshotResponse
    ),
    ApiKey.REGISTER_PRODUCER_OFFSETS: Api(
        0, 0, True, Role.COORDINATOR, pb.RegisterProducerOffsetsRequest, pb.RegisterProducerOffsetsResponse
    ),
    ApiKey.GET_PRODUCER_OFFSETS: Api(
        0, 0, True, Role.COORDINATOR, pb.GetProducerOffsetsRequest, pb.GetProducerOffsetsResponse
    ),
    ApiKey.DELETE_PRODUCER_OFFSETS: Api(
        0, 0, True, Role.COORDINATOR, pb.DeleteProducerOffsetsRequest, pb.DeleteProducerOffsetsResponse
    ),
    ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE: Api(
        0, 0, True, Role.COORDINATOR, pb.AcquireKvSnapshotLeaseRequest, pb.AcquireKvSnapshotLeaseResponse
    ),
    ApiKey.RELEASE_KV_SNAPSHOT_LEASE: Api(
        0, 0, True, Role.COORDINATOR, pb.ReleaseKvSnapshotLeaseRequest, pb.ReleaseKvSnapshotLeaseResponse
    ),
    ApiKey.DROP_KV_SNAPSHOT_LEASE: Api(
        0, 0, True, Role.COORDINATOR, pb.DropKvSnapshotLeaseRequest, pb.DropKvSnapshotLeaseResponse
    ),
    ApiKey.GET_TABLE_STATS: Api(0, 0, True, Role.TABLET, pb.GetTableStatsRequest, pb.GetTableStatsResponse),
    ApiKey.ALTER_DATABASE: Api(0, 0, True, Role.COORDINATOR, pb.AlterDatabaseRequest, pb.AlterDatabaseResponse),
    ApiKey.SCAN_KV: Api(0, 0, True, Role.TABLET, pb.ScanKvRequest, pb.ScanKvResponse),
    ApiKey.GET_CLUSTER_HEALTH: Api(0, 0, True, BOTH_ROLES, pb.GetClusterHealthRequest, pb.GetClusterHealthResponse),
    ApiKey.LIST_REMOTE_LOG_MANIFESTS: Api(
        0, 0, True, Role.COORDINATOR, pb.ListRemoteLogManifestsRequest, pb.ListRemoteLogManifestsResponse
    ),
    ApiKey.LIST_KV_SNAPSHOTS: Api(0, 0, True, Role.COORDINATOR, pb.ListKvSnapshotsRequest, pb.ListKvSnapshotsResponse),
    ApiKey.STAGE_LOG: Api(0, 0, True, Role.TABLET, staged_pb.StageLogRequest, staged_pb.StageLogResponse),
    ApiKey.PREPARE_STAGED: Api(
        0, 0, True, Role.TABLET, staged_pb.PrepareStagedRequest, staged_pb.PrepareStagedResponse
    ),
    ApiKey.DECIDE_STAGED: Api(
        0, 0, True, Role.COORDINATOR, staged_pb.DecideStagedRequest, staged_pb.DecideStagedResponse
    ),
    ApiKey.APPLY_STAGED: Api(0, 0, True, Role.TABLET, staged_pb.ApplyStagedRequest, staged_pb.ApplyStagedResponse),
    ApiKey.ABORT_STAGED: Api(0, 0, True, Role.TABLET, staged_pb.AbortStagedRequest, staged_pb.AbortStagedResponse),
    ApiKey.GET_STAGED_COMMIT: Api(
        0, 0, True, Role.COORDINATOR, staged_pb.GetStagedCommitRequest, staged_pb.GetStagedCommitResponse
    ),
    ApiKey.SPLIT_KV: Api(0, 0, True, Role.TABLET, range_pb.SplitKvRequest, range_pb.SplitKvResponse),
    ApiKey.SCAN_KV_RANGE: Api(0, 0, True, Role.TABLET, range_pb.ScanKvRangeRequest, range_pb.ScanKvRangeResponse),
}
# The keys that Apache Fluss has too.
PUBLISHED_KEYS: tuple[ApiKey, ...] = tuple(key for key in ApiKey if key < ApiKey.STAGE_LOG)
