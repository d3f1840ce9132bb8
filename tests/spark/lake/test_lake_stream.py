"""Streams that begin in the lake (U4): its files first, then the log, without gap or overlap, even across restarts.

The reader is called as Spark calls it; `test_lake_spark.py` has the same under Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import fluss
from fluss.errors import ErrorCode, FlussError
from fluss.lake.maintenance.options import MaintenanceOptions
from fluss.lake.maintenance.service import TableMaintenance
from fluss.lake.tables.open_lake import lake_of
from fluss.spark.stream.offsets import LakeProgress, StreamOffsets
from tests.support.lake.tiered_tables import REGIONAL, LakeTable, person
from tests.support.lake.union_reads import EXPIRING, drop_partition, expire
from tests.support.spark.lake_reads import lake_server, streaming

EAGER = MaintenanceOptions(compaction_min_files=2)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fluss.Database]:
    with lake_server(tmp_path_factory.mktemp("server")) as db:
        yield db


def people(numbers: range, **more: Any) -> list[dict[str, Any]]:
    return [person(number, **more) for number in numbers]


def ids(rows: list[tuple[Any, ...]]) -> list[Any]:
    return sorted(row[0] for row in rows)


def three_rounds(db: fluss.Database, **options: Any) -> LakeTable:
    """A table with six files, and rows after them."""
    table = LakeTable(db, bucket_keys=["id"], **options)
    for first in (0, 10, 20):
        db.append(table.name, people(range(first, first + 10)))
        table.tier()
    db.append(table.name, people(range(30, 35)))
    return table


def test_files_first_then_the_log(db: fluss.Database) -> None:
    table = three_rounds(db)
    with streaming(table) as query:
        begin = query.begin()
        assert begin["lake"]["files"] == 6
        assert begin["version"] == 2
        assert ids(query.next_rows()) == list(range(30)), "the files of the snapshot, in one batch"
        assert "lake" not in query.offset
        table.tier()  # further tiering changes nothing
        db.append(table.name, people(range(35, 40)))
        assert ids(query.next_rows()) == list(range(30, 40))
        assert query.all_rows() == []
        assert query.offset["version"] == 1
    for start in ("earliest", "latest"):
        with streaming(table, starting=start) as query:
            assert "lake" not in query.begin()
    with streaming(table, union="false") as query:
        assert "lake" not in query.begin()


def test_a_restart_in_the_middle_is_exact(db: fluss.Database) -> None:
    """A batch whose end is in the checkpoint is repeated, by another process and after another round."""
    table = three_rounds(db)
    for stop_after in range(6):
        seen = []
        with streaming(table, maxRowsPerTrigger=1) as query:
            files = query.begin()["lake"]["files"]
            for _ in range(stop_after):
                seen += query.next_rows()
            start, end = query.offset, query.next_end()
        assert end["lake"]["read"] == stop_after + 1 if stop_after + 1 < files else "lake" not in end, "one at a time"
        table.tier()
        with streaming(table, start=start) as query:
            # Until its first batch has ended, Spark asks a query for its beginning again.
            again = query.begin() if stop_after == 0 else start
            seen += query.rows(again, end)
            query.offset = end
            seen += query.all_rows()
        assert ids(seen) == list(range(35)), stop_after


def test_limits_take_as_many_files_as_fit(db: fluss.Database) -> None:
    table = three_rounds(db)
    with streaming(table, maxRowsPerTrigger=20) as query:
        sizes = [len(batch) for batch in query.batches()]
    assert sum(sizes) == 35
    assert len(sizes) >= 3
    assert max(sizes) <= 20


def test_available_now_reads_lake_and_log_up_to_now(db: fluss.Database) -> None:
    table = three_rounds(db)
    with streaming(table) as query:
        query.begin()
        query.available_now()
        db.append(table.name, people(range(35, 40)))
        assert ids(query.all_rows()) == list(range(35))


def test_the_changes_of_keys_follow_their_rows_in_the_lake(db: fluss.Database) -> None:
    table = LakeTable(db, primary_keys=["id"], bucket_count=1)
    db.upsert(table.name, people(range(3)))
    table.tier()
    db.upsert(table.name, people(range(1), age=77))
    db.delete(table.name, [{"id": 2}])
    with streaming(table, mode="changelog") as query:
        first, second = query.next_rows(), query.next_rows()
    assert sorted((row[0], row[3]) for row in first) == [("insert", 0), ("insert", 1), ("insert", 2)]
    assert [(row[0], row[3], row[5]) for row in second] == [
        ("update_before", 0, 0),
        ("update_after", 0, 77),
        ("delete", 2, 2),
    ]
    with streaming(table, mode="state", columns="id,age") as query:
        assert sorted(query.next_rows()) == [(0, 0), (1, 1), (2, 2)]
        assert query.next_rows() == [(0, 77)]
    with streaming(table, mode="binlog") as query:
        images = query.next_rows()
        assert [(row[3], row[4]["id"]) for row in images] == [(None, 0), (None, 1), (None, 2)]


def test_partitions_that_are_only_in_the_lake(db: fluss.Database) -> None:
    for keys in ([], ["region", "id"]):
        table = LakeTable(db, REGIONAL, partitions=("eu", "us"), primary_keys=keys or None)
        write = db.upsert if keys else db.append
        write(table.name, [person(n, region="eu") for n in range(4)] + [person(n, region="us") for n in range(4, 8)])
        table.tier()
        drop_partition(table, "us")
        db.create_partition(table.name, {"region": "asia"})
        write(table.name, [person(8, region="asia"), person(9, region="eu")])
        with streaming(table, columns="id") as query:
            offset = query.begin()
            assert ids(query.rows_within(10)) == list(range(10))
        without = offset["lake"].get("without", [])
        assert all(name == "asia" for name, _ in without), "new partitions of primary-key tables are read as state"


def test_a_bucket_whose_changelog_does_not_reach_back_is_read_live(db: fluss.Database) -> None:
    table = LakeTable(db, primary_keys=["id"], properties=EXPIRING, bucket_count=1)
    db.upsert(table.name, people(range(50), name="x" * 200))
    first = table.tier().snapshot_id

    def write() -> None:
        db.upsert(table.name, people(range(50), name="y" * 200))

    expire(table, write, 50)
    db.upsert(table.name, people(range(60), name="z"))
    with streaming(table, columns="id,name") as query:
        assert query.begin()["lake"]["snapshot"] != first
        last = {row[0]: row[1] for row in query.all_rows()}
    assert last == dict.fromkeys(range(60), "z")


def test_an_expired_snapshot_is_a_clear_error(db: fluss.Database) -> None:
    table = three_rounds(db)
    with streaming(table, maxRowsPerTrigger=1) as query:
        query.next_rows()
        offset = query.offset
    table.tier()
    lake = table.outside()
    lake.maintenance.expire_snapshots().by_id(offset["lake"]["snapshot"]).commit()
    with (
        streaming(table, start=offset) as query,
        pytest.raises(FlussError, match=r"expired before all of it was read. Start with a new checkpoint") as caught,
    ):
        query.next_rows()
    assert caught.value.error_code == ErrorCode.LAKE_SNAPSHOT_NOT_EXIST


def test_an_expired_registered_snapshot_is_replaced_by_the_newest(db: fluss.Database) -> None:
    """Another program rewrote the lake table and expired older snapshots before the coordinator knew."""
    table = three_rounds(db)
    lake = lake_of(table.properties)
    try:
        compacted = TableMaintenance(lake.load(table.path), db.info(table.name).table_id, options=EAGER).compact()
    finally:
        lake.close()
    outside = table.outside()
    for snapshot in list(outside.metadata.snapshots):
        if snapshot.snapshot_id != compacted.snapshot_id:
            table.outside().maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    with streaming(table) as query:
        assert query.begin()["lake"] == {"files": 2, "read": 0, "snapshot": compacted.snapshot_id}
        assert ids(query.all_rows()) == list(range(35))


@pytest.mark.parametrize("option", [{"snapshot_id": 1}, {"as_of": 5}, {"mode": "lake"}])
def test_streams_have_no_snapshots(db: fluss.Database, option: dict[str, Any]) -> None:
    table = LakeTable(db)
    with pytest.raises(FlussError, match="is for batch reads"), streaming(table, **option):
        pass


def test_offsets_as_json() -> None:
    lake = LakeProgress(81, 4, 9, frozenset({("eu", 1), ("eu", 0)}))
    offsets = StreamOffsets(7, {(3, 0): 120, (3, 1): 98}, lake=lake)
    document = offsets.to_json()
    assert json.dumps(document) == (
        '{"lake": {"files": 9, "read": 4, "snapshot": 81, "without": [["eu", 0], ["eu", 1]]}, '
        '"partitions": {"3": [120, 98]}, "table_id": 7, "version": 2}'
    )
    assert StreamOffsets.from_json(json.loads(json.dumps(document))) == offsets
    first = StreamOffsets(7, {(None, 0): 5}, begin=StreamOffsets(7, {(None, 0): 5}, is_initial=True, lake=lake))
    assert first.to_json()["version"] == 2
    assert StreamOffsets.from_json(first.to_json()) == first
    for damaged in ({"snapshot": 1, "read": 9, "files": 9}, {"read": 0, "files": 1}, {"snapshot": 1, "read": -1}):
        with pytest.raises(FlussError, match="cannot be read"):
            StreamOffsets.from_json({**document, "lake": damaged})
    with pytest.raises(FlussError, match="has format version 3"):
        StreamOffsets.from_json({**document, "version": 3})
