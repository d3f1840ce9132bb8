"""Changelog batches of primary-key tables: log batches with a change type per row.

The log of a primary-key table has one format (`table.log.format`): ARROW, or COMPACTED or INDEXED rows. Batches are
written with the newest schema; older batches are converted to the target schema when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from fluss.codec.arrow.compression import Compression
from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.arrow_batch import decode_arrow_batch, encode_arrow_batch
from fluss.codec.batches.log_batch import NO_BATCH_SEQUENCE, NO_WRITER_ID, BatchHeader, CorruptBatch, read_header
from fluss.codec.batches.row_log_batch import decode_row_batch, encode_row_batch
from fluss.codec.buffers import ReadableBuffer
from fluss.codec.rows.columns import RowFormat
from fluss.codec.rows.schema_mapping import column_mapping, map_columns
from fluss.codec.rows.values import CorruptRowError
from fluss.model.schema import Schema

ARROW_LOG_FORMAT = "ARROW"


class ChangelogCodec:
    """Writes and reads the changelog batches of one table in its schema `target_id`. Immutable after construction."""

    def __init__(
        self, schemas: Mapping[int, Schema], target_id: int, log_format: str, compression: Compression
    ) -> None:
        self._schemas = schemas
        self.target_id = target_id
        self.target = schemas[target_id]
        self.arrow_schema = to_arrow_schema(self.target)
        self._row_format = None if log_format.upper() == ARROW_LOG_FORMAT else RowFormat(log_format.upper())
        self._compression = compression
        self._sources: dict[int, tuple[Schema, pa.Schema, tuple[int, ...] | None]] = {}

    def encode(
        self,
        columns: list[pa.Array],
        change_types: bytes,
        *,
        writer_id: int = NO_WRITER_ID,
        batch_sequence: int = NO_BATCH_SEQUENCE,
    ) -> bytearray:
        """A batch of these rows; the log fills in offset and timestamp. Without rows, it is only a header."""
        rows = pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)
        if self._row_format is None:
            encoded = encode_arrow_batch(
                rows, self.target_id, self._compression, writer_id=writer_id, batch_sequence=batch_sequence,
                change_types=change_types,
            )  # fmt: skip
        else:
            encoded = encode_row_batch(
                rows, self.target, self._row_format, self.target_id, writer_id=writer_id,
                batch_sequence=batch_sequence, change_types=change_types,
            )  # fmt: skip
        return bytearray(encoded)

    def decode(
        self, buffer: ReadableBuffer, position: int = 0, *, header: BatchHeader | None = None
    ) -> tuple[list[pa.Array], bytes]:
        """The columns, in the target schema, and change types of the batch at `position`, or CorruptBatch."""
        if header is None:
            header = read_header(buffer, position)
        source, arrow_schema, mapping = self._source(header.schema_id)
        if self._row_format is None:
            rows, change_types = decode_arrow_batch(buffer, arrow_schema, position, header=header)
        else:
            rows, change_types = decode_row_batch(buffer, source, self._row_format, position, header=header)
        if rows is None:
            return [pa.array([], field.type) for field in self.arrow_schema], b""
        if change_types is None:
            raise CorruptBatch(f"the batch at {position} is not a changelog batch: it has appends only")
        return map_columns(rows.columns, mapping, self.target, rows.num_rows), change_types

    def _source(self, schema_id: int) -> tuple[Schema, pa.Schema, tuple[int, ...] | None]:
        found = self._sources.get(schema_id)
        if found is None:
            schema = self._schemas.get(schema_id)
            if schema is None:
                raise CorruptBatch(f"a batch has schema id {schema_id}, which the table does not have")
            try:
                mapping = column_mapping(schema, self.target)
            except CorruptRowError as error:
                raise CorruptBatch(f"a batch of schema id {schema_id} cannot be read: {error}") from None
            found = self._sources[schema_id] = (schema, to_arrow_schema(schema), mapping)
        return found
