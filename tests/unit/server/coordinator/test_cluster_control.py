"""Run-time options, health, server tags, rebalancing, and what the coordinator serves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import APIS, ApiKey, Role
from fluss.server.apis.read_apis import SharedApis
from fluss.server.catalog import Catalog, CatalogStore
from fluss.server.coordinator.service import CoordinatorService
from tests.support.harness.coordinator import CoordinatorHarness
from tools.servers.messages import config_change, create_partition, table_document, text_column

Make = Callable[..., CoordinatorHarness]


def alter(*changes: pb.PbAlterConfig) -> pb.AlterClusterConfigsRequest:
    return pb.AlterClusterConfigsRequest(alter_configs=changes)


def described(coordinator: CoordinatorHarness, tablet: bool = False) -> dict[str, tuple[str, str]]:
    request = pb.DescribeClusterConfigsRequest()
    answer = coordinator.call(ApiKey.DESCRIBE_CLUSTER_CONFIGS, request, tablet=tablet)
    return {config.config_key: (config.config_value, config.config_source) for config in answer.configs}


# Which APIs


def test_the_coordinator_serves_every_public_api_of_its_role(coordinator: CoordinatorHarness) -> None:
    answered_by_the_network = {ApiKey.API_VERSIONS, ApiKey.AUTHENTICATE}
    wanted = {key for key, api in APIS.items() if api.public and Role.COORDINATOR in api.roles}
    of_tiering_services = {
        ApiKey.LAKE_TIERING_HEARTBEAT,
        ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT,
        ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT,
    }
    assert set(coordinator.service.apis()) == (wanted - answered_by_the_network) | of_tiering_services
    assert coordinator.service.server_type == 1


def test_the_shared_apis_are_those_of_both_roles(coordinator: CoordinatorHarness) -> None:
    both = {key for key, api in APIS.items() if api.public and api.roles == Role.COORDINATOR | Role.TABLET}
    shared = SharedApis(coordinator.config, coordinator.catalog, coordinator.topology, lambda: 0)
    assert set(shared.apis()) == both - {ApiKey.API_VERSIONS, ApiKey.AUTHENTICATE}


def test_a_restart_keeps_everything_and_counts_the_epoch(coordinator: CoordinatorHarness) -> None:
    coordinator.create_table("t")
    catalog = Catalog(CatalogStore(coordinator.path))
    again = CoordinatorService(coordinator.config, catalog, coordinator.topology, lambda: 5)
    assert again.epoch == coordinator.service.epoch + 1
    assert [entry.path.table_name for entry in catalog.tables()] == ["t"]
    assert list(catalog.databases) == ["fluss"]
    again.close()
    catalog.store.close()


# Options


def test_describe(make_coordinator: Make) -> None:
    values = {"bind.listeners": "FLUSS://h:1", "security.sasl.plain.credentials": "alice:geheim", "s3.secret-key": "x"}
    coordinator = make_coordinator(values=values)
    found = described(coordinator, tablet=True)
    assert found["bind.listeners"] == ("FLUSS://h:1", "INITIAL_SERVER_CONFIG")
    assert found["security.sasl.plain.credentials"][0] == found["s3.secret-key"][0] == "******"


def test_changes_take_precedence_and_survive(make_coordinator: Make) -> None:
    coordinator = make_coordinator(values={"datalake.format": "iceberg"}, datalake_format="iceberg")
    changes = [config_change("datalake.format", "PAIMON"), config_change("datalake.paimon.s3.secret-key", "x")]
    coordinator.call(ApiKey.ALTER_CLUSTER_CONFIGS, alter(*changes))
    found = described(coordinator, tablet=True)
    assert found["datalake.format"] == ("paimon", "DYNAMIC_SERVER_CONFIG")
    assert found["datalake.paimon.s3.secret-key"] == ("******", "DYNAMIC_SERVER_CONFIG")
    coordinator.create_table("t")
    assert coordinator.table_node("t")["properties"]["table.datalake.format"] == "paimon"
    reopened = Catalog(CatalogStore(coordinator.path))
    assert reopened.cluster_config["datalake.format"] == "paimon"
    reopened.store.close()
    coordinator.call(ApiKey.ALTER_CLUSTER_CONFIGS, alter(config_change("datalake.format", None)))
    assert described(coordinator)["datalake.format"] == ("iceberg", "INITIAL_SERVER_CONFIG")


def test_an_empty_change_is_a_success(coordinator: CoordinatorHarness) -> None:
    coordinator.call(ApiKey.ALTER_CLUSTER_CONFIGS, alter())


@pytest.mark.parametrize(
    "change",
    [
        config_change("max.bucket.num", "5"),
        config_change("security.sasl.plain.credentials", "a:b"),
        config_change("nonsense", "1"),
        config_change("datalake.format", "delta"),
        config_change("datalake.enabled", "yes"),
        config_change("log.retention.roll-active-segment.enabled", "true"),
        config_change("datalake.format", "paimon", 2),
        config_change("datalake.format", "paimon", 3),
        config_change("datalake.format", "paimon", 9),
        config_change("datalake.format", None, 0),
    ],
)
def test_refused_changes(coordinator: CoordinatorHarness, change: pb.PbAlterConfig) -> None:
    good = config_change("datalake.paimon.warehouse", "/w")
    assert change.config_key in coordinator.refuses(64, ApiKey.ALTER_CLUSTER_CONFIGS, alter(good, change))
    assert "datalake.paimon.warehouse" not in described(coordinator)


def test_credentials_are_not_in_the_refusal(coordinator: CoordinatorHarness) -> None:
    change = config_change("security.sasl.plain.credentials", "alice:geheim")
    assert "geheim" not in coordinator.refuses(64, ApiKey.ALTER_CLUSTER_CONFIGS, alter(change))


# Health


def test_health(coordinator: CoordinatorHarness) -> None:
    def health(tablet: bool) -> list[int]:
        answer = coordinator.call(ApiKey.GET_CLUSTER_HEALTH, pb.GetClusterHealthRequest(), tablet=tablet)
        counts = [answer.num_replicas, answer.in_sync_replicas, answer.num_leader_replicas]
        return [*counts, answer.active_leader_replicas, answer.status]

    assert health(False) == [0, 0, 0, 0, 0]
    coordinator.create_table("t", table_document(bucket_count=3))
    coordinator.create_table("p", table_document([text_column("r")], partition_key=["r"], bucket_count=2))
    for value in ("1", "2"):
        coordinator.call(ApiKey.CREATE_PARTITION, create_partition("p", r=value))
    assert health(False) == health(True) == [7, 7, 7, 7, 0]


# Tags


def add_tag(*server_ids: int, tag: int = 0) -> pb.AddServerTagRequest:
    return pb.AddServerTagRequest(server_ids=server_ids, server_tag=tag)


def remove_tag(*server_ids: int, tag: int = 0) -> pb.RemoveServerTagRequest:
    return pb.RemoveServerTagRequest(server_ids=server_ids, server_tag=tag)


def test_tags(make_coordinator: Make) -> None:
    coordinator = make_coordinator(tablets=2)
    coordinator.refuses(58, ApiKey.ADD_SERVER_TAG, add_tag(0, 2))
    coordinator.refuses(58, ApiKey.REMOVE_SERVER_TAG, remove_tag(-1))
    coordinator.refuses(-1, ApiKey.ADD_SERVER_TAG, add_tag(0, tag=7))
    coordinator.call(ApiKey.ADD_SERVER_TAG, add_tag(0, 1, tag=1))
    coordinator.call(ApiKey.ADD_SERVER_TAG, add_tag(0, tag=1))
    coordinator.refuses(59, ApiKey.ADD_SERVER_TAG, add_tag(0))
    coordinator.refuses(60, ApiKey.REMOVE_SERVER_TAG, remove_tag(0))
    coordinator.create_table("temporary")  # a server that is away for a while still gets tables
    coordinator.call(ApiKey.REMOVE_SERVER_TAG, remove_tag(0, 1, tag=1))
    coordinator.call(ApiKey.REMOVE_SERVER_TAG, remove_tag(0, 1, tag=1))
    coordinator.call(ApiKey.ADD_SERVER_TAG, add_tag(0))
    coordinator.create_table("one_left")
    coordinator.call(ApiKey.ADD_SERVER_TAG, add_tag(1))
    coordinator.refuses_table(17, table_document())
    coordinator.call(ApiKey.REMOVE_SERVER_TAG, remove_tag(1))
    coordinator.create_table("again")


# Rebalancing


def test_rebalance(coordinator: CoordinatorHarness) -> None:
    def progress(rebalance_id: str | None = None) -> pb.ListRebalanceProgressRequest:
        return pb.ListRebalanceProgressRequest(rebalance_id=rebalance_id)

    nothing = coordinator.call(ApiKey.LIST_REBALANCE_PROGRESS, progress("x"))
    assert not nothing.HasField("rebalance_id")
    coordinator.call(ApiKey.CANCEL_REBALANCE, pb.CancelRebalanceRequest())
    coordinator.refuses(-1, ApiKey.REBALANCE, pb.RebalanceRequest(goals=[0, 5]))
    rebalance_id = coordinator.call(ApiKey.REBALANCE, pb.RebalanceRequest(goals=[0, 1, 2])).rebalance_id
    for request in (progress(), progress(rebalance_id)):
        answer = coordinator.call(ApiKey.LIST_REBALANCE_PROGRESS, request)
        assert (answer.rebalance_id, answer.rebalance_status, len(answer.table_progress)) == (rebalance_id, 3, 0)
    coordinator.refuses(62, ApiKey.LIST_REBALANCE_PROGRESS, progress("x"))
    coordinator.call(ApiKey.CANCEL_REBALANCE, pb.CancelRebalanceRequest(rebalance_id=rebalance_id))
    coordinator.refuses(62, ApiKey.CANCEL_REBALANCE, pb.CancelRebalanceRequest(rebalance_id="x"))
