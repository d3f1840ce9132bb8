"""The rows of a primary-key table as held by its writers, and the columns that a writer writes.

A row in the flat list has a value for every column of the table and a last one, True for a delete. So upserts and
deletes of one writer keep their order, also within a batch. A writer of some columns (a partial update) takes rows of
those columns, and a delete takes the columns of the primary key; the others are null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.fitting import ExtraDigits, FitRules
from fluss.client.input.arrow_input import ArrowInput, Source
from fluss.client.input.frame_input import table_of_frame
from fluss.client.input.row_columns import ColumnMaker
from fluss.client.net.metadata import ClientTable
from fluss.client.send.log_encoding import BatchEncoder
from fluss.client.write.call_checks import WholeCheck
from fluss.client.write.kv_encoding import KvEncoder, KvRouter, kv_row_format
from fluss.client.write.routing import Routed, place_rules
from fluss.client.write.row_function import RowRules, RowSink, make_append
from fluss.config import Config
from fluss.errors import FlussError
from fluss.model.schema import Column, Schema

if TYPE_CHECKING:
    from fluss.client.send.acknowledgements import WriteResultHandle


def named_targets(table: ClientTable, names: Sequence[str]) -> tuple[int, ...]:
    """The positions of the columns of a partial update, in the order given."""
    schema = table.schema
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise FlussError(f"columns of a partial update must be a list of names, got {names!r}")
    for name in names:
        if name not in schema:
            _refuse_targets(table, f"unknown column {name!r}; the columns are {', '.join(schema.column_names)}")
    if len(set(names)) != len(names):
        _refuse_targets(table, f"columns must not be duplicated, got {list(names)}")
    return tuple(schema.position(name) for name in names)


def target_positions(table: ClientTable, positions: Sequence[int]) -> tuple[int, ...]:
    """Check the positions of the columns of a partial update."""
    names = table.schema.column_names
    if isinstance(positions, str) or not isinstance(positions, Sequence):
        raise FlussError(f"columns of a partial update must be a list of positions, got {positions!r}")
    for position in positions:
        if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < len(names):
            raise FlussError(f"columns of table {table.path} are 0 to {len(names) - 1}, got {position!r}")
    return named_targets(table, [names[position] for position in positions])


def check_targets(table: ClientTable, targets: Sequence[int]) -> None:
    """Raise if servers refuse rows of just these columns."""
    schema = table.schema
    names = [schema.column_names[position] for position in targets]
    missing = [name for name in schema.primary_key if name not in names]
    if missing:
        _refuse_targets(table, f"its columns must include the primary key, missing: {', '.join(missing)}")
    if schema.auto_increment_column in names:
        _refuse_targets(table, f"the server assigns auto-increment column {schema.auto_increment_column!r}")
    if len(names) < len(schema.columns):
        _check_nullable(table)


def default_targets(table: ClientTable) -> tuple[int, ...]:
    """All columns except the one whose values the server assigns."""
    automatic = table.schema.auto_increment_column
    return tuple(index for index, name in enumerate(table.schema.column_names) if name != automatic)


def _check_nullable(table: ClientTable) -> None:
    schema = table.schema
    for column in schema.columns:
        exempt = column.name in schema.primary_key or column.name == schema.auto_increment_column
        if not exempt and not column.data_type.nullable:
            _refuse_targets(table, f"column {column.name!r} is {column.data_type}; all but the key must be nullable")


def _refuse_targets(table: ClientTable, text: str) -> None:
    raise FlussError(f"partial update of table {table.path}: {text}")


class KvRows:
    """Rows of the columns `targets` (positions in the order of list rows) of a primary-key table."""

    def __init__(
        self, table: ClientTable, config: Config, targets: tuple[int, ...], extra_digits: ExtraDigits = "error"
    ) -> None:
        schema = table.schema
        rules, keys = FitRules(extra_digits, kv_row_format(table)), schema.primary_key
        places = place_rules(table)
        self._table = table
        self._column_count = len(schema.columns)
        self.width = self._column_count + 1
        self._targets = targets
        self._key_positions = tuple(schema.position(name) for name in schema.primary_key)
        is_partial = len(targets) < self._column_count
        self.encoder: BatchEncoder = KvEncoder(
            table, config.writer_request_max_size, tuple(sorted(targets)) if is_partial else ()
        )
        label = f"{table.path} (partial update)" if is_partial else str(table.path)
        self._upsert_rules = RowRules(label, self._part(targets), rules=rules, exact=keys, places=places)
        self._upsert_input = ArrowInput(label, self._part(targets), rules=rules, exact=keys, places=places)
        key_label = f"{table.path} (delete by primary key)"
        self._delete_rules = RowRules(
            key_label, self._part(self._key_positions), rules=rules, exact=keys, places=places
        )
        self._delete_input = ArrowInput(
            key_label, self._part(self._key_positions), rules=rules, exact=keys, places=places
        )
        # Deletes have values in the key columns only, so nulls of the others are checked row by row.
        changed = self._part(targets, keys_only_not_null=True)
        self._change_input = ArrowInput(label, changed, rules=rules, exact=keys, places=places)
        self._columns = ColumnMaker(schema)
        self._arrow_schema = self._columns.arrow_schema.append(pa.field("", pa.bool_()))
        self._has_deletes = False
        types = [
            data_type if index in targets else data_type.copy(True) for index, data_type in enumerate(schema.data_types)
        ]
        self._router = KvRouter(table, types, config.bucket_hash)
        self.spread = self._router.spread
        self._check = WholeCheck(self.encoder, self._encoded, config.writer_batch_size)

    def _part(self, positions: Sequence[int], *, keys_only_not_null: bool = False) -> Schema:
        """The schema of rows with only these columns; key columns are always NOT NULL."""
        schema = self._table.schema
        columns = []
        for position in positions:
            column = schema.columns[position]
            data_type = column.data_type.copy(True) if keys_only_not_null else column.data_type
            columns.append(
                Column(column.name, data_type.not_null() if column.name in schema.primary_key else data_type)
            )
        return Schema(tuple(columns))

    # ---- rows ----

    def make_append(self, sink: RowSink) -> Callable[[object], WriteResultHandle]:
        """The function `upsert(row)`."""
        return make_append(self._upsert_rules, sink, self._stored(self._targets, is_delete=False))

    def make_delete(self, sink: RowSink) -> Callable[[object], object]:
        """The function `delete(key)`. Its first call makes float columns use the path for columns with nulls."""
        delete = make_append(self._delete_rules, sink, self._stored(self._key_positions, is_delete=True))

        def first_delete(key: object) -> object:
            self._has_deletes = True
            return delete(key)

        return first_delete

    def _stored(self, positions: Sequence[int], *, is_delete: bool) -> str:
        """Source of the tuple for the flat list: variables for columns with values, otherwise None."""
        values = ["None"] * self._column_count
        for number, position in enumerate(positions):
            values[position] = f"v{number}"
        return f"({', '.join(values)}, {is_delete})"

    def record_batch(self, flat: list[object]) -> pa.RecordBatch:
        """The rows of a flat list: the table's columns, and the mask of deletes."""
        saw_null = [True] * self._column_count
        if not self._has_deletes:
            for number, position in enumerate(self._targets):
                saw_null[position] = self._upsert_rules.saw_null[number]
        arrays = self._columns.arrays(flat, saw_null, self.width)
        arrays.append(pa.array(flat[self._column_count :: self.width], pa.bool_()))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)

    # ---- Arrow ----

    def upserts(self, rows: pa.Table | pa.RecordBatch, call: str, first_row: int = 0) -> Iterator[pa.RecordBatch]:
        """Record batches that upsert all rows of an Arrow table or record batch; `first_row` is for errors."""
        return self._widened(self._upsert_input, self._targets, rows, call, first_row, is_delete=False)

    def deletes(self, rows: pa.Table | pa.RecordBatch, call: str, first_row: int = 0) -> Iterator[pa.RecordBatch]:
        """Record batches that delete all keys of an Arrow table or record batch."""
        return self._widened(self._delete_input, self._key_positions, rows, call, first_row, is_delete=True)

    def changes(self, rows: pa.RecordBatch, deletes: pa.Array, call: str) -> list[pa.RecordBatch]:
        """Record batches that upsert the rows of a record batch, or delete their keys where `deletes` is true."""
        if not isinstance(rows, pa.RecordBatch):
            raise FlussError(f"{call} takes a pyarrow.RecordBatch, got {type(rows).__name__}")
        if not isinstance(deletes, pa.BooleanArray) or len(deletes) != rows.num_rows or deletes.null_count:
            raise FlussError(f"{call} takes a pyarrow.BooleanArray with true or false for each of {rows.num_rows} rows")
        batch = self._change_input.conform(rows)
        upserts = pc.invert(deletes)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            data_type = self._table.schema.columns[self._table.schema.position(name)].data_type
            if not column.null_count or data_type.nullable:
                continue
            row = pc.and_(column.is_null(), upserts).index(True).as_py()
            if row >= 0:
                text = (
                    f"column {name!r} ({data_type}) must not be null, but is null in row {row}, which is not a delete"
                )
                raise FlussError(f"the rows do not fit table {self._table.path}: {text}: write a value")
        wide = self._wide(batch, self._targets, deletes)
        self._check(wide, is_all=True)
        return [wide]

    def upserts_of_frame(self, frame: Any, call: str) -> Iterator[pa.RecordBatch]:
        """Record batches that upsert all rows of a pandas data frame."""
        return self.upserts(table_of_frame(self._upsert_input, frame, call), call)

    def deletes_of_frame(self, frame: Any, call: str) -> Iterator[pa.RecordBatch]:
        """Record batches that delete all keys of a pandas data frame."""
        return self.deletes(table_of_frame(self._delete_input, frame, call), call)

    def _widened(
        self,
        rules: ArrowInput,
        positions: Sequence[int],
        rows: pa.Table | pa.RecordBatch,
        call: str,
        first_row: int,
        *,
        is_delete: bool,
    ) -> Iterator[pa.RecordBatch]:
        def wide(batch: pa.RecordBatch) -> pa.RecordBatch:
            return self._wide(batch, positions, pa.array(np.full(batch.num_rows, is_delete)))

        def check(batch: pa.RecordBatch, *, is_all: bool) -> None:
            self._check(wide(batch), is_all=is_all)

        if isinstance(rows, pa.RecordBatch):
            made = wide(rules.conform(rows, Source(rows, first_row)))
            self._check(made, is_all=True)
            return iter([made])
        # All batches are checked here, before the first one is used.
        return map(wide, rules.batches(rows, call, first_row, check))

    def _encoded(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return (routed.rows for routed in self._router.route(batch))

    def _wide(self, batch: pa.RecordBatch, positions: Sequence[int], deletes: pa.Array) -> pa.RecordBatch:
        """All columns of the table, null if missing in the batch, and the mask of deletes."""
        types = self._arrow_schema.types
        columns: list[pa.Array | None] = [None] * self._column_count
        for number, position in enumerate(positions):
            columns[position] = batch.column(number)
        arrays = [
            pa.nulls(batch.num_rows, types[index]) if each is None else each for index, each in enumerate(columns)
        ]
        return pa.RecordBatch.from_arrays([*arrays, deletes], schema=self._arrow_schema)

    def route(self, batch: pa.RecordBatch) -> list[Routed]:
        """Encode the rows and divide them by bucket."""
        return self._router.route(batch)
