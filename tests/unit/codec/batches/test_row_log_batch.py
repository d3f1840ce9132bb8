"""INDEXED and COMPACTED log batches: worked examples, round trips, record bounds, broken bytes."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.log_batch import CorruptBatch, check_crc, empty_batch, encode_batch, read_header
from fluss.codec.batches.record_bounds import record_bounds
from fluss.codec.batches.row_log_batch import decode_row_batch, encode_row_batch
from fluss.codec.rows.columns import COLUMN_WISE_MIN_ROWS, RowFormat
from fluss.codec.rows.values import CorruptRowError
from fluss.model import types as t
from fluss.model.schema import Column, Schema

SCHEMA = Schema((Column("id", t.IntType()), Column("name", t.StringType()), Column("score", t.DoubleType())))
ROWS = pa.record_batch(
    [pa.array([1, 2, 3], pa.int32()), pa.array(["a", None, "ccc"]), pa.array([1.5, -2.0, None])],
    schema=to_arrow_schema(SCHEMA),
)
GOLDEN = {
    RowFormat.INDEXED: bytes.fromhex(
        "0000000000000000620000000000000000000000 00fd67c8e7010001020000000700000000000000000000000300000013000000"
        "00000100000001000000610000 00000000f83f12000000000200000000020000000000000000000 0c00d0000000004030000000"
        "3000000636363".replace(" ", "")
    ),
    RowFormat.COMPACTED: bytes.fromhex(
        "00000000000000004f0000000000000000000000 00e6e88aff01000102000000070000000000000000000000030000000d000000"
        "0000010161000000000000f83f0b000000000202000000000000 00c0070000000004030363 6363".replace(" ", "")
    ),
}
BOTH = pytest.mark.parametrize("row_format", list(RowFormat))


@BOTH
def test_worked_examples(row_format: RowFormat) -> None:
    encoded = encode_row_batch(ROWS, SCHEMA, row_format, 1, writer_id=7, batch_sequence=0)
    assert encoded.hex() == GOLDEN[row_format].hex()
    assert check_crc(encoded, 0, read_header(encoded))
    rows, change_types = decode_row_batch(encoded, SCHEMA, row_format)
    assert rows == ROWS
    assert change_types is None


@BOTH
@pytest.mark.parametrize("count", [1, COLUMN_WISE_MIN_ROWS + 1])
def test_changelog_batches(row_format: RowFormat, count: int) -> None:
    batch = pa.Table.from_batches([ROWS] * count).combine_chunks().to_batches()[0]
    change_types = bytes((0, 1, 2)) * count
    encoded = encode_row_batch(batch, SCHEMA, row_format, 3, change_types=change_types)
    header = read_header(encoded)
    assert (header.append_only, header.schema_id, header.record_count) == (False, 3, 3 * count)
    rows, read_types = decode_row_batch(b"front" + encoded + b"behind", SCHEMA, row_format, 5)
    assert rows == batch
    assert read_types == change_types


@BOTH
def test_empty_batches(row_format: RowFormat) -> None:
    empty = encode_row_batch(ROWS.slice(0, 0), SCHEMA, row_format, 1)
    assert empty == empty_batch(1, append_only=True)
    assert decode_row_batch(empty, SCHEMA, row_format) == (None, None)
    assert decode_row_batch(empty_batch(1), SCHEMA, row_format) == (None, b"")


@BOTH
def test_wrong_change_types(row_format: RowFormat) -> None:
    with pytest.raises(CorruptBatch, match="change type"):
        encode_row_batch(ROWS, SCHEMA, row_format, 1, change_types=b"\0\0")
    with pytest.raises(CorruptBatch, match="change type"):
        encode_row_batch(ROWS, SCHEMA, row_format, 1, change_types=b"\0\0\x05")


@BOTH
@given(data=st.data())
def test_broken_batches_are_refused(row_format: RowFormat, data: st.DataObject) -> None:
    broken = bytearray(GOLDEN[row_format])
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(44, len(broken) - 1))] = data.draw(st.integers(0, 255))
    try:
        rows, _ = decode_row_batch(broken, SCHEMA, row_format)
    except CorruptBatch:
        return
    if rows is not None:
        rows.validate(full=True)


@BOTH
def test_a_record_count_beyond_the_bytes_is_refused_at_once(row_format: RowFormat) -> None:
    lying = encode_batch([b"\0" * 100], 2**31 - 1, 1, append_only=True)
    with pytest.raises(CorruptBatch, match="cannot hold 2147483647 records"):
        decode_row_batch(lying, SCHEMA, row_format)
    with pytest.raises(CorruptBatch, match="but the buffer has only"):
        decode_row_batch(GOLDEN[row_format][:-1], SCHEMA, row_format)


@given(
    st.lists(st.sampled_from([0, 1, 2, 5, 60, 255, 256, 300]), max_size=150), st.sampled_from([b"\0", b"\x01", b"\x04"])
)
def test_record_bounds_are_the_chain_of_lengths(sizes: list[int], filler: bytes) -> None:
    body = b"".join(struct.pack("<i", size) + filler * size for size in sizes)
    starts, ends = record_bounds(memoryview(body), len(sizes))
    assert (ends - starts).tolist() == sizes
    assert starts.tolist() == [sum(sizes[:index]) + 4 * (index + 1) for index in range(len(sizes))]
    if sizes:
        for count in (len(sizes) - 1, len(sizes) + 1):
            with pytest.raises(CorruptRowError):
                record_bounds(memoryview(body), count)


@given(st.binary(max_size=600), st.integers(0, 200))
def test_record_bounds_of_any_bytes(body: bytes, count: int) -> None:
    try:
        starts, ends = record_bounds(memoryview(body), count, 1)
    except CorruptRowError:
        return
    position = 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        assert start == position + 4
        assert end - start == struct.unpack_from("<i", body, position)[0] >= 1
        position = end
    assert position == len(body)
