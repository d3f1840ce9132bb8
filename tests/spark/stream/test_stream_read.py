"""Streaming reads under Spark: batches, triggers, restarts, reports. `test_stream_reader.py` has the details."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import fluss
from tests.spark.conftest import Tables
from tests.support.spark.stream_queries import Seen, ended, logged_offsets, run_to_end, running, wait_for, wait_for_rows
from tools.waiting import patience

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
BUCKETS = 3
STEPS_PER_BATCH = 40
"""How far a writer may be ahead of a query, so that a slow machine is not flooded."""
PAUSE_SECONDS = 0.02
LAST_WRITE_SECONDS = patience(100.0)


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": f"row {number}"} for number in range(first, first + count)]


@pytest.fixture
def table(tables: Tables) -> str:
    """A log table with 30 rows."""
    tables.create("events", SCHEMA, bucket_count=BUCKETS, bucket_keys=["id"])
    tables.db.append(tables.path("events"), rows(0, 30))
    return "events"


def test_existing_rows_then_new_rows_in_later_runs(tables: Tables, table: str, tmp_path: Path) -> None:
    stream = tables.stream(table)
    assert stream.schema.simpleString() == "struct<id:bigint,text:string>"
    assert sorted(run_to_end(stream, tmp_path / "c").rows) == [(n, f"row {n}") for n in range(30)]
    tables.db.append(tables.path(table), rows(30, 5))
    assert run_to_end(stream, tmp_path / "c").column() == list(range(30, 35))
    assert run_to_end(stream, tmp_path / "c").runs == []
    offsets = logged_offsets(tmp_path / "c")
    assert [sum(each["buckets"]) for each in offsets] == [30, 35]
    assert list(offsets[0]) == ["begin", "buckets", "table_id", "version"]
    assert list(offsets[1]) == ["buckets", "table_id", "version"]


def test_only_new_rows(tables: Tables, table: str, tmp_path: Path) -> None:
    seen = Seen()
    with running(tables.stream(table, {"starting": "latest"}), tmp_path / "c", seen) as query:
        wait_for(query, seen, lambda: seen.runs == [0], "the query has noted where it began")
        tables.db.append(tables.path(table), rows(100, 3))
        wait_for_rows(query, seen, 3)
        tables.db.append(tables.path(table), rows(103, 4))
        wait_for_rows(query, seen, 7)
    assert seen.column() == list(range(100, 107))


def test_an_unfinished_batch_is_repeated_as_it_was_logged(tables: Tables, table: str, tmp_path: Path) -> None:
    """The sink dies in the first batch, and again in the second; more rows arrive; both are repeated unchanged."""
    stream = tables.stream(table, {"maxRowsPerTrigger": 10, "start": "earliest"})
    seen, attempts = Seen(), Seen()
    for death in (0, 1):

        def dies(frame: DataFrame, batch_id: int, death: int = death) -> None:
            attempts.take(frame, batch_id)
            if batch_id == death:
                raise RuntimeError("the sink dies")
            seen.take(frame, batch_id)

        writer = stream.writeStream.foreachBatch(dies).option("checkpointLocation", str(tmp_path / "c"))
        with pytest.raises(StreamingQueryException, match="the sink dies"):
            ended(writer.trigger(availableNow=True).start())
        tables.db.append(tables.path(table), rows(30 + 10 * death, 10))
        if death == 0:
            first = list(attempts.batches[0])
    assert sorted(attempts.batches[0]) == sorted(first)
    run_to_end(stream, tmp_path / "c", seen)
    assert seen.runs[:2] == [0, 1]
    assert sorted(seen.batches[1]) == sorted(attempts.batches[1])
    assert max(seen.sizes) == 10
    assert seen.column() == list(range(50))


@pytest.mark.all
def test_a_running_query_reports_its_lag_and_pauses_while_idle(tables: Tables, table: str, tmp_path: Path) -> None:
    seen = Seen()
    stream = tables.stream(table, {"maxRowsPerTrigger": 12})
    with running(stream, tmp_path / "c", seen) as query:
        wait_for_rows(query, seen, 30)
        wait_for(query, seen, lambda: len(reported(query)) >= 3, "the progress of three batches")
        latest = [json.loads(each["sources"][0]["latestOffset"]) for each in reported(query)]
        assert [each["lag_rows"] for each in latest] == [18, 6, 0]
        assert [sum(each["lag"]) for each in latest] == [18, 6, 0]
        assert {sum(each["buckets"]) for each in latest} == {30}
        ends = [json.loads(each["sources"][0]["endOffset"]) for each in reported(query)]
        assert [sum(each["buckets"]) for each in ends] == [12, 24, 30]
        # Equal offsets must be equal strings: otherwise empty batches would run forever.
        checked = query.recentProgress[-1]["timestamp"]
        wait_for(query, seen, lambda: query.recentProgress[-1]["timestamp"] != checked, "an idle report")
        assert seen.sizes == [12, 12, 6]


def reported(query: StreamingQuery) -> list[Any]:
    """The progress of batches with rows, in order."""
    found = {each["batchId"]: each for each in query.recentProgress if each["numInputRows"]}
    return [found[batch_id] for batch_id in sorted(found)]


@pytest.mark.all
def test_other_triggers(tables: Tables, table: str, tmp_path: Path) -> None:
    limited = tables.stream(table, {"maxRowsPerTrigger": 7})
    assert run_to_end(limited, tmp_path / "once", once=True).sizes == [30]  # Spark asks for all rows then
    seen = Seen()
    with running(limited, tmp_path / "time", seen, processingTime="100 milliseconds") as query:
        wait_for_rows(query, seen, 30)
    assert max(seen.sizes) == 7


def test_changes_of_a_primary_key_table_without_gap_or_overlap(tables: Tables, tmp_path: Path) -> None:
    """A writer changes rows while a query begins with the state: folding the query's rows gives the table."""
    schema = fluss.Schema(SCHEMA, ["id"])
    path = tables.create("users", schema, bucket_count=2)
    tables.db.upsert(path, [{"id": n, "text": "begin"} for n in range(200)])
    stop = threading.Event()
    seen = Seen()

    def write() -> None:
        step = 0
        while not stop.wait(PAUSE_SECONDS):
            if step < STEPS_PER_BATCH * (1 + len(seen.runs)):
                step += 1
                tables.db.upsert(path, [{"id": (step * 7 + n) % 250, "text": f"step {step}"} for n in range(20)])
                tables.db.delete(path, [{"id": (step * 3 + n) % 250} for n in range(5)])

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        with running(tables.stream("users", {"mode": "changelog"}), tmp_path / "c", seen) as query:
            wait_for(query, seen, lambda: len(seen.runs) >= 5, "some batches")
    finally:
        stop.set()
        writer.join(LAST_WRITE_SECONDS)
    assert not writer.is_alive(), "the last write did not end"
    run_to_end(tables.stream("users", {"mode": "changelog"}), tmp_path / "c", seen)
    folded: dict[int, str] = {}
    for kind, _, _, key, text in seen.rows:
        if kind == "insert":
            assert key not in folded, f"{key} is inserted twice"
            folded[key] = text
        elif kind == "update_before":
            assert folded[key] == text
        elif kind == "update_after":
            assert key in folded
            folded[key] = text
        else:
            assert folded.pop(key) == text
    assert folded == {row["id"]: row["text"] for row in tables.rows("users")}


@pytest.mark.all
def test_the_state_is_the_same_when_the_first_batch_runs_again(tables: Tables, tmp_path: Path) -> None:
    """Spark does not store the start of the first batch, and asks again after a crash, when the table has changed."""
    path = tables.create("users", fluss.Schema(SCHEMA, ["id"]), bucket_count=2)
    tables.db.upsert(path, [{"id": n, "text": "old"} for n in range(20)])
    stream = tables.stream("users", {"mode": "changelog"})
    attempt, seen = Seen(), Seen()

    def dies(frame: DataFrame, batch_id: int) -> None:
        attempt.take(frame, batch_id)
        raise RuntimeError("the sink dies")

    writer = stream.writeStream.foreachBatch(dies).option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(StreamingQueryException, match="the sink dies"):
        ended(writer.trigger(availableNow=True).start())
    tables.db.upsert(path, [{"id": n, "text": "new"} for n in range(15, 25)])
    tables.db.delete(path, [{"id": n} for n in range(5)])
    run_to_end(stream, tmp_path / "c", seen)
    assert sorted(seen.batches[0]) == sorted(attempt.batches[0])
    assert [(row[0], row[3], row[4]) for row in sorted(seen.batches[0], key=lambda row: row[3])] == [
        ("insert", n, "old") for n in range(20)
    ]
    assert len(seen.rows) == 20 + 5 * 2 + 5 + 5  # the state, updates with both rows, inserts, deletes


def test_on_apache_fluss(apache_tables: Tables, tmp_path: Path) -> None:
    tables = apache_tables
    path = tables.create("users", fluss.Schema(SCHEMA, ["id"]), bucket_count=2)
    tables.db.upsert(path, [{"id": n, "text": "old"} for n in range(20)])
    stream = tables.stream("users", {"mode": "changelog"})
    assert run_to_end(stream, tmp_path / "c").column(3) == list(range(20))
    tables.db.delete(path, [{"id": 3}])
    tables.db.upsert(path, [{"id": 30, "text": "new"}])
    later = run_to_end(stream, tmp_path / "c").rows
    assert sorted((row[0], row[3], row[4]) for row in later) == [("delete", 3, "old"), ("insert", 30, "new")]


def test_errors_reach_the_user(tables: Tables, tmp_path: Path) -> None:
    path = tables.create("users", fluss.Schema(SCHEMA, ["id"]), bucket_count=1)
    tables.db.upsert(path, [{"id": 1, "text": "x"}])
    tables.db.delete(path, [{"id": 1}])
    with pytest.raises(StreamingQueryException, match=r"a row was deleted at offset 1 of bucket 0.*mode"):
        run_to_end(tables.stream("users", {"start": "earliest"}), tmp_path / "c")
    with pytest.raises(StreamingQueryException, match=r"offset 99 for bucket 0, but its log ends at 2"):
        run_to_end(tables.stream("users", {"start": '{"0": 99}'}), tmp_path / "d")
