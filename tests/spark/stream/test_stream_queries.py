"""Queries of Spark for cases that `test_stream_partitions`, `_loss` and `_reader` test on the reader alone.

Spark itself decides when to ask for offsets, what to keep of them and what an error ends, so each case is also tested
once with a query.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import fluss.spark
from tests.spark.conftest import Tables, new_tables
from tests.spark.stream.test_stream_loss import SHORT_LIVED, earliest, fill_until_expired
from tests.support.servers.restartable import restartable_server
from tests.support.spark.local_reads import later_commit_time
from tests.support.spark.reader_calls import ReaderTables
from tests.support.spark.stream_queries import STALL_SECONDS, Seen, logged_offsets, run_to_end, running, wait_for_rows
from tools.waiting import wait_until

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ROW_TEXT = "x" * 100
"""The table of `fill_until_expired`."""


def rows(first: int, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": number, "text": ROW_TEXT, **more} for number in range(first, first + count)]


def add_partition(tables: Tables, day: str, first: int) -> None:
    tables.db.create_partition(tables.path("days"), {"day": day})
    tables.db.append(tables.path("days"), rows(first, 10, day=day))


@pytest.mark.all
def test_partitions_that_are_created_and_dropped_while_a_query_runs(tables: Tables, tmp_path: Path) -> None:
    path = tables.create("days", SCHEMA.append(pa.field("day", pa.string())), partition_keys=["day"])
    add_partition(tables, "mon", 0)
    seen = Seen()
    with running(tables.stream("days"), tmp_path / "c", seen) as query:
        wait_for_rows(query, seen, 10)
        add_partition(tables, "tue", 10)
        wait_for_rows(query, seen, 20)
        fluss.spark.drop_partition(tables.spark, path, {"day": "mon"}, options=tables.options())
        count = 20

        def is_noticed() -> bool:
            """The query knows of the drop only after the partition is no longer in its offsets."""
            nonlocal count
            if len(logged_offsets(tmp_path / "c")[-1]["partitions"]) == 1:
                return True
            tables.db.append(path, rows(count, 1, day="tue"))
            count += 1
            wait_for_rows(query, seen, count)
            return False

        wait_until(is_noticed, "the drop is noticed", STALL_SECONDS)
        tables.db.append(path, rows(count, 5, day="tue"))
        wait_for_rows(query, seen, count + 5)
    assert seen.column() == list(range(count + 5))


@pytest.fixture
def expiring_tables(spark: SparkSession) -> Iterator[Tables]:
    """Tables on a server with small segments, which checks for expired ones all the time."""
    yield from new_tables(restartable_server("standalone").target, spark)


def test_a_query_that_is_started_again_after_its_rows_expired(expiring_tables: Tables, tmp_path: Path) -> None:
    tables = expiring_tables
    path = tables.create("t", SCHEMA, **SHORT_LIVED)
    tables.db.append(path, rows(0, 10))
    seen = run_to_end(tables.stream("t"), tmp_path / "c")
    assert seen.column() == list(range(10))
    plain = ReaderTables(tables.target, tables.db, tables.name)
    count = fill_until_expired(plain, wanted_start=20)
    begin = earliest(plain)
    loss = r"bucket 0: the next offset to read is 10, but the log now begins at \d+: \d+ rows have expired"
    with pytest.raises(StreamingQueryException, match=loss):
        run_to_end(tables.stream("t"), tmp_path / "c", seen)
    tables.db.append(path, rows(count, 5))
    run_to_end(tables.stream("t", {"failOnDataLoss": "false"}), tmp_path / "c", seen)
    later = seen.column()[10:]
    assert begin <= later[0] <= count, "only expired rows are left out"
    assert later == list(range(later[0], count + 5))


@pytest.fixture
def since(tables: Tables) -> str:
    """A time, and a table `t` with 25 rows of about 4 kB from before it and 75 since then."""
    path = tables.create("t", SCHEMA, bucket_count=1)
    large = [{"id": number, "text": secrets.token_hex(4_000)} for number in range(100)]
    tables.db.append(path, large[:25])
    later_commit_time()
    moment = int(time.time() * 1000)
    for first in (25, 50, 75):
        tables.db.append(path, large[first : first + 25])
    return f"timestamp:{moment}"


@pytest.mark.all
def test_a_start_at_a_time_is_kept_across_a_restart(tables: Tables, since: str, tmp_path: Path) -> None:
    stream = tables.stream("t", {"start": since})
    seen = run_to_end(stream, tmp_path / "c")
    assert (seen.sizes, seen.column()) == ([75], list(range(25, 100)))
    tables.db.append(tables.path("t"), rows(100, 5))
    assert run_to_end(stream, tmp_path / "c").column() == list(range(100, 105))


def test_bytes_per_trigger_make_several_batches(tables: Tables, since: str, tmp_path: Path) -> None:
    seen = run_to_end(tables.stream("t", {"start": since, "maxBytesPerTrigger": 100_000}), tmp_path / "c")
    assert len(seen.sizes) >= 3
    assert max(seen.sizes) <= 25
    assert seen.column() == list(range(25, 100))
