"""ALIGNED rows: the format of Paimon keys, and of the rows of bounds in the statistics of a batch.

Layout: header byte 0 and null bits in words of eight bytes (the bit of column i is bit i + 8), one slot of eight
bytes per column, then the variable part. Statistics have nulls in NOT NULL columns (a column without any value has no
minimum), so nullability is not checked here.


>>> from fluss.model.types import IntType, StringType
>>> encode_aligned_row([7, "hello world"], [IntType(), StringType()])[8:24].hex(" ", 8)
'0700000000000000 0b00000018000000'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluss.codec.rows.array_block import SLOT_BYTES, SlotReader, SlotWriter
from fluss.codec.rows.values import CorruptRowError, RowValueError
from fluss.model.types import DataType

HEADER_BITS = 8


def aligned_header_bytes(column_count: int) -> int:
    """The number of bytes before the first slot: the header byte and the null bits."""
    return (column_count + HEADER_BITS + 63) // 64 * 8


def encode_aligned_row(values: Sequence[object], types: Sequence[DataType]) -> bytes:
    """Encode an ALIGNED row from logical values (`codec.rows.values`), where None is null."""
    if len(values) != len(types):
        raise RowValueError(f"the row has {len(types)} columns, got {len(values)} values")
    header = aligned_header_bytes(len(types))
    fixed = bytearray(header + SLOT_BYTES * len(types))
    writer = SlotWriter(len(fixed), encode_aligned_row)
    for index, (value, data_type) in enumerate(zip(values, types, strict=True)):
        if value is None:
            bit = index + HEADER_BITS
            fixed[bit >> 3] |= 1 << (bit & 7)
            continue
        slot = writer.slot(value, data_type)
        position = header + SLOT_BYTES * index
        fixed[position : position + len(slot)] = slot
    return bytes(fixed + writer.variable)


def decode_aligned_row(buffer: bytes | bytearray | memoryview, types: Sequence[DataType]) -> list[object]:
    """Decode an ALIGNED row to logical values (`codec.rows.values`); CorruptRowError if the bytes are invalid."""
    block = memoryview(buffer).cast("B")
    header = aligned_header_bytes(len(types))
    if len(block) < header + SLOT_BYTES * len(types):
        raise CorruptRowError(f"{len(block)} bytes are too few for an ALIGNED row of {len(types)} columns")
    reader = SlotReader(block, decode_aligned_row)
    values: list[Any] = []
    for index, data_type in enumerate(types):
        bit = index + HEADER_BITS
        is_null = block[bit >> 3] >> (bit & 7) & 1
        values.append(None if is_null else reader.value(header + SLOT_BYTES * index, data_type))
    return values
