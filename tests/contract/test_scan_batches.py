"""Scanners of Arrow batches: the same rows, offsets and errors on every server."""

from __future__ import annotations

import asyncio
import datetime
import threading
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import ErrorCode, FlussConnection, FlussError, col
from tests.support.servers.targets import Target
from tests.support.tables.scan_tables import ROWS, WAIT_MS, ScanTable, rows_of
from tools.waiting import patience, wait_until


@pytest.fixture
def table(connection: FlussConnection, table_name: str) -> ScanTable:
    return ScanTable(connection, table_name, bucket_count=3)


def ids(found: pa.Table) -> list[int]:
    return sorted(found.column("id").to_pylist())


def test_a_bounded_read_returns_everything_once(table: ScanTable) -> None:
    table.write(rows_of(range(500)))
    with table.batches() as scanner:
        scanner.subscribe_buckets(dict.fromkeys(range(3), fluss.EARLIEST_OFFSET))
        found = scanner.to_arrow()
        assert found.schema == ROWS == scanner.arrow_schema
        assert found.sort_by("id") == rows_of(range(500))
        assert scanner.to_arrow().num_rows == 0
        table.write(rows_of(range(500, 510)))
        assert ids(scanner.to_arrow()) == list(range(500, 510))


def test_an_empty_table(table: ScanTable) -> None:
    with table.batches() as scanner:
        scanner.subscribe_all()
        assert scanner.to_arrow() == ROWS.empty_table()
        assert scanner.poll_arrow(1) == ROWS.empty_table()
        assert scanner.poll_record_batch(1) == []
        assert list(scanner.to_arrow_batch_reader()) == []


def test_pandas(table: ScanTable) -> None:
    table.write(rows_of(range(20)))
    with table.batches() as scanner:
        scanner.subscribe_all()
        pandas = pytest.importorskip("pandas", reason="to_pandas() needs pandas, which is an extra")
        frame = scanner.to_pandas()
        assert isinstance(frame, pandas.DataFrame)
        assert sorted(frame["id"]) == list(range(20))


def test_batches_know_their_place(table: ScanTable) -> None:
    for start in (0, 100, 200):
        table.write(rows_of(range(start, start + 100)))
    positions = {table.bucket(bucket): 0 for bucket in range(3)}
    seen = 0
    with table.batches() as scanner:
        scanner.subscribe_all()
        while seen < 300:
            for batch in scanner.poll_batches(WAIT_MS):
                assert batch.base_offset == positions[batch.bucket]
                assert batch.last_offset == batch.base_offset + batch.batch.num_rows - 1
                positions[batch.bucket] = batch.last_offset + 1
                seen += batch.batch.num_rows
        assert dict(scanner.get_subscribed_buckets()) == {
            bucket: position if position else fluss.EARLIEST_OFFSET for bucket, position in positions.items()
        }


def test_reading_in_the_middle_of_a_batch(connection: FlussConnection, table_name: str) -> None:
    table = ScanTable(connection, table_name, bucket_count=1)
    table.write(rows_of(range(50)))
    with table.batches() as scanner:
        scanner.subscribe(0, 20)
        assert ids(scanner.to_arrow()) == list(range(20, 50))
        scanner.subscribe(0, 45)
        batch = scanner.poll_record_batch(WAIT_MS)[0]
        assert (batch.base_offset, batch.last_offset) == (45, 49)
        scanner.subscribe(bucket_id=0, start_offset=50)
        assert scanner.to_arrow().num_rows == 0


def test_latest_sees_what_is_appended_after_subscribe(table: ScanTable) -> None:
    table.write(rows_of(range(30)))
    with table.batches() as scanner:
        scanner.subscribe_all(fluss.LATEST_OFFSET)
        table.write(rows_of(range(30, 40)))
        found = scanner.poll_arrow(WAIT_MS)
        while found.num_rows < 10:
            found = pa.concat_tables([found, scanner.poll_arrow(WAIT_MS)])
        assert ids(found) == list(range(30, 40))


def test_from_a_time(table: ScanTable) -> None:
    table.write(rows_of(range(10)))
    with table.records() as records:
        records.subscribe_all()
        newest = max(record.timestamp for record in records.poll(WAIT_MS))
    wait_until(lambda: time.time() * 1000 > newest + 1, "a later millisecond")
    middle = datetime.datetime.now(datetime.UTC)
    wait_until(lambda: time.time() > middle.timestamp() + 0.002, "a later millisecond")
    table.write(rows_of(range(10, 20)))
    with table.batches() as scanner:
        scanner.from_timestamp(middle)
        assert ids(scanner.to_arrow()) == list(range(10, 20))
        scanner.from_timestamp(1)
        assert ids(scanner.to_arrow()) == list(range(20))
        with pytest.raises(FlussError) as caught:
            scanner.from_timestamp(int(time.time() * 1000) + 3_600_000)
        assert caught.value.error_code == ErrorCode.INVALID_TIMESTAMP_EXCEPTION
        with pytest.raises(FlussError, match="time zone"):
            scanner.from_timestamp(datetime.datetime(2024, 1, 1))


def test_projection_in_any_order(table: ScanTable) -> None:
    table.write(rows_of(range(100)))
    whole = rows_of(range(100))
    for names in (["score", "id"], ["id"], ["id", "name", "score"], ["score", "name", "id"]):
        found = table.read(table.table.new_scan().project_by_name(names))
        assert found.schema.names == names
        assert found.sort_by(names[-1] if names[-1] != "name" else "id") == whole.select(names)
    positions = table.read(table.table.new_scan().project([2, 0]))
    assert positions.schema.names == ["score", "id"]


def test_filters_are_exact(table: ScanTable) -> None:
    table.write(rows_of(range(300)))
    scan = table.table.new_scan()
    assert ids(table.read(scan.filter(col("id") >= 200))) == list(range(200, 300))
    assert ids(table.read(scan.filter(col("name").is_null()))) == list(range(0, 300, 7))
    assert ids(table.read(scan.filter((col("id") < 10) | col("id").isin([20, 30])))) == [*range(10), 20, 30]
    assert table.read(scan.filter(col("id") > 1000)).num_rows == 0
    found = table.read(scan.project_by_name(["name"]).filter((col("score") == 5.5) & ~col("name").contains("x")))
    assert found.to_pydict() == {"name": ["name 11"]}


def test_filters_on_statistics(target: Target, connection: FlussConnection, table_name: str) -> None:
    if target.is_apache:
        pytest.skip("Apache Fluss 0.9.1 has no statistics; it rejects the table property")
    table = ScanTable(connection, table_name, bucket_count=1, properties={"table.statistics.columns": "*"})
    for start in range(0, 1000, 100):
        table.write(rows_of(range(start, start + 100)))
    with table.batches(table.table.new_scan().filter(col("id").between(250, 260))) as scanner:
        scanner.subscribe_all()
        batches = [scanner.poll_record_batch(WAIT_MS)[0]]
        assert (batches[0].base_offset, batches[0].last_offset) == (250, 260)
        assert scanner.to_arrow().num_rows == 0  # the end is reached although nothing matches any more
        assert scanner.get_subscribed_buckets() == [(table.bucket(0), 1000)]


def test_batch_reader_reads_lazily_up_to_the_end_of_now(table: ScanTable) -> None:
    table.write(rows_of(range(100)))
    with table.batches() as scanner:
        scanner.subscribe_all()
        reader = scanner.to_arrow_batch_reader()
        assert isinstance(reader, pa.RecordBatchReader)
        table.write(rows_of(range(100, 200)))
        assert ids(reader.read_all()) == list(range(100))
        assert ids(scanner.to_arrow()) == list(range(100, 200))


def test_unsubscribed_buckets_are_silent(table: ScanTable) -> None:
    table.write(rows_of(range(200)))
    with table.batches() as scanner:
        scanner.subscribe_all()
        scanner.unsubscribe(1)
        scanner.unsubscribe(1)
        assert [bucket.bucket_id for bucket, _ in scanner.get_subscribed_buckets()] == [0, 2]
        found = scanner.to_arrow()
        scanner.subscribe(1, fluss.EARLIEST_OFFSET)
        assert ids(pa.concat_tables([found, scanner.to_arrow()])) == list(range(200))
        for bucket in range(3):
            scanner.unsubscribe(bucket_id=bucket)
        with pytest.raises(FlussError, match="subscribe"):
            scanner.to_arrow()
        assert scanner.poll_arrow(1).num_rows == 0


def test_limit_scan_returns_the_last_rows(connection: FlussConnection, table_name: str) -> None:
    table = ScanTable(connection, table_name, bucket_count=1)
    scan = table.table.new_scan().limit(7)
    empty = scan.create_bucket_batch_scanner(table.bucket(0))
    assert empty.to_arrow() == ROWS.empty_table()
    table.write(rows_of(range(10)))
    table.write(rows_of(range(10, 15)))
    scanner = scan.project([0]).create_bucket_batch_scanner(table.bucket(0))
    batch = scanner.next_batch()
    assert batch is not None
    assert batch.batch.column("id").to_pylist() == list(range(8, 15))
    assert (batch.base_offset, batch.last_offset, scanner.next_batch()) == (8, 14, None)
    assert scanner.collect_all_batches() == []
    assert scanner.bucket == table.bucket(0)
    few = table.table.new_scan().limit(100).create_bucket_batch_scanner(table.bucket(0))
    assert ids(few.to_arrow()) == list(range(15))
    with pytest.raises(FlussError, match="filter"):
        scan.filter(col("id") > 3).create_bucket_batch_scanner(table.bucket(0))
    with pytest.raises(FlussError, match="limit"):
        table.table.new_scan().create_bucket_batch_scanner(table.bucket(0))
    with pytest.raises(FlussError, match="limit"):
        asyncio.run(scan.create_log_scanner())


def test_offsets_that_are_not_there(table: ScanTable) -> None:
    table.write(rows_of(range(30)))
    with table.batches() as scanner:
        scanner.subscribe(0, 1_000_000)
        for _ in range(2):  # it is raised at every call
            with pytest.raises(FlussError) as caught:
                scanner.poll_arrow(WAIT_MS)
            assert caught.value.error_code == ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION
        scanner.subscribe_all()
        assert ids(scanner.to_arrow()) == list(range(30))


def test_wrong_calls_say_what_is_right(table: ScanTable) -> None:
    with table.batches() as scanner, table.records() as records:
        with pytest.raises(FlussError, match="are 0 to 2"):
            scanner.subscribe(3, 0)
        with pytest.raises(FlussError, match="EARLIEST_OFFSET"):
            scanner.subscribe(0, -3)
        with pytest.raises(FlussError, match="not partitioned"):
            scanner.subscribe_partition(1, 0, 0)
        with pytest.raises(FlussError, match="not partitioned"):
            scanner.unsubscribe_partition(1, 0)
        with pytest.raises(FlussError, match="record-based"):
            scanner.poll(1)
        with pytest.raises(FlussError, match="create_record_batch_log_scanner"):
            records.to_arrow()
        with pytest.raises(FlussError, match="non-negative, got: -1"):
            scanner.poll_arrow(-1)
        with pytest.raises(FlussError, match="unknown column 'nope'"):
            table.batches(table.table.new_scan().filter(col("nope") == 1))
    with pytest.raises(FlussError, match="closed"):
        scanner.poll_arrow(1)
    assert "batches" in repr(scanner)
    assert table.path.table_name in repr(scanner)


def test_a_dropped_table(table: ScanTable) -> None:
    with table.batches() as scanner:
        scanner.subscribe_all()
        assert scanner.to_arrow().num_rows == 0
        asyncio.run(table.admin.drop_table(table.path))
        with pytest.raises(FlussError) as caught:
            scanner.poll_arrow(WAIT_MS)
        assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST


def test_closing_the_connection_ends_a_waiting_poll(target: Target, table_name: str) -> None:
    connection = FlussConnection.open(target.config())
    table = ScanTable(connection, table_name)
    scanner = table.batches()
    scanner.subscribe_all()
    errors: list[FlussError] = []

    def wait() -> None:
        try:
            scanner.poll_arrow(60_000)
        except FlussError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    connection.close()
    thread.join(patience(60))
    assert not thread.is_alive()
    assert "closed" in errors[0].message


def test_filters_of_one_scan_add_up(table: ScanTable) -> None:
    table.write(rows_of(range(20)))
    scan = table.table.new_scan().filter(col("id") < 10)
    assert ids(table.read(scan.filter(col("id") >= 5))) == [5, 6, 7, 8, 9]
    assert ids(table.read(scan)) == list(range(10))
    assert repr(scan.limit(3)).endswith("all columns, filter=(col('id') < 10), limit=3)")
    with pytest.raises(FlussError, match="a filter must be a Predicate"):
        scan.filter(True)  # type: ignore[arg-type]


def test_a_batch_reader_that_is_left_in_the_middle_loses_nothing(table: ScanTable) -> None:
    for start in range(0, 300, 10):
        table.write(rows_of(range(start, start + 10)))
    with table.batches() as scanner:
        scanner.subscribe_all()
        found = [scanner.to_arrow_batch_reader().read_next_batch()]
        reader = scanner.to_arrow_batch_reader()
        found.append(reader.read_next_batch())
        found.append(next(iter(scanner)).batch)  # type: ignore[union-attr]
        found += scanner.to_arrow().to_batches()
        assert list(reader) == []
        assert ids(pa.Table.from_batches(found)) == list(range(300))


def test_an_interrupted_read_loses_nothing(table: ScanTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.write(rows_of(range(300)))
    with table.batches() as scanner:
        scanner.subscribe_all()

        def interrupted(batches: Sequence[Any]) -> Any:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(scanner, "_table_of", interrupted)
            with pytest.raises(KeyboardInterrupt):
                scanner.to_pandas()
        assert ids(scanner.to_arrow()) == list(range(300))
        assert scanner.to_arrow().num_rows == 0
