"""Batch reads of tables with a lake: lake and log as one table. The reader is called as Spark calls it;
`test_lake_spark.py` has the same under Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark
from pyspark.sql.types import LongType, StructField, StructType

import fluss
from fluss.errors import ErrorCode, FlussError
from fluss.spark.source import FlussDataSource
from tests.support.lake.tiered_tables import OPTIONS, REGIONAL, LakeTable, by_id, person
from tests.support.lake.union_reads import EXPIRING, drop_partition, expire
from tests.support.spark.lake_reads import address, lake_server, planned_count, planned_read, read
from tools.waiting import wait_until

BY_POSITION = replace(OPTIONS, position_deletes_from_bytes=0, position_deletes_max_share=1.0, max_deleted_share=10.0)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.Database]:
    with lake_server(tmp_path_factory.mktemp("server")) as db:
        yield db


def people(*numbers: range, **more: Any) -> list[dict[str, Any]]:
    return [person(number, **more) for each in numbers for number in each]


def changed_keys(db: fluss.Database, **options: Any) -> tuple[LakeTable, list[dict[str, Any]]]:
    """A primary-key table with rows in the lake, some of which were changed, deleted or written again since."""
    table = LakeTable(db, primary_keys=["id"], **options)
    db.upsert(table.name, people(range(30)))
    table.tier()
    db.upsert(table.name, people(range(5), age=80))
    table.tier(BY_POSITION)
    db.upsert(table.name, people(range(10, 15), age=81))
    db.delete(table.name, [{"id": number} for number in (12, 20, 21)])
    db.upsert(table.name, people(range(21, 22), name="again"))
    db.upsert(table.name, people(range(30, 33)))
    rows = {row["id"]: row for row in people(range(33))}
    rows |= {row["id"]: row for row in [*people(range(5), age=80), *people(range(10, 15), age=81)]}
    rows[21] = person(21, name="again")
    del rows[12], rows[20]
    return table, by_id(list(rows.values()))


def test_a_table_that_was_not_tiered_yet_is_read_without_lake(db: fluss.Database) -> None:
    table = LakeTable(db)
    db.append(table.name, people(range(5)))
    reading = planned_read(table)
    assert set(reading.kinds) == {"LogSplit"}
    assert by_id(reading.rows()) == people(range(5))
    assert read(table, read_optimized="true") == [], "nothing is in the lake"
    keyed = LakeTable(db, primary_keys=["id"])
    db.upsert(keyed.name, people(range(5)))
    assert set(planned_read(keyed).kinds) == {"StateSplit"}


def test_files_and_the_log_after_them(db: fluss.Database) -> None:
    table = LakeTable(db, bucket_keys=["id"])
    for numbers in (range(20), range(20, 40)):
        db.append(table.name, people(numbers))
        table.tier()
    reading = planned_read(table)
    assert set(reading.kinds) == {"UnionTask"}, "there are no rows after the snapshot"
    assert by_id(reading.rows()) == people(range(40))
    db.append(table.name, people(range(40, 50)))
    reading = planned_read(table)
    assert set(reading.kinds) == {"UnionTask", "LogSplit"}
    assert by_id(reading.rows()) == people(range(50))
    assert read(table, read_optimized="true") == people(range(40))
    assert read(table, union="false") == people(range(50)), "the log has everything, too"
    assert set(planned_read(table, union="false").kinds) == {"LogSplit"}
    assert len(planned_read(table, limit=7).rows()) == 7
    small_tasks: dict[str, Any] = {"scan.maxBytesPerPartition": 1}
    per_file = planned_read(table, **small_tasks)
    assert per_file.kinds.count("UnionTask") == 4, "a task for each file"
    assert by_id(per_file.rows()) == people(range(50))


def test_rows_that_expired_from_the_log_are_found(db: fluss.Database) -> None:
    table = LakeTable(db, properties=EXPIRING, bucket_count=1)
    written: list[dict[str, Any]] = []

    def write() -> None:
        rows = [{"id": len(written) + n, "name": "x" * 200, "age": 1} for n in range(40)]
        db.append(table.name, rows)
        written.extend(rows)

    write()
    table.tier()
    expire(table, write, 40)
    db.append(table.name, people(range(10**6, 10**6 + 3)))
    assert read(table) == [*written, *people(range(10**6, 10**6 + 3))]
    assert read(table, start="earliest", end="latest") == read(table)
    assert len(read(table, union="false")) < len(written), "some have expired from the log"
    count = planned_count(table)
    assert (count.kinds, count.count) == (["CountSplit"], len(written) + 3)

    def are_counted() -> bool:  # until no rows expire between the two
        return planned_count(table, union="false").count == len(read(table, union="false"))

    wait_until(are_counted, "the rest of the log is counted")
    assert read(table, start="latest") == []


def test_keys_are_merged_and_the_newest_wins(db: fluss.Database) -> None:
    table, rows = changed_keys(db)
    reading = planned_read(table)
    assert reading.kinds == ["UnionTask"] * 2, "one task per bucket"
    assert by_id(reading.rows()) == rows
    assert read(table, union="false") == rows, "the live rows"
    wanted = StructType([StructField("id", LongType(), False)])
    assert by_id(planned_read(table, schema=wanted).rows()) == [{"id": row["id"]} for row in rows]
    count = planned_read(table, schema=StructType([]))
    assert sum(batch.num_rows for batch in count.batches()) == len(rows), "count(*)"


def test_filters_see_the_newest_rows(db: fluss.Database) -> None:
    """U3: a row of the lake that matches must not reappear if a newer one does not match."""
    table, rows = changed_keys(db)
    log = LakeTable(db)
    db.append(log.name, rows[:15])
    log.tier()
    db.append(log.name, rows[15:])
    cases: list[tuple[list[spark.Filter], Any]] = [
        ([spark.LessThan(("age",), 50)], lambda row: row["age"] < 50),
        ([spark.EqualTo(("age",), 80)], lambda row: row["age"] == 80),
        ([spark.GreaterThan(("id",), 3), spark.LessThan(("age",), 81)], lambda row: row["id"] > 3 and row["age"] < 81),
        ([spark.StringStartsWith(("name",), "aga")], lambda row: row["name"].startswith("aga")),
        ([spark.Not(spark.EqualTo(("age",), 80))], lambda row: row["age"] != 80),
    ]
    for filters, keeps in cases:
        wanted = [row for row in rows if keeps(row)]
        reading = planned_read(table, filters=filters)
        assert reading.left_to_spark == []
        assert by_id(reading.rows()) == wanted, filters
        assert by_id(planned_read(log, filters=filters).rows()) == wanted, filters


def test_keys_that_a_filter_fixes_are_looked_up(db: fluss.Database) -> None:
    table, rows = changed_keys(db)
    reading = planned_read(table, filters=[spark.In(("id",), (3, 12, 31))])
    assert reading.kinds == ["LookupSplit"]
    assert by_id(reading.rows()) == [row for row in rows if row["id"] in (3, 31)]


@pytest.mark.parametrize("keys", [[], ["region", "id"]], ids=["log", "keys"])
def test_partitions_of_the_lake_of_the_log_and_of_both(db: fluss.Database, keys: list[str]) -> None:
    table = LakeTable(db, REGIONAL, partitions=("eu", "us"), primary_keys=keys or None)
    write = db.upsert if keys else db.append
    rows = [person(number, region="eu") for number in range(5)] + [person(n, region="us") for n in range(5, 10)]
    write(table.name, rows)
    table.tier()
    drop_partition(table, "us")
    db.create_partition(table.name, {"region": "asia"})
    new = [person(number, region="asia") for number in range(10, 14)] + [person(14, region="eu")]
    write(table.name, new)
    assert read(table) == [*rows, *new]
    only_lake = planned_read(table, filters=[spark.EqualTo(("region",), "us"), spark.GreaterThan(("age",), 6)])
    assert len(only_lake.tasks) <= 2
    assert by_id(only_lake.rows()) == [row for row in rows if row["region"] == "us" and row["age"] > 6]
    only_log = planned_read(table, filters=[spark.EqualTo(("region",), "asia")])
    assert by_id(only_log.rows()) == new[:4]
    if keys:
        looked_up = planned_read(table, filters=[spark.EqualTo(("region",), "us"), spark.EqualTo(("id",), 7)])
        assert looked_up.kinds == ["LookupSplit"]
        assert looked_up.rows() == [person(7, region="us")]


def test_time_travel(db: fluss.Database) -> None:
    table = LakeTable(db, primary_keys=["id"])
    snapshots = []
    for age in (1, 2, 3):
        db.upsert(table.name, people(range(4), age=age))
        snapshots.append(table.tier().snapshot_id)
    history = {entry.snapshot_id: entry.timestamp_ms for entry in table.outside().metadata.snapshots}
    for age, snapshot_id in zip((1, 2, 3), snapshots, strict=True):
        assert snapshot_id is not None
        assert read(table, snapshot_id=snapshot_id) == people(range(4), age=age)
        assert read(table, as_of=history[snapshot_id]) == people(range(4), age=age)
    with pytest.raises(FlussError, match="has no snapshot 77") as caught:
        planned_read(table, snapshot_id=77)
    assert caught.value.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST
    with pytest.raises(FlussError, match="younger, or snapshots of that time have expired"):
        planned_read(table, as_of="2020-01-01")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"snapshot_id": 1, "as_of": 5}, "snapshot_id and as_of contradict each other"),
        ({"snapshot_id": 1, "union": "true"}, "contradict each other"),
        ({"as_of": 5, "start": "latest"}, "it has no start|no start and no end"),
        ({"snapshot_id": 1, "mode": "changelog"}, "has no changes"),
        ({"snapshot_id": "x"}, "whole number"),
    ],
)
def test_options_that_contradict_each_other(db: fluss.Database, options: dict[str, Any], words: str) -> None:
    table = LakeTable(db)
    with pytest.raises(FlussError, match=words):
        planned_read(table, **options)


def test_a_table_without_lake_has_no_snapshots(db: fluss.Database) -> None:
    db.create_table("fluss.plain", pa.schema([("id", pa.int64())]))
    table = LakeTable(db)
    table.name = "fluss.plain"
    with pytest.raises(FlussError, match="has no lake"):
        planned_read(table, snapshot_id=1)
    with pytest.raises(FlussError, match="has no lake"):
        planned_read(table, "$lake")


def test_the_lake_table_itself(db: fluss.Database) -> None:
    table = LakeTable(db, bucket_count=1)
    db.append(table.name, people(range(3)))
    table.tier()
    db.append(table.name, people(range(3, 5)))
    reading = planned_read(table, "$lake", filters=[spark.EqualTo(("id",), 1)])
    assert len(reading.left_to_spark) == 1, "Spark filters it"
    assert reading.schema.names == ["id", "name", "age", "__bucket", "__offset", "__timestamp"]
    rows = reading.rows("id")
    assert [(row["id"], row["__bucket"], row["__offset"]) for row in rows] == [(0, 0, 0), (1, 0, 1), (2, 0, 2)]
    assert read(table, "$lake", columns="id,__offset") == [{"id": n, "__offset": n} for n in range(3)]
    with pytest.raises(FlussError, match=r"unknown column 'x' in the lake table of .*; its columns are id"):
        planned_read(table, "$lake", columns="x")


def test_the_snapshots_and_files_of_the_lake_table(db: fluss.Database) -> None:
    table = LakeTable(db, REGIONAL, partitions=("eu",), bucket_count=1)
    made = []
    for first in (0, 5):
        db.append(table.name, [person(number, region="eu") for number in range(first, first + 5)])
        made.append(table.tier().snapshot_id)
    snapshots = planned_read(table, "$lake$snapshots").rows()
    assert [row["snapshot_id"] for row in snapshots] == made[::-1], "the newest first"
    assert snapshots[0]["superseded_at"] is None
    assert snapshots[1]["superseded_at"] == snapshots[0]["committed_at"]
    assert all(row["is_tiered"] for row in snapshots)
    assert dict(snapshots[0]["properties"])["total-records"] == "10"
    files = planned_read(table, "$lake$files").rows("first_offset")
    assert [(row["partition"], row["bucket"], row["rows"], row["last_offset"]) for row in files] == [
        ("eu", 0, 5, 4),
        ("eu", 0, 5, 9),
    ]
    (old,) = planned_read(table, "$lake$files", snapshot_id=made[0], columns="path,size_bytes").rows()
    assert old["path"] == files[0]["path"]
    assert old["size_bytes"] > 0
    with pytest.raises(FlussError, match=r"unknown column 'x' in .*\$lake\$files; its columns are path"):
        planned_read(table, "$lake$files", columns="x")


def test_the_lake_table_is_not_written(db: fluss.Database) -> None:
    table = LakeTable(db)
    source = FlussDataSource({"bootstrap.servers": address(table), "path": f"{table.name}$lake"})
    with pytest.raises(FlussError, match=r"only tiering writes the lake table .*: write to the table itself"):
        source.writer(StructType([StructField("id", LongType(), False)]), False)


def test_a_kept_plan_sees_later_rounds_and_rows(db: fluss.Database) -> None:
    """`end=open` without our Java classes: Spark plans a view once."""
    for keys in ([], ["id"]):
        table = LakeTable(db, primary_keys=keys or None)
        write = db.upsert if keys else db.append
        early = planned_read(table, own_scan=False, end="open")
        write(table.name, people(range(10)))
        assert by_id(early.rows()) == people(range(10)), "not tiered yet"
        table.tier()
        write(table.name, people(range(10, 15)))
        assert by_id(early.rows()) == people(range(15))
        table.tier()
        assert by_id(early.rows()) == people(range(15))


def test_digits_that_the_lake_lacks_come_from_the_live_rows(db: fluss.Database) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), False), ("at", pa.timestamp("ns"))])
    table = LakeTable(db, columns, primary_keys=["id"], bucket_count=1)
    db.upsert(table.name, pa.table({"id": pa.array([1], pa.int64()), "at": pa.array([123456789], pa.timestamp("ns"))}))
    table.tier()
    assert planned_read(table).kinds == ["UnionTask"], "microseconds are enough for Spark"
    exact = planned_read(table, nanosAs="bigint")
    assert exact.kinds == ["StateSplit"]
    assert exact.rows() == [{"id": 1, "at": 123456789}]
    assert read(table, nanosAs="bigint", read_optimized="true") == [{"id": 1, "at": 123456000}]


def test_a_new_column_is_null_in_old_files(db: fluss.Database) -> None:
    table = LakeTable(db)
    db.append(table.name, people(range(3)))
    table.tier()
    db.alter_table(table.name, add_columns=pa.schema([("city", pa.string())]))
    db.append(table.name, people(range(3, 5), city="Ulm"))
    assert read(table) == [*people(range(3), city=None), *people(range(3, 5), city="Ulm")]
    table.tier()
    assert read(table) == [*people(range(3), city=None), *people(range(3, 5), city="Ulm")]


def test_a_snapshot_that_expires_during_the_read_is_a_clear_error(db: fluss.Database) -> None:
    """U6: the read was planned, then the files were compacted and their snapshot expired."""
    table = LakeTable(db, bucket_count=1)
    db.append(table.name, people(range(5)))
    table.tier()
    reading = planned_read(table)
    lake = table.outside()
    for task in lake.scan().plan_files():
        lake.io.delete(task.file.file_path)
    with pytest.raises(FlussError, match=r"was removed after the read was planned.*Start the read again") as caught:
        reading.rows()
    assert caught.value.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST
