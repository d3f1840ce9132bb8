"""Streaming reads of expired rows and dropped tables, and of servers that stop.

These tests stop servers and let rows expire after a second, so they have their own servers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fluss import OffsetSpec
from fluss.errors import FlussError
from fluss.spark.sessions import connection_cache
from fluss.spark.stream import planner, table_watch
from tests.support.servers.restartable import RestartableServer, restartable_server
from tests.support.spark.reader_calls import ReaderTables, new_database
from tools.waiting import patience, wait_until

SHORT_LIVED: dict[str, Any] = {"bucket_count": 1, "bucket_keys": None, "properties": {"table.log.ttl": "1 s"}}


@pytest.fixture(params=["standalone", "apache"])
def server(request: pytest.FixtureRequest) -> Iterator[RestartableServer]:
    """A server that runs again after every test."""
    server = restartable_server(request.param)
    yield server
    server.comes_back()


@pytest.fixture
def tables(server: RestartableServer) -> Iterator[ReaderTables]:
    yield from new_database(server.target)


def fill_until_expired(tables: ReaderTables, wanted_start: int = 1) -> int:
    """Append until the log no longer begins with its first row; return the end. Ids are offsets."""
    count = latest(tables)

    def expired() -> bool:
        nonlocal count
        tables.db.append(tables.path(), [{"id": count + n, "text": "x" * 100} for n in range(200)])
        count += 200
        return earliest(tables) >= wanted_start

    wait_until(expired, "rows expire", 180)
    return count


def earliest(tables: ReaderTables) -> int:
    return _offset(tables, OffsetSpec.earliest())


def latest(tables: ReaderTables) -> int:
    return _offset(tables, OffsetSpec.latest())


def _offset(tables: ReaderTables, which: OffsetSpec) -> int:
    calls, path = tables.db._calls, tables.db._path(tables.path())
    return tables.db._session.run(calls.list_offsets(path, None, [0], which))[0]


def test_expired_rows_end_the_query_or_are_skipped(
    tables: ReaderTables, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.create(**SHORT_LIVED)
    tables.append(0, 10)
    with tables.reading({"maxRowsPerTrigger": 5}) as query:
        start = query.begin()
        end = query.next_end()  # rows 0 to 4
    count = fill_until_expired(tables, 20)
    begin = earliest(tables)

    text = r"bucket 0: the next offset to read is 0, but the log now begins at \d+: \d+ rows have expired"
    with tables.reading(start=start) as query, pytest.raises(FlussError, match=text):
        query.next_end()
    with tables.reading() as query, pytest.raises(FlussError, match=text):  # a batch that was logged before
        query.rows(start, end)

    lenient = {"failOnDataLoss": "false"}
    with tables.reading(lenient, start=start) as query, caplog.at_level(logging.WARNING):
        assert query.rows(start, end) == []
        tables.append(count, 1)
        seen = sorted(row[0] for row in query.all_rows())
        assert seen == list(range(seen[0], count + 1))
        assert begin <= seen[0] <= count
        assert "failOnDataLoss=false" in caplog.text
    # Tasks notice losses that the driver does not know yet.
    monkeypatch.setattr(planner, "EXPIRY_CHECK_SECONDS", 1e9)
    with tables.reading(lenient, start=start) as query:
        end = {**start, "buckets": [count + 1]}
        seen = sorted(row[0] for row in query.rows(start, end))
        assert seen == list(range(seen[0], count + 1))


def test_a_new_query_begins_with_the_existing_rows(tables: ReaderTables) -> None:
    tables.create(**SHORT_LIVED)
    count = fill_until_expired(tables)
    with tables.reading({"start": "earliest"}) as query:
        start = query.begin()
        assert start["buckets"][0] > 0
        tables.append(count, 1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of the driver takes at most a second while no server answers."""
    monkeypatch.setattr(table_watch, "ANSWER_SECONDS", 1.0)


@pytest.mark.usefixtures("impatient")
def test_a_table_created_again_is_not_the_same(tables: ReaderTables) -> None:
    tables.create()
    tables.append(0, 10)
    with tables.reading() as query:
        start = query.begin()
        end = query.next_end()
        tables.db.drop_table(tables.path())
        with pytest.raises(FlussError, match="was dropped"):
            wait_until(lambda: query.next_rows() and False, "the drop is noticed")
        tables.create()
        tables.append(0, 10)
        with pytest.raises(FlussError, match="dropped and created again"):
            wait_until(lambda: query.next_rows() and False, "it is noticed")
        with pytest.raises(FlussError, match="dropped and created again"):
            query.rows(start, end)
    text = rf"now has id \d+, but this query reads the one with id {start['table_id']}.*new checkpoint"
    with tables.reading(start=start) as query, pytest.raises(FlussError, match=text):
        query.next_end()
    with tables.reading() as query, pytest.raises(FlussError, match=text):
        query.tasks(start, end)


@pytest.mark.usefixtures("impatient")
def test_restarts_only_delay_a_query(tables: ReaderTables, server: RestartableServer) -> None:
    tables.create()
    tables.append(0, 50)
    with tables.reading({"maxRowsPerTrigger": 20}) as query:
        query.begin()
        rows = query.next_rows()
        end = query.next_end()
        server.goes_away()
        away: list[Any] = []

        def ask_and_read() -> None:
            away.append(query.next_end())  # nothing new as long as no server answers
            away.append(query.rows(query.offset, end))  # a task waits

        asking = threading.Thread(target=ask_and_read)
        asking.start()
        wait_until(lambda: away or not asking.is_alive(), "the driver continues without an answer")
        assert away[0] == query.offset
        server.comes_back()
        asking.join(patience(60))
        assert sorted(row[0] for row in [*rows, *away[1]]) == sorted(
            row[0] for row in rows + query.rows(query.offset, end)
        )
        query.offset = end
        tables.append(50, 10)
        rows += away[1] + query.all_rows()
    assert sorted(row[0] for row in rows) == list(range(60))


def test_a_tablet_that_dies_is_waited_for() -> None:
    server = restartable_server("standalone")
    for tables in new_database(server.target):
        tables.create()
        tables.append(0, 20)
        with tables.reading({"maxRowsPerTrigger": 4}) as query:
            query.begin()
            rows = []
            for number, batch in enumerate(query.batches()):
                rows += batch
                if number < 2:
                    server.disturb_tablet(number)
            rows += query.rows_within(20 - len(rows)) if len(rows) < 20 else []
        assert sorted(row[0] for row in rows) == list(range(20))


@pytest.mark.usefixtures("impatient")
def test_a_query_that_begins_while_servers_are_down_waits_for_them(
    tables: ReaderTables, server: RestartableServer
) -> None:
    tables.create()
    tables.append(0, 5)
    with tables.reading() as query, tables.reading({"scan.poll.timeout": 10}) as hasty:
        checkpoint = query.begin()
        server.goes_away()
        query.close()
        connection_cache.close_all()
        with pytest.raises(FlussError, match=r"have not answered for .* scan\.poll\.timeout"):
            hasty.begin()
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.extend(query.next_rows()))
        waiting.start()
        server.comes_back()
        waiting.join(patience(60))
        assert sorted(row[0] for row in found) == list(range(5))
        assert query.offset != checkpoint


@pytest.mark.all
@pytest.mark.usefixtures("impatient")
def test_an_outage_without_end_ends_the_query(tables: ReaderTables, server: RestartableServer) -> None:
    tables.create()
    tables.append(0, 5)
    with tables.reading({"scan.poll.timeout": 200}) as query:
        query.next_rows()
        server.goes_away()
        started = time.monotonic()
        with pytest.raises(FlussError, match="have not answered for"):
            wait_until(lambda: query.next_rows() and False, "the query gives up")
        assert time.monotonic() - started > 1


def test_a_log_that_ends_before_the_reached_offset(
    server: RestartableServer, tables: ReaderTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restore from an old copy: the log may recover, so rows count as lost only after a while."""
    tables.create(bucket_count=1, bucket_keys=None)
    tables.append(0, 5)
    with tables.reading() as query:
        query.next_rows()
        ahead = {**query.offset, "buckets": [8]}
        del ahead["begin"]
    with tables.reading(start=ahead) as query:
        assert query.next_rows() == []
        assert query.offset == ahead
        monkeypatch.setattr(planner, "RECEDED_GRACE_SECONDS", 0.0)
        with pytest.raises(FlussError, match="next offset to read is 8, but the log ends at 5"):
            query.next_rows()
    with tables.reading({"failOnDataLoss": "false"}, start=ahead) as query:
        tables.append(5, 1)
        wait_until(lambda: not query.next_rows() and query.offset["buckets"] == [6], "it continues at the end")
        tables.append(6, 2)
        assert sorted(row[0] for row in query.next_rows()) == [6, 7]
