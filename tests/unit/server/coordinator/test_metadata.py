"""GET_METADATA."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.apis.authorizer import Authorizer, Resource
from fluss.server.runtime.handlers import RequestContext
from tests.support.harness.coordinator import CoordinatorHarness
from tools.servers.messages import create_partition, drop_partition, path, table_document, text_column

Make = Callable[..., CoordinatorHarness]


def partition_path(table: str, name: str | None) -> pb.PbPhysicalTablePath:
    return pb.PbPhysicalTablePath(database_name="fluss", table_name=table, partition_name=name)


@pytest.fixture
def tables(make_coordinator: Make) -> CoordinatorHarness:
    """`t` with 4 buckets (id 0), `p` with partitions US (0) and EU (1) of 2 buckets, `q` with partition X (2)."""
    coordinator = make_coordinator(tablets=3)
    coordinator.create_table("t", table_document(bucket_count=4))
    for name, partitions in (("p", ("US", "EU")), ("q", ("X",))):
        coordinator.create_table(name, table_document([text_column("r")], partition_key=["r"], bucket_count=2))
        for partition in partitions:
            coordinator.call(ApiKey.CREATE_PARTITION, create_partition(name, r=partition))
    return coordinator


@pytest.mark.parametrize("tablet", [False, True])
@pytest.mark.parametrize(
    ("listener", "host", "first_port", "coordinator_port"),
    [("FLUSS", "127.0.0.1", 9200, 9123), ("CLIENT", "example.org", 9300, 9223)],
)
def test_nodes_of_the_listener(
    tables: CoordinatorHarness, tablet: bool, listener: str, host: str, first_port: int, coordinator_port: int
) -> None:
    answer = tables.call(ApiKey.GET_METADATA, pb.MetadataRequest(), tablet=tablet, listener=listener)
    node = answer.coordinator_server
    assert (node.node_id, node.host, node.port) == (0, host, coordinator_port)
    assert [(node.node_id, node.host, node.port) for node in answer.tablet_servers] == [
        (server_id, host, first_port + server_id) for server_id in range(3)
    ]
    assert not answer.table_metadata
    assert not answer.partition_metadata
    assert not answer.tablet_servers[0].HasField("rack")


def test_a_permission_is_looked_up_once_for_each_table(
    tables: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request is answered in one go, so its entries must cost next to nothing."""
    asked: list[Resource] = []
    permits = Authorizer.permits

    def noted(self: Authorizer, context: RequestContext, resource: Resource) -> bool:
        asked.append(resource)
        return permits(self, context, resource)

    monkeypatch.setattr(Authorizer, "permits", noted)
    request = pb.MetadataRequest(partitions_path=[partition_path("p", "US"), partition_path("q", "X")] * 100)
    assert len(tables.call(ApiKey.GET_METADATA, request).partition_metadata) == 2
    assert len(asked) == 2


def test_an_unknown_listener_has_no_nodes(tables: CoordinatorHarness) -> None:
    answer = tables.call(ApiKey.GET_METADATA, pb.MetadataRequest(), listener="OTHER")
    assert not answer.HasField("coordinator_server")
    assert not answer.tablet_servers


def test_rack(make_coordinator: Make) -> None:
    answer = make_coordinator(rack="r1").call(ApiKey.GET_METADATA, pb.MetadataRequest())
    assert answer.tablet_servers[0].rack == "r1"


def test_a_table(tables: CoordinatorHarness) -> None:
    answer = tables.call(ApiKey.GET_METADATA, pb.MetadataRequest(table_path=[path("t"), path("t")]), tablet=True)
    (table,) = answer.table_metadata
    info = tables.table_info("t")
    assert (table.table_path.database_name, table.table_path.table_name) == ("fluss", "t")
    assert (table.table_id, table.schema_id, table.table_json) == (info.table_id, info.schema_id, info.table_json)
    assert (table.created_time, table.modified_time) == (info.created_time, info.modified_time)
    assert json.loads(table.table_json)["bucket_count"] == 4
    assert [(bucket.bucket_id, bucket.leader_id, list(bucket.replica_id)) for bucket in table.bucket_metadata] == [
        (0, 0, [0]),
        (1, 1, [1]),
        (2, 2, [2]),
        (3, 0, [0]),
    ]
    assert all(bucket.leader_epoch == 0 and bucket.HasField("leader_epoch") for bucket in table.bucket_metadata)


def test_a_partitioned_table_has_no_buckets_of_its_own(tables: CoordinatorHarness) -> None:
    answer = tables.call(ApiKey.GET_METADATA, pb.MetadataRequest(table_path=[path("p")]))
    assert not answer.table_metadata[0].bucket_metadata
    assert not answer.partition_metadata


def test_partitions_by_name_and_id(tables: CoordinatorHarness) -> None:
    request = pb.MetadataRequest(
        table_path=[path("p")], partitions_path=[partition_path("p", "US")], partitions_id=[0, 1]
    )
    answer = tables.call(ApiKey.GET_METADATA, request, tablet=True)
    assert len(answer.table_metadata) == 1
    assert [(found.table_id, found.partition_id, found.partition_name) for found in answer.partition_metadata] == [
        (1, 0, "US"),
        (1, 1, "EU"),
    ]
    # leaders: (table id + partition id + bucket id) % 3
    assert [[bucket.leader_id for bucket in found.bucket_metadata] for found in answer.partition_metadata] == [
        [1, 2],
        [2, 0],
    ]


def test_unknown_things_fail_the_whole_request(tables: CoordinatorHarness) -> None:
    tables.refuses(7, ApiKey.GET_METADATA, pb.MetadataRequest(table_path=[path("t"), path("x")]), tablet=True)
    text = tables.refuses(
        36, ApiKey.GET_METADATA, pb.MetadataRequest(partitions_path=[partition_path("p", "NOT Exists")])
    )
    assert text == "Table partition 'fluss.p(p=NOT Exists)' does not exist."
    for request in (
        pb.MetadataRequest(table_path=[path("p")], partitions_id=[0, 2**63 - 1]),
        pb.MetadataRequest(table_path=[path("p")], partitions_id=[2]),  # of another table
        pb.MetadataRequest(partitions_id=[99]),
        pb.MetadataRequest(partitions_path=[partition_path("t", "US")]),
        pb.MetadataRequest(partitions_path=[partition_path("nowhere", "US")]),
    ):
        tables.refuses(36, ApiKey.GET_METADATA, request)


def test_an_id_without_tables_is_found(tables: CoordinatorHarness) -> None:
    answer = tables.call(ApiKey.GET_METADATA, pb.MetadataRequest(partitions_id=[2]))
    assert [found.partition_name for found in answer.partition_metadata] == ["X"]


def test_a_dropped_partition(tables: CoordinatorHarness) -> None:
    request = pb.MetadataRequest(table_path=[path("p")], partitions_id=[1])
    tables.call(ApiKey.GET_METADATA, request, tablet=True)
    tables.call(ApiKey.DROP_PARTITION, drop_partition("p", r="EU"))
    tables.refuses(36, ApiKey.GET_METADATA, request, tablet=True)


def test_a_partition_path_without_name_is_the_table(tables: CoordinatorHarness) -> None:
    request = pb.MetadataRequest(table_path=[path("t")], partitions_path=[partition_path("t", None)])
    answer = tables.call(ApiKey.GET_METADATA, request)
    assert len(answer.table_metadata) == 1
    answer = tables.call(ApiKey.GET_METADATA, pb.MetadataRequest(partitions_path=[partition_path("p", None)]))
    assert [found.table_id for found in answer.table_metadata] == [1]
    tables.refuses(7, ApiKey.GET_METADATA, pb.MetadataRequest(partitions_path=[partition_path("x", None)]))
