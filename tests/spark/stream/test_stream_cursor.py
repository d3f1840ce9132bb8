"""The option `cursor` of streams: where a query with a new checkpoint continues, on our server and on Apache Fluss."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss.errors import FlussError
from fluss.spark.stream import cursor as cursors
from tests.spark.conftest import Tables
from tests.support.servers.restartable import restartable_server
from tests.support.servers.targets import running_target
from tests.support.spark.reader_calls import ID_AND_TEXT, ReaderTables, new_database
from tests.support.spark.stream_queries import Seen, run_to_end, running, wait_for, wait_for_rows

CURSOR = {"cursor": "mailer"}


@pytest.fixture(params=["standalone", "apache"])
def both(request: pytest.FixtureRequest) -> Iterator[ReaderTables]:
    """A database on each server."""
    yield from new_database(running_target(request.param))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move cursors at once, in the readers of this process; those of Spark wait for a second."""
    monkeypatch.setattr(cursors, "MOVE_SECONDS", 0.0)


def ids(rows: list[tuple[Any, ...]]) -> list[Any]:
    return sorted(row[0] for row in rows)


def kept(tables: ReaderTables, name: str = "mailer") -> dict[fluss.TableBucket, int] | None:
    return asyncio.run(tables.db.connection.get_admin().get_cursor(tables.path(), name))


def test_another_query_continues_where_the_last_one_was(both: ReaderTables) -> None:
    both.create()
    both.append(0, 20)
    with both.reading({**CURSOR, "maxRowsPerTrigger": 5}) as query:
        first = query.next_rows()
        assert kept(both) is None, "the first batch is not known to be done"
        second = query.next_rows()
        at_first = kept(both)
        assert at_first is not None
        assert sum(at_first.values()) == 5
    both.append(20, 5)
    with both.reading(CURSOR) as other:  # begins with the second batch, which was not reported as done
        assert ids(first + other.all_rows()) == list(range(25))
    assert len(second) == 5
    assert sum((kept(both) or {}).values()) == 25
    with both.reading({"start": "earliest", **CURSOR}) as third:
        assert third.all_rows() == []
    with both.reading({"start": "earliest", "cursor": "another"}) as fourth:
        assert ids(fourth.all_rows()) == list(range(25))


def test_partitions_that_the_cursor_does_not_know(both: ReaderTables) -> None:
    schema = ID_AND_TEXT.append(pa.field("day", pa.string()))
    both.create(schema, partition_keys=["day"], bucket_keys=None, bucket_count=1)
    for day in ("a", "b"):
        both.db.create_partition(both.path(), {"day": day})
        both.append(0 if day == "a" else 10, 3, day=day)
    with both.reading(CURSOR) as query:
        assert ids(query.all_rows()) == [0, 1, 2, 10, 11, 12]
    asyncio.run(both.db.connection.get_admin().drop_partition(both.path(), {"day": "a"}))
    both.db.create_partition(both.path(), {"day": "c"})
    both.append(20, 2, day="c")
    both.append(13, 1, day="b")
    with both.reading({**CURSOR, "start": "latest"}) as other:
        assert ids(other.rows_within(3)) == [13, 20, 21]


def test_a_state_is_read_to_its_end_before_the_cursor_moves() -> None:
    for tables in new_database(running_target("standalone")):
        tables.create(fluss.Schema(ID_AND_TEXT, ["id"]), bucket_keys=None)
        tables.upsert(range(30), "old")
        with tables.reading({**CURSOR, "mode": "changelog", "maxRowsPerTrigger": 5}) as query:
            for _ in query.batches():
                offset = query.offset
                assert ("unread_state" in offset) <= (kept(tables) is None)
        assert sum((kept(tables) or {}).values()) == 30
        tables.upsert([3], "new")
        with tables.reading({**CURSOR, "mode": "changelog"}) as other:
            assert [row[0] for row in other.all_rows()] == ["update_before", "update_after"]


@pytest.mark.all
def test_a_server_that_is_down_while_the_cursor_should_move() -> None:
    server = restartable_server("standalone")
    for tables in new_database(server.target):
        tables.create()
        tables.append(0, 5)
        with tables.reading(CURSOR) as query:
            assert len(query.next_rows()) == 5
            server.goes_away()
            assert query.next_end() == query.offset, "nothing new, and no error"
            server.comes_back()
            assert query.rows_within(0) == []
            query.next_end()
            assert sum((kept(tables) or {}).values()) == 5


def test_a_recreated_table_is_a_clear_error() -> None:
    for tables in new_database(running_target("standalone")):
        tables.create()
        tables.append(0, 5)
        with tables.reading(CURSOR) as query:
            query.all_rows()
            checkpoint = query.offset
        tables.db.drop_table(tables.path())
        tables.create()
        with tables.reading(CURSOR, start=checkpoint) as query, pytest.raises(FlussError, match="created again"):
            query.next_rows()


def test_invalid_names() -> None:
    for tables in new_database(running_target("standalone")):
        tables.create()
        with pytest.raises(FlussError, match="option cursor: cursor name 'a b' is not allowed"):
            tables.reading({"cursor": "a b"}).__enter__()


def test_queries_of_spark(tables: Tables, tmp_path: Path) -> None:
    path = tables.create("events", ID_AND_TEXT, bucket_count=2)

    def append(first: int, count: int) -> None:
        tables.db.append(path, [{"id": number, "text": ""} for number in range(first, first + count)])

    def cursor() -> int:
        found = asyncio.run(tables.db.connection.get_admin().get_cursor(path, "mailer"))
        return sum((found or {}).values())

    stream = tables.stream("events", CURSOR)
    append(0, 30)
    assert run_to_end(stream, tmp_path / "a").column() == list(range(30))
    assert cursor() == 30
    append(30, 5)
    assert run_to_end(stream, tmp_path / "b").column() == list(range(30, 35)), "a new checkpoint begins at the cursor"
    assert run_to_end(stream, tmp_path / "a").column() == list(range(30, 35)), "an old one where it was"
    seen = Seen()
    with running(stream, tmp_path / "b", seen) as query:
        append(35, 3)
        wait_for_rows(query, seen, 3)
        wait_for(query, seen, lambda: cursor() == 38, "the cursor follows")
