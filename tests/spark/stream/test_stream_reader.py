"""The streaming reader, call by call, on log tables: starts, limits, AvailableNow, reports, tasks.

On our server and on Apache Fluss. `test_stream_read.py` has the same under Spark.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import fluss
from fluss.errors import FlussError
from fluss.spark.stream import task_read
from fluss.spark.stream.planner import MAX_IDLE_PAUSE_SECONDS
from tests.support.servers.targets import running_target
from tests.support.spark.reader_calls import ReaderTables, new_database
from tools.waiting import wait_until


@pytest.fixture(params=["standalone", "apache"])
def tables(request: pytest.FixtureRequest) -> Iterator[ReaderTables]:
    """A database on each server."""
    yield from new_database(running_target(request.param))


@pytest.fixture
def ours() -> Iterator[ReaderTables]:
    """A database on our server."""
    yield from new_database(running_target("standalone"))


def ids(rows: list[tuple[Any, ...]], column: int = 0) -> list[Any]:
    return sorted(row[column] for row in rows)


def test_all_rows_then_new_ones_and_no_batch_without_new_rows(tables: ReaderTables) -> None:
    tables.create()
    tables.append(0, 30)
    with tables.reading() as query:
        assert sorted(query.next_rows()) == [(n, f"row {n}") for n in range(30)]
        assert query.next_end() == query.offset
        tables.append(30, 5)
        assert ids(query.next_rows()) == list(range(30, 35))
        assert query.all_rows() == []


def test_latest_reads_only_new_rows(tables: ReaderTables) -> None:
    tables.create()
    tables.append(0, 10)
    with tables.reading({"start": "latest"}) as query:
        query.begin()
        tables.append(10, 3)
        assert ids(query.next_rows()) == [10, 11, 12]
        checkpoint = query.offset
    # The first batch is repeated after a crash: Spark has only its end, and the start that it asks for has moved.
    tables.append(13, 3)
    with tables.reading({"start": "latest"}) as query:
        assert ids(query.rows(query.begin(), checkpoint)) == [10, 11, 12]
        query.offset = checkpoint
        assert ids(query.all_rows()) == [13, 14, 15]


def test_the_offsets_of_latest_are_kept_before_new_rows_arrive(ours: ReaderTables) -> None:
    ours.create()
    ours.append(0, 10)
    with ours.reading({"start": "latest"}) as query:
        assert query.next_rows() == []
        checkpoint = query.offset
        assert checkpoint != query.begin()  # Spark logs a batch without rows
        query.offset = checkpoint
        assert query.next_end() == checkpoint
    ours.append(10, 2)
    with ours.reading({"start": "latest"}, start=checkpoint) as query:
        assert ids(query.all_rows()) == [10, 11]


def test_a_time_is_exact(tables: ReaderTables) -> None:
    tables.create()
    tables.append(0, 10)
    _next_millisecond()
    moment = int(time.time() * 1000)
    tables.append(10, 10)
    with tables.reading({"start": f"timestamp:{moment}"}) as query:
        assert ids(query.all_rows()) == list(range(10, 20))
        assert query.offset["since"] == moment
    with tables.reading({"scan.startup.mode": "timestamp", "scan.startup.timestamp": 0}) as query:
        assert ids(query.all_rows()) == list(range(20))
    with tables.reading({"start": f"timestamp:{moment + 3_600_000}"}) as query:  # an hour ahead: nothing yet
        assert query.all_rows() == []
        tables.append(20, 1)
        assert query.all_rows() == []


def test_a_time_is_exact_though_the_clock_here_is_behind(tables: ReaderTables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.create()
    tables.append(0, 10)
    _next_millisecond()
    moment = int(time.time() * 1000)
    tables.append(10, 10)
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() - 60)
    with tables.reading({"start": f"timestamp:{moment}"}) as query:
        assert ids(query.all_rows()) == list(range(10, 20))


def _next_millisecond() -> None:
    now = time.time_ns() // 1_000_000
    wait_until(lambda: time.time_ns() // 1_000_000 > now + 1, "a later millisecond")


def test_buckets_begin_at_given_offsets_and_others_at_their_beginning(tables: ReaderTables) -> None:
    tables.create(bucket_count=2, bucket_keys=None)
    tables.append(0, 10)
    with tables.reading() as query:
        first, second = (query.begin(), query.next_end())
        everything = query.rows(first, second)
    ends = second["buckets"]
    with tables.reading({"start": json.dumps({"0": ends[0]})}) as query:
        rest = query.all_rows()
    assert len(rest) == ends[1]
    assert set(rest) <= set(everything)


@pytest.mark.parametrize(
    ("start", "words"),
    [('{"7": 0}', "offset for bucket 7"), ('{"US": {"0": 0}}', "partition 'US'"), ('{"0": 99}', "its log ends at")],
)
def test_offsets_that_do_not_exist_are_refused(ours: ReaderTables, start: str, words: str) -> None:
    ours.create()
    with ours.reading({"start": start}) as query, pytest.raises(FlussError, match=words):
        query.begin()


def test_the_limit_of_rows_is_kept_and_shared(tables: ReaderTables) -> None:
    tables.create()
    tables.append(0, 100)
    with tables.reading({"maxRowsPerTrigger": 9}) as query:
        query.begin()
        batches = []
        for batch in query.batches():
            batches.append(batch)
            if len(batches) == 1:
                assert query.offset["buckets"] == [3, 3, 3]
                assert query.offset["behind"] == [0, 1, 2]
                assert query.report()["lag_rows"] == 91
    assert max(map(len, batches)) == 9
    assert len(batches) == 12  # 11 of nine rows and the last one
    assert ids([row for batch in batches for row in batch]) == list(range(100))


def test_the_limit_of_bytes_uses_the_stored_size_of_rows(tables: ReaderTables) -> None:
    tables.create(bucket_count=2, bucket_keys=None)
    for first in range(0, 200, 20):
        large = [{"id": first + number, "text": secrets.token_hex(4000)} for number in range(20)]
        tables.db.append(tables.path(), large)
    with tables.reading({"maxBytesPerTrigger": 100_000}) as query:
        query.begin()
        batches = list(query.batches())
    # Such a string takes half a byte per digit when stored: about 4 kB a row, so 25 rows a batch.
    assert {len(batch) for batch in batches[:-1]} <= {22, 23, 24, 25}
    assert ids([row for batch in batches for row in batch]) == list(range(200))


def test_both_limits_apply_together(ours: ReaderTables) -> None:
    ours.create()
    ours.append(0, 50)
    with ours.reading({"maxRowsPerTrigger": 7, "maxBytesPerTrigger": 10_000_000}) as query:
        query.begin()
        assert [len(batch) for batch in query.batches()] == [7] * 7 + [1]
    with ours.reading({"maxRowsPerTrigger": 7, "maxBytesPerTrigger": 1}) as query:
        query.begin()
        assert {len(batch) for batch in query.batches()} == {1}


def test_available_now_ends_where_the_logs_ended_at_its_start(tables: ReaderTables) -> None:
    tables.create()
    tables.append(0, 20)
    with tables.reading({"maxRowsPerTrigger": 6}) as query:
        query.available_now()
        rows = []
        for batch in query.batches():
            rows += batch
            tables.append(1000 + len(rows), 10)  # more rows arrive than it reads
        assert ids(rows) == list(range(20))
        checkpoint = query.offset
    with tables.reading(start=checkpoint) as query:
        query.available_now()
        assert min(ids(query.all_rows())) >= 1000


def test_unneeded_columns_are_not_read(ours: ReaderTables) -> None:
    ours.create()
    ours.append(0, 5)
    with ours.reading({"columns": "text"}) as query:
        assert sorted(query.all_rows()) == [(f"row {n}",) for n in range(5)]
    with ours.reading(schema=StructType([StructField("id", LongType())])) as query:
        assert ids(query.all_rows()) == list(range(5))
    unknown = StructType([StructField("nope", LongType())])
    with ours.reading(schema=unknown) as query, pytest.raises(FlussError, match="unknown column 'nope'"):
        query.begin()


def test_changelog_columns_of_a_log_table(ours: ReaderTables) -> None:
    ours.create(bucket_count=1, bucket_keys=None)
    before = int(time.time() * 1000)
    ours.append(0, 3)
    with ours.reading({"mode": "changelog"}) as query:
        assert query.schema.names == ["_change_type", "_log_offset", "_commit_timestamp", "id", "text"]
        rows = query.all_rows()
    assert [row[:2] + row[3:] for row in rows] == [("insert", n, n, f"row {n}") for n in range(3)]
    assert all(before <= row[2].timestamp() * 1000 <= time.time() * 1000 for row in rows)


@pytest.mark.parametrize(
    "options",
    [{"end": "latest"}, {"limit": 5}, {"scan.incremental.start.timestamp": 5}, {"read.optimized": "true"}],
)
def test_options_of_batch_reads_are_refused(ours: ReaderTables, options: dict[str, Any]) -> None:
    ours.create()
    with pytest.raises(FlussError, match=f"option {next(iter(options))} is for batch reads"):
        ours.reading(options)


def test_small_buckets_share_a_task_and_pieces_do_not(ours: ReaderTables) -> None:
    ours.create(bucket_count=8, bucket_keys=None)
    for first in range(8):
        ours.append(first * 10, 10)
    with ours.reading() as query:
        start, end = query.begin(), query.next_end()
        assert len(query.tasks(start, end)) == 1
    with ours.reading({"scan.maxRecordsPerPartition": 3}) as query:
        tasks = query.tasks(start, end)
        assert sum(each.rows for task in tasks for each in task.ranges) == 80
        assert max(sum(each.rows for each in task.ranges) for task in tasks) <= 3
        assert ids(query.rows(start, end)) == list(range(80))


@pytest.mark.parametrize("held_bytes", [task_read.MAX_HELD_BYTES, 0])
def test_a_task_has_the_same_order_whenever_it_runs(
    tables: ReaderTables, held_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sinks recognise repeated rows by their order. Buckets that are too large to be held are read in turn."""
    monkeypatch.setattr(task_read, "MAX_HELD_BYTES", held_bytes)
    tables.create(bucket_count=8)
    for first in range(0, 400, 40):
        tables.append(first, 40)
    with tables.reading() as query:
        start, end = query.begin(), query.next_end()
        assert len(query.tasks(start, end)) == 1
        rows = query.rows(start, end)
        assert ids(rows) == list(range(400))
        assert all(query.rows(start, end) == rows for _ in range(5))


def test_an_added_column_does_not_disturb_a_running_query(ours: ReaderTables) -> None:
    ours.create()
    ours.append(0, 3)
    with ours.reading() as query:
        assert len(query.next_rows()) == 3
        ours.db.alter_table(ours.path(), add_columns={"extra": fluss.DataTypes.int()})
        ours.append(3, 3, extra=7)
        assert sorted(query.next_rows()) == [(n, f"row {n}") for n in range(3, 6)]


def test_every_logged_batch_can_be_read_again(tables: ReaderTables) -> None:
    """After a crash Spark asks a new process for the batch between two logged offsets."""
    tables.create()
    tables.append(0, 40)
    with tables.reading({"maxRowsPerTrigger": 10}) as query:
        start = query.begin()
        batches = []
        for rows in query.batches():
            batches.append((start, query.offset, sorted(rows)))
            start = query.offset
    tables.append(40, 10)
    with tables.reading() as query:
        for start, end, rows in batches:
            assert sorted(query.rows(start, end)) == rows
        query.offset = batches[-1][1]
        assert ids(query.all_rows()) == list(range(40, 50))


def test_an_unknown_partition_of_spark_is_no_task(ours: ReaderTables) -> None:
    """Spark calls `read` once with a partition of its own when a source has none."""
    from pyspark.sql.datasource import InputPartition

    ours.create()
    with ours.reading() as query:
        assert list(query.reader.read(InputPartition(None))) == []
        assert query.tasks(query.begin(), query.begin()) == []
        ours.append(0, 3)
        first = query.next_end()
        assert len(query.tasks(query.begin(), first)) == 1
        assert query.tasks(first, first) == []


def test_a_table_without_rows_and_one_without_partitions(ours: ReaderTables) -> None:
    ours.create()
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("day", pa.string())])
    ours.create(schema, "parted", partition_keys=["day"])
    for table in ("t", "parted"):
        with ours.reading(table=table) as query:
            query.begin()
            assert query.next_end() == query.offset
            assert query.report()["lag_rows"] == 0


def test_servers_are_asked_less_often_while_idle(ours: ReaderTables) -> None:
    """Spark's default trigger asks again as soon as it has an answer."""
    ours.create()
    ours.append(0, 5)
    with ours.reading() as query:
        assert len(query.next_rows()) == 5
        began = time.monotonic()
        while time.monotonic() - began < 1.2:
            assert query.next_rows() == []
        began, questions = time.monotonic(), 5
        for _ in range(questions):
            assert query.next_rows() == []
        assert time.monotonic() - began > 0.9 * questions * MAX_IDLE_PAUSE_SECONDS
        ours.append(5, 5)
        assert len(query.next_rows()) == 5
        assert query.reader.planner._idle_since is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(("error", "printed"), [("EOFError", ""), ("ValueError", "ValueError")])
def test_the_end_of_a_query_prints_no_traceback(error: str, printed: str) -> None:
    """Spark's program for readers ends with an error when Java closes the socket, and then fails to report it."""
    program = f"""
        from pyspark.sql.streaming import python_streaming_source_runner as runner
        from fluss.spark.stream.stream_reader import FlussStreamReader
        reader = FlussStreamReader(None, None)
        code = "try:\\n    raise {error}\\nfinally:\\n    reader.stop()"
        exec(compile(code, runner.__file__, "exec"))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert (done.returncode == 0) == (not printed), done.stderr
    assert done.stderr.strip().endswith(printed)
    assert ("Traceback" in done.stderr) == bool(printed)
