"""Changes with the old and the new row side by side: `mode=binlog`.

A changelog has two rows for an update, the old one and the new one, at adjacent offsets. Here they become one row with
the offset of the new row: a range that begins with a new row also reads the old row at the offset before it, and a
range that ends with an old row leaves that row to the next range. So ranges can be cut anywhere and read again without
losing or repeating a change.

A `Pairing` belongs to one bucket and receives its rows in the order of their offsets. It keeps only the last row, and
only if that is the old row of an update. It uses this row only if the next row has the next offset, so the rows that it
receives may have gaps or repetitions. One thread uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from fluss.client.engine.rows import LogRows, ScanPlan
from fluss.errors import FlussError
from fluss.model.paths import ChangeType
from fluss.model.schema import Schema
from fluss.spark.convert.types import AFTER_COLUMN, BEFORE_COLUMN, CHANGE_TYPE_COLUMN, LOG_OFFSET_COLUMN
from fluss.spark.read.log_reader import cheapest_column, is_within
from fluss.spark.read.output_batches import change_columns
from fluss.spark.read.splits import BucketRange
from fluss.spark.sessions.connection_cache import OpenTable
from fluss.values.basic import TableBucket

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Bools, Bytes, Int64s

_NAMES = {
    ChangeType.APPEND_ONLY: "insert",
    ChangeType.INSERT: "insert",
    ChangeType.UPDATE_BEFORE: None,
    ChangeType.UPDATE_AFTER: "update",
    ChangeType.DELETE: "delete",
}

LookBack = Callable[[int], pa.RecordBatch | None]
"""Returns the old row at an offset as a batch of one row, or None if there is no such row."""


@dataclass(frozen=True)
class BinlogColumns:
    """The columns of a read: the binlog columns that are `wanted`, and `own`, the table's columns in their `images`."""

    wanted: tuple[str, ...]
    own: tuple[str, ...]

    @property
    def images(self) -> tuple[str, ...]:
        """The columns `before` and `after`, as far as they are wanted."""
        return tuple(name for name in self.wanted if name in (BEFORE_COLUMN, AFTER_COLUMN))

    def plan(self, schema: Schema) -> ScanPlan:
        """The scan of the changelog, with the planned columns even if the table has more by now."""
        positions = tuple(schema.position(name) for name in self.own or [cheapest_column(schema)])
        is_whole = positions == tuple(range(len(schema.columns)))  # then servers send the batches unchanged
        return ScanPlan(projection=None if is_whole else positions)


def binlog_columns(schema: StructType) -> BinlogColumns:
    """Return the columns of a binlog read with this Spark schema."""
    images = [field.dataType for field in schema.fields if field.name in (BEFORE_COLUMN, AFTER_COLUMN)]
    own = images[0].names if images and isinstance(images[0], StructType) else []
    return BinlogColumns(tuple(schema.names) or (LOG_OFFSET_COLUMN,), tuple(own))


def read_binlog(
    opened: OpenTable, each: BucketRange, columns: BinlogColumns, patience_seconds: float
) -> Iterator[pa.RecordBatch]:
    """Record batches of the changes that belong to a range, in offset order."""
    bucket = TableBucket.with_partition(opened.info.table_id, each.partition_id, each.bucket_id)
    plan = columns.plan(opened.access.schema)
    pairing = Pairing(columns, look_back(opened, bucket, plan, patience_seconds), str(opened.info.table_path))
    ranges = {bucket: (each.start, each.stop)}
    with opened.access.read_log(ranges, plan, patience_seconds=patience_seconds) as log:
        for rows in log:
            changes = pairing.changes(rows)
            if is_within(rows, each):
                yield changes


def look_back(opened: OpenTable, bucket: TableBucket, plan: ScanPlan, patience_seconds: float) -> LookBack:
    """Return a function that reads the old row at one offset of a bucket."""

    def read(offset: int) -> pa.RecordBatch | None:
        ranges = {bucket: (offset, offset + 1)}
        with opened.access.read_log(ranges, plan, patience_seconds=patience_seconds) as log:
            for rows in log:
                if rows.change_types is not None and rows.change_types[0] == ChangeType.UPDATE_BEFORE:
                    return rows.rows
        return None

    return read


class Pairing:
    """Joins the old and the new rows of one bucket's updates; see the module docstring."""

    def __init__(self, columns: BinlogColumns, look_back: LookBack, table: str) -> None:
        self._columns = columns
        self._look_back = look_back
        self._table = table
        self._old: tuple[int, pa.RecordBatch] | None = None
        """Offset and old row of an update whose new row comes next."""

    def changes(self, rows: LogRows) -> pa.RecordBatch:
        """Return the changes in the next rows of the bucket, as a record batch of the wanted columns."""
        kinds = np.frombuffer(bytes(len(rows)) if rows.change_types is None else rows.change_types, np.uint8)
        kept = np.flatnonzero(kinds != ChangeType.UPDATE_BEFORE)
        found = {name: array.take(pa.array(kept)) for name, array in change_columns(rows, self._columns.wanted).items()}
        if CHANGE_TYPE_COLUMN in found:
            kind_names = pa.array([_NAMES[kind] for kind in ChangeType], pa.string())
            found[CHANGE_TYPE_COLUMN] = kind_names.take(pa.array(kinds[kept]))
        if self._columns.images:
            found.update(self._images(rows, kinds, kept))
        names = self._columns.wanted
        return pa.RecordBatch.from_arrays([found[name] for name in names], names=list(names))

    def _images(self, rows: LogRows, kinds: Bytes, kept: Int64s) -> dict[str, pa.Array]:
        """The old and new rows of a batch. At most one row outside of it is needed: the old row of its first update."""
        images, first = rows.rows, 0
        if BEFORE_COLUMN in self._columns.images:
            self._check_pairs(rows, kinds)
            if len(kinds) and kinds[0] == ChangeType.UPDATE_AFTER:
                images, first = pa.concat_batches([self._old_row(rows.offset_of(0)), images]), 1
            if len(kinds) and kinds[-1] == ChangeType.UPDATE_BEFORE:
                self._old = (rows.last_offset, rows.rows.slice(len(rows) - 1))
        structs = images.to_struct_array()
        is_delete = kinds[kept] == ChangeType.DELETE
        is_update = kinds[kept] == ChangeType.UPDATE_AFTER
        places = kept + first
        chosen = {
            BEFORE_COLUMN: lambda: _taken(structs, places - is_update, ~(is_update | is_delete)),
            AFTER_COLUMN: lambda: _taken(structs, places, is_delete),
        }
        return {name: chosen[name]() for name in self._columns.images}

    def _old_row(self, offset: int) -> pa.RecordBatch:
        """The old row of the update whose new row is at `offset`."""
        if self._old is not None and self._old[0] == offset - 1:
            return self._old[1]
        found = self._look_back(offset - 1) if offset > 0 else None
        if found is None:
            raise self._missing(offset)
        return found

    def _check_pairs(self, rows: LogRows, kinds: Bytes) -> None:
        updates = np.flatnonzero(kinds == ChangeType.UPDATE_AFTER)
        updates = updates[updates > 0]  # `_old_row` handles the first row
        alone = updates[kinds[updates - 1] != ChangeType.UPDATE_BEFORE]
        if len(alone):
            raise self._missing(rows.offset_of(int(alone[0])))

    def _missing(self, offset: int) -> FlussError:
        return FlussError(
            f"table {self._table}: the update at offset {offset} is not preceded by its old row, because the table "
            "kept none when it was written (table.changelog.image). Read with mode=changelog, or start later"
        )


def _taken(structs: pa.Array, places: Int64s, is_null: Bools) -> pa.Array:
    """The rows at these positions, null where `is_null` is true."""
    if is_null.all():
        return pa.nulls(len(places), structs.type)
    if len(places) == len(structs) and not is_null.any() and places[0] == 0:
        return structs  # every row is taken once, as in a batch of inserts
    return structs.take(pa.array(places, mask=is_null))


def state_images(batch: pa.RecordBatch, columns: BinlogColumns) -> pa.RecordBatch:
    """Convert rows of a state to the images of inserts; return the batch itself if no images are wanted."""
    if not columns.images:
        return batch
    structs = batch.select(list(columns.own)).to_struct_array()
    chosen = {BEFORE_COLUMN: pa.nulls(len(structs), structs.type), AFTER_COLUMN: structs}
    return pa.RecordBatch.from_arrays([chosen[name] for name in columns.images], names=list(columns.images))
