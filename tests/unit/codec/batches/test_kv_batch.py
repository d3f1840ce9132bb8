"""Key-value batches and value batches: worked examples, both ways of coding, broken bytes."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss.codec.batches.kv_batch import check_kv_crc, decode_kv_batch, encode_kv_batch, read_kv_header
from fluss.codec.batches.kv_values import ValueReader, encode_value, encode_values, schema_id_prefix
from fluss.codec.batches.log_batch import CorruptBatch
from fluss.codec.batches.value_batch import decode_value_batch, encode_value_batch, value_record_bytes
from fluss.codec.crc import crc32c
from fluss.codec.rows.columns import COLUMN_WISE_MIN_ROWS, RowFormat
from fluss.codec.rows.compacted import encode_compacted_row
from fluss.codec.rows.values import CorruptRowError
from fluss.model import types as t
from fluss.model.schema import Column, Schema
from tests.support.runner.lanes import examples

SCHEMA = Schema(
    (
        Column("id", t.IntType(nullable=False), column_id=0),
        Column("name", t.StringType(), column_id=1),
        Column("amount", t.BigIntType(), column_id=2),
    ),
    ("id",),
)
WIDER = Schema((*SCHEMA.columns, Column("note", t.StringType(), column_id=3)), ("id",))
# Bytes of the reference encoders.
GOLDEN = bytes.fromhex(
    "2d00000000b3b1a718010000e90300000000000000000000020000000b0000000101000105616c69636564020000000102"
)
GOLDEN_EMPTY = bytes.fromhex("180000000078416f16010000ffffffffffffffffffffffff00000000")
ALICE = bytes.fromhex("0100000105616c69636564")
SECOND = bytes.fromhex("01000202ffffffffffffffffff01")
GOLDEN_VALUES = bytes.fromhex("260000000002000000") + b"\x0b\0\0\0" + ALICE + b"\x0e\0\0\0" + SECOND


def both_forms(keys: list[bytes], rows: list[bytes | None]) -> list[tuple[Any, Any]]:
    return [(keys, rows), (pa.array(keys, pa.binary()), pa.array(rows, pa.binary()))]


def test_worked_example() -> None:
    row = encode_compacted_row([1, "alice", 100], SCHEMA.data_types)
    for keys, rows in both_forms([b"\x01", b"\x02"], [row, None]):
        assert encode_kv_batch(keys, rows, 1, writer_id=1001, batch_sequence=0).hex() == GOLDEN.hex()
    records = decode_kv_batch(GOLDEN + b"ignored")
    assert records.header == (49, 0, 0x18A7B1B3, 1, 0, 1001, 0, 2)
    assert check_kv_crc(GOLDEN, records.header)
    assert (records.key_list, records.value_list) == ([b"\x01", b"\x02"], [ALICE, None])
    assert (records.keys.to_pylist(), records.values.to_pylist()) == (records.key_list, records.value_list)


def test_empty_batch() -> None:
    for keys, rows in both_forms([], []):
        assert encode_kv_batch(keys, rows, 1) == GOLDEN_EMPTY
    records = decode_kv_batch(GOLDEN_EMPTY)
    assert (len(records), records.key_list, records.value_list) == (0, [], [])


def test_a_flipped_bit_does_not_fit_the_checksum() -> None:
    damaged = bytearray(GOLDEN)
    damaged[-1] ^= 1
    assert not check_kv_crc(damaged, read_kv_header(damaged))


RECORDS = st.lists(
    st.tuples(st.binary(min_size=1, max_size=200), st.none() | st.binary(min_size=1, max_size=300)), max_size=8
)


@settings(max_examples=examples(60))
@given(RECORDS, st.sampled_from([1, 13]))
def test_both_ways_of_coding_agree(records: list[tuple[bytes, bytes | None]], repeat: int) -> None:
    keys, rows = [key for key, _ in records] * repeat, [row for _, row in records] * repeat
    one, other = (encode_kv_batch(*form, 300, writer_id=5, batch_sequence=9) for form in both_forms(keys, rows))
    assert one == other
    decoded = decode_kv_batch(memoryview(bytearray(one)))
    prefix = schema_id_prefix(300)
    assert decoded.key_list == keys
    assert decoded.value_list == [None if row is None else prefix + row for row in rows]
    assert decoded.keys.to_pylist() == keys
    assert decoded.values.to_pylist() == decoded.value_list


def test_the_two_decoders_take_over_from_each_other() -> None:
    for count in (COLUMN_WISE_MIN_ROWS - 1, COLUMN_WISE_MIN_ROWS):
        keys = [b"%d" % number for number in range(count)]
        rows: list[bytes | None] = [None if number % 5 == 0 else b"row%d" % number for number in range(count)]
        decoded = decode_kv_batch(encode_kv_batch(keys, rows, 1))
        assert decoded.key_list == keys
        assert decoded.value_list == [None if row is None else b"\x01\0" + row for row in rows]


def with_body(body: bytes, count: int, schema_id: int = 1) -> bytes:
    covered = struct.pack("<hbqii", schema_id, 0, -1, -1, count) + body
    return struct.pack("<ibI", len(covered) + 5, 0, crc32c(covered)) + covered


@pytest.mark.parametrize("repeat", [1, COLUMN_WISE_MIN_ROWS + 20])
@pytest.mark.parametrize(
    ("record", "text"),
    [
        (b"\x02\0\0\0\0\x01", "key of record"),
        (b"\x02\0\0\0\x05\x01", "key of record|a length of 5"),
        (b"\x01\0\0\0\x01", "length 1|cannot hold"),
        (b"\xff\xff\xff\x7f\x01\x01", "length"),
        (b"\x07\0\0\0\xff\xff\xff\xff\xff\xff\x01", "more than 5 bytes|runs past|length"),
    ],
)
def test_broken_records_are_refused(record: bytes, text: str, repeat: int) -> None:
    with pytest.raises(CorruptBatch, match=text):
        decode_kv_batch(with_body(record * repeat, repeat))


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        GOLDEN[:27],
        GOLDEN[:-1],
        GOLDEN[:4] + b"\x01" + GOLDEN[5:],
        with_body(b"", -1),
        with_body(b"", 1),
        with_body(b"\x02\0\0\0\x01\x01\0", 1),
        with_body(b"", 0, schema_id=-1),
        b"\x01\0\0\0" + GOLDEN[4:],
    ],
)
def test_broken_batches_are_refused(batch: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decode_kv_batch(batch)


def test_value_batch_example() -> None:
    assert encode_value([1, "alice", 100], 1, SCHEMA, RowFormat.COMPACTED) == ALICE
    assert encode_value([2, None, -1], 1, SCHEMA, RowFormat.COMPACTED) == SECOND
    assert encode_value_batch([ALICE, SECOND]) == GOLDEN_VALUES
    assert len(GOLDEN_VALUES) == 9 + value_record_bytes(ALICE) + value_record_bytes(SECOND)
    assert decode_value_batch(GOLDEN_VALUES).to_pylist() == [ALICE, SECOND]
    assert decode_value_batch(encode_value_batch([])).to_pylist() == []


@pytest.mark.parametrize(
    "batch", [b"", GOLDEN_VALUES[:8], GOLDEN_VALUES[:-1], b"\x05\0\0\0\x01\0\0\0\0", b"\x05\0\0\0\0\x01\0\0\0"]
)
def test_broken_value_batches_are_refused(batch: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decode_value_batch(batch)


@pytest.mark.parametrize("row_format", list(RowFormat))
@pytest.mark.parametrize("repeat", [1, 40])
def test_values_of_older_schemas_get_nulls(row_format: RowFormat, repeat: int) -> None:
    old = encode_value([1, "a", None], 1, SCHEMA, row_format)
    new = encode_value([2, None, 7, "n"], 2, WIDER, row_format)
    reader = ValueReader({1: SCHEMA, 2: WIDER}, 2, row_format)
    assert reader.row(old) == [1, "a", None, None]
    assert reader.row(memoryview(new)) == [2, None, 7, "n"]
    columns = reader.columns(pa.array([new, old, new] * repeat, pa.binary()))
    assert [column.to_pylist() for column in columns] == [
        [2, 1, 2] * repeat,
        [None, "a", None] * repeat,
        [7, None, 7] * repeat,
        ["n", None, "n"] * repeat,
    ]
    narrow = ValueReader({1: SCHEMA, 2: WIDER}, 1, row_format)
    assert narrow.row(new) == [2, None, 7]
    assert [len(column) for column in reader.columns(pa.array([], pa.binary()))] == [0] * 4


@pytest.mark.parametrize("count", [3, 100])
def test_values_of_columns(count: int) -> None:
    batch = pa.record_batch(
        [pa.array(range(count), pa.int32()), pa.array(["x"] * count), pa.array([None, *range(1, count)], pa.int64())],
        ["id", "name", "amount"],
    )
    values = encode_values(batch, 1, SCHEMA, RowFormat.COMPACTED)
    reader = ValueReader({1: SCHEMA}, 1, RowFormat.COMPACTED)
    assert [column.to_pylist() for column in reader.columns(values)] == [c.to_pylist() for c in batch.columns]
    assert reader.row(values[0].as_py()) == [0, "x", None]


def test_values_that_cannot_be_read() -> None:
    reader = ValueReader({1: SCHEMA}, 1, RowFormat.COMPACTED)
    unknown = b"\x07\0" + ALICE[2:]
    for value, text in ((b"\x01", "schema id"), (unknown, "schema id 7"), (ALICE[:-1], ".")):
        with pytest.raises(CorruptRowError, match=text):
            reader.row(value)
        with pytest.raises(CorruptRowError, match=text):
            reader.columns(pa.array([value], pa.binary()))
    with pytest.raises(CorruptRowError, match="null"):
        reader.columns(pa.array([ALICE, None], pa.binary()))
    changed = Schema((Column("id", t.BigIntType(nullable=False), column_id=0),), ("id",))
    with pytest.raises(CorruptRowError, match="has changed"):
        ValueReader({1: SCHEMA, 2: changed}, 2, RowFormat.COMPACTED).row(ALICE)
