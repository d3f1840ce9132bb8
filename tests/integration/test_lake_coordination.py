"""Lake coordination on real server processes: what a user sees of it, and an expired partition's last way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

import fluss
from fluss.errors import FlussError
from fluss.lake.coordinator_calls import FinishedTable, TieringCalls, TieringTable
from fluss.model.paths import TablePath
from tests.support.lake.tiered_tables import REGIONAL, LakeTable, by_id, person
from tools.servers.server_process import ServerProcess
from tools.waiting import wait_until

CONFIG = {
    "lake.tiering.check-interval": "100 ms",
    "lake.tiering.heartbeat-timeout": "3 s",
    "log.segment.file-size": "1b",
    "log.retention.check-interval": "100 ms",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("lake") / "data", tablets=2, config=CONFIG) as server:
        yield server


@pytest.fixture
def db(server: ServerProcess) -> Iterator[fluss.Database]:
    with fluss.connect(server.address) as db:
        yield db


@pytest.fixture
def calls(server: ServerProcess) -> Iterator[TieringCalls]:
    config = fluss.Config({"bootstrap.servers": server.address})
    with fluss.FlussConnection.open(config) as connection:
        yield TieringCalls.of(connection)


def test_a_server_without_configuration_has_a_lake(db: fluss.Database, calls: TieringCalls) -> None:
    table = LakeTable(db)
    rows = [person(number) for number in range(20)]
    db.append(table.name, rows)
    assert calls.snapshot(table.path) is None
    report = table.tier()
    found = calls.snapshot(table.path)
    assert found is not None
    table_id, snapshot = found
    assert snapshot.snapshot_id == report.snapshot_id
    assert sum(snapshot.table_buckets_offset.values()) == 20
    assert {bucket.table_id for bucket in snapshot.get_table_buckets()} == {table_id}
    table.check(rows)


def test_an_expired_partition_is_finished_before_it_goes(db: fluss.Database, server: ServerProcess) -> None:
    properties = {
        "table.auto-partition.enabled": "true",
        "table.auto-partition.num-precreate": "0",
        "table.auto-partition.num-retention": "-1",
    }
    table = LakeTable(db, REGIONAL, partitions=["20200101", "20200102"], properties=properties)
    rows = [person(number, region="20200101") for number in range(10)]
    db.append(table.name, rows)
    db.alter_table(table.name, set_properties={"table.auto-partition.num-retention": "1"})
    wait_until(lambda: names(db, table) == ["20200101"], "the empty partition goes without a round")
    with pytest.raises(FlussError, match="has expired") as caught:
        db.append(table.name, [person(11, region="20200101")])
    assert caught.value.error_code == 36
    time.sleep(0.5)  # several looks of the coordinator: it does not go by itself
    assert names(db, table) == ["20200101"]
    table.tier()
    wait_until(lambda: names(db, table) == [], "the partition goes when the lake has all of it")
    table.check(rows)
    assert "partitions 20200101, 20200102" in server.log_text()


def names(db: fluss.Database, table: LakeTable) -> list[str]:
    return [partition.partition_name for partition in db.partitions(table.name)]


def test_the_log_expires_up_to_what_the_lake_has(db: fluss.Database, calls: TieringCalls) -> None:
    table = LakeTable(db, bucket_count=1, properties={"table.log.ttl": "50 ms"})
    for number in range(5):
        db.append(table.name, [person(number)])
    time.sleep(0.4)  # several looks for old segments
    assert earliest(db, table) == 0
    table.tier()
    wait_until(lambda: earliest(db, table) == 4, "all but the segment that is written to")
    assert by_id(db.to_arrow(table.name).to_pylist()) == [person(number) for number in range(5)]


def earliest(db: fluss.Database, table: LakeTable) -> int:
    offsets = asyncio.run(db.connection.get_admin().list_offsets(table.path, [0], fluss.OffsetSpec.earliest()))
    return offsets[0]


def test_a_silent_service_loses_its_table_to_another(db: fluss.Database, calls: TieringCalls) -> None:
    table = LakeTable(db, properties={"table.datalake.freshness": "1 ms"})
    first = take(calls, table.path)
    assert not calls.heartbeat(tiering=[first]).errors
    second = take(calls, table.path)
    assert second.tiering_epoch == first.tiering_epoch + 1
    answer = calls.heartbeat(tiering=[first, second])
    assert {late.tiering_epoch: error.error_code for late, error in answer.errors.items()} == {first.tiering_epoch: 50}
    assert not calls.heartbeat(finished=[FinishedTable(second)]).errors


def take(calls: TieringCalls, path: TablePath) -> TieringTable:
    """Ask until this table is handed out."""
    found: list[TieringTable] = []

    def is_taken() -> bool:
        table = calls.heartbeat(request_table=True).table
        if table is not None and table.path == path:
            found.append(table)
        return bool(found)

    wait_until(is_taken, f"{path} is handed out")
    return found[0]
