"""U6: files or partitions of a plan disappear during the read: it is planned again, or fails with a clear error."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import fluss
from fluss.errors import ErrorCode, FlussError
from fluss.lake.reading import current_rows
from fluss.lake.reading.plan import UnionPlan, plan_union
from fluss.lake.tables.interface.format import LakeSplit
from fluss.lake.tables.open_lake import lake_of
from tests.support.lake.tiered_tables import REGIONAL, LakeTable, person
from tests.support.lake.union_reads import check_reads, drop_partition, ordered, planned, read_plan, rows_of


def tiered(db: fluss.Database, rounds: int, **options: Any) -> LakeTable:
    table = LakeTable(db, bucket_count=1, **options)
    for number in range(rounds):
        rows = [person(n) for n in range(number * 10, number * 10 + 10)]
        (db.upsert if "primary_keys" in options else db.append)(table.name, rows)
        table.tier()
    return table


def compact(table: LakeTable) -> None:
    """Rewrite all files of the bucket as one; the old ones stay for older snapshots."""
    lake = lake_of(table.properties)
    try:
        state = lake.load(table.path)
        table_id = table.db.info(table.name).table_id
        (bucket,) = state.committed_offsets(table_id)
        split = LakeSplit(bucket, None, None, 0)
        state.commit(table_id, [state.target().rewrite_files(split, state.plan_files())])
    finally:
        lake.close()


def expire_all_but_newest(table: LakeTable) -> None:
    """Expire snapshots without any of the usual safeguards."""
    lake = lake_of(table.properties)
    try:
        state = lake.load(table.path)
        old = [entry.snapshot_id for entry in state.history()[1:]]
        state.target().remove_files(state.expire_snapshots(old))
    finally:
        lake.close()


@pytest.mark.parametrize("keys", [None, ["id"]], ids=["log", "keys"])
def test_u6_a_snapshot_that_is_compacted_is_read_on(db: fluss.Database, keys: list[str] | None) -> None:
    table = tiered(db, 3, **({} if keys is None else {"primary_keys": keys}))
    plan = planned(table)
    compact(table)
    assert read_plan(table, plan) == ordered(person(n) for n in range(30))
    check_reads(table, [person(n) for n in range(30)])


@pytest.mark.parametrize("keys", [None, ["id"]], ids=["log", "keys"])
def test_u6_missing_files_are_a_clear_error(db: fluss.Database, keys: list[str] | None) -> None:
    table = tiered(db, 3, **({} if keys is None else {"primary_keys": keys}))
    plan = planned(table)
    compact(table)
    expire_all_but_newest(table)
    with pytest.raises(FlussError, match="was removed after the read was planned") as caught:
        read_plan(table, plan)
    assert caught.value.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST
    with pytest.raises(FlussError, match="expired snapshots cannot be read") as caught:
        rows_of(table, lake_snapshot=plan.snapshot_id)
    assert caught.value.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST


def after_planning(monkeypatch: pytest.MonkeyPatch, happen: Callable[[], None], times: int = 1) -> list[UnionPlan]:
    """Run `happen` between the plan of a read and its rows; return the plans that were made."""
    plans: list[UnionPlan] = []
    counter = itertools.count()

    def plan(*arguments: Any, **options: Any) -> UnionPlan | None:
        made = plan_union(*arguments, **options)
        if made is not None:
            plans.append(made)
            if next(counter) < times:
                happen()
        return made

    monkeypatch.setattr(current_rows, "plan_union", plan)
    return plans


@pytest.mark.parametrize("keys", [None, ["id"]], ids=["log", "keys"])
def test_u6_a_whole_table_is_planned_again(
    db: fluss.Database, keys: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then the next round has registered a newer snapshot with the same rows."""
    table = tiered(db, 3, **({} if keys is None else {"primary_keys": keys}))
    write = db.append if keys is None else db.upsert

    def move_on() -> None:
        compact(table)
        write(table.name, [person(30)])
        table.tier()
        expire_all_but_newest(table)

    plans = after_planning(monkeypatch, move_on)
    assert rows_of(table, union=True) == ordered(person(n) for n in range(31))
    assert len(plans) == 2
    assert plans[0].snapshot_id != plans[1].snapshot_id


def test_u6_a_partition_that_is_dropped_during_the_read(db: fluss.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was tiered to its end: then the lake has it."""
    table = LakeTable(db, REGIONAL, partitions=("eu", "us"), bucket_count=1)
    db.append(table.name, [person(n, region="eu") for n in range(5)])
    table.tier()
    db.append(table.name, [person(n, region="us") for n in range(5)])

    def finish() -> None:
        table.tier()
        drop_partition(table, "us")

    plans = after_planning(monkeypatch, finish)
    assert len(rows_of(table)) == 10
    assert len(plans) == 2


@pytest.mark.parametrize("keys", [None, ["id"]], ids=["log", "keys"])
def test_u6_a_registered_snapshot_that_has_expired(db: fluss.Database, keys: list[str] | None) -> None:
    """Another program rewrote the table and expired older snapshots: the lake itself shows how far it reaches."""
    table = tiered(db, 2, **({} if keys is None else {"primary_keys": keys}))
    (db.append if keys is None else db.upsert)(table.name, [person(20)])
    compact(table)
    expire_all_but_newest(table)
    rows = [person(n) for n in range(21)]
    check_reads(table, rows)
    assert len(planned(table).splits[0].files) == 1
    assert rows_of(table, read_optimized=True) == ordered(rows[:20])


def test_u6_a_missing_lake_table(db: fluss.Database) -> None:
    """Tables that are complete in Fluss can still be read."""
    table = tiered(db, 2)
    outside = table.outside()
    outside.catalog.drop_table(outside.name())
    check_reads(table, [person(n) for n in range(20)])
    with pytest.raises(FlussError, match="there is no lake table") as caught:
        rows_of(table, read_optimized=True)
    assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST
