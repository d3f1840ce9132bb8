"""`ScanRecords` as a sequence of records and as a mapping of buckets."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fluss.client.decode.log_rows import LogRows
from fluss.client.scan.records import RecordBatch, ScanRecords
from fluss.model import paths
from fluss.values.basic import ChangeType, TableBucket

FIRST, SECOND, OTHER = TableBucket(7, 0), TableBucket.with_partition(7, 3, 1), TableBucket(7, 9)


def rows(bucket: TableBucket, base: int, *ids: int) -> LogRows:
    return LogRows(bucket, pa.RecordBatch.from_arrays([pa.array(ids, pa.int32())], ["id"]), base, 1000)


@pytest.fixture
def records() -> ScanRecords:
    return ScanRecords([rows(FIRST, 0, 10, 11), rows(SECOND, 5, 20), rows(FIRST, 2, 12)])


def ids(found: Any) -> list[int]:
    return [record.row["id"] for record in found]


def test_counts_build_nothing(records: ScanRecords) -> None:
    assert (len(records), records.count(), records.is_empty()) == (4, 4, False)
    assert records.buckets() == records.keys() == [FIRST, SECOND]
    assert records._lists == {}
    assert bool(records)
    assert not ScanRecords()
    assert ScanRecords().is_empty()
    assert list(ScanRecords()) == []


def test_iteration_goes_bucket_by_bucket_and_can_be_repeated(records: ScanRecords) -> None:
    assert ids(records) == [10, 11, 12, 20]
    assert ids(records) == [10, 11, 12, 20]
    assert ids(records[:]) == [10, 11, 12, 20]
    assert ids(records) == [10, 11, 12, 20]


def test_index_and_slice(records: ScanRecords) -> None:
    assert records[0].row == {"id": 10}
    assert records[-1].offset == 5
    assert ids(records[1:3]) == [11, 12]
    assert ids(records[::-1]) == [20, 12, 11, 10]
    assert records[0] is records[0]
    for index in (4, -5):
        with pytest.raises(IndexError, match=f"index {index} out of range for ScanRecords of size 4"):
            records[index]
    with pytest.raises(TypeError, match="index must be int, slice, or TableBucket"):
        records["id"]  # type: ignore[call-overload]


def test_access_by_bucket(records: ScanRecords) -> None:
    assert ids(records[FIRST]) == ids(records.records(FIRST)) == [10, 11, 12]
    assert ids(records[paths.TableBucket(7, None, 0)]) == [10, 11, 12]
    assert records[OTHER] == records.records(OTHER) == []
    assert FIRST in records
    assert OTHER not in records
    with pytest.raises(TypeError):
        3 in records  # noqa: B015
    assert [(bucket, ids(found)) for bucket, found in records.items()] == [(FIRST, [10, 11, 12]), (SECOND, [20])]
    assert [ids(found) for found in records.values()] == [[10, 11, 12], [20]]
    assert list(records.records_by_buckets()) == [FIRST, SECOND]
    records.records(FIRST).clear()
    assert ids(records[FIRST]) == [10, 11, 12]


def test_offsets_and_times(records: ScanRecords) -> None:
    assert [record.offset for record in records[FIRST]] == [0, 1, 2]
    record = records[0]
    assert (record.timestamp, record.change_type, record.change_type.short_string()) == (
        1000,
        ChangeType.AppendOnly,
        "+A",
    )
    assert repr(record) == "ScanRecord(offset=0, timestamp=1000, change_type=+A, row={'id': 10})"
    assert repr(records) == "ScanRecords(records=4, buckets=2)"
    with pytest.raises(TypeError):
        hash(record)
    assert record != 3


def test_record_batch() -> None:
    batch = RecordBatch(rows(SECOND, 5, 1, 2, 3))
    assert batch.batch.num_rows == batch.num_rows == batch.num_records == len(batch) == 3
    assert (batch.bucket, batch.base_offset, batch.last_offset, batch.timestamp) == (SECOND, 5, 7, 1000)
    assert repr(batch) == (
        "RecordBatch(bucket=TableBucket(table_id=7, partition_id=3, bucket=1), base_offset=5, last_offset=7, rows=3)"
    )
