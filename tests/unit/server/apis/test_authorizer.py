"""Authorization of every request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.catalog.records import Acl
from tests.support.harness.coordinator import CoordinatorHarness
from tools.servers.messages import (
    alter_properties,
    config_change,
    create_partition,
    drop_partition,
    path,
    table_document,
    text_column,
)

CLUSTER, DATABASE, TABLE = 2, 3, 4
ALL, READ, WRITE, CREATE, DROP, ALTER, DESCRIBE = range(2, 9)
CLUSTER_NAME = "fluss-cluster"
ALICE: dict[str, Any] = {"principal_name": "alice", "listener": "CLIENT"}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[CoordinatorHarness]:
    """Database `db` with a plain table `t` and a partitioned table `p`; alice has no permission yet."""
    harness = CoordinatorHarness(tmp_path, authorizer_enabled=True, super_users=frozenset({("User", "root")}))
    root: dict[str, Any] = {"principal_name": "root"}
    create = pb.CreateDatabaseRequest(database_name="db", ignore_if_exists=False)
    harness.call(ApiKey.CREATE_DATABASE, create, **root)
    partitioned = table_document([text_column("r")], partition_key=["r"])
    for name, document in (("t", table_document()), ("p", partitioned)):
        harness.call(ApiKey.CREATE_TABLE, harness.create_table_request(name, document, database="db"), **root)
    yield harness
    harness.close()


def allow(harness: CoordinatorHarness, granted: int, kind: int, name: str, **more: Any) -> None:
    acl = Acl(kind, name, "User", "alice", "*", granted, 2)._replace(**more)
    harness.catalog.store.acls.add([acl])


def in_db(message: Any) -> Any:
    message.table_path.database_name = "db"
    return message


def info() -> pb.GetTableInfoRequest:
    return pb.GetTableInfoRequest(table_path=path("t", "db"))


CALLS: list[tuple[ApiKey, Message, int, int, str]] = [
    (ApiKey.CREATE_DATABASE, pb.CreateDatabaseRequest(database_name="x", ignore_if_exists=False), CREATE, CLUSTER, "*"),
    (
        ApiKey.DROP_DATABASE,
        pb.DropDatabaseRequest(database_name="db", ignore_if_not_exists=False, cascade=True),
        DROP,
        DATABASE,
        "db",
    ),
    (
        ApiKey.ALTER_DATABASE,
        pb.AlterDatabaseRequest(database_name="db", ignore_if_not_exists=False),
        ALTER,
        DATABASE,
        "db",
    ),
    (
        ApiKey.CREATE_TABLE,
        pb.CreateTableRequest(table_path=path("n", "db"), table_json=table_document(), ignore_if_exists=False),
        CREATE,
        DATABASE,
        "db",
    ),
    (
        ApiKey.DROP_TABLE,
        pb.DropTableRequest(table_path=path("t", "db"), ignore_if_not_exists=False),
        DROP,
        TABLE,
        "db.t",
    ),
    (ApiKey.ALTER_TABLE, in_db(alter_properties("t", {"a": "b"})), ALTER, TABLE, "db.t"),
    (ApiKey.CREATE_PARTITION, in_db(create_partition("p", r="1")), WRITE, TABLE, "db.p"),
    (ApiKey.DROP_PARTITION, in_db(drop_partition("p", True, r="1")), WRITE, TABLE, "db.p"),
    (ApiKey.GET_DATABASE_INFO, pb.GetDatabaseInfoRequest(database_name="db"), DESCRIBE, DATABASE, "db"),
    (ApiKey.GET_TABLE_INFO, info(), DESCRIBE, TABLE, "db.t"),
    (ApiKey.GET_TABLE_SCHEMA, pb.GetTableSchemaRequest(table_path=path("t", "db")), DESCRIBE, TABLE, "db.t"),
    (ApiKey.LIST_PARTITION_INFOS, pb.ListPartitionInfosRequest(table_path=path("p", "db")), DESCRIBE, TABLE, "db.p"),
    (ApiKey.DESCRIBE_CLUSTER_CONFIGS, pb.DescribeClusterConfigsRequest(), DESCRIBE, CLUSTER, CLUSTER_NAME),
    (
        ApiKey.ALTER_CLUSTER_CONFIGS,
        pb.AlterClusterConfigsRequest(alter_configs=[config_change("datalake.format", "paimon")]),
        ALTER,
        CLUSTER,
        CLUSTER_NAME,
    ),
    (ApiKey.ADD_SERVER_TAG, pb.AddServerTagRequest(server_ids=[0], server_tag=1), ALTER, CLUSTER, CLUSTER_NAME),
    (ApiKey.REMOVE_SERVER_TAG, pb.RemoveServerTagRequest(server_ids=[0], server_tag=1), ALTER, CLUSTER, CLUSTER_NAME),
    (ApiKey.REBALANCE, pb.RebalanceRequest(), WRITE, CLUSTER, CLUSTER_NAME),
    (ApiKey.CANCEL_REBALANCE, pb.CancelRebalanceRequest(), WRITE, CLUSTER, CLUSTER_NAME),
    (ApiKey.LIST_REBALANCE_PROGRESS, pb.ListRebalanceProgressRequest(), DESCRIBE, CLUSTER, CLUSTER_NAME),
    (ApiKey.GET_CLUSTER_HEALTH, pb.GetClusterHealthRequest(), DESCRIBE, CLUSTER, CLUSTER_NAME),
    (
        ApiKey.REGISTER_PRODUCER_OFFSETS,
        pb.RegisterProducerOffsetsRequest(producer_id="p", table_offsets=[pb.PbProducerTableOffsets(table_id=0)]),
        WRITE,
        TABLE,
        "db.t",
    ),
]


@pytest.mark.parametrize(("key", "message", "operation", "resource_type", "resource"), CALLS)
def test_each_call_needs_its_permission(
    guarded: CoordinatorHarness, key: ApiKey, message: Message, operation: int, resource_type: int, resource: str
) -> None:
    text = guarded.refuses(48, key, message, **ALICE)
    assert "User:alice" in text
    for other in {READ, WRITE, CREATE, DROP, ALTER, DESCRIBE} - {operation}:
        if operation != DESCRIBE:
            allow(guarded, other, resource_type, resource)
    if operation != DESCRIBE:
        guarded.refuses(48, key, message, **ALICE)
    allow(guarded, operation, resource_type, resource)
    guarded.call(key, message, **ALICE)


@pytest.mark.parametrize(
    "permission",
    [
        {"operation": DESCRIBE},
        {"operation": ALL},
        *({"operation": operation} for operation in (READ, WRITE, CREATE, DROP, ALTER)),
        {"resource_name": "*"},
        {"resource_type": DATABASE, "resource_name": "db"},
        {"resource_type": DATABASE, "resource_name": "*"},
        {"resource_type": CLUSTER, "resource_name": CLUSTER_NAME},
        {"principal_type": "*", "principal_name": "*"},
        {"host": "127.0.0.1"},
    ],
)
def test_permissions_that_allow_to_describe(guarded: CoordinatorHarness, permission: dict[str, Any]) -> None:
    guarded.refuses(48, ApiKey.GET_TABLE_INFO, info(), **ALICE)
    allow(guarded, DESCRIBE, TABLE, "db.t", **permission)
    guarded.call(ApiKey.GET_TABLE_INFO, info(), **ALICE)
    guarded.call(ApiKey.GET_TABLE_INFO, info(), tablet=True, **ALICE)


@pytest.mark.parametrize(
    "permission",
    [
        {"resource_name": "db.p"},
        {"resource_name": "t"},
        {"resource_type": DATABASE, "resource_name": "fluss"},
        {"principal_name": "Alice"},
        {"principal_name": "*"},
        {"principal_type": "*"},
        {"principal_type": "Group"},
        {"host": "10.0.0.1"},
        {"permission": 1},
    ],
)
def test_permissions_that_do_not(guarded: CoordinatorHarness, permission: dict[str, Any]) -> None:
    allow(guarded, DESCRIBE, TABLE, "db.t", **permission)
    guarded.refuses(48, ApiKey.GET_TABLE_INFO, info(), **ALICE)


def test_exempt_principals(guarded: CoordinatorHarness) -> None:
    guarded.call(ApiKey.GET_TABLE_INFO, info(), principal_name="root")
    guarded.call(ApiKey.GET_TABLE_INFO, info(), principal_name="alice", is_internal=True)
    guarded.refuses(48, ApiKey.GET_TABLE_INFO, info(), principal_name="root", principal_type="Group")


def test_names_may_ignore_case(tmp_path: Path) -> None:
    users = frozenset({("User", "Root")})
    harness = CoordinatorHarness(tmp_path, authorizer_enabled=True, super_users=users, acl_ignore_case=True)
    harness.call(ApiKey.DESCRIBE_CLUSTER_CONFIGS, pb.DescribeClusterConfigsRequest(), principal_name="ROOT")
    allow(harness, DESCRIBE, CLUSTER, CLUSTER_NAME, principal_name="ALICE", principal_type="user")
    harness.call(ApiKey.DESCRIBE_CLUSTER_CONFIGS, pb.DescribeClusterConfigsRequest(), **ALICE)
    harness.close()


def test_lists_and_existence_are_filtered(guarded: CoordinatorHarness) -> None:
    def seen() -> tuple[list[str], list[str], bool, bool]:
        databases = guarded.call(ApiKey.LIST_DATABASES, pb.ListDatabasesRequest(), **ALICE)
        tables = guarded.call(ApiKey.LIST_TABLES, pb.ListTablesRequest(database_name="db"), **ALICE)
        request = pb.DatabaseExistsRequest(database_name="db")
        database = guarded.call(ApiKey.DATABASE_EXISTS, request, **ALICE).exists
        table = guarded.call(ApiKey.TABLE_EXISTS, pb.TableExistsRequest(table_path=path("t", "db")), **ALICE).exists
        return list(databases.database_name), list(tables.table_name), database, table

    assert seen() == ([], [], False, False)
    default = pb.DatabaseExistsRequest(database_name="fluss")
    assert guarded.call(ApiKey.DATABASE_EXISTS, default, **ALICE).exists
    allow(guarded, READ, TABLE, "db.t")
    assert seen() == ([], ["t"], False, True)
    allow(guarded, WRITE, DATABASE, "db")
    assert seen() == (["db"], ["p", "t"], True, True)


def test_metadata_leaves_out_invisible_tables(guarded: CoordinatorHarness) -> None:
    guarded.call(ApiKey.CREATE_PARTITION, in_db(create_partition("p", r="1")), principal_name="root")
    request = pb.MetadataRequest(table_path=[path("t", "db"), path("p", "db")], partitions_id=[0])

    def seen() -> tuple[int, int, int]:
        answer = guarded.call(ApiKey.GET_METADATA, request, **ALICE)
        return len(answer.tablet_servers), len(answer.table_metadata), len(answer.partition_metadata)

    assert seen() == (1, 0, 0)
    allow(guarded, READ, TABLE, "db.t")
    assert seen() == (1, 1, 0)
    allow(guarded, READ, TABLE, "db.p")
    assert seen() == (1, 2, 1)


def test_producer_offsets_are_filtered_by_table(guarded: CoordinatorHarness) -> None:
    tables = [pb.PbProducerTableOffsets(table_id=0), pb.PbProducerTableOffsets(table_id=1)]
    request = pb.RegisterProducerOffsetsRequest(producer_id="x", table_offsets=tables)
    guarded.call(ApiKey.REGISTER_PRODUCER_OFFSETS, request, principal_name="root")
    allow(guarded, READ, TABLE, "db.p")
    get = pb.GetProducerOffsetsRequest(producer_id="x")
    assert [found.table_id for found in guarded.call(ApiKey.GET_PRODUCER_OFFSETS, get, **ALICE).table_offsets] == [1]
    delete = pb.DeleteProducerOffsetsRequest(producer_id="x")
    guarded.refuses(48, ApiKey.DELETE_PRODUCER_OFFSETS, delete, **ALICE)
    unknown = pb.RegisterProducerOffsetsRequest(producer_id="y", table_offsets=[pb.PbProducerTableOffsets(table_id=99)])
    guarded.refuses(21, ApiKey.REGISTER_PRODUCER_OFFSETS, unknown, **ALICE)


def test_changes_are_seen_at_once(guarded: CoordinatorHarness) -> None:
    allow(guarded, READ, TABLE, "db.t")
    guarded.call(ApiKey.GET_TABLE_INFO, info(), tablet=True, **ALICE)
    guarded.catalog.store.acls.remove(guarded.catalog.store.acls.all())
    guarded.refuses(48, ApiKey.GET_TABLE_INFO, info(), tablet=True, **ALICE)


def test_tables_are_handed_out_only_to_callers_who_may_write_them(make_lake: CoordinatorHarness) -> None:
    """A tiering service can make the server delete rows, so it needs the permissions of a writer."""
    harness = make_lake
    request = pb.LakeTieringHeartbeatRequest(request_table=True)
    harness.now_ms += 3_600_000
    answer = harness.call(ApiKey.LAKE_TIERING_HEARTBEAT, request, **ALICE)
    assert not answer.HasField("tiering_table")
    allow(harness, WRITE, TABLE, "fluss.second")
    answer = harness.call(ApiKey.LAKE_TIERING_HEARTBEAT, request, **ALICE)
    assert answer.tiering_table.table_path.table_name == "second", "the first one waits for another service"
    epoch = answer.coordinator_epoch
    beat = pb.PbHeartbeatReqForTable(table_id=0, coordinator_epoch=epoch, tiering_epoch=1)
    answer = harness.call(
        ApiKey.LAKE_TIERING_HEARTBEAT, pb.LakeTieringHeartbeatRequest(finished_tables=[beat]), **ALICE
    )
    assert [item.error.error_code for item in answer.finished_table_resp] == [48]


@pytest.fixture
def make_lake(tmp_path: Path) -> Iterator[CoordinatorHarness]:
    """Create two tables with a lake that are due."""
    harness = CoordinatorHarness(tmp_path, authorizer_enabled=True)
    document = table_document(properties={"table.datalake.enabled": "true", "table.datalake.freshness": "1 min"})
    for name in ("first", "second"):
        harness.call(ApiKey.CREATE_TABLE, harness.create_table_request(name, document), is_internal=True)
    yield harness
    harness.close()


def test_only_readers_get_the_keys_of_the_object_store(tmp_path: Path) -> None:
    harness = CoordinatorHarness(
        tmp_path,
        authorizer_enabled=True,
        remote_data_dir="s3://bucket/path",
        values={"s3.endpoint": "http://e", "s3.client.access-key": "a", "s3.client.secret-key": "b"},
    )

    def token() -> bytes:
        request = pb.GetFileSystemSecurityTokenRequest()
        answer = harness.call(ApiKey.GET_FILESYSTEM_SECURITY_TOKEN, request, **ALICE)
        assert (answer.schema, answer.addition_info[0].value) == ("s3", "http://e")
        return bytes(answer.token)

    assert token() == b""
    allow(harness, WRITE, TABLE, "db.t")
    assert token() == b""
    allow(harness, READ, TABLE, "db.t")
    assert b"access_key_secret" in token()
    harness.close()


@pytest.mark.parametrize("operation", [None, DESCRIBE])
def test_a_refusal_names_a_table_only_to_callers_who_may_see_it(
    guarded: CoordinatorHarness, operation: int | None
) -> None:
    """A request by id would reveal the name of the table."""
    if operation is not None:
        allow(guarded, operation, TABLE, "db.t")
    request = pb.RegisterProducerOffsetsRequest(producer_id="x", table_offsets=[pb.PbProducerTableOffsets(table_id=0)])
    text = guarded.refuses(48, ApiKey.REGISTER_PRODUCER_OFFSETS, request, **ALICE)
    assert ("db.t" in text) == (operation is not None)
    drop = pb.DropAclsRequest(acl_filter=[pb.PbAclFilter(resource_type=1, operation_type=1, permission_type=1)])
    allow(guarded, READ, DATABASE, "secret", principal_name="bob")
    assert "secret" not in guarded.refuses(48, ApiKey.DROP_ACLS, drop, **ALICE)


def test_missing_and_invisible_resources_look_the_same(guarded: CoordinatorHarness) -> None:
    hidden = guarded.call(ApiKey.LIST_TABLES, pb.ListTablesRequest(database_name="db"), **ALICE)
    assert hidden == guarded.call(ApiKey.LIST_TABLES, pb.ListTablesRequest(database_name="nowhere"), **ALICE)
    for request in (
        pb.MetadataRequest(table_path=[path("nothing", "db")]),
        pb.MetadataRequest(
            partitions_path=[pb.PbPhysicalTablePath(database_name="db", table_name="p", partition_name="9")]
        ),
    ):
        assert not guarded.call(ApiKey.GET_METADATA, request, **ALICE).table_metadata
    allow(guarded, DESCRIBE, DATABASE, "db")
    allow(guarded, DESCRIBE, DATABASE, "nowhere")
    guarded.refuses(4, ApiKey.LIST_TABLES, pb.ListTablesRequest(database_name="nowhere"), **ALICE)
    guarded.refuses(7, ApiKey.GET_METADATA, pb.MetadataRequest(table_path=[path("nothing", "db")]), **ALICE)
