"""Changelog batches: every log format, older schemas, batches without rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fluss.codec.arrow.compression import Compression, CompressionKind
from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.arrow_batch import encode_arrow_batch
from fluss.codec.batches.changelog import ChangelogCodec
from fluss.codec.batches.log_batch import CorruptBatch, check_crc, read_header
from fluss.model import types as t
from fluss.model.schema import Column, Schema

NARROW = Schema((Column("id", t.IntType(nullable=False), column_id=0), Column("name", t.StringType(), column_id=1)))
WIDER = Schema((*NARROW.columns, Column("score", t.DoubleType(), column_id=2)))
SCHEMAS = {1: NARROW, 2: WIDER}
COMPRESSION = Compression(CompressionKind.ZSTD, 3)
FORMATS = pytest.mark.parametrize("log_format", ["ARROW", "COMPACTED", "indexed"])


@FORMATS
def test_rows_and_change_types_come_back(log_format: str) -> None:
    codec = ChangelogCodec(SCHEMAS, 2, log_format, COMPRESSION)
    columns = [pa.array([1, 1, 2], pa.int32()), pa.array(["a", "b", None]), pa.array([None, 1.5, 2.0])]
    batch = codec.encode(columns, b"\x02\x03\x04", writer_id=9, batch_sequence=4)
    header = read_header(batch)
    assert (header.magic, header.attributes, header.schema_id, header.record_count) == (0, 0, 2, 3)
    assert (header.writer_id, header.batch_sequence, header.last_offset_delta) == (9, 4, 2)
    assert check_crc(batch, 0, header)
    decoded, change_types = codec.decode(bytes(5) + batch, 5)
    assert change_types == b"\x02\x03\x04"
    assert [column.to_pylist() for column in decoded] == [column.to_pylist() for column in columns]


@FORMATS
def test_older_batches_get_null_columns(log_format: str) -> None:
    old = ChangelogCodec(SCHEMAS, 1, log_format, COMPRESSION)
    batch = old.encode([pa.array([7], pa.int32()), pa.array(["x"])], b"\x01")
    columns, change_types = ChangelogCodec(SCHEMAS, 2, log_format, COMPRESSION).decode(batch)
    assert [column.to_pylist() for column in columns] == [[7], ["x"], [None]]
    assert change_types == b"\x01"


@FORMATS
def test_a_batch_without_rows_takes_one_offset(log_format: str) -> None:
    codec = ChangelogCodec(SCHEMAS, 2, log_format, COMPRESSION)
    empty = [pa.array([], field.type) for field in to_arrow_schema(WIDER)]
    batch = codec.encode(empty, b"", writer_id=1, batch_sequence=0)
    header = read_header(batch)
    assert (header.size, header.attributes, header.last_offset_delta, header.record_count) == (48, 0, 0, 0)
    columns, change_types = codec.decode(batch)
    assert (sum(map(len, columns)), len(columns), change_types) == (0, 3, b"")


def test_what_is_no_changelog_is_refused() -> None:
    codec = ChangelogCodec(SCHEMAS, 2, "ARROW", COMPRESSION)
    rows = pa.record_batch([pa.array([7], pa.int32()), pa.array(["x"])], schema=to_arrow_schema(NARROW))
    with pytest.raises(CorruptBatch, match="appends only"):
        codec.decode(encode_arrow_batch(rows, 1, COMPRESSION))
    with pytest.raises(CorruptBatch, match="schema id 9"):
        codec.decode(encode_arrow_batch(rows, 9, COMPRESSION, change_types=b"\x01"))
