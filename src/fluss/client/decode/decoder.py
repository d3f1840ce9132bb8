"""Decoding record bytes into rows: the columns to fetch, and the conversion of any schema to the scanner's columns.

A `BatchDecoder` belongs to one scanner. It holds the plan (columns, filter) and the schemas of the table seen so far.
`decode` may run on any thread; `learn` adds a schema and is called on the I/O thread before a batch with that schema is
decoded. Caches only grow, so readers need no lock.

Columns are matched by column id: a column that a batch's schema lacks is null, and one that the scanner does
not know is dropped. With `fixed_schema` off and no projection, rows keep the columns they were written with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa

from fluss.client.decode.bad_batches import BadBatch
from fluss.client.decode.log_rows import LogRows
from fluss.client.decode.log_walk import BrokenHeader, headers
from fluss.client.decode.materialize import valid_mask
from fluss.client.decode.scan_plan import ScanPlan
from fluss.client.decode.stored_batch import stored_batch
from fluss.client.filter.filters import RowFilter
from fluss.client.net.metadata import ClientTable
from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.arrow_batch import decode_arrow_batch
from fluss.codec.batches.log_batch import BatchHeader, CorruptBatch, check_crc
from fluss.codec.batches.row_log_batch import decode_row_batch
from fluss.codec.rows.columns import RowFormat
from fluss.errors import ErrorCode, FlussError
from fluss.model.properties import LOG_FORMAT
from fluss.model.schema import Column, Schema
from fluss.values.basic import TableBucket, as_table_path

ARROW_FORMAT = "ARROW"
_ARROW_MARKER = b"\xff\xff\xff\xff"


class Decoded(NamedTuple):
    """A step of a bucket: rows to deliver (or none, an error, or a skipped batch), and the offset after them."""

    rows: LogRows | None
    next_offset: int
    size_bytes: int = 0
    error: FlussError | None = None
    skipped: BadBatch | None = None


@dataclass(frozen=True)
class _Shape:
    """How batches of one schema become the scanner's rows. `sources[i]` is None for a column that is all null."""

    schema: Schema
    arrow_schema: pa.Schema
    positions_by_id: dict[int, int]
    sources: tuple[int | None, ...]
    output: pa.Schema
    is_identity: bool


class BatchDecoder:
    """Decodes the batches of one table; see the module docstring."""

    def __init__(self, table: ClientTable, plan: ScanPlan) -> None:
        self.table = table
        columns = table.schema.columns
        self._projection = plan.projection
        self._target = columns if plan.projection is None else tuple(columns[index] for index in plan.projection)
        self._keep_written_columns = not plan.fixed_schema and plan.projection is None
        self._format = (table.property(LOG_FORMAT) or ARROW_FORMAT).upper()
        self.row_filter = None if plan.predicate is None else RowFilter(plan.predicate, table.schema)
        self._keeps_stored = plan.keep_stored and self.row_filter is None
        self.skips_bad_batches = plan.on_skipped is not None
        self._skipping_advice = plan.skipping_advice
        self.wire_positions = self._wire_positions()
        self.output_schema = _arrow_schema_of(self._target)
        self._schemas: dict[int, Schema] = {table.schema_id: table.schema}
        self._shapes: dict[tuple[int, bool], _Shape] = {}

    def _wire_positions(self) -> tuple[int, ...] | None:
        """Ascending positions to ask the server for; None = all columns."""
        if self._projection is None or self._format != ARROW_FORMAT:
            return None
        wanted = set(self._projection)
        if self.row_filter is not None:
            ids = self.row_filter.column_ids
            wanted |= {index for index, column in enumerate(self.table.schema.columns) if column.column_id in ids}
        return None if len(wanted) == len(self.table.schema.columns) else tuple(sorted(wanted))

    @property
    def has_gaps(self) -> bool:
        """True if a server may skip batches because no row of them matches the filter."""
        return self.row_filter is not None

    # ---- schemas ----

    def knows(self, schema_id: int) -> bool:
        """True if batches with this schema can be decoded."""
        return schema_id in self._schemas

    def learn(self, schema_id: int, schema: Schema) -> None:
        """Add a schema of the table, as described by the coordinator."""
        self._schemas[schema_id] = schema

    def has_wire_columns(self, schema_id: int) -> bool:
        """True if batches with this schema have all columns that a projected fetch asks for."""
        schema = self._schemas.get(schema_id)
        return self.wire_positions is None or (schema is not None and self.wire_positions[-1] < len(schema.columns))

    def _shape(self, schema_id: int, projected: bool) -> _Shape:
        shape = self._shapes.get((schema_id, projected))
        if shape is None:
            shape = self._shapes[schema_id, projected] = self._make_shape(self._schemas[schema_id], projected)
        return shape

    def _make_shape(self, schema: Schema, projected: bool) -> _Shape:
        stored: tuple[Column, ...] = schema.columns
        if projected and self.wire_positions is not None:
            stored = tuple(stored[index] for index in self.wire_positions)
        by_id = {column.column_id: index for index, column in enumerate(stored)}
        target = stored if self._keep_written_columns else self._target
        sources = tuple(by_id.get(column.column_id) for column in target)
        for column, source in zip(target, sources, strict=True):
            if source is not None and stored[source].data_type.copy(True) != column.data_type.copy(True):
                raise FlussError(
                    f"column {column.name!r} of {self.table.path} was {stored[source].data_type} in older rows and is "
                    f"{column.data_type} now; open the table again, or read those rows with with_fixed_schema(False)"
                )
        output = _arrow_schema_of(target)
        arrow_schema = _arrow_schema_of(stored)
        identity = sources == tuple(range(len(stored))) and output.equals(arrow_schema)
        return _Shape(schema, arrow_schema, by_id, sources, output, identity)

    # ---- decoding ----

    def decode(
        self, view: memoryview, position: int, bucket: TableBucket, *, projected: bool, filtered_end: int | None = None
    ) -> list[Decoded]:
        """Decode the whole batches of `view`, without rows before `position`. A bad batch ends it with an error."""
        steps: list[Decoded] = []
        at = position
        try:
            for start, header in headers(view):
                if header.next_offset <= position:
                    continue
                try:
                    if isinstance(header, BrokenHeader):
                        raise header.error
                    rows = self._decode_batch(view, start, header, projected)
                    found = None if rows is None else self._selected(rows, header, position, bucket)
                except CorruptBatch as error:
                    bad = self._bad_batch(bucket, header, position, error)
                    if not self.skips_bad_batches:
                        raise bad.error from None
                    at = max(at, header.next_offset)
                    steps.append(Decoded(None, at, skipped=bad))
                    continue
                at = max(at, header.next_offset)
                steps.append(Decoded(found, at, 0 if found is None else _size_bytes(found.rows)))
        except (CorruptBatch, FlussError) as error:
            steps.append(Decoded(None, at, error=_decode_error(error, self.table, bucket)))
            return steps
        if filtered_end is not None and filtered_end > at:
            steps.append(Decoded(None, filtered_end))
        return steps

    def _bad_batch(
        self, bucket: TableBucket, header: BatchHeader | BrokenHeader, position: int, error: CorruptBatch
    ) -> BadBatch:
        first, last = max(header.base_offset, position), header.next_offset - 1
        return self.bad_batch(bucket, first, last, f"the batch of offsets {header.base_offset} to {last}", error)

    def bad_batch(self, bucket: TableBucket, first: int, last: int, what: str, reason: object) -> BadBatch:
        """Offsets that cannot be read, and the error for readers that do not skip them."""
        text = (
            f"{bucket} of {self.table.path}: {what} cannot be read: {reason}; {self._skipping_advice}, or start to "
            f"read at offset {last + 1}"
        )
        failure = FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION)
        return BadBatch(as_table_path(self.table.path), bucket, first, last, failure)

    def damaged_log(self, bucket: TableBucket, first: int, reason: object) -> FlussError:
        """The error for bytes that are not a batch and whose extent is not known yet."""
        text = (
            f"{bucket} of {self.table.path}: the data stored from offset {first} on is not a batch: {reason}; "
            f"{self._skipping_advice}, or start to read after it"
        )
        return FlussError(text, ErrorCode.CORRUPT_RECORD_EXCEPTION)

    def _decode_batch(
        self, view: memoryview, start: int, header: BatchHeader, projected: bool
    ) -> tuple[pa.RecordBatch, bytes | None, _Shape] | None:
        cut = projected and self.wire_positions is not None
        if not cut and not check_crc(view, start, header):
            raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} is wrong")
        if not header.record_count:
            return None
        if header.schema_id not in self._schemas:
            raise CorruptBatch(f"it names schema id {header.schema_id}, which the table does not have")
        shape = self._shape(header.schema_id, cut)
        if self._keeps_stored and shape.is_identity and _is_arrow(view, start, header):
            stored = stored_batch(view, start, header, shape.arrow_schema)
            if stored is not None:
                return cast("pa.RecordBatch", stored), None, shape  # only its owner looks at more than the size
        if self._format == ARROW_FORMAT or _is_arrow(view, start, header):
            rows, change_types = decode_arrow_batch(view, shape.arrow_schema, start, header=header)
        else:
            row_format = RowFormat[self._format]
            rows, change_types = decode_row_batch(view, shape.schema, row_format, start, header=header)
        return None if rows is None else (rows, change_types, shape)

    def _selected(
        self,
        decoded: tuple[pa.RecordBatch, bytes | None, _Shape],
        header: BatchHeader,
        position: int,
        bucket: TableBucket,
    ) -> LogRows | None:
        rows, change_types, shape = decoded
        offsets = None
        mask = None
        if self.row_filter is not None:
            mask = valid_mask(self.row_filter.mask(lambda column_id: self._column(rows, shape, column_id)))
        if not shape.is_identity:
            columns = [
                pa.nulls(rows.num_rows, field.type) if source is None else rows.column(source)
                for source, field in zip(shape.sources, shape.output, strict=True)
            ]
            rows = pa.RecordBatch.from_arrays(columns, schema=shape.output)
        if mask is not None and mask.true_count < rows.num_rows:
            kept = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            offsets = kept + header.base_offset
            change_types = None if change_types is None else bytes(np.frombuffer(change_types, np.uint8)[kept])
            rows = rows.filter(mask)
        found = LogRows(bucket, rows, header.base_offset, header.commit_timestamp, change_types, offsets)
        found = found.slice(found.index_of(position), len(found))
        return found if len(found) else None

    def _column(self, rows: pa.RecordBatch, shape: _Shape, column_id: int) -> pa.Array:
        index = shape.positions_by_id.get(column_id)
        if index is not None:
            return rows.column(index)
        position = next(i for i, column in enumerate(self.table.schema.columns) if column.column_id == column_id)
        return pa.nulls(rows.num_rows, to_arrow_schema(self.table.schema).field(position).type)


def _arrow_schema_of(columns: tuple[Column, ...]) -> pa.Schema:
    return to_arrow_schema(Schema(tuple(columns)))


def _is_arrow(view: memoryview, start: int, header: BatchHeader) -> bool:
    """True for an Arrow message: pyfluss writes them into row tables too. No row record starts with this length."""
    at = start + header.records_start + (0 if header.append_only else header.record_count)
    return view[at : at + len(_ARROW_MARKER)] == _ARROW_MARKER


def _size_bytes(rows: pa.RecordBatch) -> int:
    """The memory of the rows; 40 times cheaper to compute than `nbytes`."""
    return int(rows.get_total_buffer_size())


def _decode_error(error: Exception, table: ClientTable, bucket: TableBucket) -> FlussError:
    if isinstance(error, FlussError):
        return error
    return FlussError(f"{bucket} of {table.path}: {error}", ErrorCode.CORRUPT_RECORD_EXCEPTION)
