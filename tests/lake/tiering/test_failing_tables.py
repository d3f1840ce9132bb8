"""A service whose tables fail, disappear and come back: it continues, and does not retry failures constantly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import fluss
from fluss.errors import ErrorCode, FlussError
from fluss.lake.coordinator_calls import TieringCalls
from fluss.lake.maintenance.service import ORPHANS_CHECKED_PROPERTY, MaintenanceReport
from fluss.lake.tiering import failure_pauses, service
from fluss.lake.tiering.rounds import RoundReport
from fluss.model.paths import TablePath
from tests.lake.tiering.test_tiering_service import SOON, has_rows, serving
from tests.support.lake.tiered_tables import LAKE, OPTIONS, PEOPLE, LakeTable, Watching, person, tiering_service
from tools.waiting import wait_until

WITH_MAINTENANCE = replace(OPTIONS, maintenance=True)


@pytest.fixture
def db(tmp_path: Any) -> Iterator[fluss.Database]:
    with fluss.embedded(tmp_path / "data") as cluster, fluss.connect(cluster.bootstrap_servers) as db:
        yield db


class Told(Watching):
    """Remembers which table failed, and the errors of maintenance."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[TablePath] = []
        self.maintenance: list[MaintenanceReport] = []

    def failed(self, path: TablePath, error: FlussError) -> None:
        super().failed(path, error)
        self.failures.append(path)

    def maintained(self, path: TablePath, report: MaintenanceReport) -> None:
        self.maintenance.append(report)


def broken_table(db: fluss.Database) -> LakeTable:
    """A table whose lake table is missing."""
    table = LakeTable(db, properties={"table.datalake.freshness": "1 ms"})
    db.append(table.name, [person(1)])
    lake_table = table.outside()
    lake_table.catalog.drop_table(lake_table.name())
    return table


def test_a_failing_table_is_paused_while_others_continue(db: fluss.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_pauses, "FIRST_PAUSE_SECONDS", 200.0)
    broken, good = broken_table(db), LakeTable(db, properties=SOON)
    told = Told()
    with tiering_service(db, watcher=told) as tiering, serving(tiering):
        wait_until(lambda: told.failures, "the broken one has failed")
        for number in range(2):
            db.append(good.name, [person(number)])
            wait_until(partial(has_rows, good, number + 1), "rounds of the other one")
    assert told.failures == [broken.path], "it is still paused"
    taken = TieringCalls.of(db.connection).heartbeat(request_table=True).table
    assert taken is not None
    assert taken.path in (broken.path, good.path), "a service that ends releases the tables that it kept"


def test_a_table_is_tried_again_after_its_pause(db: fluss.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_pauses, "FIRST_PAUSE_SECONDS", 0.05)
    broken = broken_table(db)
    told = Told()
    with tiering_service(db, watcher=told) as tiering, serving(tiering, every_seconds=60.0):
        wait_until(lambda: len(told.failures) > 2, "it is tried again, long before the service would ask by itself")
        off, on = ({"table.datalake.enabled": text} for text in ("false", "true"))
        db.alter_table(broken.name, set_properties=off)
        db.alter_table(broken.name, set_properties=on)  # recreates the lake table
        wait_until(broken.lake_rows, "rows are in the lake")


def test_named_tables_that_are_dropped_and_come_back(db: fluss.Database) -> None:
    lasting, going = LakeTable(db), LakeTable(db)
    told = Told()
    with tiering_service(db, watcher=told, tables=[going.path, lasting.path]) as tiering, serving(tiering):
        db.drop_table(going.name)
        wait_until(lambda: going.path in told.failures, "it is reported")
        assert told.errors[-1].error_code == ErrorCode.TABLE_NOT_EXIST
        db.append(lasting.name, [person(1)])
        wait_until(lasting.lake_rows, "the other one continues")
        db.create_table(going.name, PEOPLE, properties=LAKE)
        db.append(going.name, [person(2)])
        wait_until(going.lake_rows, "it is tiered when it exists again")
    assert set(told.failures) == {going.path}


def test_named_tables_that_fail_are_paused(db: fluss.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_pauses, "FIRST_PAUSE_SECONDS", 200.0)
    broken, good = broken_table(db), LakeTable(db)
    told = Told()
    with tiering_service(db, watcher=told, tables=[broken.path, good.path]) as tiering, serving(tiering):
        for number in range(2):
            db.append(good.name, [person(number)])
            wait_until(partial(has_rows, good, number + 1), "rounds of the other one")
    assert told.failures == [broken.path]


def test_maintenance_without_commits(db: fluss.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    idle, broken = LakeTable(db), LakeTable(db)
    db.append(broken.name, [person(1)])

    def fail(path: TablePath) -> None:
        if path == broken.path:
            raise FlussError("it never works")

    def checked(table: LakeTable) -> str | None:
        return table.outside().properties.get(ORPHANS_CHECKED_PROPERTY)

    told = Told()
    told.at["written"] = fail
    with tiering_service(db, WITH_MAINTENANCE, told) as tiering:
        tiering.once()
        first = [checked(table) for table in (idle, broken)]
        assert told.failures == [broken.path]
        assert None not in first, "files of failed rounds were searched for"
        assert len(told.maintenance) == 2
        tiering.once()
        assert len(told.maintenance) == 2, "not after every round: it costs something"
        monkeypatch.setattr(service, "IDLE_MAINTENANCE_SECONDS", 0.0)
        tiering.once()
        assert len(told.maintenance) == 4
    assert [checked(table) for table in (idle, broken)] == first, "it was not due again"


def test_properties_of_the_lake_from_the_client(db: fluss.Database) -> None:
    """Tiering services use the option `lake.properties` as readers do."""
    table = LakeTable(db)
    db.append(table.name, [person(1)])
    bootstrap = db.connection._session.config.bootstrap_servers
    elsewhere = json.dumps({"uri": "sqlite:////nowhere/catalog.sqlite"})
    with fluss.connect(bootstrap, lake_properties=elsewhere) as other:
        with tiering_service(other, tables=[table.path]) as tiering:
            (result,) = tiering.once()
        assert isinstance(result, FlussError)
        assert "/nowhere/catalog.sqlite" in result.message
        _, uri = next(item for item in table.properties.items() if item[0].endswith(".iceberg.uri"))
        with tiering_service(other, replace(OPTIONS, lake_overrides={"uri": uri}), tables=[table.path]) as tiering:
            (result,) = tiering.once()
        assert isinstance(result, RoundReport), "properties given to the service itself win"
    table.check([person(1)])
