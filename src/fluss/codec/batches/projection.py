"""Cuts columns out of stored Arrow batches without decoding or decompressing them.

The buffers of adjacent columns are adjacent in the body, so a projected batch is new metadata followed by a few byte
ranges of the stored body. A Projector has the plan for one (schema, columns) pair. It is immutable and may be used by
any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from struct import Struct

from fluss.codec.arrow.compression import Compression, CompressionKind
from fluss.codec.arrow.types import WireLayout, to_arrow_type, wire_layout
from fluss.codec.batches.arrow_message import BUFFER_BYTES, NODE_BYTES, MessageMetadata, MetadataWriter, read_message
from fluss.codec.batches.log_batch import LENGTH_PREFIX_BYTES, MAGIC_V0, BatchHeader, CorruptBatch
from fluss.codec.buffers import ReadableBuffer, byte_view
from fluss.model.types import DataType

BytesLike = bytes | bytearray | memoryview

_INT32 = Struct("<i")
_LENGTH_POSITION = 8


class _Run:
    """Adjacent selected columns: the ranges of nodes and buffers that belong to them."""

    __slots__ = ("buffer_bytes_start", "first_buffer", "node_bytes", "table")

    def __init__(self, first: WireLayout, past: WireLayout, is_last: bool) -> None:
        self.node_bytes = slice(first.nodes * NODE_BYTES, past.nodes * NODE_BYTES)
        self.buffer_bytes_start = first.buffers * BUFFER_BYTES
        self.first_buffer = first.buffers
        # The offsets and lengths of the run's buffers and, unless the run ends the message, the offset of the next one.
        count = 2 * (past.buffers - first.buffers) + (0 if is_last else 1)
        self.table = Struct(f"<{count}q")


class Projector:
    """Projects batches of one schema to `fields`: ascending, distinct positions of top-level columns."""

    def __init__(self, data_types: Sequence[DataType], fields: Sequence[int], compression: Compression) -> None:
        if not fields:
            raise ValueError("a projection must have at least one column, got none")
        if any(left >= right for left, right in pairwise(fields)):
            raise ValueError(f"projected columns must be distinct and in ascending order, got {list(fields)}")
        if fields[0] < 0 or fields[-1] >= len(data_types):
            raise ValueError(f"projected columns must be from 0 to {len(data_types) - 1}, got {list(fields)}")
        layouts = [wire_layout(to_arrow_type(data_type)) for data_type in data_types]
        starts = [WireLayout(0, 0)]
        for layout in layouts:
            starts.append(WireLayout(starts[-1].nodes + layout.nodes, starts[-1].buffers + layout.buffers))
        self._total = starts[-1]
        self._runs = [
            _Run(starts[first], starts[past], is_last=past == len(data_types)) for first, past in _ranges(fields)
        ]
        self._selected = WireLayout(
            sum(layouts[position].nodes for position in fields), sum(layouts[position].buffers for position in fields)
        )
        # At most one entry per codec. A batch keeps its codec when the compression of the table is changed.
        self._writers = {compression.kind: MetadataWriter(compression.kind, *self._selected)}

    def project(self, buffer: ReadableBuffer, position: int, header: BatchHeader) -> list[BytesLike]:
        """The projected batch as a list of parts, all but the first slices of `buffer`. Empty batches are unchanged.

        The checksum is copied, though it no longer matches; readers of projected batches do not check it.
        """
        view = byte_view(buffer)
        end = position + header.size
        if end > len(view):
            raise CorruptBatch(f"batch at {position} ends at {end}, but the buffer has only {len(view)} bytes")
        if header.record_count == 0:
            return [view[position:end]]
        records_start = position + header.records_start
        message_start = records_start if header.append_only else records_start + header.record_count
        message = read_message(view, message_start, end)
        if (message.node_count, message.buffer_count) != self._total:
            raise CorruptBatch(
                f"batch at {position} has {message.node_count} nodes and {message.buffer_count} buffers, "
                f"but its schema requires {self._total.nodes} and {self._total.buffers}"
            )
        buffers, nodes, body = self._gather(message, view)
        body_length = sum(map(len, body))
        metadata = self._writer(message.compression).write(message.row_count, body_length, nodes, buffers)
        front = bytearray(view[position : position + header.header_size])
        if header.magic != MAGIC_V0:
            _INT32.pack_into(front, header.header_size - 4, 0)  # the length of the statistics, which are left out
        front += view[records_start:message_start]
        front += metadata
        _INT32.pack_into(front, _LENGTH_POSITION, len(front) + body_length - LENGTH_PREFIX_BYTES)
        return [front, *body]

    def _gather(self, message: MessageMetadata, view: memoryview) -> tuple[list[int], bytes, list[memoryview]]:
        """The buffer table, the bytes of the nodes, and the ranges of the body for the selected columns."""
        metadata, buffers_position = message.metadata, message.buffers_position
        stored_body = view[message.body_start : message.body_start + message.body_length]
        stored_nodes = metadata[message.nodes_position :]
        buffers: list[int] = []
        nodes: list[memoryview] = []
        body: list[memoryview] = []
        filled = 0
        for run in self._runs:
            table = run.table.unpack_from(metadata, buffers_position + run.buffer_bytes_start)
            start = table[0]
            past = table[-1] if len(table) % 2 else len(stored_body)
            shift = filled - start
            for index in range(0, len(table) - 1, 2):
                offset = table[index]
                if not start <= offset <= past:
                    raise CorruptBatch(f"buffer at {offset} is outside of its columns' range from {start} to {past}")
                buffers.append(offset + shift)
                buffers.append(table[index + 1])
            if not 0 <= start <= past <= len(stored_body):
                raise CorruptBatch(f"buffers from {start} to {past} are outside of {len(stored_body)} body bytes")
            nodes.append(stored_nodes[run.node_bytes])
            if past > start:
                body.append(stored_body[start:past])
            filled += past - start
        return buffers, b"".join(nodes), body

    def _writer(self, kind: CompressionKind) -> MetadataWriter:
        writer = self._writers.get(kind)
        if writer is None:
            writer = self._writers[kind] = MetadataWriter(kind, *self._selected)
        return writer


def _ranges(fields: Sequence[int]) -> list[tuple[int, int]]:
    """Adjacent positions joined to (first, past) pairs: [0, 1, 4] gives (0, 2) and (4, 5)."""
    ranges: list[tuple[int, int]] = []
    for position in fields:
        if ranges and ranges[-1][1] == position:
            ranges[-1] = (ranges[-1][0], position + 1)
        else:
            ranges.append((position, position + 1))
    return ranges
