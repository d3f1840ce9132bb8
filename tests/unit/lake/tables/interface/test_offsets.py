"""The document with the offsets of buckets."""

from __future__ import annotations

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.lake.tables.interface.offsets import dump_offsets, load_offsets
from fluss.model.paths import TableBucket

# The two documents of the protocol sheet.
PLAIN = '{"version":1,"table_id":41,"bucket_offsets":[120,-1,77]}'
PARTITIONED = '{"version":1,"table_id":42,"partition_offsets":[{"partition_id":9,"bucket_offsets":[5,8]}]}'


def test_documents_of_the_reference_are_read_and_written_the_same() -> None:
    plain = {TableBucket(41, None, 0): 120, TableBucket(41, None, 2): 77}
    partitioned = {TableBucket(42, 9, 0): 5, TableBucket(42, 9, 1): 8}
    assert load_offsets(PLAIN) == (41, plain)
    assert load_offsets(PARTITIONED.encode()) == (42, partitioned)
    assert dump_offsets(41, plain) == PLAIN
    assert dump_offsets(42, partitioned) == PARTITIONED


def test_partitions_are_in_the_order_of_their_ids() -> None:
    text = dump_offsets(1, {TableBucket(1, 30, 0): 3, TableBucket(1, 4, 1): 1})
    assert text.index('"partition_id":4') < text.index('"partition_id":30')
    assert load_offsets(text) == (1, {TableBucket(1, 30, 0): 3, TableBucket(1, 4, 1): 1})


def test_a_document_without_offsets() -> None:
    assert dump_offsets(7, {}) == '{"version":1,"table_id":7}'
    assert load_offsets('{"version":1,"table_id":7}') == (7, {})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version":0,"table_id":1}',
        '{"version":1}',
        '{"version":1,"table_id":1,"bucket_offsets":["x"]}',
        '{"version":1,"table_id":1,"bucket_offsets":[-2]}',
        '{"version":1,"table_id":1,"bucket_offsets":[1],"partition_offsets":[]}',
        '{"version":1,"table_id":1,"partition_offsets":[{"partition_id":1}]}',
    ],
)
def test_damaged_documents_are_refused(text: str) -> None:
    with pytest.raises(FlussError, match="damaged bucket offsets") as caught:
        load_offsets(text)
    assert caught.value.error_code == ErrorCode.CORRUPT_MESSAGE


def test_invalid_offsets_are_refused() -> None:
    with pytest.raises(FlussError, match="of table 2"):
        dump_offsets(1, {TableBucket(2, None, 0): 1})
    with pytest.raises(FlussError, match="must either all have partitions or none"):
        dump_offsets(1, {TableBucket(1, None, 0): 1, TableBucket(1, 5, 0): 1})
    with pytest.raises(FlussError, match="bucket ids"):
        dump_offsets(1, {TableBucket(1, None, -1): 1})
