"""Streaming reads of primary-key tables, call by call: changelog, rows, and the state before the changes.

On our server, which can scan tables, and on Apache Fluss 0.9.1, where the state is folded from the changelog.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import fluss
from fluss.errors import FlussError
from tests.support.servers.targets import running_target
from tests.support.spark.reader_calls import ID_AND_TEXT, ReaderTables, new_database

PRIMARY_KEY: dict[str, Any] = {"primary_keys": ["id"], "bucket_keys": None}


@pytest.fixture(params=["standalone", "apache"])
def tables(request: pytest.FixtureRequest) -> Iterator[ReaderTables]:
    """A database with a primary-key table on each server."""
    for database in new_database(running_target(request.param)):
        database.create(**PRIMARY_KEY)
        yield database


@pytest.fixture
def ours() -> Iterator[ReaderTables]:
    """A database with a primary-key table on our server only."""
    for database in new_database(running_target("standalone")):
        database.create(**PRIMARY_KEY)
        yield database


def changes(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Change type, id and text, sorted by id and offset."""
    return [(row[0], row[3], row[4]) for row in sorted(rows, key=lambda row: (row[3], row[1]))]


def test_a_changelog_has_every_change_with_its_offset(tables: ReaderTables) -> None:
    tables.upsert([1, 2], "old")
    with tables.reading({"mode": "changelog", "start": "earliest"}) as query:
        assert changes(query.next_rows()) == [("insert", 1, "old"), ("insert", 2, "old")]
        tables.upsert([2], "new")
        tables.delete([1])
        rows = query.next_rows()
        assert changes(rows) == [
            ("delete", 1, "old"),
            ("update_before", 2, "old"),
            ("update_after", 2, "new"),
        ]
        assert all(row[2] is not None for row in rows)


def test_full_is_the_state_and_then_the_changes(tables: ReaderTables) -> None:
    tables.upsert(range(20), "first")
    tables.upsert(range(5), "second")
    tables.delete([0, 19])
    with tables.reading({"mode": "changelog"}) as query:
        begin = query.begin()
        assert begin["unread_state"] == [0, 1, 2]
        tables.upsert([1], "third")  # after the start: a change, not state
        tables.delete([2])
        tables.upsert([50], "late")
        state = query.next_rows()
        assert changes(state) == [("insert", n, "second" if n < 5 else "first") for n in range(1, 19)]
        assert all(row[2].timestamp() * 1000 == begin["state_time"] for row in state)
        end = query.offset
        assert "unread_state" not in end
        later = query.next_rows()
        assert changes(later) == [
            ("update_before", 1, "second"),
            ("update_after", 1, "third"),
            ("delete", 2, "second"),
            ("insert", 50, "late"),
        ]
        assert max(row[1] for row in state) < max(row[1] for row in later)
    # The first batch is repeated later in another process: the same rows, although Spark asks for a new start.
    tables.upsert(range(20), "fourth")
    with tables.reading({"mode": "changelog"}) as query:
        assert sorted(query.rows(query.begin(), end)) == sorted(state)
        query.offset = end
        assert [each for each in changes(query.next_rows()) if each[1] == 1] == [
            *changes(later)[:2],
            ("update_before", 1, "third"),
            ("update_after", 1, "fourth"),
        ]


def test_full_with_a_limit_reads_the_state_bucket_by_bucket(ours: ReaderTables) -> None:
    ours.upsert(range(30), "x")
    with ours.reading({"maxRowsPerTrigger": 12, "mode": "state"}) as query:
        query.begin()
        sizes = [len(batch) for batch in query.batches()]
        assert len(sizes) == 3
        assert sum(sizes) == 30
        ours.upsert(range(30), "y")  # before and after images: 60 changes
        sizes = [len(batch) for batch in query.batches()]
        assert sum(sizes) == 30
        assert max(sizes) <= 12
        assert len(sizes) == 5


def test_available_now_with_the_state_ends(ours: ReaderTables) -> None:
    ours.upsert(range(10), "x")
    with ours.reading({"maxRowsPerTrigger": 4, "mode": "changelog"}) as query:
        query.available_now()  # Spark fixes the target first, then asks for the start
        ours.upsert(range(10, 20), "x")
        rows = []
        for batch in query.batches():
            rows += batch
            ours.upsert(range(5), "y")
        checkpoint = query.offset
        assert changes(rows) == [("insert", n, "x") for n in range(20)]
    with ours.reading({"mode": "changelog"}, start=checkpoint) as query:
        query.available_now()
        later = query.all_rows()
    assert {row[3] for row in later} == set(range(5))


@pytest.mark.parametrize("mode", [{}, {"mode": "changelog"}], ids=["rows", "changelog"])
def test_available_now_ends_after_offsets_without_rows(ours: ReaderTables, mode: dict[str, str]) -> None:
    """Deletes of missing keys take offsets: the latest one has no row, and none will arrive."""
    ours.upsert([1], "x")
    for _ in range(3):
        ours.delete([7])
    for limit in ({}, {"maxRowsPerTrigger": 1}):
        with ours.reading({**mode, "start": "earliest", **limit}) as query:
            query.begin()
            query.available_now()
            assert len(query.all_rows()) == 1
            checkpoint = query.offset
    ours.delete([7])
    with ours.reading(mode, start=checkpoint) as query:
        query.available_now()
        assert query.all_rows() == []
    ours.upsert([2], "y")
    with ours.reading(mode, start=checkpoint) as query:
        assert len(query.rows_within(1)) == 1


def test_plain_rows_are_the_new_rows_of_inserts_and_updates(tables: ReaderTables) -> None:
    tables.upsert([1, 2], "old")
    with tables.reading() as query:
        assert query.schema.names == ["id", "text"]
        assert sorted(query.next_rows()) == [(1, "old"), (2, "old")]
        tables.upsert([2, 3], "new")
        assert sorted(query.next_rows()) == [(2, "new"), (3, "new")]


def test_a_delete_ends_a_stream_of_plain_rows_unless_deletes_are_left_out(tables: ReaderTables) -> None:
    tables.upsert([1, 2], "old")
    with tables.reading() as query:
        query.next_rows()
        checkpoint = query.offset
        tables.delete([1])
        tables.upsert([3], "new")
        with pytest.raises(FlussError, match=r"a row was deleted at offset \d+ of bucket \d.*mode', 'changelog'"):
            query.next_rows()
    with tables.reading({"mode": "state"}, start=checkpoint) as query:
        assert query.next_rows() == [(3, "new")]


def test_a_stream_of_rows_has_no_columns_about_changes(ours: ReaderTables) -> None:
    with ours.reading({"mode": "changelog"}) as query:
        schema = query.schema
    with ours.reading(schema=schema) as query, pytest.raises(FlussError, match="add mode=changelog"):
        query.begin()


def test_rows_of_a_log_table_have_no_state(ours: ReaderTables) -> None:
    ours.create(table="log")
    with ours.reading({"mode": "state"}, table="log") as query, pytest.raises(FlussError, match="no primary key"):
        query.begin()


def test_columns_of_the_change_alone(ours: ReaderTables) -> None:
    ours.upsert(range(5), "x")
    ours.delete([4])
    with ours.reading({"mode": "changelog", "columns": "_change_type", "start": "earliest"}) as query:
        assert sorted(query.all_rows()) == [("delete",)] + [("insert",)] * 5
    with ours.reading({"mode": "changelog", "columns": "id,_log_offset"}) as query:
        assert sorted(row[0] for row in query.all_rows()) == [0, 1, 2, 3]


def test_state_of_an_empty_table_is_no_batch(ours: ReaderTables) -> None:
    with ours.reading() as query:
        begin = query.begin()
        assert "unread_state" not in begin
        assert query.next_end() == begin
        ours.upsert([1], "x")
        assert query.next_rows() == [(1, "x")]


def test_the_state_of_partitions(ours: ReaderTables) -> None:
    schema = fluss.Schema(ID_AND_TEXT.append(ID_AND_TEXT.field("text").with_name("day")), ["id", "day"])
    ours.create(schema, "parted", partition_keys=["day"], bucket_count=1, bucket_keys=None)
    for day in ("mon", "tue"):
        ours.db.create_partition(ours.path("parted"), {"day": day})
        ours.upsert(range(3), "x", "parted", day=day)
    with ours.reading(table="parted") as query:
        begin = query.begin()
        assert sorted(map(len, begin["unread_state"].values())) == [1, 1]
        assert len(query.next_rows()) == 6
        ours.db.create_partition(ours.path("parted"), {"day": "wed"})
        ours.upsert(range(2), "x", "parted", day="wed")
        assert sorted(query.rows_within(2)) == [(0, "x", "wed"), (1, "x", "wed")]
