"""Rounds that die, lose a race, are fenced, or whose table is dropped: no row is lost or duplicated."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import fluss
from fluss.api.connection import engine_of
from fluss.errors import FlussError
from fluss.lake.coordinator_calls import TieringCalls
from fluss.lake.tables.open_lake import lake_of
from fluss.lake.tiering.heartbeats import Heartbeats
from fluss.lake.tiering.local_runner import LocalRunner
from fluss.lake.tiering.rounds import RoundReport, TableRound
from tests.support.lake.tiered_tables import OPTIONS, PEOPLE, REGIONAL, LakeTable, Watching, person, tiering_service
from tests.support.lake.tiering_worker import run_to_death
from tools.waiting import patience, wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with fluss.embedded(tmp_path_factory.mktemp("server") / "data") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def db(cluster: Any) -> Iterator[fluss.Database]:
    with fluss.connect(cluster.bootstrap_servers) as db:
        yield db


def keyed(db: fluss.Database, has_key: bool) -> LakeTable:
    return LakeTable(db, primary_keys=["id"]) if has_key else LakeTable(db)


def write(table: LakeTable, rows: list[dict[str, Any]], has_key: bool) -> None:
    (table.db.upsert if has_key else table.db.append)(table.name, rows)


def registered_id(table: LakeTable) -> int | None:
    known = TieringCalls.of(table.db.connection).snapshot(table.path)
    return None if known is None else known[1].snapshot_id


@pytest.mark.parametrize(
    "die_at",
    [
        "planned",
        "committed",
        *(pytest.param(step, marks=pytest.mark.all) for step in ("written", "prepared", "registered")),
    ],
)
def test_a_service_dies_at_every_step(cluster: Any, db: fluss.Database, die_at: str) -> None:
    """With rounds of a log table and a primary-key table, both at that step."""
    tables = {keyed(db, has_key): has_key for has_key in (False, True)}
    first, second = [person(n) for n in range(50)], [person(n) for n in range(50, 80)]
    before = {}
    for table, has_key in tables.items():
        write(table, first, has_key)
        table.tier()
        before[table] = registered_id(table)
        write(table, second, has_key)
    run_to_death(cluster.bootstrap_servers, [table.path for table in tables], die_at)
    is_in_lake = die_at in ("committed", "registered")
    for table in tables:
        table.check([*first, *second] if is_in_lake else first)
        assert (registered_id(table) == before[table]) == (die_at != "registered")
        assert bool(table.lost_files()) == (die_at in ("written", "prepared"))
        report = table.tier()
        assert (report.rows > 0) == (not is_in_lake), "what is in the lake is not tiered again"
        table.check([*first, *second])
        assert registered_id(table) == table.outside().metadata.current_snapshot_id


@pytest.mark.parametrize("has_key", [False, True], ids=["log", "key"])
def test_of_two_services_at_once_one_wins_and_the_other_leaves_nothing(db: fluss.Database, has_key: bool) -> None:
    table = keyed(db, has_key)
    rows = [person(n) for n in range(60)]
    write(table, rows, has_key)
    together = threading.Barrier(2)

    def meeting() -> Watching:
        """Waits for the other one in its first round."""
        first = iter([True])
        return Watching({"prepared": lambda path: next(first, False) and together.wait(patience(60))})

    watchers = [meeting(), meeting()]
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda watcher: table.tier(watcher=watcher), watchers))
    assert sorted(report.rows for report in reports) == [0, 60], "the slower one planned again and found nothing to do"
    table.check(rows)
    assert table.lost_files() == []


def test_a_service_that_lost_its_table_stops_before_the_commit(db: fluss.Database) -> None:
    """The coordinator has assigned the table to another service, which is not done yet."""
    table = LakeTable(db, properties={"table.datalake.freshness": "1 ms"})
    db.append(table.name, [person(n) for n in range(20)])
    calls = TieringCalls.of(db.connection)
    heartbeats = Heartbeats(calls, heartbeat_seconds=0.05)
    taken = []

    def take_mine() -> bool:
        found = heartbeats.take()
        if found is not None and found.path == table.path:
            taken.append(found)
        elif found is not None:
            heartbeats.fail(found)
        return bool(taken)

    wait_until(take_mine, "the table is due")
    (mine,) = taken

    def lose(path: object) -> None:
        calls.heartbeat(failed=[mine])  # as if the heartbeats had been missing for too long
        wait_until(lambda: heartbeats.reason_lost(mine), "the next heartbeat is refused")

    lake = lake_of(table.properties)
    engine = engine_of(db.connection)
    runner = LocalRunner(engine, 2)
    watching = Watching({"written": lose})
    try:
        with pytest.raises(FlussError):
            TableRound(
                engine,
                table.path,
                lake,
                runner,
                OPTIONS,
                watching,
                lambda: heartbeats.reason_lost(mine),
            ).run()
    finally:
        heartbeats.close()
        runner.close()
        lake.close()
    assert watching.steps == ["planned", "written"]
    assert table.lake_rows() == []
    assert table.lost_files() == []
    table.tier()
    table.check([person(n) for n in range(20)])


def test_a_partition_is_dropped_while_it_is_tiered(db: fluss.Database) -> None:
    table = LakeTable(db, REGIONAL, partitions=("eu", "us"))
    eu, us = [person(n, region="eu") for n in range(10)], [person(n, region="us") for n in range(10, 20)]
    db.append(table.name, [*eu, *us])
    table.tier()
    db.append(table.name, [person(20, region="eu"), person(21, region="us")])

    def drop(path: object) -> None:
        run(db, lambda admin: admin.drop_partition(table.name, {"region": "eu"}))

    table.tier(watcher=Watching({"planned": drop}))
    table.check([*eu, *us, person(21, region="us")])
    db.append(table.name, [person(22, region="us")])
    table.tier()
    table.check([*eu, *us, person(21, region="us"), person(22, region="us")])


@pytest.mark.parametrize("made_again", [False, True], ids=["dropped", "made again"])
@pytest.mark.parametrize("step", ["planned", "written"])
def test_a_table_is_dropped_while_it_is_tiered(db: fluss.Database, step: str, made_again: bool) -> None:
    """Its lake table is not changed; a new table of that name cannot take over rows of the old one."""
    table = LakeTable(db)
    db.append(table.name, [person(n) for n in range(10)])
    outside = table.outside()

    def drop(path: object) -> None:
        db.drop_table(table.name)
        if made_again:
            db.create_table(table.name, PEOPLE, bucket_count=2, properties={"table.datalake.enabled": "true"})

    watching = Watching({step: drop})
    with tiering_service(db, watcher=watching, tables=[table.path]) as service:
        (result,) = service.once()
    assert isinstance(result, RoundReport), "a dropped table is not a failure of the service"
    assert (result.snapshot_id, result.error, watching.errors) == (None, None, [])
    assert outside.refresh().current_snapshot() is None
    if made_again:
        assert table.lost_files() == []
        db.append(table.name, [person(7)])
        table.tier()
        table.check([person(7)])


def run(db: fluss.Database, call: Any) -> Any:
    async def ask() -> Any:
        return await call(await db.connection.get_admin())

    return asyncio.run(ask())
