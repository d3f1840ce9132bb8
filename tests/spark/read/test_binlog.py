"""`mode=binlog`: every change as one row with the old and the new row, however ranges and micro-batches are cut."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import IsNotNull
from pyspark.sql.types import StructType

import fluss
import fluss.spark
from fluss.errors import FlussError
from fluss.spark.source import FlussDataSource
from tests.spark.conftest import Tables
from tests.support.servers.targets import running_target
from tests.support.spark.local_reads import Place, later_commit_time, new_place
from tests.support.spark.reader_calls import ID_AND_TEXT, ReaderTables
from tests.support.spark.stream_queries import run_to_end

# A column with the name of a binlog column must not be confused with it.
SCHEMA = fluss.Schema(
    pa.schema(
        [
            ("id", pa.int64()),
            ("before", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
            ("tags", pa.list_(pa.string())),
        ]
    ),
    ["id"],
)
AT = datetime.datetime(2026, 8, 1, tzinfo=datetime.UTC)
COLUMNS = ["_change_type", "_log_offset", "_commit_timestamp", "before", "after"]

Row = dict[str, Any]


def write_randomly(db: fluss.Database, path: str, seed: int) -> None:
    """Write few keys with many changes of each, in batches, so that a batch has several changes of one key."""
    rng = random.Random(seed)
    for step in range(4):
        keys = [rng.randrange(8) for _ in range(6)]
        db.upsert(path, [{"id": key, "before": f"{step}.{key}", "at": AT, "tags": [f"t{step}", None]} for key in keys])
        db.delete(path, [{"id": key} for key in rng.sample(range(8), 2)])


def folded(changelog: list[Row]) -> list[Row]:
    """The changes in the changelog of one bucket."""
    found = []
    old: Row | None = None
    for change in sorted(changelog, key=lambda row: row["_log_offset"]):
        about = {name: change[name] for name in COLUMNS[:3]}
        row = {name: value for name, value in change.items() if name not in about}
        kind = change["_change_type"]
        if kind == "update_before":
            old = row
            continue
        if kind == "delete":
            found.append({**about, "before": row, "after": None})
        else:
            name = "update" if kind == "update_after" else kind
            found.append({**about, "_change_type": name, "before": old, "after": row})
        old = None
    return found


@pytest.fixture(scope="module", params=["standalone", "apache"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """One database on each server, for all tests here."""
    with new_place(running_target(request.param)) as place:
        path = place.create("t", SCHEMA, bucket_count=1)
        write_randomly(place.db, path, 1)
        yield place


@pytest.fixture(scope="module")
def expected(place: Place) -> list[Row]:
    """All changes of the table, computed from its changelog."""
    found = folded(place.read(f"{place.name}.t", mode="changelog").rows())
    assert {row["_change_type"] for row in found} == {"insert", "update", "delete"}
    return found


def test_every_change_once_wherever_a_range_is_cut(place: Place, expected: list[Row]) -> None:
    path = f"{place.name}.t"
    whole = place.read(f"{path}$binlog")
    assert whole.schema.names == COLUMNS
    assert whole.rows() == expected
    stop = whole.split.range.stop
    by_offset = place.read(path, mode="binlog", **{"scan.maxRecordsPerPartition": 1})
    assert len(by_offset.tasks) == stop
    assert by_offset.rows("_log_offset") == expected
    for cut in range(1, stop):
        first = place.read(path, mode="binlog", end=f'{{"0": {cut}}}').rows()
        second = place.read(path, mode="binlog", start=f'{{"0": {cut}}}').rows()
        assert [*first, *second] == expected
        assert all(row["_log_offset"] < cut for row in first)


def test_some_columns_limits_and_filters(place: Place, expected: list[Row]) -> None:
    path = f"{place.name}.t"
    for columns in ("_change_type", "after", "before,_log_offset", "_log_offset,after,_change_type"):
        names = columns.split(",")
        found = place.read(path, mode="binlog", columns=columns).rows()
        assert found == [{name: row[name] for name in names} for row in expected]
    given = StructType([planned_schema(place, path)["after"]])
    assert place.read(path, mode="binlog", schema=given).rows() == [{"after": row["after"]} for row in expected]
    assert place.read(path, mode="binlog", limit=5).rows() == expected[:5]
    # `before` is the struct, not the column of the table.
    filtered = place.read(path, mode="binlog", filters=[IsNotNull(("before",))])
    assert filtered.left_to_spark == [IsNotNull(("before",))]
    assert filtered.rows() == expected


def planned_schema(place: Place, path: str) -> StructType:
    """The schema that Spark gets."""
    source = FlussDataSource({"bootstrap.servers": place.target.bootstrap_servers, "table": path, "mode": "binlog"})
    schema = source.schema()
    assert isinstance(schema, StructType)
    return schema


def test_a_range_of_times(place: Place) -> None:
    path = place.create("timed", ID_AND_TEXT, primary_keys=["id"], bucket_count=1)
    for text in ("a", "b", "c"):
        place.db.upsert(path, [{"id": 1, "text": text}])
        later_commit_time()
    changes = place.read(path, mode="binlog").rows()
    millis = [int(row["_commit_timestamp"].timestamp() * 1000) for row in changes]
    window = {"scan.incremental.start.timestamp": millis[1], "scan.incremental.end.timestamp": millis[2]}
    assert place.read(path, mode="binlog", **window).rows() == changes[1:2]
    assert (changes[1]["before"]["text"], changes[1]["after"]["text"]) == ("a", "b")


def test_a_stream_of_one_offset_at_a_time(place: Place, expected: list[Row]) -> None:
    tables = ReaderTables(place.target, place.db, place.name)
    with tables.reading({"mode": "binlog", "start": "earliest", "maxRowsPerTrigger": 1}) as query:
        assert query.schema.names == COLUMNS
        batches = list(query.batches())
    assert max(map(len, batches)) == 1
    assert [row for batch in batches for row in batch] == [tuple(row.values()) for row in expected]


def test_a_stream_begins_with_the_state_as_inserts(place: Place) -> None:
    place.create("state", ID_AND_TEXT, primary_keys=["id"], bucket_count=2)
    tables = ReaderTables(place.target, place.db, place.name)
    tables.upsert([1, 2, 3], "old", "state")
    tables.upsert([2], "new", "state")
    with tables.reading({"mode": "binlog", "columns": "_change_type,before,after"}, table="state") as query:
        state = query.next_rows()
        tables.upsert([3], "newer", "state")
        tables.delete([1], "state")
        later = query.next_rows()
    texts = {1: "old", 2: "new", 3: "old"}
    assert sorted(state, key=repr) == [("insert", None, {"id": key, "text": text}) for key, text in texts.items()]
    assert sorted(later, key=repr) == [
        ("delete", {"id": 1, "text": "old"}, None),
        ("update", {"id": 3, "text": "old"}, {"id": 3, "text": "newer"}),
    ]
    with tables.reading({"mode": "binlog", "columns": "_change_type"}, table="state") as query:
        assert query.next_rows() == [("insert",)] * 2


def test_rows_have_the_columns_that_were_planned(place: Place) -> None:
    """The table gets a column while a query is running."""
    path = place.create("grows", ID_AND_TEXT, primary_keys=["id"], bucket_count=1)
    tables = ReaderTables(place.target, place.db, place.name)
    tables.upsert([1], "a", "grows")
    tables.upsert([1], "b", "grows")
    planned = place.read(path, mode="binlog")
    place.db.alter_table(path, add_columns=[("more", pa.int32())])
    after = [row["after"] for row in planned.rows()]
    assert after == [{"id": 1, "text": "a"}, {"id": 1, "text": "b"}]
    assert place.read(path, mode="binlog").rows()[1]["before"] == {"id": 1, "text": "a", "more": None}


def test_tables_without_old_rows_are_refused() -> None:
    with new_place(running_target("standalone")) as place:
        log = place.create("log", ID_AND_TEXT)
        with pytest.raises(FlussError, match=r"log has no primary key.*mode=changelog"):
            place.read(f"{log}$binlog")
        keys: dict[str, Any] = {"primary_keys": ["id"], "bucket_count": 1}
        wal = place.create("wal", ID_AND_TEXT, properties={"table.changelog.image": "WAL"}, **keys)
        with pytest.raises(FlussError, match=r"wal has no old rows.*mode=changelog"):
            place.read(wal, mode="binlog")
        with pytest.raises(FlussError, match=r"unknown column 'id' in .*; its columns are _change_type"):
            place.read(place.create("t", ID_AND_TEXT, **keys), mode="binlog", columns="id")
        engine = {"table.merge-engine": "first_row"}
        first = place.create("first", ID_AND_TEXT, properties=engine, **keys)
        place.db.upsert(first, [{"id": 1, "text": "a"}])
        place.db.upsert(first, [{"id": 1, "text": "b"}])
        only_inserts = place.read(first, mode="binlog", columns="_change_type,after").rows()
        assert only_inserts == [{"_change_type": "insert", "after": {"id": 1, "text": "a"}}]


def test_spark_reads_batches_and_streams(module_tables: Tables, tmp_path: Path) -> None:
    tables = module_tables
    path = tables.create("t", SCHEMA, bucket_count=1)
    write_randomly(tables.db, path, 2)
    changelog = tables.read("t$changelog").collect()
    expected = folded([row.asDict(recursive=True) for row in changelog])
    batch = tables.read("t$binlog", {"scan.maxRecordsPerPartition": 15})
    assert (
        sorted((row.asDict(recursive=True) for row in batch.collect()), key=lambda row: row["_log_offset"]) == expected
    )
    # Fields of the rows: Spark asks for some of the columns.
    updates = batch.where("_change_type = 'update' AND after.id = before.id").select("before.before", "after.tags")
    wanted = [(row["before"]["before"], row["after"]["tags"]) for row in expected if row["_change_type"] == "update"]
    assert sorted(map(tuple, updates.collect())) == sorted(wanted)
    assert fluss.spark.count(tables.spark, f"{path}$binlog", options=tables.options()) == len(expected)

    few = tables.create("few", ID_AND_TEXT, primary_keys=["id"], bucket_count=1)
    for text in ("a", "b"):
        tables.db.upsert(few, [{"id": 1, "text": text}])
    tables.db.delete(few, [{"id": 1}])
    stream = tables.stream("few", {"mode": "binlog", "start": "earliest", "maxRowsPerTrigger": 1})
    seen = run_to_end(
        stream.select("_change_type", "_log_offset", "before.text", "after.text"), tmp_path / "checkpoint"
    )
    assert seen.rows == [("insert", 0, None, "a"), ("update", 2, "a", "b"), ("delete", 3, "b", None)]
    assert seen.sizes == [1, 0, 1, 1]
