"""Streaming reads of partitioned tables: partitions that are created and dropped while a query runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from fluss.errors import FlussError
from tests.support.servers.targets import running_target
from tests.support.spark.reader_calls import ReaderCalls, ReaderTables, new_database
from tools.waiting import wait_until

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("day", pa.string())])


@pytest.fixture(params=["standalone", "apache"])
def tables(request: pytest.FixtureRequest) -> Iterator[ReaderTables]:
    """A database on each server with a table that has the partition `mon` with rows 0 to 9."""
    for database in new_database(running_target(request.param)):
        database.create(SCHEMA, partition_keys=["day"], bucket_count=2, bucket_keys=None)
        add_partition(database, "mon", 0, 10)
        yield database


def add_partition(tables: ReaderTables, day: str, first: int = 0, count: int = 0) -> None:
    tables.db.create_partition(tables.path(), {"day": day}, ignore_if_exists=True)
    if count:
        tables.append(first, count, day=day)


def drop_partition(tables: ReaderTables, day: str) -> None:
    tables.db._session.run(tables.db._calls.drop_partition(tables.db._path(tables.path()), {"day": day}, False))


def days(query: ReaderCalls) -> int:
    return len(query.offset["partitions"])


def ids(rows: list[tuple[Any, ...]]) -> list[int]:
    return sorted(row[0] for row in rows)


def test_new_partitions_are_read_from_their_beginning(tables: ReaderTables) -> None:
    with tables.reading({"start": "latest"}) as query:
        query.begin()
        assert query.all_rows() == []
        add_partition(tables, "tue", 10, 5)
        add_partition(tables, "wed", 15, 5)
        tables.append(20, 5, day="mon")
        assert ids(query.rows_within(15)) == list(range(10, 25))
        assert days(query) == 3
        assert query.report()["lag_rows"] == 0
        checkpoint = query.offset
    add_partition(tables, "thu", 25, 5)  # while the query is down
    with tables.reading({"start": "latest"}, start=checkpoint) as query:
        assert ids(query.all_rows()) == list(range(25, 30))


def test_a_limit_is_shared_with_new_partitions(tables: ReaderTables) -> None:
    with tables.reading({"maxRowsPerTrigger": 4}) as query:
        query.begin()
        add_partition(tables, "tue", 10, 30)
        tables.append(40, 30, day="mon")
        seen = query.rows_within(60)
        assert ids(seen + query.all_rows()) == list(range(70))


def test_available_now_leaves_later_partitions_to_the_next_run(tables: ReaderTables) -> None:
    with tables.reading() as query:
        query.available_now()
        query.begin()
        add_partition(tables, "tue", 10, 5)
        assert ids(query.all_rows()) == list(range(10))
        checkpoint = query.offset
    with tables.reading(start=checkpoint) as query:
        query.available_now()
        assert ids(query.all_rows()) == list(range(10, 15))


def test_a_partition_that_was_read_to_its_end_may_be_dropped(tables: ReaderTables) -> None:
    add_partition(tables, "tue", 10, 10)
    with tables.reading() as query:
        assert len(query.next_rows()) == 20
        checkpoint = query.offset
        drop_partition(tables, "mon")
        tables.append(20, 5, day="tue")
        assert ids(query.rows_within(5)) == list(range(20, 25))
        query.next_rows()
        wait_until(lambda: not query.next_rows() and days(query) == 1, "the partition leaves the offsets")
    with tables.reading(start=checkpoint) as query:  # the same while the query was down
        assert ids(query.all_rows()) == list(range(20, 25))
        assert days(query) == 1


def test_rows_of_a_dropped_partition_that_were_not_read_are_a_loss(
    tables: ReaderTables, caplog: pytest.LogCaptureFixture
) -> None:
    with tables.reading({"maxRowsPerTrigger": 2}) as query:
        query.next_rows()
        checkpoint = query.offset
        drop_partition(tables, "mon")
        with pytest.raises(FlussError, match=r"partition mon .* was dropped when the next .* its log went up to"):
            wait_until(lambda: query.next_rows() and False, "the loss is noticed")
    lost = pytest.raises(FlussError, match=r"rows after it may be lost.*failOnDataLoss=false")
    with tables.reading(start=checkpoint) as query, lost:
        query.next_end()
    with tables.reading({"failOnDataLoss": "false"}, start=checkpoint) as query, caplog.at_level(logging.WARNING):
        assert query.all_rows() == []
        assert query.offset["partitions"] == {}
        assert "was dropped" in caplog.text
        add_partition(tables, "tue", 100, 3)
        assert ids(query.rows_within(3)) == [100, 101, 102]


def test_a_partition_dropped_between_planning_and_reading(tables: ReaderTables) -> None:
    add_partition(tables, "tue", 10, 10)
    with tables.reading() as query:
        start, end = query.begin(), query.next_end()
        drop_partition(tables, "mon")
        with pytest.raises(FlussError, match="was dropped"):  # Apache Fluss serves its rows for a moment more
            wait_until(lambda: query.rows(start, end) and False, "the drop is noticed")
    with tables.reading({"failOnDataLoss": "false"}) as query:
        assert ids(query.rows(start, end)) == list(range(10, 20))
