"""Value batches: the form in which LIMIT_SCAN and SCAN_KV answers carry the rows of primary-key tables.

    length 4 (of what follows) | magic 1 | record count 4 | per record: length 4 | value (schema id and row)

No keys, no checksum. An empty batch is nine bytes.

>>> encode_value_batch([]).hex()
'050000000000000000'
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING

from fluss.codec.batches.kv_values import SCHEMA_ID_BYTES
from fluss.codec.batches.log_batch import CorruptBatch, UnknownMagic
from fluss.codec.batches.record_bounds import LENGTH_BYTES, record_bounds
from fluss.codec.buffers import ReadableBuffer, byte_view
from fluss.codec.rows.column_buffers import PaddedSource, gather
from fluss.codec.rows.values import CorruptRowError

if TYPE_CHECKING:
    import pyarrow as pa

VALUE_BATCH_HEADER_BYTES = 9
VALUE_BATCH_MAGIC = 0
MAX_VALUE_BATCH_BYTES = 2**31 - 1
_HEADER = Struct("<ibi")
_LENGTH = Struct("<i")
# Looking up the encoded length in this list is several times as fast as packing it.
_USUAL_LENGTHS = [_LENGTH.pack(length) for length in range(1024)]


def value_record_bytes(value: bytes) -> int:
    """The number of bytes that a value takes in a batch."""
    return LENGTH_BYTES + len(value)


def encode_value_batch(values: Sequence[bytes]) -> bytes:
    """Encode values as a batch."""
    sizes = list(map(len, values))
    size = VALUE_BATCH_HEADER_BYTES + LENGTH_BYTES * len(sizes) + sum(sizes)
    if size > MAX_VALUE_BATCH_BYTES:
        raise ValueError(f"a value batch holds at most {MAX_VALUE_BATCH_BYTES} bytes, but this one would have {size}")
    is_usual = max(sizes, default=0) < len(_USUAL_LENGTHS)
    lengths = map(_USUAL_LENGTHS.__getitem__ if is_usual else _LENGTH.pack, sizes)
    header = _HEADER.pack(size - LENGTH_BYTES, VALUE_BATCH_MAGIC, len(sizes))
    return b"".join((header, *chain.from_iterable(zip(lengths, values, strict=True))))


def decode_value_batch(buffer: ReadableBuffer) -> pa.Array:
    """The values of the batch at the front of `buffer` as a binary array; see `kv_values.ValueReader` for the rows."""
    view = byte_view(buffer)
    if len(view) < VALUE_BATCH_HEADER_BYTES:
        raise CorruptBatch(f"a value batch needs {VALUE_BATCH_HEADER_BYTES} bytes, got {len(view)}")
    length, magic, count = _HEADER.unpack_from(view)
    if magic != VALUE_BATCH_MAGIC:
        raise UnknownMagic(f"unknown value batch magic {magic}")
    size = length + LENGTH_BYTES
    if not VALUE_BATCH_HEADER_BYTES <= size <= len(view):
        raise CorruptBatch(f"a value batch of {size} bytes is cut off after {len(view)} bytes")
    body = view[VALUE_BATCH_HEADER_BYTES:size]
    try:
        starts, ends = record_bounds(body, count, SCHEMA_ID_BYTES)
        return gather(PaddedSource(body), starts, ends - starts)
    except CorruptRowError as error:
        raise CorruptBatch(f"value batch: {error}") from None
