"""Random and mutated key-value, value and changelog batches: refused with a clear error, or read the same both ways."""

from __future__ import annotations

import contextlib
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss.codec.arrow.compression import NO_COMPRESSION
from fluss.codec.batches import kv_batch
from fluss.codec.batches.changelog import ChangelogCodec
from fluss.codec.batches.kv_batch import EmptyKeyError, KvHeader, KvRecords, decode_kv_batch, encode_kv_batch
from fluss.codec.batches.kv_values import ValueReader
from fluss.codec.batches.log_batch import CorruptBatch
from fluss.codec.batches.value_batch import decode_value_batch, encode_value_batch
from fluss.codec.rows.columns import RowFormat
from fluss.codec.rows.values import CorruptRowError
from fluss.model import types as t
from fluss.model.schema import Column, Schema
from tests.support.runner.lanes import examples

SCHEMA = Schema((Column("id", t.IntType(nullable=False), column_id=0), Column("name", t.StringType(), column_id=1)))
READER = ValueReader({1: SCHEMA}, 1, RowFormat.COMPACTED)
ROUNDS = 150


def mutated(content: bytes, chance: random.Random, start: int) -> bytes:
    """The bytes with one to three of them changed, from `start` on."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        changed[chance.randrange(start, len(changed))] = chance.choice(
            (0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256))
        )
    return bytes(changed)


def decoded(batch: bytes, column_wise: bool) -> KvRecords | None:
    """The records by one of the two ways, whatever their number is; None when they are refused."""
    header = kv_batch.read_kv_header(batch)
    body = memoryview(batch)[kv_batch.KV_HEADER_BYTES : header.size]
    decode = kv_batch._decode_columns if column_wise else kv_batch._decode_one_by_one
    try:
        return decode(body, header)
    except (CorruptRowError, EmptyKeyError):
        return None


@pytest.mark.parametrize("count", [1, 5, 80])
def test_both_decoders_refuse_the_same_batches(count: int) -> None:
    chance = random.Random(count)
    keys = [chance.randbytes(chance.randint(1, 9)) for _ in range(count)]
    rows = [chance.randbytes(chance.randint(1, 200)) if chance.random() < 0.8 else None for _ in range(count)]
    batch = encode_kv_batch(keys, rows, 1)
    for _ in range(ROUNDS):
        broken = mutated(batch, chance, kv_batch.KV_HEADER_BYTES)
        one, other = decoded(broken, True), decoded(broken, False)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert (one.key_list, one.value_list) == (other.key_list, other.value_list)


@settings(max_examples=examples(100))
@given(st.binary(max_size=200))
def test_random_bytes(content: bytes) -> None:
    for decode in (decode_kv_batch, decode_value_batch):
        with contextlib.suppress(CorruptBatch):
            decode(content)
    header = KvHeader(28 + len(content), 0, 0, 1, 0, -1, -1, 3)
    with contextlib.suppress(CorruptBatch):
        decode_kv_batch(bytes(28) + content, header=header)


def test_mutated_values_are_read_the_same_one_by_one_and_together() -> None:
    chance = random.Random(7)
    value = bytes.fromhex("01000001") + bytes([5]) + b"alice"
    for _ in range(ROUNDS):
        broken = mutated(value, chance, 0)
        try:
            row = READER.row(broken)
        except CorruptRowError:
            with pytest.raises(CorruptRowError):
                READER.columns(pa.array([broken] * 60, pa.binary()))
        else:
            columns = READER.columns(pa.array([broken] * 60, pa.binary()))
            assert [column[59].as_py() for column in columns] == row


def test_mutated_value_batches_and_changelogs() -> None:
    chance = random.Random(8)
    values = encode_value_batch([b"\x01\0\0\x01\x01a"] * 70)
    codec = ChangelogCodec({1: SCHEMA}, 1, "ARROW", NO_COMPRESSION)
    changes = bytes(codec.encode([pa.array([1, 2], pa.int32()), pa.array(["a", None])], b"\x01\x03"))
    for _ in range(ROUNDS):
        for decode, content in ((decode_value_batch, values), (codec.decode, changes)):
            with contextlib.suppress(CorruptBatch):
                decode(mutated(content, chance, 0))
