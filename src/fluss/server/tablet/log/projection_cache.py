"""A cache of plans for column projection: one scanner fetches the same columns thousands of times.

A plan belongs to one table entry and one list of columns; it holds one `Projector` per schema id of the batches. When a
table is altered, it gets a new entry and with it a new plan. Used only in the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from fluss.codec.arrow.compression import Compression
from fluss.codec.batches.log_batch import BatchHeader, CorruptBatch
from fluss.codec.batches.projection import BytesLike, Projector
from fluss.codec.buffers import ReadableBuffer
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.model.properties import LOG_FORMAT
from fluss.server.catalog import TableEntry

MAX_CACHED_PLANS = 512
ARROW_FORMAT = "ARROW"


class TableProjection:
    """The projection of one table's batches to some columns."""

    __slots__ = ("_compression", "_entry", "_fields", "_projectors")

    def __init__(self, entry: TableEntry, fields: tuple[int, ...]) -> None:
        self._entry = entry
        self._fields = fields
        self._compression = Compression.from_properties(entry.descriptor.properties)
        self._projectors: dict[int, Projector] = {}

    def belongs_to(self, entry: TableEntry) -> bool:
        """True if `entry` is the one that this plan was made for; False if the table was altered since."""
        return self._entry is entry

    def project(self, buffer: ReadableBuffer, position: int, header: BatchHeader) -> list[BytesLike]:
        """The batch with the selected columns only; FlussError 34 if its schema lacks one, 14 if it is damaged."""
        projector = self._projectors.get(header.schema_id)
        if projector is None:
            projector = self._projectors[header.schema_id] = self._projector(header.schema_id)
        try:
            return projector.project(buffer, position, header)
        except CorruptBatch as error:
            raise FlussError(
                f"cannot project the batch of {self._entry.path} at offset {header.base_offset}: {error}",
                ErrorCode.CORRUPT_RECORD_EXCEPTION,
            ) from error

    def _projector(self, schema_id: int) -> Projector:
        schema = self._entry.schemas.get(schema_id)
        if schema is None:
            raise FlussError(
                f"unknown schema id {schema_id} in a batch of {self._entry.path}; newest is {self._entry.schema_id}",
                ErrorCode.SCHEMA_NOT_EXIST,
            )
        if self._fields[-1] >= len(schema.columns):
            raise _invalid(
                f"projected columns {list(self._fields)} of {self._entry.path}: batches with schema {schema_id} "
                f"have only {len(schema.columns)} columns"
            )
        return Projector(schema.data_types, self._fields, self._compression)


class ProjectionCache:
    """Plans by (table id, columns), of which the oldest are dropped first."""

    def __init__(self) -> None:
        self._plans: dict[tuple[int, tuple[int, ...]], TableProjection] = {}

    def plan(self, entry: TableEntry, fields: tuple[int, ...]) -> TableProjection:
        """The plan for these columns; FlussError 34 if they cannot be projected."""
        key = (entry.table_id, fields)
        plan = self._plans.get(key)
        if plan is None or not plan.belongs_to(entry):
            check_projection(entry, fields)
            plan = TableProjection(entry, fields)
            self._plans.pop(key, None)
            while len(self._plans) >= MAX_CACHED_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = plan
        return plan

    def forget(self, dropped: Collection[TableBucket]) -> None:
        """Drop the plans for the tables of dropped buckets. They are created again if other buckets need them."""
        tables = {bucket.table_id for bucket in dropped}
        for key in [key for key in self._plans if key[0] in tables]:
            del self._plans[key]


def check_projection(entry: TableEntry, fields: tuple[int, ...]) -> None:
    """Check columns as far as is possible without a batch; raises FlussError 34."""
    if entry.property(LOG_FORMAT) != ARROW_FORMAT:
        raise _invalid(
            f"cannot project {entry.path}, which has log format {entry.property(LOG_FORMAT)}; only ARROW logs can be "
            "projected: read all columns"
        )
    if not fields:
        raise _invalid(f"projected columns of {entry.path} must not be empty")
    columns = len(entry.schema.columns)
    if fields[0] < 0 or fields[-1] >= columns or any(a >= b for a, b in pairwise(fields)):
        raise _invalid(
            f"projected columns of {entry.path} must be ascending, distinct and below {columns}, got {list(fields)}"
        )


def _invalid(message: str) -> FlussError:
    return FlussError(message, ErrorCode.INVALID_COLUMN_PROJECTION)
