"""Partitions by hand and their time check (6.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fluss.model.descriptor import table_descriptor_from_json
from fluss.model.names import HISTORICAL_PARTITION
from fluss.model.paths import TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.support.harness.coordinator import CoordinatorHarness
from tools.servers.messages import (
    alter_properties,
    create_partition,
    drop_partition,
    int_column,
    path,
    spec,
    table_document,
    text_column,
)

Make = Callable[..., CoordinatorHarness]
COLUMNS = [text_column("dt"), text_column("region"), int_column("v")]


def make_table(coordinator: CoordinatorHarness, keys: tuple[str, ...] = ("dt", "region"), **properties: str) -> None:
    named = {f"table.auto-partition.{key.replace('_', '-')}": value for key, value in properties.items()}
    coordinator.create_table("t", table_document(COLUMNS, partition_key=keys, properties=named))


def listed(coordinator: CoordinatorHarness, **values: str) -> list[int]:
    request = pb.ListPartitionInfosRequest(table_path=path("t"), partial_partition_spec=spec(**values))
    answer = coordinator.call(ApiKey.LIST_PARTITION_INFOS, request, tablet=True)
    return [info.partition_id for info in answer.partitions_info]


def test_life_of_a_partition(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator)
    assert coordinator.partition_names("t") == []
    # the order of the spec does not matter
    coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", region="EMEA", dt="2024-01-15"))
    assert coordinator.partition_names("t") == ["2024-01-15$EMEA"]
    coordinator.refuses(42, ApiKey.CREATE_PARTITION, create_partition("t", dt="2024-01-15", region="EMEA"))
    coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", True, dt="2024-01-15", region="EMEA"))
    coordinator.call(ApiKey.DROP_PARTITION, drop_partition("t", dt="2024-01-15", region="EMEA"))
    assert coordinator.partition_names("t") == []
    coordinator.refuses(36, ApiKey.DROP_PARTITION, drop_partition("t", dt="2024-01-15", region="EMEA"))
    coordinator.call(ApiKey.DROP_PARTITION, drop_partition("t", True, dt="2024-01-15", region="EMEA"))
    coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", dt="2024-01-15", region="EMEA"))
    assert listed(coordinator) == [1]


def test_partial_specs(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator)
    request = pb.ListPartitionInfosRequest(table_path=path("t"), partial_partition_spec=spec(x="1"))
    assert not coordinator.call(ApiKey.LIST_PARTITION_INFOS, request).partitions_info
    for day, region in (("1", "EU"), ("1", "US"), ("2", "EU")):
        coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", dt=day, region=region))
    assert listed(coordinator) == [0, 1, 2]
    assert listed(coordinator, dt="1") == [0, 1]
    assert listed(coordinator, region="EU") == [0, 2]
    assert listed(coordinator, region="EU", dt="2") == [2]
    assert listed(coordinator, dt="3") == []
    assert "'x'" in coordinator.refuses(-1, ApiKey.LIST_PARTITION_INFOS, request)


def test_tables_without_partitions(coordinator: CoordinatorHarness) -> None:
    for name, code in (("missing", 7), ("plain", 37)):
        if name == "plain":
            coordinator.create_table("plain")
        coordinator.refuses(code, ApiKey.CREATE_PARTITION, create_partition(name, dt="1"))
        coordinator.refuses(code, ApiKey.DROP_PARTITION, drop_partition(name, dt="1"))
        coordinator.refuses(code, ApiKey.LIST_PARTITION_INFOS, pb.ListPartitionInfosRequest(table_path=path(name)))


@pytest.mark.parametrize(
    "values", [{}, {"dt": "1"}, {"dt": "1", "x": "2"}, {"dt": "1", "region": "2", "x": "3"}, {"dt": "1", "region": ""}]
)
def test_bad_specs(coordinator: CoordinatorHarness, values: dict[str, str]) -> None:
    make_table(coordinator)
    coordinator.refuses(43, ApiKey.CREATE_PARTITION, create_partition("t", False, **values))
    coordinator.refuses(43, ApiKey.DROP_PARTITION, drop_partition("t", True, **values))


@pytest.mark.parametrize("value", ["a b", "a$b", "\u00e4", "x" * 201, ".."])
def test_bad_values(coordinator: CoordinatorHarness, value: str) -> None:
    make_table(coordinator, ("dt",))
    coordinator.refuses(43, ApiKey.CREATE_PARTITION, create_partition("t", dt=value))


def test_internal_values(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator, ("dt",))
    coordinator.refuses(43, ApiKey.CREATE_PARTITION, create_partition("t", dt="__x"))
    coordinator.refuses(36, ApiKey.DROP_PARTITION, drop_partition("t", dt="__x"))


def test_a_key_twice(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator)
    request = create_partition("t", dt="1")
    request.partition_spec.partition_key_values.append(pb.PbKeyValue(key="dt", value="2"))
    coordinator.refuses(43, ApiKey.CREATE_PARTITION, request)


def test_limits(make_coordinator: Make) -> None:
    coordinator = make_coordinator(max_partition_num=2)
    make_table(coordinator, ("dt",))
    for day in ("1", "2"):
        coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", dt=day))
    assert "max.partition.num" in coordinator.refuses(45, ApiKey.CREATE_PARTITION, create_partition("t", dt="3"))
    coordinator.refuses(42, ApiKey.CREATE_PARTITION, create_partition("t", dt="2"))
    coordinator.call(ApiKey.DROP_PARTITION, drop_partition("t", dt="1"))
    coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", dt="3"))


def test_replicas_and_buckets_are_checked_per_partition(coordinator: CoordinatorHarness) -> None:
    replicated = table_document(COLUMNS, partition_key=["dt"], properties={"table.replication.factor": "3"})
    coordinator.create_table("replicated", replicated)
    coordinator.refuses(17, ApiKey.CREATE_PARTITION, create_partition("replicated", dt="1"))
    coordinator.create_table("empty", table_document(COLUMNS, partition_key=["dt"], bucket_count=0))
    coordinator.refuses(-1, ApiKey.CREATE_PARTITION, create_partition("empty", dt="1"))


def test_bucket_limit_per_partition(tmp_path: Any, make_coordinator: Make) -> None:
    coordinator = make_coordinator(max_bucket_num=4)
    coordinator.create_table("t", table_document(COLUMNS, partition_key=["dt"], bucket_count=4))
    entry = coordinator.catalog.table_by_id(0)
    assert entry is not None
    object.__setattr__(coordinator.config, "max_bucket_num", 3)  # the limit was lowered since
    coordinator.refuses(49, ApiKey.CREATE_PARTITION, create_partition("t", dt="1"))


def test_the_historical_partition_is_hidden(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator, ("dt",))
    coordinator.catalog.refresh()
    entry = coordinator.catalog.table_by_id(0)
    assert entry is not None
    coordinator.catalog.store.create_partitions(entry.path, 0, [HISTORICAL_PARTITION, "x"])
    assert coordinator.partition_names("t") == ["x"]
    coordinator.call(ApiKey.DROP_PARTITION, drop_partition("t", dt=HISTORICAL_PARTITION))


def test_the_historical_partition_is_managed_by_the_server(make_coordinator: Make) -> None:
    coordinator = make_coordinator()
    properties = {"table.datalake.historical-partition.enabled": "true"}
    document = table_document(
        COLUMNS, primary_key=["dt", "v"], partition_key=["dt"], bucket_count=1, properties=properties
    )
    # Stored without effect: it requires a Paimon lake, which this server does not support.
    descriptor = table_descriptor_from_json(document)
    coordinator.catalog.store.create_table(TablePath("fluss", "t"), descriptor, coordinator.now_ms)
    coordinator.refuses(43, ApiKey.DROP_PARTITION, drop_partition("t", True, dt=HISTORICAL_PARTITION))


# Time check; now is 2024-09-19 12:00 UTC


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ("20240919", True),
        ("20250101", True),
        ("20240912", True),
        ("20240911", False),
        ("20240931", False),
        ("2024-09-19", False),
        ("x", False),
        ("2024091", False),
    ],
)
def test_values_of_auto_partitioned_tables(coordinator: CoordinatorHarness, value: str, good: bool) -> None:
    make_table(coordinator, ("dt",), enabled="true", time_zone="UTC", num_precreate="0")
    if good:
        coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", dt=value))
    else:
        assert repr(value) in coordinator.refuses(43, ApiKey.CREATE_PARTITION, create_partition("t", dt=value))


def test_without_retention_no_value_is_too_old(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator, ("dt",), enabled="true", num_precreate="0", num_retention="-1")
    coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", dt="19990101"))
    coordinator.refuses(43, ApiKey.CREATE_PARTITION, create_partition("t", dt="1999"))


def test_a_time_format_alone_checks_the_form_only(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator, ("dt",), time_format="yyyy-MM-dd")
    coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", dt="1999-01-01"))
    coordinator.refuses(43, ApiKey.CREATE_PARTITION, create_partition("t", dt="19990101"))


def test_the_time_key_among_several(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator, ("region", "dt"), enabled="true", key="dt", time_zone="UTC")
    coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", region="any", dt="20240919"))
    coordinator.refuses(43, ApiKey.CREATE_PARTITION, create_partition("t", region="20240919", dt="any"))
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {"table.auto-partition.enabled": "false"}))
    coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", region="20240919", dt="any"))
