"""Old snapshots and unknown files are removed; what a reader, a round or the coordinator may still need stays."""

from __future__ import annotations

import os
from typing import Any

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.lake.maintenance.options import DAY_MS, HOUR_MS, MINUTE_MS, MaintenanceOptions
from fluss.lake.maintenance.service import maintain_if_due, wall_clock_ms
from fluss.lake.maintenance.task_runners import LocalRunner
from fluss.lake.tables.iceberg.tables import IcebergFormat
from tests.lake.tables.test_readers import check_all_see, outside
from tests.lake.tiering.test_rounds import FAR_FUTURE_MS
from tests.support.lake.maintenance import ROUNDS, Registry, keyed_table, log_table, maintenance_of
from tests.support.lake.tables import PEOPLE, TABLE_ID, LakeTableWriter, made, people, spec_of


def snapshot_ids(table_writer: LakeTableWriter) -> list[int]:
    return [entry.snapshot_id for entry in table_writer.table.refreshed().history()]


def files_on_disk(table_writer: LakeTableWriter, lake: IcebergFormat) -> set[str]:
    location = outside(lake, table_writer).location().removeprefix("file://")
    return {os.path.join(folder, name) for folder, _, names in os.walk(location) for name in names}


def test_snapshots_and_the_files_that_only_they_need_are_removed(lake: IcebergFormat) -> None:
    table_writer, rows = log_table(lake)
    maintenance_of(table_writer).compact()
    table_writer.table = table_writer.table.refreshed()
    table_writer.commit(table_writer.write(people(100, 1), start=18))
    before, ids = files_on_disk(table_writer, lake), snapshot_ids(table_writer)
    jobs = maintenance_of(table_writer, days_later=2, min_snapshots=3)
    plan = jobs.plan_expiry()
    assert [entry.snapshot_id for entry in plan.snapshots] == ids[:2:-1], "oldest first"
    assert str(plan).startswith(
        f"expire db.{table_writer.spec.path.table_name}: 5 snapshots would expire, 3 stay\n  {ids[-1]} of 20"
    )
    assert snapshot_ids(table_writer) == ids, "a plan changes nothing"
    # The third newest is the last one from before the compaction: the small files stay for it.
    assert str(jobs.expire()) == "5 snapshots expired, 5 files removed"
    assert snapshot_ids(table_writer) == ids[:3]
    assert len([path for path in files_on_disk(table_writer, lake) if "/data/" in path]) == 2 * ROUNDS + 3

    table_writer.table = table_writer.table.refreshed()
    table_writer.commit(table_writer.write(people(101, 1), start=19))
    result = maintenance_of(table_writer, days_later=2, min_snapshots=3).expire()
    assert result.snapshot_count == 1
    assert result.file_count >= 2 * ROUNDS, "now they are removed"
    left = [path for path in files_on_disk(table_writer, lake) if "/data/" in path]
    assert len(left) == 4
    assert len(files_on_disk(table_writer, lake)) < len(before)
    table_writer.table = table_writer.table.refreshed()
    check_all_see(lake, table_writer, [*rows, *people(100, 2)])
    assert table_writer.table.last_commit(TABLE_ID) is not None
    assert table_writer.table.unreferenced_files(FAR_FUTURE_MS) == []
    with pytest.raises(FlussError, match="expired snapshots cannot be read") as caught:
        table_writer.table.plan_files(ids[-1])
    assert caught.value.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST


def test_files_of_deleted_rows_are_removed_with_their_snapshots(lake: IcebergFormat) -> None:
    table_writer, rows = keyed_table(lake)
    maintenance_of(table_writer, compaction_max_delete_files=ROUNDS).compact()
    table_writer.table = table_writer.table.refreshed()
    assert maintenance_of(table_writer, days_later=2, min_snapshots=1).expire().snapshot_count == ROUNDS + 1
    (left,) = [path for path in files_on_disk(table_writer, lake) if "/data/" in path]
    table_writer.table = table_writer.table.refreshed()
    assert table_writer.table.plan_files()[0].path.endswith(left)
    check_all_see(lake, table_writer, rows)


def test_which_snapshots_stay(lake: IcebergFormat) -> None:
    table_writer, _ = log_table(lake, buckets=1)
    ids = snapshot_ids(table_writer)

    def left(**given: Any) -> int:
        return len(maintenance_of(table_writer, **given).plan_expiry().snapshots)

    assert left(days_later=0.9, min_snapshots=1) == 0, "any of them may have been the newest until just now"
    assert left(days_later=2, min_snapshots=1) == ROUNDS - 1, "the newest one stays"
    assert left(days_later=2) == 0, "20 stay by default"
    assert left(days_later=2, min_snapshots=4) == ROUNDS - 4
    registry = Registry()
    registry.registered = [ids[3]]
    assert left(days_later=2, min_snapshots=1, registry=registry) == ROUNDS - 4, "and all newer ones"
    outside(lake, table_writer).manage_snapshots().create_tag(ids[2], "audit").commit()
    assert left(days_later=2, min_snapshots=1) == ROUNDS - 3
    # Commits of others above the last round: the chain back to its offsets must hold.
    outside(lake, table_writer).manage_snapshots().remove_tag("audit").commit()
    for each in range(3):
        outside(lake, table_writer).delete(f"id = {each}")
    assert left(days_later=2, min_snapshots=1) == ROUNDS - 1
    maintenance_of(table_writer, days_later=2, min_snapshots=1).expire()
    fresh = table_writer.table.refreshed()
    newest = fresh.last_commit(TABLE_ID)
    assert newest is not None
    assert newest.snapshot_id == ids[0]


def test_a_reader_has_time_after_its_snapshot_was_superseded(lake: IcebergFormat) -> None:
    """An old snapshot that was the newest until a moment ago may have been planned a moment ago."""
    table_writer, _ = log_table(lake, rounds=2, buckets=1)
    entries = table_writer.table.history()
    assert entries[0].superseded_ms is None
    assert entries[1].superseded_ms == entries[0].timestamp_ms
    options = MaintenanceOptions.of({"history.expire.max-snapshot-age-ms": "0", "maintenance.orphans.min-age-ms": "1"})
    assert (options.max_snapshot_age_ms, options.min_snapshots, options.orphan_age_ms) == (10 * MINUTE_MS, 20, HOUR_MS)
    assert MaintenanceOptions.of({"history.expire.min-snapshots-to-keep": "0"}).min_snapshots == 3


def test_a_commit_between_plan_and_expiry_is_seen(lake: IcebergFormat) -> None:
    table_writer, _ = log_table(lake, buckets=1)
    other = LakeTableWriter(lake, table_writer.spec)
    stale = table_writer.table.refreshed()
    other.commit(other.write(people(100, 1), start=18))
    with pytest.raises(FlussError, match="load the table again") as caught:
        stale.expire_snapshots([entry.snapshot_id for entry in stale.history()[2:]])
    assert caught.value.error_code == ErrorCode.FENCED_TIERING_EPOCH_EXCEPTION
    with pytest.raises(FlussError, match="has a name"):
        stale.expire_snapshots([stale.history()[0].snapshot_id])
    assert len(snapshot_ids(table_writer)) == ROUNDS + 1


def test_files_of_dead_rounds_are_removed_and_those_of_running_ones_stay(lake: IcebergFormat) -> None:
    table_writer, rows = log_table(lake, rounds=2)
    dead = table_writer.write(people(900, 2), start=6)
    lost = dead.added[0].file_path
    assert maintenance_of(table_writer, days_later=0.5).plan_orphans().files == (), "a round may still run"
    jobs = maintenance_of(table_writer, days_later=1.5)
    plan = jobs.plan_orphans()
    assert plan.files == (lost,)
    assert str(plan).splitlines() == [
        f"clean db.{table_writer.spec.path.table_name}: 1 files that no snapshot knows are older than 1440 min",
        f"  {lost}",
    ]
    assert os.path.exists(lost.removeprefix("file://")), "a plan changes nothing"
    assert str(jobs.remove_orphans()) == "1 files removed that no snapshot knew"
    assert not os.path.exists(lost.removeprefix("file://"))
    table_writer.table = table_writer.table.refreshed()
    check_all_see(lake, table_writer, rows)


def test_a_file_that_is_committed_after_the_listing_stays(lake: IcebergFormat) -> None:
    from fluss.lake.maintenance.orphans import plan_orphans, remove_orphans

    table_writer, rows = log_table(lake, rounds=1)
    slow = table_writer.write(people(50, 2), start=3)
    plan = plan_orphans(table_writer.table, MaintenanceOptions(), wall_clock_ms() + 2 * DAY_MS)
    assert len(plan.files) == 1
    table_writer.commit(slow)
    assert remove_orphans(table_writer.table, plan, LocalRunner()).file_count == 0
    check_all_see(lake, table_writer, [*rows, *people(50, 2)])


def test_the_maintenance_that_is_due_after_a_round(lake: IcebergFormat) -> None:
    properties = {"iceberg.history.expire.min-snapshots-to-keep": "3", "iceberg.maintenance.expire.batch": "4"}
    table_writer = made(lake, spec_of(PEOPLE, properties=properties))
    assert str(maintain_if_due(table_writer.table, TABLE_ID, {})) == "nothing was due", "an empty table"
    reports = []
    registry = Registry()
    for number in range(5):
        lost = table_writer.write(people(900, 1), start=5).added[0].file_path if number == 4 else ""
        table_writer.commit(table_writer.write(people(number, 1), start=number))
        reports.append(maintain_if_due(table_writer.table, TABLE_ID, {}, registry=registry))
        table_writer.table = table_writer.table.refreshed()
    assert [report.compaction is not None for report in reports] == [False] * 4 + [True]
    assert not any(report.expiry or report.orphans or report.errors for report in reports)

    def later() -> int:
        return wall_clock_ms() + 2 * DAY_MS

    registry.registered = [snapshot_ids(table_writer)[0]]
    off = {"table.datalake.auto-expire-snapshot": "false"}
    assert (
        str(maintain_if_due(table_writer.table, TABLE_ID, off, registry=registry, clock_ms=later)) == "nothing was due"
    )
    report = maintain_if_due(table_writer.table, TABLE_ID, {}, registry=registry, clock_ms=later)
    assert report.expiry is None, "three can be removed, four are worth it"
    assert str(report) == "1 files removed that no snapshot knew"
    assert not os.path.exists(lost.removeprefix("file://"))
    again = maintain_if_due(table_writer.table, TABLE_ID, {}, registry=registry, clock_ms=later)
    assert str(again) == "nothing was due", "the next search is a day later, in any process"
    table_writer.table = table_writer.table.refreshed()
    table_writer.commit(table_writer.write(people(5, 1), start=5))
    report = maintain_if_due(table_writer.table, TABLE_ID, {}, registry=registry, clock_ms=later)
    assert report.expiry is not None
    assert report.expiry.snapshot_count == 4
    table_writer.table = table_writer.table.refreshed()
    check_all_see(lake, table_writer, people(0, 6))
