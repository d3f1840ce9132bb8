"""`fluss lake compact|expire|clean` on a server, maintenance after rounds, and reads after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import fluss
from fluss.cli.main import main
from fluss.lake.maintenance.compaction import CompactionResult
from fluss.lake.maintenance.service import MaintenanceReport
from fluss.model.paths import TablePath
from tests.support.lake.maintenance import turn_clock
from tests.support.lake.tiered_tables import OPTIONS, LakeTable, Watching, person
from tests.support.lake.union_reads import SERVER, check_reads


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.Database]:
    with (
        fluss.embedded(tmp_path_factory.mktemp("server") / "data", config=SERVER) as cluster,
        fluss.connect(cluster.bootstrap_servers) as db,
    ):
        yield db


class Keeping(Watching):
    """Remembers the reports of maintenance."""

    def __init__(self) -> None:
        super().__init__()
        self.maintenance: list[MaintenanceReport] = []

    def maintained(self, path: TablePath, report: MaintenanceReport) -> None:
        self.maintenance.append(report)


def registered(table: LakeTable) -> int:
    async def ask() -> int:
        admin = await table.db.connection.get_admin()
        return (await admin.get_latest_lake_snapshot(table.name)).snapshot_id

    return asyncio.run(ask())


def rounds(table: LakeTable, count: int, first: int = 0) -> list[dict[str, object]]:
    rows = []
    for number in range(first, first + count):
        row = person(number)
        table.db.append(table.name, [row])
        rows.append(row)
        table.tier()
    return rows


def run(db: fluss.Database, job: str, table: LakeTable, *flags: str) -> int:
    address = db.connection.config.bootstrap_servers
    return main(["lake", job, "--bootstrap", address, "--table", table.name, *flags])


def test_each_job_with_and_without_dry_run(db: fluss.Database, capsys: pytest.CaptureFixture[str]) -> None:
    properties = {"iceberg.history.expire.min-snapshots-to-keep": "3"}
    table = LakeTable(db, bucket_count=1, custom_properties=properties)
    rows = rounds(table, 5)
    before = registered(table)
    assert run(db, "compact", table, "--dry-run") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"compact {table.name}: 5 files in 1 groups",
        "  bucket 0: 5 files, 0.0 MiB, 5 rows",
    ]
    assert registered(table) == before
    assert run(db, "compact", table) == 0
    assert "5 files became 1" in capsys.readouterr().out
    after = registered(table)
    assert after != before
    assert after == table.outside().metadata.current_snapshot_id
    table.check(rows)
    check_reads(table, rows)
    rows += rounds(table, 1, first=5)
    check_reads(table, rows)
    assert run(db, "expire", table, "--dry-run") == 0
    assert capsys.readouterr().out == f"expire {table.name}: 0 snapshots would expire, 7 stay\n", "all are young"
    assert run(db, "expire", table) == 0
    assert capsys.readouterr().out == "0 snapshots expired, 0 files removed\n"
    assert run(db, "clean", table, "--dry-run") == 0
    assert "0 files that no snapshot knows are older than 1440 min" in capsys.readouterr().out
    assert run(db, "clean", table) == 0
    assert capsys.readouterr().out == "0 files removed that no snapshot knew\n"


def test_old_snapshots_and_lost_files_are_removed(
    db: fluss.Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LakeTable(db, bucket_count=1, custom_properties={"iceberg.history.expire.min-snapshots-to-keep": "3"})
    rows = rounds(table, 5)
    lost = table.lose_a_round([person(900)])
    assert run(db, "compact", table) == 0
    before = len(table.outside().metadata.snapshots)
    turn_clock(monkeypatch, days=2)
    capsys.readouterr()
    for flags in (["--dry-run"], ["--dry-run", "--spark"]):
        assert run(db, "compact", table, *flags) == 0
        assert capsys.readouterr().out == f"compact {table.name}: 0 files in 0 groups\n"
        assert run(db, "expire", table, *flags) == 0
        head, *snapshots = capsys.readouterr().out.splitlines()
        assert (head, len(snapshots)) == (
            f"expire {table.name}: {before - 3} snapshots would expire, 3 stay",
            before - 3,
        )
        assert run(db, "clean", table, *flags) == 0
        head, *files = capsys.readouterr().out.splitlines()
        assert head.startswith(f"clean {table.name}: 1 files that no snapshot knows")
        assert files == [f"  {lost}"]
    assert len(table.outside().metadata.snapshots) == before
    assert run(db, "expire", table) == 0
    assert capsys.readouterr().out.startswith(f"{before - 3} snapshots expired, ")
    assert len(table.outside().metadata.snapshots) == 3
    assert table.lost_files() == [lost]
    assert run(db, "clean", table) == 0
    assert capsys.readouterr().out == "1 files removed that no snapshot knew\n"
    assert table.lost_files() == []
    table.check(rows)
    check_reads(table, rows)


def test_errors_are_one_line(db: fluss.Database, capsys: pytest.CaptureFixture[str]) -> None:
    table = LakeTable(db)
    table.name = "fluss.nothing"
    assert run(db, "compact", table) == 1
    assert capsys.readouterr().err.startswith("fluss lake: ")
    with pytest.raises(SystemExit):
        main(["lake"])


def test_maintenance_follows_rounds_unless_disabled(db: fluss.Database) -> None:
    options = replace(OPTIONS, maintenance=True)
    watcher = Keeping()
    table = LakeTable(db, bucket_count=1)
    off = LakeTable(db, bucket_count=1, properties={"table.datalake.auto-compaction": "false"})
    rows = []
    for number in range(6):
        rows.append(person(number))
        for each in (table, off):
            db.append(each.name, [person(number)])
            each.tier(options, watcher)
    done = [report.compaction for report in watcher.maintenance if report.compaction is not None]
    assert [isinstance(each, CompactionResult) and each.files_before for each in done] == [5]
    assert all(not report.errors for report in watcher.maintenance)
    assert len(list(table.outside().scan().plan_files())) == 2
    assert len(list(off.outside().scan().plan_files())) == 6
    for each in (table, off):
        each.check(rows)
        check_reads(each, rows)
        assert registered(each) == each.outside().metadata.current_snapshot_id


def test_a_compaction_that_died_before_it_was_registered_is_repaired_by_the_next_round(
    db: fluss.Database, tmp_path: Path
) -> None:
    from fluss.lake.maintenance.service import TableMaintenance
    from fluss.lake.tables.open_lake import lake_of

    table = LakeTable(db, bucket_count=1)
    rows = rounds(table, 5)
    lake = lake_of(table.properties)
    try:
        # Without a coordinator the snapshot is in the lake but not registered.
        result = TableMaintenance(lake.load(table.path), db.info(table.name).table_id).compact()
    finally:
        lake.close()
    assert registered(table) != result.snapshot_id
    check_reads(table, rows)
    table.tier()
    assert registered(table) == result.snapshot_id
    check_reads(table, rows)
    rows += rounds(table, 1, first=5)
    table.check(rows)
    check_reads(table, rows)
