"""Checks of the structure of batches when they arrive: a checksum only proves that a batch arrived as it was sent.

A batch with a correct checksum may still be unreadable: it may have a schema that the table does not have, an Arrow
message with another number of rows or columns, or buffers outside its body. Stored, it would stop every reader of the
bucket at its offset forever. So everything that headers and numbers reveal is checked here, before the batch gets an
offset; the values themselves are not read. With `log.validate` = `full` they are: each batch is decoded in the loop
thread, which costs about as much as reading it.

Parsing Arrow's metadata costs more than the append itself. But messages of one schema from one kind of client differ
only in a few numbers, at the same places: all other bytes, their *form*, are the same. So the first message is parsed
and its form is kept; for the following ones the form is compared and the numbers are read. A message of another form is
parsed, and its form replaces the last one. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from fluss.codec.arrow.types import WireLayout, schema_wire_layout, to_arrow_schema
from fluss.codec.batches.arrow_batch import decode_arrow_batch
from fluss.codec.batches.arrow_message import MESSAGE_PREFIX_BYTES, MessageMetadata, read_message
from fluss.codec.batches.log_batch import BatchHeader, CorruptBatch
from fluss.codec.batches.row_log_batch import decode_row_batch
from fluss.codec.batches.value_faults import check_values
from fluss.codec.rows.columns import RowFormat
from fluss.errors import ErrorCode, FlussError
from fluss.model.properties import LOG_FORMAT
from fluss.server.catalog import TableEntry

# A record in the row formats has its length, then at least the byte with its change type.
MIN_ROW_RECORD_BYTES = 5
_NUMBER = Struct("<q")


class _Form:
    """Metadata of a message that is valid for its schema, without the numbers that differ from message to message."""

    __slots__ = (
        "_body_length",
        "_buffers",
        "_buffers_at",
        "_fixed",
        "_nodes",
        "_nodes_at",
        "_places",
        "_row_count",
        "size",
    )

    def __init__(self, message: MessageMetadata, prefix: bytes) -> None:
        content = prefix + bytes(message.metadata)
        self.size = len(content)
        shift = MESSAGE_PREFIX_BYTES
        self._row_count = message.row_count_position + shift
        self._body_length = message.body_length_position + shift
        self._nodes = Struct(f"<{2 * message.node_count}q")
        self._nodes_at = message.nodes_position + shift
        self._buffers = Struct(f"<{2 * message.buffer_count}q")
        self._buffers_at = message.buffers_position + shift
        self._places: list[slice] = []
        varying = (
            (self._row_count, _NUMBER.size),
            (self._body_length, _NUMBER.size),
            (self._nodes_at, self._nodes.size),
            (self._buffers_at, self._buffers.size),
        )
        end = 0
        for start, size in sorted(varying):
            if start < end:
                raise CorruptBatch("the metadata of its Arrow message uses the same bytes twice")
            self._places.append(slice(end, start))
            end = start + size
        self._places.append(slice(end, None))
        self._fixed = [content[place] for place in self._places]

    def fits(self, content: bytes) -> bool:
        """True if another message has this form; `content` must have the same length."""
        return [content[place] for place in self._places] == self._fixed

    def check(self, content: bytes, record_count: int, room: int) -> None:
        """Raise CorruptBatch if the numbers are invalid; `room` is the number of bytes left for the body."""
        (row_count,) = _NUMBER.unpack_from(content, self._row_count)
        if row_count != record_count:
            raise CorruptBatch(f"its Arrow message has {row_count} rows, but its header has {record_count}")
        (body_length,) = _NUMBER.unpack_from(content, self._body_length)
        if not 0 <= body_length <= room:
            raise CorruptBatch(f"its Arrow body has {body_length} bytes, but {room} are left in the batch")
        nodes = self._nodes.unpack_from(content, self._nodes_at)
        if min(nodes) < 0 or any(map(int.__gt__, nodes[1::2], nodes[::2])):
            raise CorruptBatch("a column has more nulls than rows, or a negative number of them")
        table = self._buffers.unpack_from(content, self._buffers_at)
        if min(table) < 0 or max(map(int.__add__, table[::2], table[1::2])) > body_length:
            raise CorruptBatch(f"a buffer is outside the Arrow body of {body_length} bytes")


class BatchChecks:
    """Checks arriving batches. The last form of each schema of a table is cached in the table's entry."""

    def __init__(self, *, full: bool = False) -> None:
        self._full = full

    def check(
        self, entry: TableEntry, is_arrow: bool, records: memoryview, batches: Sequence[tuple[int, BatchHeader]]
    ) -> None:
        """Raise FlussError 9 or 14 for the first batch that readers could not decode."""
        for position, header in batches:
            schema_id = header.schema_id
            if schema_id not in entry.schemas:
                raise FlussError(
                    f"unknown schema id {schema_id} of a batch for {entry.path}, whose newest is {entry.schema_id}; "
                    "refresh the metadata",
                    ErrorCode.SCHEMA_NOT_EXIST,
                )
            if not header.record_count:
                continue
            try:
                if is_arrow:
                    self._check_arrow(entry, records, position, header)
                elif header.record_count * MIN_ROW_RECORD_BYTES > header.size - header.records_start:
                    size = header.size - header.records_start
                    raise CorruptBatch(f"{header.record_count} rows do not fit into its {size} bytes")
                if self._full:
                    _check_values(entry, is_arrow, records, position, header)
            except CorruptBatch as error:
                text = f"a batch for {entry.path} is not readable and was not stored: {error}"
                raise FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION) from error

    def _check_arrow(self, entry: TableEntry, records: memoryview, position: int, header: BatchHeader) -> None:
        start, end, count = position + header.records_start, position + header.size, header.record_count
        if not header.append_only:
            start += count  # one byte per row with its change type
        forms: dict[int, _Form] = entry.derived.setdefault(BatchChecks, {})
        form = forms.get(header.schema_id)
        if form is not None:
            body_start = start + form.size
            content = bytes(records[start:body_start])
            if body_start <= end and form.fits(content):
                form.check(content, count, end - body_start)
                return
        message = read_message(records, start, end)
        _check_layout(message, schema_wire_layout(to_arrow_schema(entry.schemas[header.schema_id])), count)
        if not message.node_count or not message.row_count_position or not message.body_length_position:
            return  # no client writes such messages, but they are valid
        form = _Form(message, bytes(records[start : start + MESSAGE_PREFIX_BYTES]))
        form.check(bytes(records[start : message.body_start]), count, end - message.body_start)
        forms[header.schema_id] = form


def _check_values(entry: TableEntry, is_arrow: bool, records: memoryview, position: int, header: BatchHeader) -> None:
    """Decode a batch; raises CorruptBatch with column and row of a value that its column cannot hold."""
    schema = entry.schemas[header.schema_id]
    if is_arrow:
        rows, _ = decode_arrow_batch(records, to_arrow_schema(schema), position, header=header, validate=False)
    else:
        rows, _ = decode_row_batch(records, schema, RowFormat[str(entry.property(LOG_FORMAT))], position, header=header)
    if rows is not None:
        check_values(rows)


def _check_layout(message: MessageMetadata, layout: WireLayout, record_count: int) -> None:
    if message.row_count != record_count:
        raise CorruptBatch(f"its Arrow message has {message.row_count} rows, but its header has {record_count}")
    if message.node_count != layout.nodes or message.buffer_count != layout.buffers:
        raise CorruptBatch(
            f"its Arrow message has {message.node_count} columns and {message.buffer_count} buffers, but the schema "
            f"has {layout.nodes} and {layout.buffers}"
        )
