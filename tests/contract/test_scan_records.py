"""Scanners of records: values of every type, order, limits, and waiting."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import threading
import time
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import ChangeType, FlussConnection, FlussError, col
from tests.support.scan_tables import WAIT_MS, ScanTable, poll_ids, rows_of
from tests.support.targets import Target
from tests.support.waiting import wait_until

UTC = dt.UTC
LONGER_THAN_ANY_TEST_MS = 3_600_000
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "bool": (pa.bool_(), True),
    "tiny": (pa.int8(), -128),
    "small": (pa.int16(), 32767),
    "int": (pa.int32(), -5),
    "big": (pa.int64(), 2**62),
    "float": (pa.float32(), 1.5),
    "double": (pa.float64(), 0.1),
    "text": (pa.string(), "größer"),
    "bytes": (pa.binary(), b"\x00\xff"),
    "fixed": (pa.binary(4), b"abcd"),
    "day": (pa.date32(), dt.date(1969, 12, 31)),
    "time": (pa.time32("ms"), dt.time(23, 59, 59, 999000)),
    "stamp_s": (pa.timestamp("s"), dt.datetime(2024, 2, 29)),
    "stamp": (pa.timestamp("us"), dt.datetime(2024, 2, 29, 1, 2, 3, 4)),
    "nano": (pa.timestamp("ns"), dt.datetime(2024, 2, 29, 1, 2, 3, 4)),
    "zoned": (pa.timestamp("us", "UTC"), dt.datetime(1960, 1, 1, 0, 0, 0, 5, UTC)),
    "money": (pa.decimal128(10, 2), decimal.Decimal("-12345678.90")),
    "large": (pa.decimal128(38, 5), decimal.Decimal("123456789012345678901234567890123.45678")),
}
NESTED: dict[str, tuple[pa.DataType, Any]] = {
    "list": (pa.list_(pa.int32()), [1, None, 3]),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", None)]),
    "row": (pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]), {"x": 1, "y": ["a", None]}),
    "deep": (pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.date32()))])), [{"m": [(1, dt.date(2020, 1, 1))]}, None]),
}


@pytest.mark.parametrize("types", [TYPES, NESTED], ids=["flat", "nested"])
def test_values_of_every_type(
    connection: FlussConnection, table_name: str, types: dict[str, tuple[pa.DataType, Any]]
) -> None:
    schema = pa.schema([("id", pa.int32()), *((name, arrow_type) for name, (arrow_type, _) in types.items())])
    table = ScanTable(connection, table_name, schema, bucket_count=1)
    full = {"id": 1, **{name: value for name, (_, value) in types.items()}}
    empty = {"id": 2, **dict.fromkeys(types)}
    table.write([full, empty, full])
    with table.records() as scanner:
        scanner.subscribe_all()
        found: list[fluss.ScanRecord] = []
        while len(found) < 3:
            found += scanner.poll(WAIT_MS)
    assert [record.row for record in found] == [full, empty, full]
    assert [record.offset for record in found] == [0, 1, 2]
    assert {type(record.row["id"]) for record in found} == {int}
    assert table.read().schema.names == schema.names


def test_records_of_a_log_are_appends_with_offsets_and_times(connection: FlussConnection, table_name: str) -> None:
    table = ScanTable(connection, table_name, bucket_count=1)
    before = int(time.time() * 1000)
    table.write(rows_of(range(5)))
    with table.records() as scanner:
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        records = scanner.poll(timeout_ms=WAIT_MS)
    assert records.buckets() == [table.bucket(0)]
    assert {record.change_type for record in records} == {ChangeType.AppendOnly}
    assert all(before - 1000 <= record.timestamp <= time.time() * 1000 + 1000 for record in records)
    assert records[table.bucket(0)] == records.records(table.bucket(0)) == list(records)


def test_a_poll_is_limited_and_order_is_kept(target: Target, table_name: str) -> None:
    with FlussConnection.open(target.config(scanner_log_max_poll_records="7")) as connection:
        table = ScanTable(connection, table_name, bucket_count=1)
        table.write(rows_of(range(50)))
        table.write(rows_of(range(50, 60)))
        with table.records() as scanner:
            scanner.subscribe_all()
            sizes: list[int] = []
            found: list[int] = []
            while len(found) < 60:
                records = scanner.poll(WAIT_MS)
                sizes.append(len(records))
                found += [record.row["id"] for record in records]
                assert scanner.get_subscribed_buckets() == [(table.bucket(0), len(found))]
        assert found == list(range(60))
        assert max(sizes) == 7


def test_filtered_records_keep_their_offsets(connection: FlussConnection, table_name: str) -> None:
    table = ScanTable(connection, table_name, bucket_count=1)
    table.write(rows_of(range(40)))
    scan = table.table.new_scan().filter(col("name").is_null()).project_by_name(["score"])
    with table.records(scan) as scanner:
        scanner.subscribe(0, 8)
        found: list[fluss.ScanRecord] = []
        while len(found) < 4:
            found += scanner.poll(WAIT_MS)
    assert [(record.offset, record.row) for record in found] == [(n, {"score": n / 2}) for n in (14, 21, 28, 35)]


def test_many_buckets_without_gaps_or_repeats(connection: FlussConnection, table_name: str) -> None:
    table = ScanTable(connection, table_name, bucket_count=16, bucket_keys=["id"])
    with table.records() as scanner:
        scanner.subscribe_all()
        for start in range(0, 3000, 1000):
            table.write(rows_of(range(start, start + 1000)))
            assert sorted(poll_ids(scanner, 1000)) == list(range(start, start + 1000))
        assert sum(max(position, 0) for _, position in scanner.get_subscribed_buckets()) == 3000


def test_a_waiting_poll_returns_when_a_row_arrives(connection: FlussConnection, table_name: str) -> None:
    table = ScanTable(connection, table_name, bucket_count=2)
    with table.records() as scanner:
        scanner.subscribe_all()
        assert scanner.poll(10).is_empty()
        table.write(rows_of([9]))  # a leader is elected only now, perhaps
        assert poll_ids(scanner, 1) == [9]
        for number in range(5):
            timer = threading.Timer(0.05, table.write, [rows_of([number])])
            timer.start()
            # Longer than any test may take: only the row can end it.
            assert poll_ids(scanner, 1, LONGER_THAN_ANY_TEST_MS) == [number]
            timer.join()


def test_iteration_without_end(connection: FlussConnection, table_name: str) -> None:
    table = ScanTable(connection, table_name, bucket_count=1)
    table.write(rows_of(range(20)))
    with table.records() as scanner, table.batches() as batches:
        scanner.subscribe_all()
        batches.subscribe_all()
        found = []
        for record in scanner:
            assert isinstance(record, fluss.ScanRecord)
            found.append(record.row["id"])
            if len(found) == 20:
                break
        assert found == list(range(20))
        assert isinstance(next(iter(batches)), fluss.RecordBatch)


def test_a_loop_that_stops_loses_nothing(connection: FlussConnection, table_name: str) -> None:
    """Neither for the next loop, nor for a poll while the loop is still there, nor for who notes the positions."""
    table = ScanTable(connection, table_name, bucket_count=2, bucket_keys=["id"])
    table.write(rows_of(range(400)))
    with table.records(table.table.new_scan().filter(col("id") != 3)) as scanner:
        scanner.subscribe_all()
        found: list[int] = []
        for stop in (1, 2, 30, 50):
            for record in (loop := iter(scanner)):
                assert isinstance(record, fluss.ScanRecord)
                found.append(record.row["id"])
                if len(found) == stop:
                    break
            for bucket, position in scanner.get_subscribed_buckets():
                scanner.subscribe(bucket.bucket_id, position)
        found += [record.row["id"] for record in scanner.poll(WAIT_MS)]
        more = islice(loop, min(5, 399 - len(found)))  # the poll may have had them all
        found += [record.row["id"] for record in more if isinstance(record, fluss.ScanRecord)]
        found += poll_ids(scanner, 399 - len(found))
        assert sorted(found) == [number for number in range(400) if number != 3]


def test_a_loop_goes_on_where_a_subscription_moves_to(connection: FlussConnection, table_name: str) -> None:
    table = ScanTable(connection, table_name, bucket_count=1)
    table.write(rows_of(range(20)))
    with table.records() as scanner:
        scanner.subscribe_all()
        found: list[int] = []
        for record in scanner:
            assert isinstance(record, fluss.ScanRecord)
            found.append(record.row["id"])
            if found == [0, 1]:
                scanner.subscribe(0, 10)
            if len(found) == 4:
                break
        assert found == [0, 1, 10, 11]


def test_blocking_calls_inside_a_coroutine(connection: FlussConnection, table_name: str) -> None:
    """As the documents show: `await` for the builders, plain calls on the scanner."""
    table = ScanTable(connection, table_name, bucket_count=1)

    async def body() -> list[int]:
        opened = await connection.get_table(table.path)
        writer = await opened.new_append_writer()
        writer.append({"id": 1, "name": "a", "score": 0.5})
        await writer.flush()
        scanner = await opened.new_scan().create_log_scanner()
        scanner.subscribe_buckets({0: fluss.EARLIEST_OFFSET})
        return [record.row["id"] for record in scanner.poll(timeout_ms=WAIT_MS)]

    assert asyncio.run(body()) == [1]


def test_dropped_scanners_stop(connection: FlussConnection, table_name: str) -> None:
    table = ScanTable(connection, table_name)
    for _ in range(20):
        scanner = table.records()
        scanner.subscribe_all()
        core = scanner._core
        del scanner
        wait_until(lambda core=core: core._closed, "the dropped scanner is closed")  # type: ignore[misc]
    with pytest.raises(FlussError, match="closed"):
        core.poll(1, 1)
