"""The one Arrow IPC RecordBatch message inside a log batch: reads and writes its flatbuffer metadata without a library.

Reading accepts the flatbuffers of any writer (Java, arrow-rs, Arrow C++). Writing produces the metadata of the Java
writer byte for byte: a constant prefix per codec, the buffers, four zero bytes, the nodes.

A flatbuffer table at T has its vtable at T - i32(T): u16 vtable size, u16 table size, then per field a u16 offset
from T, 0 if the field is absent. A vector field holds a u32 relative offset to {u32 count, elements}.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from fluss.codec.arrow.compression import CompressionKind
from fluss.codec.batches.log_batch import CorruptBatch
from fluss.codec.buffers import ReadableBuffer, byte_view

MESSAGE_PREFIX_BYTES = 8
NODE_BYTES = 16
BUFFER_BYTES = 16
CONTINUATION = 0xFFFFFFFF
_RECORD_BATCH_HEADER = 3

_PREFIX = Struct("<Ii")
_INT8 = Struct("<b")
_UINT16 = Struct("<H")
_INT32 = Struct("<i")
_UINT32 = Struct("<I")
_INT64 = Struct("<q")


class MessageMetadata(NamedTuple):
    """The metadata of a message and the positions of its parts, counted from the start of the metadata."""

    metadata: memoryview
    body_start: int  # counted from the start of the whole buffer
    body_length: int
    row_count: int
    compression: CompressionKind
    node_count: int
    nodes_position: int
    buffer_count: int
    buffers_position: int
    # Positions of these two numbers; 0 if one is absent, which means that its value is zero.
    row_count_position: int = 0
    body_length_position: int = 0

    def buffers(self) -> tuple[int, ...]:
        """The offset and the length of every buffer in turn; offsets count from the start of the body."""
        return Struct(f"<{2 * self.buffer_count}q").unpack_from(self.metadata, self.buffers_position)

    def nodes(self) -> tuple[int, ...]:
        """The length and the null count of every node in turn."""
        return Struct(f"<{2 * self.node_count}q").unpack_from(self.metadata, self.nodes_position)


def read_message(buffer: ReadableBuffer, position: int, end: int) -> MessageMetadata:
    """Read the metadata of the message at `position`; the whole message must lie before `end`."""
    view = byte_view(buffer)
    end = min(end, len(view))
    if end - position < MESSAGE_PREFIX_BYTES:
        raise CorruptBatch(f"no Arrow message at {position}: a prefix does not fit into {max(end - position, 0)} bytes")
    continuation, metadata_length = _PREFIX.unpack_from(view, position)
    body_start = position + MESSAGE_PREFIX_BYTES + metadata_length
    if continuation != CONTINUATION or metadata_length < 0 or body_start > end:
        raise CorruptBatch(f"no Arrow message at {position}: continuation {continuation:#x}, length {metadata_length}")
    metadata = view[position + MESSAGE_PREFIX_BYTES : body_start]
    try:
        message = _walk(metadata, body_start)
    except error as problem:
        raise CorruptBatch(f"broken metadata of the Arrow message at {position}: {problem}") from None
    if not 0 <= message.body_length <= end - body_start:
        raise CorruptBatch(f"Arrow body of {message.body_length} bytes at {body_start} does not end before {end}")
    return message


def _walk(metadata: memoryview, body_start: int) -> MessageMetadata:
    (root,) = _UINT32.unpack_from(metadata, 0)
    header_type = _field(metadata, root, 1)
    header = _field(metadata, root, 2)
    body_length = _field(metadata, root, 3)
    if not header_type or metadata[_checked(metadata, header_type)] != _RECORD_BATCH_HEADER or not header:
        raise CorruptBatch("the Arrow message is not a RecordBatch")
    batch = header + _UINT32.unpack_from(metadata, header)[0]
    row_count = _field(metadata, batch, 0)
    node_count, nodes_position = _vector(metadata, _field(metadata, batch, 1), NODE_BYTES)
    buffer_count, buffers_position = _vector(metadata, _field(metadata, batch, 2), BUFFER_BYTES)
    return MessageMetadata(
        metadata,
        body_start,
        _INT64.unpack_from(metadata, body_length)[0] if body_length else 0,
        _INT64.unpack_from(metadata, row_count)[0] if row_count else 0,
        _read_compression(metadata, _field(metadata, batch, 3)),
        node_count,
        nodes_position,
        buffer_count,
        buffers_position,
        row_count,
        body_length,
    )


def _field(metadata: memoryview, table: int, field_id: int) -> int:
    """The position of a field of a flatbuffer table, 0 if the field is absent."""
    vtable = table - _INT32.unpack_from(metadata, _checked(metadata, table))[0]
    slot = 4 + 2 * field_id
    if slot + 2 > _UINT16.unpack_from(metadata, _checked(metadata, vtable))[0]:
        return 0
    offset: int = _UINT16.unpack_from(metadata, vtable + slot)[0]
    return table + offset if offset else 0


def _checked(metadata: memoryview, position: int) -> int:
    # Python would count a negative position from the end, without an error.
    if not 0 <= position < len(metadata):
        raise CorruptBatch(f"flatbuffer offset {position} is outside of the {len(metadata)} bytes of Arrow metadata")
    return position


def _vector(metadata: memoryview, field: int, element_bytes: int) -> tuple[int, int]:
    if not field:
        return 0, 0
    start = field + _UINT32.unpack_from(metadata, field)[0]
    (count,) = _UINT32.unpack_from(metadata, start)
    if start + 4 + count * element_bytes > len(metadata):
        raise CorruptBatch(f"{count} elements of {element_bytes} bytes do not fit into the Arrow metadata")
    return count, start + 4


def _read_compression(metadata: memoryview, field: int) -> CompressionKind:
    if not field:
        return CompressionKind.NONE
    table = field + _UINT32.unpack_from(metadata, field)[0]
    codec, method = _field(metadata, table, 0), _field(metadata, table, 1)
    if method and _INT8.unpack_from(metadata, method)[0] != 0:
        raise CorruptBatch("the Arrow message uses an unknown compression method")
    number = _INT8.unpack_from(metadata, codec)[0] if codec else CompressionKind.LZ4_FRAME.value
    if number not in (0, 1):
        raise CorruptBatch(f"the Arrow message uses unknown compression codec {number}")
    return CompressionKind(number)


class _JavaForm(NamedTuple):
    prefix: bytes
    nodes_offset_position: int
    nodes_offset_base: int
    row_count_position: int


# The fields of a prefix that differ between messages are zero here; `MetadataWriter` fills them in.
_JAVA_FORMS = {
    CompressionKind.NONE: _JavaForm(
        bytes.fromhex(
            "14000000000000000c0016000e001500100004000c00000000000000000000000000040010000000"
            "00030a0018000c00080004000a0000001400000000000000000000000000000000000000"
        ),
        0x3C, 0x18, 0x40,
    ),
    CompressionKind.LZ4_FRAME: _JavaForm(
        bytes.fromhex(
            "14000000000000000c0018000e001700100004000c00000000000000000000000000040014000000"
            "000000030c001c0010000c00080004000c0000001c0000001c000000000000000000000000000000"
            "000000000400040004000000"
        ),
        0x44, 0x20, 0x48,
    ),
    CompressionKind.ZSTD: _JavaForm(
        bytes.fromhex(
            "14000000000000000c0018000e001700100004000c00000000000000000000000000040014000000"
            "000000030c001e0010000c00080004000c0000002000000024000000000000000000000000000000"
            "0000000000000600080007000600000000000001"
        ),
        0x44, 0x28, 0x48,
    ),
}  # fmt: skip
_BODY_LENGTH_POSITION = 0x18


class MetadataWriter:
    """Writes the prefix and the metadata of messages that have one codec and a fixed number of nodes and buffers.

    Immutable after construction, so that several threads can share a writer.
    """

    def __init__(self, compression: CompressionKind, node_count: int, buffer_count: int) -> None:
        form = _JAVA_FORMS[compression]
        start = MESSAGE_PREFIX_BYTES
        self._body_length_position = start + _BODY_LENGTH_POSITION
        self._row_count_position = start + form.row_count_position
        self._buffers_position = start + len(form.prefix) + 4
        self._buffers = Struct(f"<{2 * buffer_count}q")
        self._nodes_position = self._buffers_position + self._buffers.size + 8
        metadata_length = self._nodes_position + NODE_BYTES * node_count - start
        template = bytearray(start + metadata_length)
        _PREFIX.pack_into(template, 0, CONTINUATION, metadata_length)
        template[start : start + len(form.prefix)] = form.prefix
        _UINT32.pack_into(
            template, start + form.nodes_offset_position, BUFFER_BYTES * buffer_count + form.nodes_offset_base
        )
        _UINT32.pack_into(template, self._buffers_position - 4, buffer_count)
        _UINT32.pack_into(template, self._nodes_position - 4, node_count)
        self._template = bytes(template)
        self.size = len(template)

    def write(self, row_count: int, body_length: int, nodes: ReadableBuffer, buffers: list[int]) -> bytearray:
        """The bytes of a message before its body. `nodes` are encoded, `buffers` have offset and length in turn."""
        out = bytearray(self._template)
        _INT64.pack_into(out, self._body_length_position, body_length)
        _INT64.pack_into(out, self._row_count_position, row_count)
        self._buffers.pack_into(out, self._buffers_position, *buffers)
        out[self._nodes_position :] = nodes
        return out
