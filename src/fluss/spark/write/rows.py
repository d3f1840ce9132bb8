"""The Arrow batches of a Spark task, converted to the schema of the table. Rows are never handled one by one.

Spark passes batches of some thousand rows. They are combined into larger ones, so that each bucket's share fills a
batch of its own when the client divides them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from fluss.client.engine.admin import TableInfo
from fluss.client.engine.values import FitRules
from fluss.errors import FlussError
from fluss.spark.convert.arrow import SparkInput
from fluss.spark.write.plan import WritePlan

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Bytes

MAX_GATHERED_BYTES = 16 * 1024 * 1024
USUAL_PARTITIONS_AT_ONCE = 4

_UPSERT, _DELETE, _LEFT_OUT = 0, 1, 2
ROW_KINDS = {
    "+i": _UPSERT,
    "insert": _UPSERT,
    "+u": _UPSERT,
    "update_after": _UPSERT,
    "-d": _DELETE,
    "delete": _DELETE,
    # The row after an old row has the same key and the current values.
    "-u": _LEFT_OUT,
    "update_before": _LEFT_OUT,
}


class Changes(NamedTuple):
    """Rows, and for each row whether it deletes its key."""

    rows: pa.RecordBatch
    deletes: pa.BooleanArray


def gathered(batches: Iterable[pa.RecordBatch], wanted_bytes: int) -> Iterator[pa.RecordBatch]:
    """Regroup rows into batches of about `wanted_bytes`, except the last one."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        waiting_bytes += batch.nbytes
        if waiting_bytes >= wanted_bytes:
            yield _joined(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def gather_bytes(info: TableInfo, batch_bytes: int) -> int:
    """The number of bytes to gather so that every bucket gets about `batch_bytes`."""
    is_divided = info.has_primary_key() or bool(info.get_bucket_keys())
    buckets = info.num_buckets if is_divided else 1
    partitions = USUAL_PARTITIONS_AT_ONCE if info.is_partitioned() else 1
    return max(batch_bytes, min(batch_bytes * buckets * partitions, MAX_GATHERED_BYTES))


class RowConverter:
    """Converts Spark's batches to the form that one write plan needs."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        rules = FitRules(
            plan.options.write.on_extra_digits, plan.row_format, cutting_option="the option onExtraDigits=truncate"
        )
        nanos_as = plan.options.nanos_as
        self._input = SparkInput(plan.table, plan.columns, nanos_as, rules, plan.keys, plan.required)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns to write, with the types of the table; `FlussError` for the first value that does not fit."""
        return self._input.rows([batch.column(position) for position in self._plan.positions])

    def changes(self, batch: pa.RecordBatch) -> Changes:
        """The columns to write, with the deletes from the row kinds; old rows of updates are left out."""
        assert self._plan.row_kind_position is not None
        kinds = row_kinds(batch.column(self._plan.row_kind_position), self._plan.table)
        kept = kinds != _LEFT_OUT
        if not kept.all():
            batch, kinds = batch.filter(pa.array(kept)), kinds[kept]
        return Changes(self.rows(batch), pa.array(kinds == _DELETE))

    def keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The keys of rows that delete; raise if there are other rows, because they lack columns."""
        changes = self.changes(batch)
        if changes.deletes.false_count:
            raise FlussError(
                f"{changes.deletes.false_count} rows for table {self._plan.table} have a row kind other than delete, "
                f"but there are only the columns of the primary key: add the others, or filter the rows"
            )
        return changes.rows


def row_kinds(column: pa.Array, table: str) -> Bytes:
    """The kind of each row, as an array of small numbers; `FlussError` for an unknown kind."""
    if column.null_count:
        raise FlussError(f"{column.null_count} rows for table {table} have no row kind: {_allowed()}")
    if not len(column):
        return np.zeros(0, np.uint8)
    encoded = column.dictionary_encode()
    numbers = []
    for text in encoded.dictionary.to_pylist():
        number = ROW_KINDS.get(text.strip().lower())
        if number is None:
            raise FlussError(f"row kind {text!r} of a row for table {table} is unknown: {_allowed()}")
        numbers.append(number)
    kinds: Bytes = np.asarray(numbers, np.uint8)[np.asarray(encoded.indices)]
    return kinds


def _allowed() -> str:
    return "it must be one of +I, +U, -U, -D, or insert, update_after, update_before, delete"
