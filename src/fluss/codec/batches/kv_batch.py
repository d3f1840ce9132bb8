"""Key-value batches: the payload of PUT_KV for one bucket.

    length 4 | magic 1 | crc 4 | schema id 2 | attributes 1 | writer id 8 | batch sequence 4 | record count 4 = 28 bytes
    then per record: length 4 | key length varint | key | row, or nothing for a delete

`length` counts the bytes after it; the checksum covers everything from the schema id on. Bytes after the batch are
ignored. Rows have all columns of the table; the request states which of them are to be written.

A decoded batch holds keys and values; values have the form in which the store keeps them (schema id and row, see
`kv_values`). They are cut out of the batch with array operations if there are at least `COLUMN_WISE_MIN_ROWS` records,
and otherwise by a loop. Both ways give the same result, which can be read as lists or as arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa

from fluss.codec.batches.kv_values import SCHEMA_ID_BYTES, schema_id_prefix
from fluss.codec.batches.log_batch import NO_BATCH_SEQUENCE, NO_WRITER_ID, CorruptBatch, UnknownMagic
from fluss.codec.batches.record_bounds import LENGTH_BYTES, record_bounds
from fluss.codec.buffers import ReadableBuffer, byte_view
from fluss.codec.crc import crc32c, crc32c_of_pieces
from fluss.codec.rows.column_buffers import (
    PaddedSource,
    any_null,
    binary_parts,
    fixed_size,
    gather,
    join,
    sizes_of,
    varints,
)
from fluss.codec.rows.columns import COLUMN_WISE_MIN_ROWS
from fluss.codec.rows.values import CorruptRowError
from fluss.codec.rows.varint import MAX_VARINT32_BYTES, read_length, read_varint_column, write_varint32

KV_MAGIC = 0
KV_HEADER_BYTES = 28
MAX_KV_BATCH_BYTES = 2**31 - 1
# One byte for the length of the key, and one for the key, which is not empty: stores use the empty key for their notes.
MIN_RECORD_BYTES = 2
_HEADER = Struct("<ibIhbqii")
_FRONT = Struct("<ibI")
_COVERED = Struct("<hbqii")
_LENGTH = Struct("<i")
_CRC_START = 9


class KvHeader(NamedTuple):
    """The fixed fields of a batch; `size` counts all bytes of the batch, header included."""

    size: int
    magic: int
    crc: int
    schema_id: int
    attributes: int
    writer_id: int
    batch_sequence: int
    record_count: int


class KvRecords:
    """The records of a batch in order: their keys, and their values, which are None (null) for deletes."""

    __slots__ = ("_key_array", "_key_list", "_value_array", "_value_list", "header")

    def __init__(self, header: KvHeader, keys: pa.Array | list[bytes], values: pa.Array | list[bytes | None]) -> None:
        """`keys` and `values` are either both lists or both binary arrays."""
        self.header = header
        self._key_list: list[bytes] | None = None
        self._value_list: list[bytes | None] | None = None
        self._key_array: pa.Array | None = None
        self._value_array: pa.Array | None = None
        if isinstance(keys, list):
            self._key_list, self._value_list = keys, cast("list[bytes | None]", values)
        else:
            self._key_array, self._value_array = keys, cast("pa.Array", values)

    def __len__(self) -> int:
        return self.header.record_count

    @property
    def key_list(self) -> list[bytes]:
        """The keys as bytes objects."""
        if self._key_list is None:
            assert self._key_array is not None
            self._key_list = self._key_array.to_pylist()
        return self._key_list

    @property
    def value_list(self) -> list[bytes | None]:
        """The value of each record, a schema id and a row; None for a delete."""
        if self._value_list is None:
            assert self._value_array is not None
            self._value_list = self._value_array.to_pylist()
        return self._value_list

    @property
    def keys(self) -> pa.Array:
        """The keys as a binary array."""
        if self._key_array is None:
            self._key_array = pa.array(self._key_list, pa.binary())
        return self._key_array

    @property
    def values(self) -> pa.Array:
        """The values as a binary array, each a schema id and a row; null for a delete."""
        if self._value_array is None:
            self._value_array = pa.array(self._value_list, pa.binary())
        return self._value_array


def read_kv_header(buffer: ReadableBuffer) -> KvHeader:
    """The header at the front of `buffer`; CorruptBatch if the buffer does not have the whole batch."""
    available = len(buffer)
    if available < KV_HEADER_BYTES:
        raise CorruptBatch(f"a key-value batch needs {KV_HEADER_BYTES} bytes, got {available}")
    length, *rest = _HEADER.unpack_from(buffer)
    header = KvHeader(length + LENGTH_BYTES, *rest)
    if header.magic != KV_MAGIC:
        raise UnknownMagic(f"unknown key-value batch magic {header.magic}")
    if not KV_HEADER_BYTES <= header.size <= available:
        raise CorruptBatch(f"a key-value batch of {header.size} bytes is cut off after {available} bytes")
    if header.record_count < 0:
        raise CorruptBatch(f"a key-value batch has the invalid record count {header.record_count}")
    return header


class EmptyKeyError(CorruptBatch):
    """Raised for a record with an empty key, which stores reserve for their own notes."""


def check_kv_crc(buffer: ReadableBuffer, header: KvHeader) -> bool:
    """True if the checksum in `header` matches the bytes of the batch."""
    return crc32c(buffer, _CRC_START, header.size) == header.crc


def decode_kv_batch(buffer: ReadableBuffer, *, header: KvHeader | None = None) -> KvRecords:
    """The records of the batch at the front of `buffer`, copied out of it; CorruptBatch if they are invalid.

    The checksum is not checked, and rows are not decoded.
    """
    if header is None:
        header = read_kv_header(buffer)
    if header.schema_id < 0:
        raise CorruptBatch(f"a key-value batch has the invalid schema id {header.schema_id}")
    try:
        return _decode(byte_view(buffer)[KV_HEADER_BYTES : header.size], header)
    except CorruptRowError as error:
        raise CorruptBatch(f"key-value batch: {error}") from None


def decode_kv_parts(buffer: ReadableBuffer, header: KvHeader, max_records: int) -> Iterator[KvRecords]:
    """Decode a batch in parts of at most `max_records` records. The header of a part has the part's record count."""
    if header.schema_id < 0:
        raise CorruptBatch(f"a key-value batch has the invalid schema id {header.schema_id}")
    body = byte_view(buffer)[KV_HEADER_BYTES : header.size]
    first = 0
    try:
        starts, ends = record_bounds(body, header.record_count, MIN_RECORD_BYTES)
        for first in range(0, header.record_count, max_records):
            end = min(first + max_records, header.record_count)
            part = body[int(starts[first]) - LENGTH_BYTES : int(ends[end - 1])]
            yield _decode(part, header._replace(record_count=end - first))
    except CorruptRowError as error:
        raise CorruptBatch(f"key-value batch, records from {first} on: {error}") from None


def _decode(body: memoryview, header: KvHeader) -> KvRecords:
    if header.record_count < COLUMN_WISE_MIN_ROWS:
        return _decode_one_by_one(body, header)
    return _decode_columns(body, header)


def _decode_one_by_one(body: memoryview, header: KvHeader) -> KvRecords:
    prefix = schema_id_prefix(header.schema_id)
    keys: list[bytes] = []
    values: list[bytes | None] = []
    position, end, unpack_from = 0, len(body), _LENGTH.unpack_from
    for index in range(header.record_count):
        if end - position < LENGTH_BYTES:
            raise CorruptRowError(f"record {index} of {header.record_count} has no length at byte {position}")
        (length,) = unpack_from(body, position)
        position += LENGTH_BYTES
        if not MIN_RECORD_BYTES <= length <= end - position:
            raise CorruptRowError(f"record {index} of {header.record_count} has bad length {length} at byte {position}")
        record = body[position : position + length]
        key_length, key_start = read_length(record, 0)
        if not key_length:
            raise EmptyKeyError(f"the key of record {index} is empty")
        row_start = key_start + key_length
        keys.append(bytes(record[key_start:row_start]))
        values.append(prefix + bytes(record[row_start:]) if row_start < length else None)
        position += length
    if position != end:
        raise CorruptRowError(f"{end - position} bytes are left over after {header.record_count} records")
    return KvRecords(header, keys, values)


def _decode_columns(body: memoryview, header: KvHeader) -> KvRecords:
    starts, ends = record_bounds(body, header.record_count, MIN_RECORD_BYTES)
    source = PaddedSource(body)
    numbers, sizes = read_varint_column(source.data, source.words, starts, None, MAX_VARINT32_BYTES)
    key_starts = starts + sizes
    key_lengths = numbers.astype(np.uint32).astype(np.int64)
    row_starts = key_starts + key_lengths
    wrong = (key_lengths == 0) | (row_starts > ends)
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        if not key_lengths[index]:
            raise EmptyKeyError(f"the key of record {index} is empty")
        raise CorruptRowError(f"the key of record {index} has {int(key_lengths[index])} bytes")
    keys = gather(source, key_starts, key_lengths)
    # The keys are extracted, so the two bytes in front of each row (the end of its key) can take the schema id: the
    # value is then one slice. A key has at least one byte and a length of at least one, so both belong to one record.
    deletes = any_null(row_starts == ends)
    low, high = schema_id_prefix(header.schema_id)
    source.data[row_starts - 2] = low
    source.data[row_starts - 1] = high
    value_sizes = ends - row_starts + SCHEMA_ID_BYTES
    if deletes is not None:
        value_sizes[deletes] = 0
    return KvRecords(header, keys, gather(source, row_starts - SCHEMA_ID_BYTES, value_sizes, deletes))


def encode_kv_batch(
    keys: pa.Array | Sequence[bytes],
    rows: pa.Array | Sequence[bytes | None],
    schema_id: int,
    *,
    writer_id: int = NO_WRITER_ID,
    batch_sequence: int = NO_BATCH_SEQUENCE,
) -> bytes:
    """Encode a batch of records from their keys and rows (without schema id); the row of a delete is None or null.

    Keys and rows are either both sequences of bytes or both binary arrays.
    """
    count = len(keys)
    if len(rows) != count:
        raise ValueError(f"each key needs one row, got {count} keys and {len(rows)} rows")
    if isinstance(keys, pa.Array):
        records: memoryview | bytearray = _join_records(keys, cast("pa.Array", rows))
    else:
        records = _pack_records(keys, cast("Sequence[bytes | None]", rows))
    schema_id_prefix(schema_id)
    covered = _COVERED.pack(schema_id, 0, writer_id, batch_sequence, count)
    size = KV_HEADER_BYTES + len(records)
    if size > MAX_KV_BATCH_BYTES:
        raise ValueError(f"a batch holds at most {MAX_KV_BATCH_BYTES} bytes, but this one would have {size}; split it")
    front = _FRONT.pack(size - LENGTH_BYTES, KV_MAGIC, crc32c_of_pieces((covered, records)))
    return b"".join((front, covered, records))


def numbered_kv_batch(data: bytes, writer_id: int, batch_sequence: int) -> list[bytes | memoryview]:
    """A copy of a batch with this writer id and sequence: a new header, and the records of `data` as a view."""
    header = read_kv_header(data)
    covered = _COVERED.pack(header.schema_id, header.attributes, writer_id, batch_sequence, header.record_count)
    records = memoryview(data)[KV_HEADER_BYTES : header.size]
    front = _FRONT.pack(header.size - LENGTH_BYTES, header.magic, crc32c_of_pieces((covered, records)))
    return [front + covered, records]


def _pack_records(keys: Sequence[bytes], rows: Sequence[bytes | None]) -> bytearray:
    records = bytearray()
    for key, row in zip(keys, rows, strict=True):
        start = len(records)
        records += b"\0\0\0\0"
        write_varint32(len(key), records)
        records += key
        if row is not None:
            records += row
        _LENGTH.pack_into(records, start, len(records) - start - LENGTH_BYTES)
    return records


def _join_records(keys: pa.Array, rows: pa.Array) -> memoryview:
    if not len(keys):
        return memoryview(b"")
    key_sizes, row_sizes = sizes_of(keys), sizes_of(rows)
    key_lengths = varints(key_sizes.astype(np.uint64), None)
    lengths = (sizes_of(key_lengths) + key_sizes + row_sizes).astype(np.int32)
    data, offsets = binary_parts(join([fixed_size(lengths), key_lengths, keys, rows], len(keys)))
    return memoryview(data)[int(offsets[0]) : int(offsets[-1])]
