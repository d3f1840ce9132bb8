"""Heartbeats: assignments, fencing, restarts, statistics."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fluss.model.paths import TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.coordinator.service import CoordinatorService
from fluss.server.runtime import time_slices
from tests.support.harness.coordinator import CoordinatorHarness
from tools.servers.messages import alter_properties, path, table_document

Make = Callable[..., CoordinatorHarness]
LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "1 min"}


def beat(
    coordinator: CoordinatorHarness, request_table: bool = False, **tables: list[pb.PbHeartbeatReqForTable]
) -> pb.LakeTieringHeartbeatResponse:
    forced = [table.table_id for table in tables.pop("forced", [])]
    request = pb.LakeTieringHeartbeatRequest(request_table=request_table, force_finished_tables=forced, **tables)
    answer = coordinator.call(ApiKey.LAKE_TIERING_HEARTBEAT, request)
    assert isinstance(answer, pb.LakeTieringHeartbeatResponse)
    return answer


def assigned(answer: pb.LakeTieringHeartbeatResponse) -> pb.PbHeartbeatReqForTable:
    assert answer.HasField("tiering_table")
    return pb.PbHeartbeatReqForTable(
        table_id=answer.tiering_table.table_id,
        coordinator_epoch=answer.coordinator_epoch,
        tiering_epoch=answer.tiering_table.tiering_epoch,
    )


def error_code(answer: pb.PbHeartbeatRespForTable) -> int | None:
    return answer.error.error_code if answer.HasField("error") else None


@pytest.fixture
def coordinator(make_coordinator: Make) -> CoordinatorHarness:
    coordinator = make_coordinator()
    coordinator.create_table("plain")
    coordinator.create_table("t", table_document(properties=LAKE))
    return coordinator


@pytest.mark.parametrize("kind", ["failed_tables", "tiering_tables", "finished_tables"])
def test_others_come_in_between(coordinator: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(time_slices, "TIME_SLICE_SECONDS", 0.0)  # Every table has its own time slice.
    table = pb.PbHeartbeatReqForTable(table_id=1, coordinator_epoch=1, tiering_epoch=1)
    request = pb.LakeTieringHeartbeatRequest()
    getattr(request, kind).extend([table] * 20)
    assert coordinator.loop_steps_during(ApiKey.LAKE_TIERING_HEARTBEAT, request) >= 20


def test_an_empty_heartbeat_returns_the_epoch(coordinator: CoordinatorHarness) -> None:
    answer = beat(coordinator)
    assert answer.coordinator_epoch == coordinator.service.epoch
    assert not answer.HasField("tiering_table")


def test_a_table_is_handed_out_when_it_is_due(coordinator: CoordinatorHarness) -> None:
    assert not beat(coordinator, True).HasField("tiering_table")
    coordinator.now_ms += 60_000
    assert not beat(coordinator, False).HasField("tiering_table")
    answer = beat(coordinator, True)
    assert answer.tiering_table == pb.PbLakeTieringTableInfo(table_id=1, table_path=path("t"), tiering_epoch=1)
    assert not beat(coordinator, True).HasField("tiering_table")
    table = assigned(answer)
    answer = beat(coordinator, tiering_tables=[table])
    assert error_code(answer.tiering_table_resp[0]) is None
    answer = beat(coordinator, finished_tables=[table])
    assert (answer.finished_table_resp[0].table_id, error_code(answer.finished_table_resp[0])) == (1, None)
    assert coordinator.catalog.store.lake.tiering(1).last_tiered_time == coordinator.now_ms


def test_tables_that_finished_by_force_or_failed_are_due_at_once(coordinator: CoordinatorHarness) -> None:
    coordinator.now_ms += 60_000
    table = assigned(beat(coordinator, True))
    again = assigned(beat(coordinator, True, finished_tables=[table], forced=[table]))
    assert again.tiering_epoch == 2
    third = assigned(beat(coordinator, True, failed_tables=[again]))
    assert third.tiering_epoch == 3
    assert error_code(beat(coordinator, failed_tables=[again]).failed_table_resp[0]) == 50


def test_wrong_epochs_and_unknown_tables(coordinator: CoordinatorHarness) -> None:
    coordinator.now_ms += 60_000
    table = assigned(beat(coordinator, True))
    other_coordinator = pb.PbHeartbeatReqForTable()
    other_coordinator.CopyFrom(table)
    other_coordinator.coordinator_epoch += 1
    unknown = pb.PbHeartbeatReqForTable(table_id=0, coordinator_epoch=table.coordinator_epoch, tiering_epoch=1)
    answer = beat(coordinator, tiering_tables=[other_coordinator, unknown, table])
    assert [error_code(each) for each in answer.tiering_table_resp] == [23, 7, None]


def test_a_restart_fences_and_hands_out_new_epochs(coordinator: CoordinatorHarness) -> None:
    coordinator.now_ms += 60_000
    table = assigned(beat(coordinator, True))
    restarted = CoordinatorService(
        coordinator.config, coordinator.catalog, coordinator.topology, lambda: coordinator.now_ms
    )
    coordinator._apis = restarted.apis()
    answer = beat(coordinator, True, finished_tables=[table])
    assert error_code(answer.finished_table_resp[0]) == 23
    again = assigned(answer)
    assert (again.coordinator_epoch, again.tiering_epoch) == (table.coordinator_epoch + 1, 2)
    guessed = pb.PbHeartbeatReqForTable()
    guessed.CopyFrom(table)
    guessed.coordinator_epoch = again.coordinator_epoch
    assert error_code(beat(coordinator, finished_tables=[guessed]).finished_table_resp[0]) == 50


def test_a_restart_does_not_forget_when_a_table_was_tiered(coordinator: CoordinatorHarness) -> None:
    coordinator.now_ms += 60_000
    table = assigned(beat(coordinator, True))
    beat(coordinator, finished_tables=[table])
    coordinator.now_ms += 59_999
    restarted = CoordinatorService(
        coordinator.config, coordinator.catalog, coordinator.topology, lambda: coordinator.now_ms
    )
    coordinator._apis = restarted.apis()
    assert not beat(coordinator, True).HasField("tiering_table")
    coordinator.now_ms += 1
    assert beat(coordinator, True).tiering_table.tiering_epoch == 2


def test_dropped_and_disabled_tables_are_not_tiered(coordinator: CoordinatorHarness) -> None:
    coordinator.create_table("u", table_document(properties=LAKE))
    coordinator.now_ms += 60_000
    tables = [assigned(beat(coordinator, True)) for _ in range(2)]
    coordinator.call(ApiKey.DROP_TABLE, pb.DropTableRequest(table_path=path("t"), ignore_if_not_exists=False))
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("u", {"table.datalake.enabled": "false"}))
    answer = beat(coordinator, tiering_tables=tables)
    assert [error_code(each) for each in answer.tiering_table_resp] == [7, 7]
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("u", {"table.datalake.enabled": "true"}))
    assert assigned(beat(coordinator, True)).tiering_epoch == 2, "epochs survive a pause"


def test_a_changed_freshness_applies_at_once(coordinator: CoordinatorHarness) -> None:
    coordinator.now_ms += 1_000
    coordinator.call(ApiKey.ALTER_TABLE, alter_properties("t", {"table.datalake.freshness": "1 s"}))
    assert assigned(beat(coordinator, True)).tiering_epoch == 1


def test_a_silent_service_is_noticed_by_the_next_request(coordinator: CoordinatorHarness) -> None:
    coordinator.now_ms += 60_000
    table = assigned(beat(coordinator, True))
    coordinator.now_ms += coordinator.config.lake_tiering_timeout_ms
    answer = beat(coordinator, True, tiering_tables=[table])
    assert error_code(answer.tiering_table_resp[0]) == 50
    assert assigned(answer).tiering_epoch == 2


def test_metrics(coordinator: CoordinatorHarness) -> None:
    coordinator.now_ms += 60_000
    metrics = coordinator.service.lake_tiering.metrics()
    assert (metrics.lakeTableCount, metrics.pendingTablesCount, metrics.runningTablesCount) == (1, 1, 0)
    coordinator.now_ms += 500
    (values,) = coordinator.service.lake_tiering.metrics().tables.values()
    assert values == {
        "tierLag": 60_500,
        "pendingTime": 500,
        "failuresTotal": 0,
        "freshness": 60_000,
    }
    table = assigned(beat(coordinator, True))
    assert coordinator.service.lake_tiering.metrics().runningTablesCount == 1
    coordinator.now_ms += 250
    table.lake_tiering_stats.file_size, table.lake_tiering_stats.record_count = 1000, 10
    beat(coordinator, finished_tables=[table])
    metrics = coordinator.service.lake_tiering.metrics()
    assert (metrics.pendingTablesCount, metrics.runningTablesCount) == (0, 0)
    assert metrics.tables[TablePath("fluss", "t")] == {
        "tierLag": 0,
        "tierDuration": 250,
        "pendingTime": 0,
        "failuresTotal": 0,
        "fileSize": 1000,
        "recordCount": 10,
        "freshness": 60_000,
    }
