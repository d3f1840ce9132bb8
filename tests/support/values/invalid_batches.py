"""Arrow batches with values that their columns cannot hold, as another client might send them."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from fluss.codec.arrow.compression import NO_COMPRESSION, Compression, CompressionKind
from fluss.codec.arrow.types import from_arrow_schema
from fluss.codec.batches.arrow_batch import encode_arrow_batch
from fluss.codec.batches.row_log_batch import encode_row_batch
from fluss.codec.rows.columns import RowFormat

SCHEMA = pa.schema(
    [("id", pa.int32()), ("at", pa.time32("ms")), ("name", pa.string()), ("price", pa.decimal128(10, 2))]
)
DAY_MS = 86_400_000


def raw_column(arrow_type: pa.DataType, *buffers: bytes) -> pa.Array:
    """A column of one row, made of its buffers: its value is not checked."""
    return pa.Array.from_buffers(arrow_type, 1, [None, *map(pa.py_buffer, buffers)])


BAD_COLUMNS: Mapping[str, pa.Array] = {
    "at": raw_column(SCHEMA.field("at").type, struct.pack("<i", DAY_MS)),
    "name": raw_column(SCHEMA.field("name").type, struct.pack("<ii", 0, 2), b"\xff\xfe"),
    "price": raw_column(SCHEMA.field("price").type, struct.pack("<qq", 10**10, 0)),
}
"""For each column that can have one, a bad value."""


def rows(ids: list[int], bad: str | None = None) -> pa.RecordBatch:
    """Good rows, and a bad value in the column `bad` of the last one."""
    good = [
        pa.array(ids, pa.int32()),
        pa.array([number * 1_000 for number in ids], pa.time32("ms")),
        pa.array([f"name {number}" for number in ids]),
        pa.array([decimal.Decimal(number) for number in ids], SCHEMA.field("price").type),
    ]
    if bad is not None:
        index = SCHEMA.get_field_index(bad)
        good[index] = pa.concat_arrays([good[index][:-1], BAD_COLUMNS[bad]])
    return pa.RecordBatch.from_arrays(good, schema=SCHEMA)


def batch(ids: list[int], bad: str | None = None, **options: Any) -> bytes:
    """The same as a batch of a log."""
    return encode_arrow_batch(rows(ids, bad), 1, options.pop("compression", NO_COMPRESSION), **options)


def batch_stored_as(form: str, ids: list[int], bad: str | None = None) -> bytes:
    """A batch of a log with this compression of Arrow batches, or with these rows (of them only `name` can be bad)."""
    if form not in RowFormat.__members__:
        return batch(ids, bad, compression=Compression(CompressionKind[form]))
    # Bytes are stored like strings, but need not be UTF-8.
    schema = SCHEMA.set(2, pa.field("name", pa.binary()))
    columns = rows(ids).columns
    names = [f"name {number}".encode() for number in ids]
    columns[2] = pa.array(names if bad is None else [*names[:-1], b"\xff\xfe"])
    batch_of_bytes = pa.RecordBatch.from_arrays(columns, schema=schema)
    return encode_row_batch(batch_of_bytes, from_arrow_schema(schema), RowFormat[form], 1)
