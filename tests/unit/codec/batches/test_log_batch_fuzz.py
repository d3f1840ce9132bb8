"""Mutated batches: every function either answers or raises from the ValueError family, quickly and in little memory."""

from __future__ import annotations

import contextlib
import random
import struct

import pyarrow as pa
import pytest

from fluss.codec.arrow.compression import Compression, CompressionKind
from fluss.codec.batches.arrow_batch import decode_arrow_batch, encode_arrow_batch
from fluss.codec.batches.log_batch import check_crc, iter_batches, read_header
from fluss.codec.batches.projection import Projector
from fluss.codec.batches.pruning import BatchFilter
from fluss.codec.filters.predicate import Leaf, LeafFunction
from fluss.model import types as t
from fluss.model.schema import Column, Schema
from tests.support.values import reference_log_batches as golden

ROUNDS_PER_SAMPLE = 1500
MAX_ARROW_BYTES_HELD = 64 * 1024 * 1024
NESTED_SCHEMA = pa.schema(
    [
        ("list", pa.list_(pa.utf8())),
        ("map", pa.map_(pa.utf8(), pa.int64())),
        ("row", pa.struct([("x", pa.decimal128(20, 3)), ("y", pa.bool_())])),
        ("fixed", pa.binary(3)),
    ]
)
NESTED_TYPES: tuple[t.DataType, ...] = (
    t.ArrayType(t.StringType()),
    t.MapType(t.StringType(), t.BigIntType()),
    t.RowType((t.RowField("x", t.DecimalType(20, 3)), t.RowField("y", t.BooleanType()))),
    t.BinaryType(3),
)
NESTED_ROWS = pa.record_batch(
    [
        pa.array([["a", None], [], None, ["bcd"]], NESTED_SCHEMA.field(0).type),
        pa.array([[("k", 1)], None, [], [("l", None), ("m", 3)]], NESTED_SCHEMA.field(1).type),
        pa.array(
            [{"x": 1, "y": True}, None, {"x": None, "y": False}, {"x": 2, "y": None}], NESTED_SCHEMA.field(2).type
        ),
        pa.array([b"abc", None, b"def", b"ghi"], pa.binary(3)),
    ],
    schema=NESTED_SCHEMA,
)
INTERESTING = (0, 1, -1, 3, 8, 0x7F, 0xFF, 2**15, 2**16, 2**31 - 1, -(2**31), 2**32, 2**40, 2**62, -(2**63), 2**63 - 1)


def samples() -> list[tuple[bytes, pa.Schema, tuple[t.DataType, ...]]]:
    three = [
        golden.APPEND_ARROW_CPP, golden.APPEND_JAVA, golden.APPEND_JAVA_ZSTD, golden.ALL_NULL_JAVA_LZ4,
        golden.STATISTICS_JAVA,
    ]  # fmt: skip
    text = pa.record_batch({"s": pa.array(["some text that shrinks " * 3] * 40)})
    found: list[tuple[bytes, pa.Schema, tuple[t.DataType, ...]]] = [
        (sample, golden.R3_SCHEMA, golden.R3_TYPES) for sample in three
    ]
    found.append((golden.CHANGELOG_JAVA, golden.R2_SCHEMA, golden.R3_TYPES[:2]))
    for kind in CompressionKind:
        found.append((encode_arrow_batch(NESTED_ROWS, 1, Compression(kind)), NESTED_SCHEMA, NESTED_TYPES))
        found.append((encode_arrow_batch(text, 1, Compression(kind)), text.schema, (t.StringType(),)))
    return found


def mutate(source: random.Random, sample: bytes) -> bytes:
    batch = bytearray(sample)
    for _ in range(source.randint(1, 4)):
        position = source.randrange(8, len(batch))
        action = source.randrange(4)
        if action == 0:
            batch[position] ^= 1 << source.randrange(8)
        elif action == 1:
            batch[position] = source.randrange(256)
        else:
            width = source.choice((2, 4, 8))
            position -= (position - 48) % width  # most fields are aligned
            value = source.choice(INTERESTING) & (2 ** (8 * width) - 1)
            batch[position : position + width] = value.to_bytes(width, "little")[: len(batch) - position]
    if source.randrange(8) == 0:
        del batch[source.randrange(len(batch)) :]
    return bytes(batch)


def exercise(batch: bytes, schema: pa.Schema, types: tuple[t.DataType, ...]) -> None:
    for position, header in iter_batches(batch):
        check_crc(batch, position, header)
    header = read_header(batch)
    table_schema = Schema(tuple(Column(f"c{index}", each) for index, each in enumerate(types))).numbered()
    assert BatchFilter(Leaf(LeafFunction.EQUAL, 0, (1,)), table_schema).keeps(batch, 0, header, table_schema) in (
        True,
        False,
    )
    for attempt in (_decode, _project):
        with contextlib.suppress(ValueError):  # CorruptBatch is one; anything else fails the test
            attempt(batch, schema, types)


def _decode(batch: bytes, schema: pa.Schema, types: tuple[t.DataType, ...]) -> None:
    rows, _ = decode_arrow_batch(batch, schema)
    if rows is not None:
        rows.take(pa.array(range(rows.num_rows)))  # touches every value


def _project(batch: bytes, schema: pa.Schema, types: tuple[t.DataType, ...]) -> None:
    last = len(types) - 1
    projected = b"".join(Projector(types, [last], Compression()).project(batch, 0, read_header(batch)))
    assert len(projected) <= len(batch) + 1024
    _decode(projected, pa.schema([schema.field(last)]), types)


@pytest.mark.parametrize("index", range(len(samples())))
def test_mutated_batches(index: int) -> None:
    sample, schema, types = samples()[index]
    source = random.Random(f"log batch {index}")
    held_before = pa.total_allocated_bytes()
    for _ in range(ROUNDS_PER_SAMPLE):
        batch = mutate(source, sample)
        with contextlib.suppress(ValueError):  # CorruptBatch is one; anything else fails the test
            exercise(batch, schema, types)
    assert pa.total_allocated_bytes() - held_before < MAX_ARROW_BYTES_HELD


def test_random_bytes() -> None:
    source = random.Random(7)
    for _ in range(2000):
        batch = bytearray(source.randbytes(source.randrange(200)))
        if len(batch) >= 48:
            struct.pack_into("<iB", batch, 8, len(batch) - 12, source.randrange(3))
        with contextlib.suppress(ValueError):  # CorruptBatch is one; anything else fails the test
            exercise(bytes(batch), golden.R3_SCHEMA, golden.R3_TYPES)
