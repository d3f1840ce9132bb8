"""The rows of one split of lake and log, in any process that has a connection.

Columns: files and log are read with the columns that are requested or used by the filter, and for a merge those of the
key. Filters are applied to every row after the merge; conditions that are allowed before the merge are also sent to the
server.

Memory: a batch of the lake at a time, and one image per key that changed since the snapshot. If the images take more
than `MAX_TAIL_BYTES`, rows and changes are written to files by shares of the keys instead (`key_fold.py`).

Everything here blocks and must run in a thread other than the I/O thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fluss.client.engine.keys import KeyFold
from fluss.client.engine.rows import LogRange, RowFilter, ScanPlan, valid_mask
from fluss.client.engine.table import TableAccess
from fluss.codec.arrow.types import to_arrow_schema
from fluss.errors import ErrorCode, FlussError
from fluss.lake.reading.merge import MergeKeys, Tail
from fluss.lake.reading.plan import UnionSplit, safe_part
from fluss.model.properties import CHANGELOG_IMAGE, property_value
from fluss.values.predicates import Predicate

if TYPE_CHECKING:
    from fluss.lake.tables.interface.format import LakeFile, LakeTarget

MAX_TAIL_BYTES = 256 * 1024 * 1024


def read_union(
    table: TableAccess,
    split: UnionSplit,
    columns: Sequence[str] | None = None,
    *,
    predicate: Predicate | None = None,
    patience_seconds: float | None = None,
    max_tail_bytes: int = MAX_TAIL_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Return record batches with these columns (all if None), in this order, of the rows that satisfy the predicate.

    Rows of a log table come in offset order. Codes, after which the read should be planned again: 53, a file of the
    lake was removed, because its snapshot expired after planning; 19, rows of the log expired; 36, the partition was
    dropped.
    """
    return _Reader(table, split, columns, predicate, patience_seconds, max_tail_bytes).batches()


class Wanted:
    """Selects columns and rows from batches that have some columns of a table, by name."""

    def __init__(self, table: TableAccess, columns: Sequence[str] | None, predicate: Predicate | None) -> None:
        whole = to_arrow_schema(table.schema)
        self.columns = tuple(whole.names if columns is None else columns)
        self.schema = pa.schema([whole.field(name) for name in self.columns])
        self._filter = None if predicate is None else RowFilter(predicate, table.schema)
        self._names = {column.column_id: column.name for column in table.schema.columns}
        asked = [] if predicate is None else predicate.column_names()
        self.needed = tuple(dict.fromkeys((*self.columns, *asked)))

    def apply(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the wanted columns of the wanted rows, without empty batches."""
        for batch in batches:
            positions = {name: index for index, name in enumerate(batch.schema.names)}
            chosen = [batch.column(positions[name]) for name in self.columns]
            found = pa.RecordBatch.from_arrays(chosen, schema=self.schema)
            if self._filter is not None:
                mask = self._mask(batch, positions)
                found = found if mask.true_count == batch.num_rows else found.filter(mask)
            if found.num_rows:
                yield found

    def _mask(self, batch: pa.RecordBatch, positions: dict[str, int]) -> pa.Array:
        assert self._filter is not None
        return valid_mask(self._filter.mask(lambda column_id: batch.column(positions[self._names[column_id]])))


def lake_rows(
    table: TableAccess, target: LakeTarget | None, files: Sequence[LakeFile], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Read rows of files of the lake, with columns of the table and system columns by name."""
    if not files:
        return
    assert target is not None
    try:
        yield from target.read_files(files, table.schema, list(columns))
    except FlussError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise FlussError(
            f"a file of the lake table {table.path} was removed after the read was planned: its snapshot was compacted "
            f"and has expired. Start the read again ({error.message})",
            ErrorCode.LAKE_SNAPSHOT_NOT_EXIST,
        ) from error


class _Reader:
    """Reads one split; used once."""

    def __init__(
        self,
        table: TableAccess,
        split: UnionSplit,
        columns: Sequence[str] | None,
        predicate: Predicate | None,
        patience_seconds: float | None,
        max_tail_bytes: int,
    ) -> None:
        self._table = table
        self._split = split
        self._wanted = Wanted(table, columns, predicate)
        self._safe = safe_part(table, predicate)
        self._patience_seconds = patience_seconds
        self._max_tail_bytes = max_tail_bytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._split.is_live:
            return self._wanted.apply(self._live())
        if self._table.has_primary_key and self._split.log_count:
            return self._merged()
        return self._lake_then_log()

    def _lake_then_log(self) -> Iterator[pa.RecordBatch]:
        yield from self._wanted.apply(self._lake(self._wanted.needed))
        if self._split.log_count:
            with self._log(self._wanted.columns) as log:
                for rows in log:
                    yield rows.rows

    def _merged(self) -> Iterator[pa.RecordBatch]:
        keys = MergeKeys(self._table.description)
        columns = tuple(dict.fromkeys((*self._wanted.needed, *keys.names)))
        with self._log(columns) as log:
            tail: Tail | None = Tail(keys, log.arrow_schema)
            for rows in log:
                assert tail is not None
                tail.add(rows)
                if tail.size_bytes > self._max_tail_bytes:
                    tail.merge()
                    if tail.size_bytes > self._max_tail_bytes // 2:
                        tail = None
                        break
        if tail is None:
            yield from self._wanted.apply(self._folded())
        else:
            yield from self._wanted.apply(tail.correct(self._lake(columns)))

    def _folded(self) -> Iterator[pa.RecordBatch]:
        """Merge through files, if the changes are too many to be held in memory."""
        fold = KeyFold(self._table.description, max_memory_bytes=self._max_tail_bytes)
        try:
            for batch in self._lake(self._table.schema.column_names):
                fold.add_batch(batch, np.zeros(batch.num_rows, np.bool_))
            with self._log(self._table.schema.column_names) as log:
                for rows in log:
                    fold.add(rows)
            yield from fold.batches()
        finally:
            fold.close()

    # ---- sources ----

    def _lake(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return lake_rows(self._table, self._split.target, self._split.files, columns)

    def _log(self, columns: Sequence[str]) -> LogRange:
        """The log of the split, with the whole filter in a log table, and only conditions on the key in a changelog."""
        schema = self._table.schema
        is_whole = tuple(columns) == schema.column_names
        projection = None if is_whole else tuple(schema.position(name) for name in columns)
        ranges = {self._split.bucket(self._table.table_id): (self._split.start, self._split.stop)}
        plan = ScanPlan(projection=projection, predicate=self._safe)
        return self._table.read_log(ranges, plan, patience_seconds=self._patience_seconds)

    def _live(self) -> Iterator[pa.RecordBatch]:
        """The live rows as of the planned end; without old images in the changelog they are the current rows."""
        is_undoable = property_value(self._table.descriptor.properties, CHANGELOG_IMAGE) != "WAL"
        return iter(
            self._table.read_state(
                self._split.bucket(self._table.table_id),
                self._split.stop if is_undoable else None,
                patience_seconds=self._patience_seconds,
                wanted=[self._table.schema.position(name) for name in self._wanted.needed],
            )
        )
