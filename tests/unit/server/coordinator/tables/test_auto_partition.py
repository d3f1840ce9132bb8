"""Auto-partitioning. Now is 2024-09-19 12:00 UTC."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from fluss.errors import FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.support.harness.coordinator import CoordinatorHarness
from tools.servers.messages import create_partition, int_column, path, table_document, text_column
from tools.waiting import eventually

Make = Callable[..., CoordinatorHarness]
DAY_MS = 86_400_000
COLUMNS = [text_column("d"), text_column("r"), int_column("v")]


def make_table(coordinator: CoordinatorHarness, keys: tuple[str, ...] = ("d",), **properties: str) -> None:
    named = {f"table.auto-partition.{key.replace('_', '-')}": value for key, value in properties.items()}
    defaults = {"table.auto-partition.enabled": "true", "table.auto-partition.time-zone": "UTC"}
    coordinator.create_table("t", table_document(COLUMNS, partition_key=keys, properties=defaults | named))


@pytest.mark.parametrize(
    ("unit", "names"),
    [
        ("YEAR", ["2024", "2025"]),
        ("QUARTER", ["20243", "20244"]),
        ("MONTH", ["202409", "202410"]),
        ("DAY", ["20240919", "20240920"]),
        ("HOUR", ["2024091912", "2024091913"]),
    ],
)
def test_created_together_with_the_table(coordinator: CoordinatorHarness, unit: str, names: list[str]) -> None:
    make_table(coordinator, time_unit=unit)
    assert coordinator.partition_names("t") == names
    request = pb.MetadataRequest(partitions_path=[partition_path(name) for name in names])
    answer = coordinator.call(ApiKey.GET_METADATA, request, tablet=True)
    assert all(partition.bucket_metadata[0].leader_id == 0 for partition in answer.partition_metadata)


def partition_path(name: str) -> pb.PbPhysicalTablePath:
    return pb.PbPhysicalTablePath(database_name="fluss", table_name="t", partition_name=name)


def test_number_format_and_zone(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator, num_precreate="3", time_format="yyyy-MM-dd", time_zone="Pacific/Kiritimati")
    assert coordinator.partition_names("t") == ["2024-09-20", "2024-09-21", "2024-09-22"]


def test_nothing_is_created_in_advance(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator, num_precreate="0")
    assert coordinator.partition_names("t") == []


def test_switched_off(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator, enabled="false")
    assert coordinator.partition_names("t") == []


def test_partitions_follow_the_time(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator, num_retention="2")
    coordinator.now_ms += DAY_MS
    coordinator.service.auto_partitioner.update_all()
    assert coordinator.partition_names("t") == ["20240919", "20240920", "20240921"]
    coordinator.now_ms += 2 * DAY_MS
    coordinator.service.auto_partitioner.update_all()
    assert coordinator.partition_names("t") == ["20240920", "20240921", "20240922", "20240923"]
    before = coordinator.catalog.change
    coordinator.service.auto_partitioner.update_all()
    assert coordinator.catalog.change == before


def test_partitions_by_hand_expire_too(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator, num_retention="3", num_precreate="1")
    coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", d="20240917"))
    assert coordinator.partition_names("t") == ["20240919", "20240917"]
    coordinator.now_ms += 2 * DAY_MS
    coordinator.service.auto_partitioner.update_all()
    assert coordinator.partition_names("t") == ["20240919", "20240921"]


def test_no_retention(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator, num_retention="-1", num_precreate="1")
    coordinator.now_ms += 1000 * DAY_MS
    coordinator.service.auto_partitioner.update_all()
    assert coordinator.partition_names("t") == ["20240919", "20270616"]


def test_retention_of_zero_keeps_today(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator, num_retention="0", num_precreate="1")
    coordinator.now_ms += DAY_MS
    coordinator.service.auto_partitioner.update_all()
    assert coordinator.partition_names("t") == ["20240920"]


def test_several_keys_share_an_expired_value(coordinator: CoordinatorHarness) -> None:
    make_table(coordinator, ("r", "d"), key="d", num_retention="1")
    for region in ("a", "b"):
        coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", r=region, d="20240918"))
    coordinator.call(ApiKey.CREATE_PARTITION, create_partition("t", r="a", d="20240919"))
    coordinator.now_ms += DAY_MS
    coordinator.service.auto_partitioner.update_all()
    assert coordinator.partition_names("t") == ["a$20240919"]


def test_over_the_limit_is_only_logged(make_coordinator: Make, caplog: pytest.LogCaptureFixture) -> None:
    coordinator = make_coordinator(max_partition_num=3)
    make_table(coordinator, num_precreate="5")
    assert coordinator.partition_names("t") == ["20240919", "20240920", "20240921"]
    make_limit = [record for record in caplog.records if record.levelno == logging.WARNING]
    coordinator.now_ms += DAY_MS
    coordinator.service.auto_partitioner.update_all()
    assert len(coordinator.partition_names("t")) == 3
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) > len(make_limit)


def test_a_table_that_fails_does_not_stop_others(
    coordinator: CoordinatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    properties = {"table.auto-partition.enabled": "true", "table.replication.factor": "9"}
    coordinator.create_table("broken", table_document(COLUMNS, partition_key=["d"], properties=properties))
    assert "fluss.broken" in caplog.text
    make_table(coordinator)
    assert len(coordinator.partition_names("t")) == 2


def test_the_end_of_the_calendars_range(coordinator: CoordinatorHarness, caplog: pytest.LogCaptureFixture) -> None:
    make_table(coordinator, time_unit="YEAR", num_precreate="900", num_retention="100000")
    assert len(coordinator.partition_names("t")) == 900
    coordinator.now_ms = 253_370_764_800_000  # year 9999
    coordinator.service.auto_partitioner.update_all()
    assert "outside of the calendar's range" in caplog.text


def test_the_background_loop(make_coordinator: Make) -> None:
    coordinator = make_coordinator(auto_partition_check_interval_ms=1, producer_offsets_cleanup_interval_ms=1)
    make_table(coordinator)
    coordinator.call(
        ApiKey.REGISTER_PRODUCER_OFFSETS, pb.RegisterProducerOffsetsRequest(producer_id="p", ttl_ms=DAY_MS)
    )
    coordinator.now_ms += 2 * DAY_MS

    async def run() -> None:
        task = asyncio.ensure_future(coordinator.service.run_background())
        await eventually(
            lambda: len(coordinator.partition_names("t")) >= 4 and not _producer_rows(coordinator),
            "new partitions are made and old offsets of producers are removed",
        )
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert coordinator.partition_names("t") == ["20240919", "20240920", "20240921", "20240922"]


def _producer_rows(coordinator: CoordinatorHarness) -> int:
    (count,) = coordinator.catalog.store.file.connection.execute("SELECT count(*) FROM producer_offsets").fetchone()
    return int(count)


def test_the_background_loop_survives_errors(
    make_coordinator: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = make_coordinator(auto_partition_check_interval_ms=1)
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise FlussError("disk", 70)

    monkeypatch.setattr(coordinator.service.auto_partitioner, "update_all", fail)

    async def run() -> None:
        task = asyncio.ensure_future(coordinator.service.run_background())
        await eventually(lambda: len(calls) >= 3, "three tries")
        task.cancel()

    asyncio.run(run())
    assert "background work failed" in caplog.text
    assert coordinator.call(ApiKey.TABLE_EXISTS, pb.TableExistsRequest(table_path=path("t"))).exists is False
