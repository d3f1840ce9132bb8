"""Partitions, and columns that are added while old rows are there."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

import fluss
from fluss import ErrorCode, FlussConnection, FlussError, col
from tests.support.tables.scan_tables import WAIT_MS, ScanTable, poll_ids, rows_of

REGIONS = pa.schema([("id", pa.int32()), ("region", pa.string())])


@pytest.fixture
def regions(connection: FlussConnection, table_name: str) -> ScanTable:
    return ScanTable(connection, table_name, REGIONS, partition_keys=["region"], bucket_count=2)


def regional(region: str, *ids: int) -> list[dict[str, object]]:
    return [{"id": number, "region": region} for number in ids]


def test_partitions_are_read_by_id(regions: ScanTable) -> None:
    partitions = {name: regions.partition({"region": name}) for name in ("US", "EU")}
    regions.write(regional("US", 1, 2, 3) + regional("EU", 4, 5))
    with regions.batches() as scanner:
        for bucket in range(2):
            scanner.subscribe_partition(partitions["US"], bucket, fluss.EARLIEST_OFFSET)
        assert sorted(scanner.to_arrow().column("id").to_pylist()) == [1, 2, 3]
        scanner.subscribe_partition_buckets({(id_, bucket): -2 for id_ in partitions.values() for bucket in range(2)})
        assert sorted(scanner.to_arrow().column("id").to_pylist()) == [1, 2, 3, 4, 5]
        for bucket in range(2):
            scanner.unsubscribe_partition(partitions["US"], bucket)
        regions.write(regional("US", 6) + regional("EU", 7))
        assert scanner.to_arrow().column("id").to_pylist() == [7]
        assert {bucket.partition_id for bucket, _ in scanner.get_subscribed_buckets()} == {partitions["EU"]}
    with regions.records() as records:
        records.subscribe_all(fluss.LATEST_OFFSET)
        regions.write(regional("EU", 8))
        polled = records.poll(WAIT_MS)
        assert [record.row for record in polled] == [{"id": 8, "region": "EU"}]
        assert polled.buckets()[0].partition_id == partitions["EU"]


def test_partitions_that_are_not_there(regions: ScanTable) -> None:
    with regions.batches() as scanner:
        with pytest.raises(FlussError) as caught:
            scanner.subscribe_partition(987_654, 0, 0)
        assert caught.value.error_code == ErrorCode.PARTITION_NOT_EXISTS
        with pytest.raises(FlussError, match="subscribe_partition"):
            scanner.subscribe(0, 0)
        with pytest.raises(FlussError, match="unsubscribe_partition"):
            scanner.unsubscribe(0)
        scanner.subscribe_all()  # no partition yet: nothing to read
        assert scanner.get_subscribed_buckets() == []


def test_a_dropped_partition_does_not_stop_the_others(regions: ScanTable) -> None:
    partitions = {name: regions.partition({"region": name}) for name in ("US", "EU")}
    regions.write(regional("US", 1) + regional("EU", 2))
    with regions.records() as scanner:
        scanner.subscribe_all()
        seen = set(poll_ids(scanner, 2))
        asyncio.run(regions.admin.drop_partition(regions.path, {"region": "US"}))
        regions.write(regional("EU", 3))
        while 3 not in seen:
            records = scanner.poll(WAIT_MS)
            assert len(records)
            seen |= {record.row["id"] for record in records}
        assert seen == {1, 2, 3}
        for bucket in range(2):
            scanner.unsubscribe_partition(partitions["US"], bucket)


def test_one_partition_of_many_is_limited(regions: ScanTable) -> None:
    partition = regions.partition({"region": "US"})
    regions.write(regional("US", *range(40)))
    found = [
        regions.table.new_scan().limit(5).create_bucket_batch_scanner(regions.bucket(bucket, partition)).to_arrow()
        for bucket in range(2)
    ]
    assert all(table.num_rows <= 5 for table in found)
    assert sum(table.num_rows for table in found) in (5, 10)  # sticky rows may all be in one bucket


# ---- columns that were added later ----


@pytest.fixture
def evolved(connection: FlussConnection, table_name: str) -> ScanTable:
    table = ScanTable(connection, table_name, bucket_count=1)
    table.write(rows_of(range(10)))
    asyncio.run(table.admin.alter_table(table.path, add_columns=[pa.field("extra", pa.string())]))
    return table


def write_new(table: ScanTable) -> None:
    table.reopen()
    table.write([{"id": number, "name": "new", "score": 1.0, "extra": f"e{number}"} for number in range(10, 15)])


def test_old_rows_have_nulls_in_new_columns(evolved: ScanTable) -> None:
    write_new(evolved)
    found = evolved.read()
    assert found.schema.names == ["id", "name", "score", "extra"]
    assert found.column("extra").to_pylist() == [None] * 10 + [f"e{number}" for number in range(10, 15)]
    with evolved.records() as scanner:
        scanner.subscribe_all()
        rows: list[dict[str, object]] = []
        while len(rows) < 15:
            rows += [record.row for record in scanner.poll(WAIT_MS)]
    assert rows[0] == {"id": 0, "name": None, "score": 0.0, "extra": None}
    assert rows[-1]["extra"] == "e14"


def test_a_scanner_from_before_keeps_its_columns(evolved: ScanTable) -> None:
    with evolved.batches() as old:
        old.subscribe_all()
        assert old.to_arrow().num_rows == 10
        write_new(evolved)
        found = old.to_arrow()
        assert found.schema.names == ["id", "name", "score"]
        assert found.column("id").to_pylist() == list(range(10, 15))


def test_rows_as_they_were_written(evolved: ScanTable) -> None:
    write_new(evolved)
    with evolved.batches(evolved.table.new_scan().with_fixed_schema(False)) as scanner:
        scanner.subscribe_all()
        batches = scanner.poll_record_batch(WAIT_MS)
        while sum(len(batch) for batch in batches) < 15:
            batches += scanner.poll_record_batch(WAIT_MS)
    assert batches[0].batch.schema.names == ["id", "name", "score"]
    assert batches[-1].batch.schema.names == ["id", "name", "score", "extra"]


def test_projection_and_filter_over_old_and_new_rows(evolved: ScanTable) -> None:
    write_new(evolved)
    scan = evolved.table.new_scan()
    found = evolved.read(scan.project_by_name(["extra", "id"]))
    assert found.column("extra").to_pylist() == [None] * 10 + [f"e{number}" for number in range(10, 15)]
    assert found.column("id").to_pylist() == list(range(15))
    assert evolved.read(scan.filter(col("extra").is_null())).num_rows == 10
    assert evolved.read(scan.project([0]).filter(col("extra") == "e12")).to_pydict() == {"id": [12]}
    limited = scan.limit(12).create_bucket_batch_scanner(evolved.bucket(0)).to_arrow()
    assert limited.column("extra").to_pylist() == [None] * 7 + [f"e{number}" for number in range(10, 15)]
