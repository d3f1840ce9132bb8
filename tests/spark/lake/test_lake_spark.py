"""Tables with a lake under Spark: batch, SQL, streams, tiering and maintenance as jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import fluss
import fluss.spark
from fluss.cli.main import main
from fluss.errors import FlussError
from fluss.lake.maintenance import file_removal
from fluss.lake.maintenance.expiry import ExpiryResult
from fluss.lake.tables.iceberg.target import IcebergTarget
from tests.support.lake.maintenance import turn_clock
from tests.support.lake.tiered_tables import REGIONAL, LakeTable, person
from tests.support.lake.union_reads import drop_partition
from tests.support.spark.lake_reads import address, lake_server
from tests.support.spark.stream_queries import Seen, logged_offsets, run_to_end, running, wait_for_rows


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.Database]:
    with lake_server(tmp_path_factory.mktemp("server")) as db:
        yield db


def people(numbers: range, **more: Any) -> list[dict[str, Any]]:
    return [person(number, **more) for number in numbers]


def frame(spark: SparkSession, table: LakeTable, suffix: str = "", **options: Any) -> DataFrame:
    reader = spark.read.format("fluss").option("bootstrap.servers", address(table))
    return reader.options(**{key: str(value) for key, value in options.items()}).load(table.name + suffix)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def test_batch_reads_of_keys_and_partitions(spark: SparkSession, db: fluss.Database) -> None:
    table = LakeTable(db, REGIONAL, partitions=("eu", "us"), primary_keys=["region", "id"])
    db.upsert(table.name, [person(n, region="eu") for n in range(20)] + [person(n, region="us") for n in range(20, 30)])
    first = table.tier().snapshot_id
    db.upsert(table.name, [person(n, region="eu", age=80) for n in range(5)])
    db.delete(table.name, [{"region": "eu", "id": 6}])
    drop_partition(table, "us")
    now = frame(spark, table)
    expected = [n for n in range(30) if n != 6]
    assert now.count() == len(expected)
    assert fluss.spark.count(spark, table.name, options={"bootstrap.servers": address(table)}) == len(expected)
    assert ids(now.where("age < 80 AND id < 10")) == [5, 7, 8, 9], "old rows of changed keys do not reappear"
    assert ids(now.where("region = 'us'")) == list(range(20, 30)), "only in the lake"
    assert ids(frame(spark, table, snapshot_id=first)) == list(range(30))
    lake = frame(spark, table, "$lake")
    assert lake.columns[-3:] == ["__bucket", "__offset", "__timestamp"]
    assert ids(lake.where("__offset >= 0 AND region = 'eu'")) == list(range(20))


def test_counts_without_reading(spark: SparkSession, db: fluss.Database) -> None:
    table = LakeTable(db)
    options = {"bootstrap.servers": address(table)}
    db.append(table.name, people(range(7)))
    assert fluss.spark.count(spark, table.name, options=options) == 7
    table.tier()
    db.append(table.name, people(range(7, 9)))
    assert fluss.spark.count(spark, table.name, options=options) == 9
    assert frame(spark, table).count() == 9
    assert frame(spark, table, "$lake").count() == 7
    assert frame(spark, table, "$lake$files").count() == len(frame(spark, table, "$lake$files").collect())
    assert fluss.spark.count(spark, table.name, options={**options, "read_optimized": "true"}) == 7
    keyed = LakeTable(db, primary_keys=["id"])
    db.upsert(keyed.name, people(range(5)))
    keyed.tier()
    db.upsert(keyed.name, people(range(3, 8)))
    assert fluss.spark.count(spark, keyed.name, options=options) == 8


def test_views_and_catalogs_show_lake_and_log(spark: SparkSession, db: fluss.Database) -> None:
    table = LakeTable(db)
    db.append(table.name, people(range(10)))
    table.tier()
    db.append(table.name, people(range(10, 12)))
    name = table.path.table_name
    fluss.spark.catalog.register(spark, "lk", address(table))
    assert spark.sql(f"SELECT sum(id), count(*) FROM lk.fluss.{name}").collect()[0][:] == (66, 12)
    lake = spark.sql(f"SELECT id FROM lk.fluss.`{name}$lake` WHERE id > 7")
    assert sorted(row.id for row in lake.collect()) == [8, 9]
    with fluss.spark.attach(spark, "fluss", like=name, options={"bootstrap.servers": address(table)}):
        table.tier()
        db.append(table.name, people(range(12, 15)))
        assert spark.sql(f"SELECT count(*) FROM {name}").collect()[0][0] == 15


def test_a_stream_from_the_lake_over_a_restart(spark: SparkSession, db: fluss.Database, tmp_path: Path) -> None:
    table = LakeTable(db, bucket_keys=["id"])
    for first in (0, 10, 20):
        db.append(table.name, people(range(first, first + 10)))
        table.tier()
    db.append(table.name, people(range(30, 35)))

    def stream() -> DataFrame:
        reader = spark.readStream.format("fluss").option("bootstrap.servers", address(table))
        return reader.option("maxRowsPerTrigger", 5).load(table.name)

    seen = Seen()
    with running(stream(), tmp_path / "checkpoint", seen) as query:
        wait_for_rows(query, seen, 8)
    offsets = logged_offsets(tmp_path / "checkpoint")
    assert offsets[0]["lake"]["read"] >= 1
    assert offsets[0]["begin"]["lake"]["read"] == 0
    table.tier()
    db.append(table.name, people(range(35, 40)))
    run_to_end(stream(), tmp_path / "checkpoint", seen)
    assert seen.column() == list(range(40))
    assert "lake" not in logged_offsets(tmp_path / "checkpoint")[-1]


def test_maintenance_as_a_spark_job(
    spark: SparkSession, db: fluss.Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_few = {"iceberg.history.expire.min-snapshots-to-keep": "3"}
    table = LakeTable(db, bucket_keys=["id"], custom_properties=keep_few)
    keyed = LakeTable(db, primary_keys=["id"], bucket_count=1)
    rows: list[dict[str, Any]] = []
    model: dict[int, dict[str, Any]] = {}
    for number in range(5):
        some = people(range(number * 4, number * 4 + 4))
        rows += some
        db.append(table.name, some)
        db.upsert(keyed.name, people(range(number, 8), age=number))
        model |= {row["id"]: row for row in people(range(number, 8), age=number)}
        table.tier()
        keyed.tier()
    db.append(table.name, people(range(20, 22)))
    names = [table.name, keyed.name]
    dry = fluss.spark.maintain(spark, names, address(table), dry_run=True)
    assert [(done.table, done.job, done.result) for done in dry] == [
        (name, job, None) for name in names for job in ("compact", "expire", "clean")
    ]
    assert str(dry[0]).startswith(f"compact {table.name}: 10 files in 2 groups")
    before = table.outside().current_snapshot()
    compacted = fluss.spark.maintain(spark, table.name, address(table), jobs=["compact"])[0]
    assert str(compacted).startswith(f"compact {table.name}: 10 files became 2 (")
    after = table.outside().current_snapshot()
    assert before is not None
    assert after is not None
    assert after.snapshot_id != before.snapshot_id
    table.check(rows)
    keyed.check(list(model.values()))
    assert ids(frame(spark, table)) == list(range(22)), "lake and log still match after it"
    assert ids(frame(spark, table, snapshot_id=before.snapshot_id)) == list(range(20))
    registered = db.connection._session.run(_newest_snapshot(db, table))
    assert registered == after.snapshot_id, "readers use the compacted snapshot"
    table.tier()
    table.check(people(range(22)))
    with monkeypatch.context() as patches:
        check_files_are_removed_by_tasks(spark, table, patches, capsys)
    table.check(people(range(22)))
    with pytest.raises(FlussError, match=r"unknown job 'vacuum' .* the jobs are compact, expire, clean"):
        fluss.spark.maintain(spark, table.name, address(table), jobs=["vacuum"])
    db.create_table("fluss.nolake", pa.schema([("id", pa.int64())]))
    with pytest.raises(FlussError, match="has no lake"):
        fluss.spark.maintain(spark, "fluss.nolake", address(table))


def check_files_are_removed_by_tasks(
    spark: SparkSession, table: LakeTable, patches: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def removed_here(*_: object) -> None:
        raise AssertionError("the driver must not remove files")

    lost = table.lose_a_round(people(range(900, 902)))
    turn_clock(patches, days=2)
    patches.setattr(file_removal, "FILES_PER_TASK", 2)
    patches.setattr(IcebergTarget, "remove_files", removed_here)  # only in this process, not in Spark's workers
    snapshots = len(table.outside().metadata.snapshots)
    expiry, orphans = fluss.spark.maintain(spark, table.name, address(table), jobs=["expire", "clean"], dry_run=True)
    assert str(expiry).startswith(f"expire {table.name}: {snapshots - 3} snapshots would expire, 3 stay\n")
    assert str(orphans).splitlines()[1:] == [f"  {lost}"]
    assert (len(table.outside().metadata.snapshots), table.lost_files()) == (snapshots, [lost])
    (expired,) = fluss.spark.maintain(spark, table.name, address(table), jobs=["expire"])
    assert str(expired).startswith(f"expire {table.name}: {snapshots - 3} snapshots expired, ")
    assert isinstance(expired.result, ExpiryResult)
    assert expired.result.file_count > 2, "several tasks"
    assert len(table.outside().metadata.snapshots) == 3
    assert table.lost_files() == [lost], "the files of the snapshots were removed"
    patches.setattr(fluss.spark, "session", lambda *_: spark)
    patches.setattr(spark, "stop", lambda: None)
    assert main(["lake", "clean", "--bootstrap", address(table), "--table", table.name, "--spark"]) == 0
    assert capsys.readouterr().out == "1 files removed that no snapshot knew\n"
    assert table.lost_files() == []


async def _newest_snapshot(db: fluss.Database, table: LakeTable) -> int:
    from fluss.client.calls.admin import AdminCalls

    calls = AdminCalls(db.connection._session.cluster)
    return (await calls.get_lake_snapshot(table.path, None)).snapshot_id
