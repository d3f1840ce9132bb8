"""Batches for our Java classes, which decode the servers' Arrow messages themselves.

Python treats such a message as one value, and neither decompresses nor reads it. It travels in an extra last column, as
the only row of a batch; in batches that Python decoded this column is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

import pyarrow as pa

from fluss.client.engine.rows import StoredBatch
from fluss.codec.arrow.types import to_arrow_schema
from fluss.model.schema import Schema
from fluss.spark.convert.arrow import for_spark

_VARIABLE = (pa.types.is_string, pa.types.is_binary)
_FIXED = (
    pa.types.is_boolean,
    pa.types.is_int8,
    pa.types.is_int16,
    pa.types.is_int32,
    pa.types.is_int64,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_date32,
    pa.types.is_decimal128,
)
_NOTHING = pa.py_buffer(bytes(16))
_BOUNDS = Struct("<2i")


def has_same_memory(schema: Schema, positions: Sequence[int], target: pa.Schema) -> bool:
    """True if our Java classes can use the memory of these columns of the table as the columns of `target`.

    Nested columns are left to Arrow, and so are columns that Spark has in another unit.
    """
    stored = to_arrow_schema(Schema(tuple(schema.columns[position] for position in positions)))
    if stored.names != target.names:
        return False
    return all(_is_readable(own.type, wanted.type) for own, wanted in zip(stored, target, strict=True))


def _is_readable(stored: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(wanted):
        return bool(stored.unit == wanted.unit == "us")  # zones are only labels
    return stored.equals(wanted) and any(is_kind(stored) for is_kind in (*_VARIABLE, *_FIXED))


def with_stored(batches: Iterable[pa.RecordBatch], target: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    """Convert batches for Spark: the columns of `target`, or a message in the column `name`."""
    schema = target.append(pa.field(name, pa.binary()))
    fillers: list[pa.Array] | None = None
    for batch in batches:
        if isinstance(batch, StoredBatch):
            fillers = fillers or [_filler(field.type) for field in target]
            arrays = [*fillers, _one_value(batch.message)]
        else:
            arrays = [*for_spark(batch, target).columns, pa.nulls(batch.num_rows, pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _filler(data_type: pa.DataType) -> pa.Array:
    """An array of one value that is not null, for a column that is never read."""
    buffers = [None, _NOTHING, _NOTHING] if any(is_kind(data_type) for is_kind in _VARIABLE) else [None, _NOTHING]
    return pa.Array.from_buffers(data_type, 1, buffers)


def _one_value(message: memoryview) -> pa.Array:
    """An array with the message as its only value, without a copy."""
    bounds = pa.py_buffer(_BOUNDS.pack(0, len(message)))
    return pa.Array.from_buffers(pa.binary(), 1, [None, bounds, pa.py_buffer(message)])
