"""Rounds of real tables: log and primary key, with and without partitions, all types, new columns, cut rounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import DataTypes
from fluss.errors import ErrorCode, FlussError
from fluss.lake.tiering import log_reading
from tests.support.lake.tiered_tables import LAKE, OPTIONS, PEOPLE, REGIONAL, LakeTable, Rows, Watching, by_id, person
from tests.support.spark.all_types import CASES, arrow_rows
from tools.waiting import wait_until

# Small segments that expire quickly where a table says so.
SERVER = {
    "log.segment.file-size": "8kb",
    "log.retention.check-interval": "50ms",
    "remote.log.task-interval-duration": "50ms",
    "kv.snapshot.interval": "200ms",
}
EXPIRING = {"table.log.ttl": "1s", "table.log.tiered.local-segments": "1"}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.Database]:
    with (
        fluss.embedded(tmp_path_factory.mktemp("server") / "data", tablets=2, config=SERVER) as cluster,
        fluss.connect(cluster.bootstrap_servers) as db,
    ):
        yield db


def offsets(table: LakeTable, kind: Any) -> dict[Any, int]:
    """The offsets by bucket, of all partitions."""

    async def ask() -> dict[Any, int]:
        admin = await table.db.connection.get_admin()
        info = table.db.info(table.name)
        found: dict[Any, int] = {}
        buckets = list(range(info.num_buckets))
        if not info.is_partitioned():
            listed = await admin.list_offsets(table.name, buckets, kind)
            return {(None, bucket): offset for bucket, offset in listed.items()}
        for partition in await admin.list_partition_infos(table.name):
            listed = await admin.list_partition_offsets(table.name, partition.partition_name, buckets, kind)
            found |= {(partition.partition_id, bucket): offset for bucket, offset in listed.items()}
        return found

    return asyncio.run(ask())


def registered(table: LakeTable) -> dict[Any, int]:
    """The offsets that the coordinator has for the lake."""

    async def ask() -> Any:
        admin = await table.db.connection.get_admin()
        return await admin.get_latest_lake_snapshot(table.name)

    snapshot = asyncio.run(ask())
    assert snapshot.snapshot_id == table.outside().metadata.current_snapshot_id
    return {(each.partition_id, each.bucket_id): end for each, end in snapshot.table_buckets_offset.items()}


def check_progress(table: LakeTable) -> None:
    """Check that the coordinator knows the newest snapshot, with the end of every bucket with rows."""
    latest = offsets(table, fluss.OffsetSpec.latest())
    known = registered(table)
    assert {bucket: known.get(bucket, 0) for bucket in latest} == latest


@pytest.mark.parametrize("regions", [(), ("eu", "us")], ids=["plain", "partitioned"])
def test_rounds_of_a_log_table(db: fluss.Database, regions: tuple[str, ...]) -> None:
    table = LakeTable(db, REGIONAL if regions else PEOPLE, partitions=regions)

    def rows(start: int, stop: int) -> Rows:
        return [person(n, **({"region": regions[n % 2]} if regions else {})) for n in range(start, stop)]

    db.append(table.name, rows(0, 100))
    first = table.tier()
    assert (first.rows, first.is_cut, first.total_rows) == (100, False, 100)
    table.check(rows(0, 100))
    check_progress(table)
    db.append(table.name, rows(100, 130))
    assert table.tier().rows == 30
    table.check(rows(0, 130))
    check_progress(table)
    seen = table.lake_rows(["id", "__bucket", "__offset", "__timestamp"])
    places = {(row["__bucket"], row["__offset"]) for row in seen}
    assert len(places) >= 130 / max(len(regions), 1), "every row has the offset that it has in its bucket"
    assert table.tier().snapshot_id is None, "nothing new: no snapshot"


@pytest.mark.parametrize("regions", [(), ("eu", "us")], ids=["plain", "partitioned"])
@pytest.mark.parametrize("way", ["copy-on-write", "position deletes"])
def test_rounds_of_a_primary_key_table(db: fluss.Database, regions: tuple[str, ...], way: str) -> None:
    keys = ["region", "id"] if regions else ["id"]
    table = LakeTable(db, REGIONAL if regions else PEOPLE, partitions=regions, primary_keys=keys)
    options = OPTIONS
    if way == "position deletes":
        options = replace(
            OPTIONS, position_deletes_from_bytes=0, position_deletes_max_share=1.0, max_deleted_share=10.0
        )

    def row(number: int, **more: Any) -> dict[str, Any]:
        return person(number, **({"region": regions[number % 2]} if regions else {}), **more)

    model = {n: row(n) for n in range(100)}
    db.upsert(table.name, list(model.values()))
    table.tier(options)
    table.check(list(model.values()))
    check_progress(table)
    for start in (50, 70):
        changed = {n: row(n, name=f"new since {start}") for n in range(start, start + 60)}
        gone = range(start - 50, start - 40)
        db.upsert(table.name, list(changed.values()))
        db.delete(table.name, [{key: row(n)[key] for key in keys} for n in gone])
        model |= changed
        for n in gone:
            del model[n]
        table.tier(options)
        table.check(list(model.values()))
        check_progress(table)
    has_deletes = any(task.delete_files for task in table.outside().scan().plan_files())
    assert has_deletes == (way == "position deletes")
    newest = {r["id"]: r["__offset"] for r in table.lake_rows(["id", "__offset"])}
    assert newest[129] > newest[60], "the offset of the last change"


def test_many_files_and_hidden_rows_lead_to_a_rewritten_bucket(db: fluss.Database) -> None:
    table = LakeTable(db, primary_keys=["id"], bucket_count=1)
    options = replace(OPTIONS, position_deletes_from_bytes=0, position_deletes_max_share=1.0, max_deleted_share=0.3)
    db.upsert(table.name, [person(n) for n in range(100)])
    table.tier(options)
    for number, deletes in ((20, True), (30, False)):
        db.upsert(table.name, [person(n, name=f"changed {number}") for n in range(number)])
        table.tier(options)
        tasks = list(table.outside().scan().plan_files())
        assert any(task.delete_files for task in tasks) == deletes
        assert len(tasks) == (2 if deletes else 1)
    table.check([person(n, name="changed 30") for n in range(30)] + [person(n) for n in range(30, 100)])


def test_a_row_that_is_inserted_and_deleted_makes_an_empty_snapshot(db: fluss.Database) -> None:
    table = LakeTable(db, primary_keys=["id"], bucket_count=1)
    db.upsert(table.name, person(1))
    db.delete(table.name, {"id": 1})
    report = table.tier()
    assert (report.rows, report.files) == (0, 0)
    assert report.snapshot_id is not None
    table.check([])
    check_progress(table)


def test_a_large_bucket_is_several_splits_and_one_snapshot(db: fluss.Database) -> None:
    table = LakeTable(db, bucket_count=1)
    rows = pa.Table.from_pylist([person(n) for n in range(30_000)], PEOPLE)
    for start in range(0, 30_000, 3_000):
        db.append(table.name, rows.slice(start, 3_000))
    watching = Watching()
    report = table.tier(replace(OPTIONS, min_split_bytes=1, max_split_bytes=100_000), watching)
    assert watching.splits > 1
    assert (report.rows, report.files) == (30_000, watching.splits)
    assert len(table.outside().metadata.snapshots) == 1
    assert sorted(row["__offset"] for row in table.lake_rows(["__offset"])) == list(range(30_000))
    check_progress(table)


@pytest.mark.parametrize("has_key", [False, True], ids=["log", "key"])
def test_all_types(db: fluss.Database, has_key: bool) -> None:
    """Times have microseconds in the lake, all other values are unchanged, even after copy-on-write."""
    builder = fluss.Schema.builder().column("id", DataTypes.int().not_null() if has_key else DataTypes.int())
    for case in CASES:
        builder = builder.column(case.name, case.data_type)
    schema = (builder.primary_key(["id"]) if has_key else builder).build()
    table = LakeTable(db, schema, bucket_count=1)
    rows = arrow_rows()
    write = db.upsert if has_key else db.append
    write(table.name, rows.slice(0, 2))
    table.tier()
    write(table.name, rows.slice(2))
    table.tier()
    seen = by_id(table.lake_rows())
    outside = table.outside().scan().to_arrow().sort_by("id")
    assert outside.num_rows == 3
    for case in CASES:
        if case.name in ("c_ts9", "c_ltz9"):
            assert outside.column(case.name).to_pylist() == list(case.seen_by_spark), case.name
        else:
            assert [row[case.name] for row in seen] == rows.column(case.name).to_pylist(), case.name


def test_a_column_that_is_added_between_rounds_and_in_the_middle_of_one(db: fluss.Database) -> None:
    table = LakeTable(db)
    db.append(table.name, [person(n) for n in range(10)])
    table.tier()
    db.alter_table(table.name, add_columns={"note": DataTypes.string()})
    db.append(table.name, [person(n, note="between") for n in range(10, 20)])

    def add(path: object) -> None:
        db.alter_table(table.name, add_columns={"more": DataTypes.int()})

    assert table.tier(watcher=Watching({"written": add})).rows == 10, "the lake table changed, but not by a round"
    db.append(table.name, [person(n, note="late", more=n) for n in range(20, 30)])
    table.tier()
    old = [person(n, note=None, more=None) for n in range(10)]
    table.check(
        [
            *old,
            *(person(n, note="between", more=None) for n in range(10, 20)),
            *(person(n, note="late", more=n) for n in range(20, 30)),
        ]
    )


@pytest.mark.parametrize("has_key", [False, True], ids=["log", "key"])
def test_a_column_that_is_added_while_the_lake_is_disabled(db: fluss.Database, has_key: bool) -> None:
    table = LakeTable(db, primary_keys=["id"] if has_key else None)
    write = db.upsert if has_key else db.append
    for number, column in enumerate(("more", "most")):  # before the first round, and after it
        db.alter_table(table.name, set_properties={"table.datalake.enabled": "false"})
        db.alter_table(table.name, add_columns={column: pa.string()})
        write(table.name, [person(number, **{column: "x"})])
        db.alter_table(table.name, set_properties=LAKE)
        table.tier()
    table.check([person(0, more="x", most=None), person(1, more=None, most="x")])


def test_changes_that_do_not_fit_into_memory_take_several_rounds(db: fluss.Database) -> None:
    table = LakeTable(db, primary_keys=["id"], bucket_count=1)
    for _ in range(5):
        db.upsert(table.name, [person(n) for n in range(200)])
    watching = Watching()
    assert not table.tier(replace(OPTIONS, max_changes_bytes=1), watching).is_cut
    assert len(watching.reports) > 1
    assert all(report.is_cut for report in watching.reports[:-1])
    table.check([person(n) for n in range(200)])
    check_progress(table)


def test_a_round_that_runs_out_of_time_keeps_what_it_has(db: fluss.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps after the first batch is read: the rest of the bucket is tiered by the next round."""
    table = LakeTable(db, bucket_count=1)
    for start in range(0, 50, 10):
        db.append(table.name, [person(n) for n in range(start, start + 10)])
    jumps: list[float] = []

    class Clock:
        def time(self) -> float:
            jumps.append(0.0)
            return time.time() + (10**6 if len(jumps) == 2 else 0)

    monkeypatch.setattr(log_reading, "time", Clock())
    watching = Watching()
    table.tier(watcher=watching)
    assert [report.is_cut for report in watching.reports] == [True, False]
    assert watching.reports[0].rows < 50
    table.check([person(n) for n in range(50)])
    check_progress(table)


def expire_beginning(db: fluss.Database, table: LakeTable, write: Any) -> None:
    """Write until the log no longer begins at 0."""

    def has_expired() -> bool:
        write()
        return min(offsets(table, fluss.OffsetSpec.earliest()).values()) > 0

    wait_until(has_expired, "the beginning of the log is gone")


@pytest.mark.parametrize("tiered_before", [False, True], ids=["first time", "later"])
def test_a_changelog_that_has_expired_is_replaced_by_the_state(db: fluss.Database, tiered_before: bool) -> None:
    """Old changes of a table may be gone when its lake is enabled (again)."""
    lake = str(tiered_before).lower()
    properties = {"table.datalake.enabled": lake, "table.datalake.format": "iceberg", **EXPIRING}
    table = LakeTable(db, primary_keys=["id"], bucket_count=1, properties=properties)
    if tiered_before:
        db.upsert(table.name, [person(n, name="old") for n in range(200)])
        table.tier()
        db.alter_table(table.name, set_properties={"table.datalake.enabled": "false"})
    rows = [person(n, name="x" * 200) for n in range(150)]
    db.upsert(table.name, [person(n) for n in range(150, 200)])
    db.delete(table.name, [{"id": n} for n in range(150, 200)])
    expire_beginning(db, table, lambda: db.upsert(table.name, rows))
    db.alter_table(table.name, set_properties={"table.datalake.enabled": "true"})
    table.tier()
    table.check(rows)
    check_progress(table)
    db.upsert(table.name, person(0, name="after"))
    table.tier()
    table.check([person(0, name="after"), *rows[1:]])


def test_rows_of_a_log_table_that_expired_before_they_were_tiered(db: fluss.Database) -> None:
    """Only possible while the lake is disabled. Never ignored silently."""
    table = LakeTable(db, bucket_count=1, properties=EXPIRING)
    db.append(table.name, [person(n) for n in range(10)])
    table.tier()
    db.alter_table(table.name, set_properties={"table.datalake.enabled": "false"})
    expire_beginning(db, table, lambda: db.append(table.name, [person(n, name="x" * 100) for n in range(100)]))
    db.alter_table(table.name, set_properties={"table.datalake.enabled": "true"})
    with pytest.raises(FlussError, match="expired before they were tiered") as caught:
        table.tier()
    assert caught.value.error_code == ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION
    assert by_id(table.lake_rows()) == [person(n) for n in range(10)]

    def is_tiered() -> bool:
        try:
            table.tier(replace(OPTIONS, on_data_loss="skip"))
        except FlussError as error:  # a run of retention that began before the lake was enabled removes more
            if error.error_code != ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION:
                raise
            return False
        return True

    wait_until(is_tiered, "the rows that are left are tiered")
    earliest = offsets(table, fluss.OffsetSpec.earliest())[None, 0]
    kept = [row["__offset"] for row in table.lake_rows(["__offset"])]
    assert kept[:10] == list(range(10))
    assert min(kept[10:]) <= earliest
    check_progress(table)


def test_a_remote_segment_that_was_cut_is_never_tiered_as_if_it_were_whole(tmp_path: Path) -> None:
    """The gap would be in the lake forever."""
    with (
        fluss.embedded(tmp_path / "data", config=SERVER) as cluster,
        fluss.connect(cluster.bootstrap_servers) as db,
    ):
        table = LakeTable(db, bucket_count=1, properties={"table.log.tiered.local-segments": "1"})
        people = [person(n) for n in range(1500)]
        for start in range(0, 1500, 50):
            db.append(table.name, people[start : start + 50])
        segments = tmp_path / "data" / "remote" / "log"
        wait_until(lambda: len(list(segments.rglob("*.log"))) > 2, "there are remote segments")
        inside = tmp_path / "data" / "data" / "fluss"
        wait_until(lambda: len(list(inside.rglob("*.log"))) <= 2, "old segments are in remote storage only")
        path = sorted(segments.rglob("*.log"), key=lambda each: each.name)[1]
        sound = path.read_bytes()
        path.write_bytes(b"")
        with pytest.raises(FlussError, match=str(path)):
            table.tier()
        path.write_bytes(sound)
        table.tier()
        table.check(people)
