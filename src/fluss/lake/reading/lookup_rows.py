"""Rows by key of partitions that Fluss has dropped and the lake still has.

Lookups ask Fluss first. This module is used only if the partition does not exist there and the table has a lake. It
asks the coordinator for the newest snapshot each time, because the partition may have been tiered to its end and
dropped a moment ago. Data of the snapshot is kept until there is a newer one, so a partition that exists nowhere costs
one request.

Files are left out by their statistics, then rows are compared by key, column-wise. Everything here blocks, and may be
used by several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.engine.keys import KeyReader, Place, TableKeys
from fluss.client.engine.table import TableAccess
from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.keys.encoding import KeyEncoding, encode_keys
from fluss.errors import ErrorCode, FlussError
from fluss.lake.reading.lake_access import load_lake_table, registered_snapshot, snapshot_files
from fluss.lake.reading.plan import MAX_PLANS, files_by_place, lake_condition
from fluss.lake.reading.split_rows import lake_rows
from fluss.values.predicates import Predicate, col

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fluss.codec.filters.predicate import Predicate as LakePredicate
    from fluss.codec.rows.varint import Int64s
    from fluss.lake.tables.interface.format import LakeTable

# With more keys than this, no condition is given to the planner: hardly any file lacks all of them.
MAX_KEYS_IN_FILTER = 1_000


class _State(NamedTuple):
    registered_id: int
    snapshot_id: int
    table: LakeTable
    places: frozenset[tuple[str | None, int | None]]


class Found(NamedTuple):
    """Rows of the lake, and for each the position of its key among the given keys."""

    rows: pa.RecordBatch
    positions: Int64s


class LakeRows:
    """Finds rows of one table by the columns of one `KeyReader`."""

    def __init__(self, table: TableAccess, keys: KeyReader) -> None:
        self._table = table
        self._keys = keys
        self._schema = to_arrow_schema(table.schema)
        partition_keys = table.descriptor.partition_keys
        self._names = [name for name in keys.names if name not in partition_keys]
        schema = table.schema
        self._types = [schema.data_types[schema.position(name)] for name in self._names]
        self._primary_keys = TableKeys(table.description)
        self._state: _State | None = None
        self._lock = threading.Lock()

    def find(self, keys: pa.RecordBatch) -> Found:
        """Find the rows of a batch of keys, by key and in the order of their primary keys."""
        for attempts_left in reversed(range(MAX_PLANS)):
            try:
                return self._find(keys)
            except FlussError as error:
                if error.error_code != ErrorCode.LAKE_SNAPSHOT_NOT_EXIST or not attempts_left:
                    raise
                self._state = None
        raise AssertionError("the last attempt returns or raises")

    def _find(self, keys: pa.RecordBatch) -> Found:
        state = self._current()
        rows: list[pa.RecordBatch] = []
        positions: list[Int64s] = []
        for group in () if state is None else self._keys.groups(keys):
            assert state is not None
            if (group.place.partition_name, group.place.bucket_id) in state.places:
                for batch, which in self._rows_of(state, group.place, keys.take(pa.array(group.positions))):
                    rows.append(batch)
                    positions.append(np.asarray(group.positions)[which])
        found = pa.Table.from_batches(rows, self._schema).combine_chunks()
        (batch,) = found.to_batches() or [pa.RecordBatch.from_pylist([], self._schema)]
        return self._ordered(batch, np.concatenate([np.zeros(0, np.int64), *positions]))

    def _current(self) -> _State | None:
        snapshot = registered_snapshot(self._table)
        if snapshot is None:
            return None
        with self._lock:
            state = self._state
        if state is not None and state.registered_id == snapshot.snapshot_id:
            return state
        table = load_lake_table(self._table, snapshot)
        readable, files = snapshot_files(table, self._table, snapshot)
        state = _State(snapshot.snapshot_id, readable.snapshot_id, table, frozenset(files_by_place(files)))
        with self._lock:
            self._state = state
        return state

    def _rows_of(self, state: _State, place: Place, keys: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, Int64s]]:
        """Batches of one bucket, and for each row the position of its key in `keys`."""
        condition = self._condition(keys)
        files = state.table.plan_files(
            state.snapshot_id, self._table.schema, condition, [(place.partition_name, place.bucket_id)]
        )
        wanted = self._encoded(keys).dictionary_encode()
        # Equal keys are looked up once; the row that is found belongs to all of them.
        indices = np.asarray(wanted.indices)
        by_key = np.argsort(indices, kind="stable")
        starts = np.searchsorted(indices[by_key], np.arange(len(wanted.dictionary) + 1))
        for batch in lake_rows(self._table, state.table.target(), files, self._schema.names):
            numbers = pc.index_in(self._encoded(batch), value_set=wanted.dictionary)
            matching = np.flatnonzero(numbers.is_valid().to_numpy(zero_copy_only=False))
            if not len(matching):
                continue
            number = numbers.take(pa.array(matching)).to_numpy()
            counts = starts[number + 1] - starts[number]
            before = np.repeat(np.cumsum(counts) - counts, counts)
            which = by_key[np.repeat(starts[number], counts) + np.arange(len(before)) - before]
            yield batch.take(pa.array(np.repeat(matching, counts))), which

    def _encoded(self, batch: pa.RecordBatch) -> pa.Array:
        columns = [batch.column(batch.schema.get_field_index(name)) for name in self._names]
        return encode_keys(columns, self._types, KeyEncoding.COMPACTED, batch.num_rows)

    def _condition(self, keys: pa.RecordBatch) -> LakePredicate | None:
        if keys.num_rows > MAX_KEYS_IN_FILTER:
            return None
        conditions = [
            col(name).is_in(keys.column(keys.schema.get_field_index(name)).to_pylist()) for name in self._names
        ]
        return lake_condition(self._table, _all_of(conditions))

    def _ordered(self, batch: pa.RecordBatch, positions: Int64s) -> Found:
        if batch.num_rows <= 1:
            return Found(batch, positions)
        by_key = np.asarray(pc.array_sort_indices(self._primary_keys.of(batch)))
        order = by_key[np.argsort(positions[by_key], kind="stable")]
        return Found(batch.take(pa.array(order)), positions[order])


def _all_of(conditions: Sequence[Predicate]) -> Predicate:
    joined = conditions[0]
    for condition in conditions[1:]:
        joined = joined & condition
    return joined
