"""Encodes Arrow record batches as log batches, and decodes them.

Writing: Arrow C++ lays out the uncompressed message. For compressed tables its buffers are compressed one by one and
get metadata in Java's form, because Java cannot read Arrow's own LZ4 frames (see `arrow/compression.py`).
Reading: anything in a hostile message that could make Arrow read outside of the bytes, or allocate without bound, is
checked before Arrow sees it, and the arrays are validated afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, pack_into
from typing import NamedTuple

import pyarrow as pa

from fluss.codec.arrow.compression import (
    LENGTH_PREFIX_BYTES,
    RAW_BUFFER_LENGTH,
    BufferCompressor,
    Compression,
    CompressionKind,
)
from fluss.codec.arrow.types import WireLayout, schema_wire_layout
from fluss.codec.batches.arrow_message import NODE_BYTES, MessageMetadata, MetadataWriter, read_message
from fluss.codec.batches.log_batch import (
    MAGIC_V0,
    MAGIC_V1,
    NO_BATCH_SEQUENCE,
    NO_WRITER_ID,
    BatchHeader,
    CorruptBatch,
    check_change_types,
    encode_batch,
    read_header,
)
from fluss.codec.batches.statistics import encode_statistics
from fluss.codec.buffers import ReadableBuffer, byte_view

# Offsets of int32 limit the size of a buffer, and no real batch comes near this size.
MAX_UNCOMPRESSED_BATCH_BYTES = 2**31
# The largest possible ratio of uncompressed to compressed bytes: LZ4 reaches 255, and a zstd block of 128 KiB takes at
# least 4 bytes.
_MAX_EXPANSION = {CompressionKind.LZ4_FRAME: 256, CompressionKind.ZSTD: 32 * 1024}
# Arrow decompresses the columns of a message on several threads. For a small message, waking them takes longer than the
# work (145 us instead of 20 for one row), and 20 % more CPU for one of 200 KB; decoders run in parallel anyway.
MIN_THREADED_MESSAGE_BYTES = 256 * 1024
MAX_REMEMBERED_SCHEMAS = 256
_ONE_THREAD = pa.ipc.IpcReadOptions(use_threads=False)
_ALIGNMENT_BYTES = 8
_PADDING = bytes(_ALIGNMENT_BYTES)
_INT64 = Struct("<q")


def encode_arrow_batch(
    batch: pa.RecordBatch,
    schema_id: int,
    compression: Compression,
    *,
    writer_id: int = NO_WRITER_ID,
    batch_sequence: int = NO_BATCH_SEQUENCE,
    change_types: bytes | None = None,
    statistics_columns: Sequence[int] | None = None,
    magic: int | None = None,
) -> bytes:
    """A log batch with the rows of `batch`. Its Arrow types must be those of the table (`to_arrow_schema`).

    `change_types` (one byte per row) makes it a changelog batch. `statistics_columns` are positions; they make it a
    V1 batch. A batch without rows is only a header.
    """
    if magic is None:
        magic = MAGIC_V1 if statistics_columns else MAGIC_V0
    body: list[bytes | memoryview] = []
    statistics = b""
    if change_types is not None:
        check_change_types(change_types, batch.num_rows)
    if batch.num_rows:
        if change_types is not None:
            body.append(change_types)
        body += encode_message(batch, compression)
        if statistics_columns:
            statistics = encode_statistics(batch, statistics_columns)
    return encode_batch(
        body, batch.num_rows, schema_id, append_only=change_types is None, writer_id=writer_id,
        batch_sequence=batch_sequence, statistics=statistics, magic=magic,
    )  # fmt: skip


def encode_message(batch: pa.RecordBatch, compression: Compression) -> list[bytes | memoryview]:
    """Encode `batch` as an Arrow message, returned as a list of byte strings."""
    schema_wire_layout(batch.schema)  # refuses types that no reader could decode
    plain = memoryview(batch.serialize())
    if compression.kind is CompressionKind.NONE:
        return [plain]
    message = read_message(plain, 0, len(plain))
    compressor = BufferCompressor(compression)
    buffers: list[int] = []
    body: list[bytes | memoryview] = []
    filled = 0
    table = message.buffers()
    for offset, length in zip(table[::2], table[1::2], strict=True):
        stored = 0
        if length:
            start = message.body_start + offset
            pieces = compressor.compress(plain[start : start + length])
            stored = sum(map(len, pieces))
            body += pieces
            padding = -stored % _ALIGNMENT_BYTES
            if padding:
                body.append(_PADDING[:padding])
        buffers += (filled, stored)
        filled += stored + -stored % _ALIGNMENT_BYTES
    writer = MetadataWriter(compression.kind, message.node_count, message.buffer_count)
    nodes = message.metadata[message.nodes_position :][: NODE_BYTES * message.node_count]
    return [memoryview(writer.write(message.row_count, filled, nodes, buffers)), *body]


def decode_arrow_batch(
    buffer: ReadableBuffer,
    arrow_schema: pa.Schema,
    position: int = 0,
    *,
    header: BatchHeader | None = None,
    validate: bool = True,
) -> tuple[pa.RecordBatch | None, bytes | None]:
    """The rows and change types of the batch at `position`.

    The rows are None if the batch is empty, the change types are None if it has only appends.

    `arrow_schema` is that of the batch's schema id (of the projected columns for a projected batch). The checksum is
    not checked: projected batches have no valid one. Columns of an uncompressed batch may be views of `buffer`, which
    must not change then. If `validate` is False, the caller must check the values before it uses them.
    """
    if header is None:
        header = read_header(buffer, position)
    view = byte_view(buffer)
    end = position + header.size
    if end > len(view):
        raise CorruptBatch(f"batch at {position} ends at {end}, but the buffer has only {len(view)} bytes")
    start = position + header.records_start
    change_types = None
    if not header.append_only:
        change_types = bytes(view[start : min(start + header.record_count, end)])
        check_change_types(change_types, header.record_count)
        start += header.record_count
    if header.record_count == 0:
        return None, change_types
    return decode_message(view, start, end, arrow_schema, header.record_count, validate=validate), change_types


class _SchemaFacts(NamedTuple):
    schema: pa.Schema  # holding it keeps its `id()` from being reused
    layout: WireLayout
    stream_start: bytes


_facts_by_id: dict[int, _SchemaFacts] = {}


def _facts(arrow_schema: pa.Schema) -> _SchemaFacts:
    """The cached layout and flags of a schema. Scanners use one schema object for many messages."""
    facts = _facts_by_id.get(id(arrow_schema))
    if facts is None:
        if len(_facts_by_id) >= MAX_REMEMBERED_SCHEMAS:
            _facts_by_id.clear()
        facts = _SchemaFacts(arrow_schema, schema_wire_layout(arrow_schema), bytes(arrow_schema.serialize()))
        _facts_by_id[id(arrow_schema)] = facts
    return facts


def decode_message(
    view: memoryview, start: int, end: int, arrow_schema: pa.Schema, record_count: int, *, validate: bool = True
) -> pa.RecordBatch:
    """The rows of the Arrow message at `start`."""
    facts = _facts(arrow_schema)
    message = read_message(view, start, end)
    empty_buffers = _check_message(message, view, facts.layout, record_count)
    stored: memoryview | bytes | bytearray = view[start : message.body_start + message.body_length]
    if empty_buffers:
        stored = _without_empty_buffers(view[start : message.body_start + message.body_length], message, empty_buffers)
    try:
        if message.compression is CompressionKind.NONE or len(stored) >= MIN_THREADED_MESSAGE_BYTES:
            source = pa.py_buffer(stored)
            if source.address % _ALIGNMENT_BYTES and message.compression is CompressionKind.NONE:
                # After change types, or inside a frame, the message may start at any address. It is copied to an
                # aligned one, because other libraries require aligned columns.
                source = pa.py_buffer(bytes(stored))
            rows = pa.ipc.read_record_batch(source, arrow_schema)
        else:
            stream = pa.ipc.open_stream(b"".join((facts.stream_start, stored)), options=_ONE_THREAD)
            rows = stream.read_next_batch()
        if validate:
            rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, StopIteration) as problem:
        raise CorruptBatch(f"Arrow message at {start} cannot be read: {problem}") from None
    return rows


def _check_message(message: MessageMetadata, view: memoryview, layout: WireLayout, record_count: int) -> list[int]:
    """Make the checks that Arrow does not make. Return the buffers that consist only of a length prefix of zero."""
    if (message.node_count, message.buffer_count) != layout:
        raise CorruptBatch(
            f"the message has {message.node_count} nodes and {message.buffer_count} buffers, "
            f"but its schema requires {layout.nodes} and {layout.buffers}"
        )
    if message.row_count != record_count:
        raise CorruptBatch(f"the message has {message.row_count} rows, but the header of its batch has {record_count}")
    nodes = message.nodes()
    if any(not 0 <= null_count <= length for length, null_count in zip(nodes[::2], nodes[1::2], strict=True)):
        raise CorruptBatch("a column has more nulls than rows, or a negative number of them")
    table = message.buffers()
    for offset, length in zip(table[::2], table[1::2], strict=True):
        if offset < 0 or length < 0 or offset + length > message.body_length:
            raise CorruptBatch(f"buffer of {length} bytes at {offset} is outside of the body of {message.body_length}")
    if message.compression is CompressionKind.NONE:
        return []
    return _check_compressed_buffers(message, view, table)


def _check_compressed_buffers(message: MessageMetadata, view: memoryview, table: tuple[int, ...]) -> list[int]:
    empty: list[int] = []
    total = 0
    expansion = _MAX_EXPANSION[message.compression]
    for index in range(0, len(table), 2):
        length = table[index + 1]
        if not length:
            continue
        if length < LENGTH_PREFIX_BYTES:
            raise CorruptBatch(f"compressed buffer of {length} bytes is too short for its length prefix")
        (raw_length,) = _INT64.unpack_from(view, message.body_start + table[index])
        if raw_length == RAW_BUFFER_LENGTH:
            continue
        if not 0 <= raw_length <= length * expansion:
            raise CorruptBatch(f"compressed buffer of {length} bytes claims to hold {raw_length} uncompressed bytes")
        total += raw_length
        if not raw_length and length == LENGTH_PREFIX_BYTES:
            empty.append(index // 2)
    if total > MAX_UNCOMPRESSED_BATCH_BYTES:
        limit = MAX_UNCOMPRESSED_BATCH_BYTES
        raise CorruptBatch(f"a batch may have at most {limit} uncompressed bytes, but this one has {total}")
    return empty


def _without_empty_buffers(stored: memoryview, message: MessageMetadata, empty_buffers: list[int]) -> bytearray:
    """A copy of the message where empty buffers have length 0.

    Java stores an empty compressed buffer as a length prefix of zero. Arrow's LZ4 reader treats that as a broken frame.
    """
    copy = bytearray(stored)
    metadata_start = len(stored) - message.body_length - len(message.metadata)
    for index in empty_buffers:
        pack_into("<q", copy, metadata_start + message.buffers_position + 16 * index + 8, 0)
    return copy
