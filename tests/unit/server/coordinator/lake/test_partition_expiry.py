"""Expired partitions of a table with a lake are dropped when the lake has them. Now is 2024-09-19 12:00 UTC."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.coordinator.lake.tiering_states import TieringState
from fluss.server.coordinator.service import CoordinatorService
from tests.support.harness.coordinator import CoordinatorHarness
from tools.servers.messages import alter_properties, create_partition, int_column, path, table_document, text_column

Make = Callable[..., CoordinatorHarness]
DAY_MS = 86_400_000
PROPERTIES = {
    "table.auto-partition.enabled": "true",
    "table.auto-partition.time-zone": "UTC",
    "table.auto-partition.num-precreate": "1",
    "table.auto-partition.num-retention": "1",
    "table.datalake.enabled": "true",
}
DOCUMENT = table_document(
    [text_column("d"), int_column("v")], partition_key=["d"], bucket_count=2, properties=PROPERTIES
)
FIRST = "20240919"


@pytest.fixture
def coordinator(make_coordinator: Make) -> CoordinatorHarness:
    coordinator = make_coordinator()
    coordinator.create_table("t", DOCUMENT)
    return coordinator


def expire(coordinator: CoordinatorHarness) -> None:
    """Advance two days, after which the first partition is too old."""
    coordinator.now_ms += 2 * DAY_MS
    coordinator.service.auto_partitioner.update_all()


def partitions(coordinator: CoordinatorHarness) -> list[str]:
    return coordinator.partition_names("t")


def closing(coordinator: CoordinatorHarness) -> frozenset[int]:
    coordinator.tablet_catalog.refresh()
    return coordinator.tablet_catalog.closing_partitions


def note_ends(coordinator: CoordinatorHarness, *ends: int) -> None:
    """Record the ends of buckets, as tablets do."""
    for bucket_id, end in enumerate(ends):
        coordinator.tablet_catalog.store.closing.note_end(TableBucket(0, 0, bucket_id), end)


def tier(coordinator: CoordinatorHarness, snapshot_id: int, *ends: int) -> None:
    """Tier buckets, as a tiering service does."""
    coordinator.written_logs()
    prepare = pb.PrepareLakeTableSnapshotRequest()
    table = prepare.bucket_offsets.add(table_id=0, table_path=path("t"))
    for bucket_id, end in enumerate(ends):
        table.bucket_offsets.add(partition_id=0, bucket_id=bucket_id, log_end_offset=end)
    (prepared,) = coordinator.call(ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT, prepare).prepare_lake_table_resp
    commit = pb.CommitLakeTableSnapshotRequest()
    commit.lake_table_snapshot_metadata.add(
        table_id=0, snapshot_id=snapshot_id, tiered_bucket_offsets_file_path=prepared.lake_table_offsets_path
    )
    (answer,) = coordinator.call(ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT, commit).table_resp
    assert not answer.HasField("error_code"), answer.error_message


def test_it_is_dropped_by_the_commit_that_completes_it(
    coordinator: CoordinatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fluss.server.coordinator")
    tier(coordinator, 1, 3, 4)
    expire(coordinator)
    assert partitions(coordinator) == [FIRST, "20240921"]
    assert closing(coordinator) == {0}
    assert f"partitions {FIRST} of table fluss.t expired" in caplog.text
    tier(coordinator, 2, 5, 7)
    assert FIRST in partitions(coordinator), "the ends are not known yet"
    note_ends(coordinator, 6, 7)
    tier(coordinator, 3, 5, 7)
    assert FIRST in partitions(coordinator)
    tier(coordinator, 4, 6, 7)
    assert partitions(coordinator) == ["20240921"]
    assert coordinator.catalog.store.closing.all() == {}


def test_its_table_is_due_at_once(coordinator: CoordinatorHarness) -> None:
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {"table.datalake.freshness": "90 d"}))
    coordinator.service.lake_tiering.update()
    assert coordinator.service.lake_tiering.states.count(TieringState.PENDING) == 0
    expire(coordinator)
    assert coordinator.service.lake_tiering.states.count(TieringState.PENDING) == 1


def test_an_empty_one_is_dropped_by_the_next_check(coordinator: CoordinatorHarness) -> None:
    expire(coordinator)
    note_ends(coordinator, 0, 0)
    coordinator.service.watch_lake()
    assert partitions(coordinator) == ["20240921"]


def test_a_restart_forgets_nothing(coordinator: CoordinatorHarness) -> None:
    expire(coordinator)
    note_ends(coordinator, 6, 0)
    restarted = CoordinatorService(
        coordinator.config, coordinator.catalog, coordinator.topology, lambda: coordinator.now_ms
    )
    coordinator._apis = restarted.apis()
    tier(coordinator, 1, 6)
    assert partitions(coordinator) == ["20240921"]


def test_the_wait_has_a_limit(coordinator: CoordinatorHarness, caplog: pytest.LogCaptureFixture) -> None:
    expire(coordinator)
    note_ends(coordinator, 6, 7)
    limit_ms = coordinator.config.lake_expired_partition_max_wait_ms
    coordinator.now_ms += limit_ms - 1
    coordinator.service.watch_lake()
    assert FIRST in partitions(coordinator)
    coordinator.now_ms += 1
    coordinator.service.watch_lake()
    assert FIRST not in partitions(coordinator)
    assert f"dropping expired partition {FIRST} of table fluss.t although" in caplog.text


def test_a_wait_of_zero(make_coordinator: Make) -> None:
    coordinator = make_coordinator(lake_expired_partition_max_wait_ms=0)
    coordinator.create_table("t", DOCUMENT)
    expire(coordinator)
    assert partitions(coordinator) == ["20240921"]


def test_a_longer_retention_reopens_it(coordinator: CoordinatorHarness) -> None:
    expire(coordinator)
    assert closing(coordinator) == {0}
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {"table.auto-partition.num-retention": "5"}))
    assert closing(coordinator) == set()
    expire_again: dict[str, str | None] = {"table.auto-partition.num-retention": "1"}
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", expire_again))
    assert closing(coordinator) == {0}
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {"table.auto-partition.num-retention": "-1"}))
    assert closing(coordinator) == set()
    assert FIRST in partitions(coordinator)


def test_without_a_lake_it_is_dropped_at_once(coordinator: CoordinatorHarness) -> None:
    expire(coordinator)
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {"table.datalake.enabled": "false"}))
    assert partitions(coordinator) == ["20240921"]


def test_a_user_can_drop_it_at_once(coordinator: CoordinatorHarness) -> None:
    expire(coordinator)
    request = pb.DropPartitionRequest(
        table_path=path("t"), partition_spec=create_partition("t", d=FIRST).partition_spec, ignore_if_not_exists=False
    )
    coordinator.call(ApiKey.DROP_PARTITION, request)
    assert partitions(coordinator) == ["20240921"]
