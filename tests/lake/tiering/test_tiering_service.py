"""The tiering service: tables that are due, several tables, several services, tables by name."""

from __future__ import annotations

import contextlib
import io
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import fluss
from fluss.errors import ErrorCode, FlussError
from fluss.lake.coordinator_calls import TieringCalls
from fluss.lake.tiering.progress import Progress
from fluss.lake.tiering.rounds import RoundReport
from fluss.lake.tiering.service import TieringService
from tests.support.lake.tiered_tables import OPTIONS, PEOPLE, LakeTable, Watching, person, tiering_service
from tools.waiting import patience, wait_until

SOON = {"table.datalake.freshness": "100 ms"}


@pytest.fixture
def db(tmp_path: Any) -> Iterator[fluss.Database]:
    with fluss.embedded(tmp_path / "data") as cluster, fluss.connect(cluster.bootstrap_servers) as db:
        yield db


@contextlib.contextmanager
def serving(service: TieringService, every_seconds: float = 0.05) -> Iterator[None]:
    """Run a service in a thread, and end it after the block."""
    stop = threading.Event()
    thread = threading.Thread(target=service.run_until, args=(stop, every_seconds))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(patience(60))
        assert not thread.is_alive(), "the service did not end"


def has_rows(table: LakeTable, count: int) -> bool:
    return len(table.lake_rows()) == count


def test_two_services_share_tables_that_become_due_repeatedly(db: fluss.Database) -> None:
    tables = [LakeTable(db, properties=SOON), LakeTable(db, properties=SOON, primary_keys=["id"])]
    written = 0
    with (
        fluss.connect(db.connection._session.config.bootstrap_servers) as other,
        tiering_service(db) as one,
        tiering_service(other) as two,
        serving(one),
        serving(two),
    ):
        for _ in range(3):
            rows = [person(n) for n in range(written, written + 20)]
            written += 20
            db.append(tables[0].name, rows)
            db.upsert(tables[1].name, rows)
            for table in tables:
                wait_until(partial(has_rows, table, written), f"{written} rows in the lake")
    for table in tables:
        table.check([person(n) for n in range(written)])
        assert TieringCalls.of(db.connection).snapshot(table.path) is not None


def test_once_tiers_tables_that_are_due_and_all_others(db: fluss.Database) -> None:
    due, not_due = LakeTable(db, properties=SOON), LakeTable(db, properties={"table.datalake.freshness": "1 d"})
    db.create_table("without_lake", PEOPLE)
    for name in (due.name, not_due.name, "without_lake"):
        db.append(name, [person(1)])
    watching = Watching()
    with tiering_service(db, watcher=watching) as service:
        results = service.once()
        tiered = {str(each.path) for each in results if isinstance(each, RoundReport)}
        assert tiered == {due.name, not_due.name}
        assert len(results) == 2
        again = service.once()
    assert [each.snapshot_id for each in again if isinstance(each, RoundReport)] == [None, None]
    for table in (due, not_due):
        table.check([person(1)])


def test_a_failing_table_does_not_delay_the_others(db: fluss.Database) -> None:
    broken, good = LakeTable(db), LakeTable(db)
    for table in (broken, good):
        db.append(table.name, [person(1)])
    lake_table = broken.outside()
    lake_table.catalog.drop_table(lake_table.name())
    watching = Watching()
    with tiering_service(db, watcher=watching) as service:
        results = service.once()
    assert sorted(type(each) is RoundReport for each in results) == [False, True]
    (error,) = watching.errors
    assert "there is no lake table" in error.message
    good.check([person(1)])


def test_tables_by_name(db: fluss.Database) -> None:
    wanted, other = LakeTable(db), LakeTable(db, properties=SOON)
    for table in (wanted, other):
        db.append(table.name, [person(1)])
    with tiering_service(db, tables=[wanted.path]) as service, serving(service):
        wait_until(wanted.lake_rows, "the table is in the lake")
        db.append(wanted.name, [person(2)])
        wait_until(lambda: len(wanted.lake_rows()) == 2, "it is in the lake again")
    assert other.lake_rows() == []
    db.create_table("without_lake", PEOPLE)
    without = replace_path(wanted, "without_lake")
    with tiering_service(db, tables=[without]) as service, pytest.raises(FlussError, match="has no lake") as caught:
        service.once()
    assert caught.value.error_code == ErrorCode.LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION


def replace_path(table: LakeTable, name: str) -> Any:
    return replace(table.path, table_name=name)


def test_maintenance_follows_rounds(db: fluss.Database) -> None:
    """Many small rounds of one bucket do not leave as many files; the coordinator knows the compacted snapshot."""
    table = LakeTable(db, bucket_count=1)
    out = io.StringIO()
    options = replace(OPTIONS, maintenance=True)
    for number in range(8):
        db.append(table.name, [person(number)])
        with tiering_service(db, options, Progress(out), [table.path]) as service:
            service.once()
    table.check([person(n) for n in range(8)])
    assert len(list(table.outside().scan().plan_files())) < 8
    assert "fluss.t" in out.getvalue()
    known = TieringCalls.of(db.connection).snapshot(table.path)
    assert known is not None
    assert known[1].snapshot_id == table.outside().metadata.current_snapshot_id


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["file", "terminal"])
def test_progress(db: fluss.Database, stream: io.StringIO) -> None:
    table = LakeTable(db, bucket_count=1)
    db.append(table.name, [person(n) for n in range(30)])
    progress = Progress(stream)
    with tiering_service(db, OPTIONS, progress, [table.path]) as service:
        service.once()
        progress.failed(table.path, FlussError("it is gone", ErrorCode.TABLE_NOT_EXIST))
    text = stream.getvalue()
    assert f"{table.name}: 30 rows in 1 file (" in text
    assert "nothing was committed: it is gone (error code 7)" in text
    bar = rf"{table.name} \[##########\] 1/1 splits, 30 rows, 1 file, lag \d+ s, committing"
    assert (re.search(bar, text) is not None) == stream.isatty()
    assert ("\r" in text) == stream.isatty()
