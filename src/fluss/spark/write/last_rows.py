"""Rows of primary-key tables for `delivery=exactly-once`: only the last row of every key of a task is written.

Attempts of a task may overlap: because of speculation, or because an executor that Spark has given up still runs. If
each attempt wrote its rows as they arrive, one that is killed half-way could overwrite the last row of a key with an
older one. So a task takes its whole input first (`spool`, `input_check`), and then writes the same rows in every
attempt, in whatever order the rows of several attempts arrive.

Memory: input larger than `SHARE_BYTES` is divided by a hash of the key into shares, each in its own file, and the
shares are merged one after another. Only the last rows of a key are held, even if it has very many.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.engine.keys import last_of_each
from fluss.codec.keys.bucketing import fluss_buckets
from fluss.codec.keys.encoding import KeyEncoding, encode_keys
from fluss.model.properties import DELETE_BEHAVIOR, MERGE_ENGINE_VERSION_COLUMN
from fluss.spark.sessions.connection_cache import OpenTable
from fluss.spark.write.append import Batches, wanted_bytes, write_all
from fluss.spark.write.plan import WritePlan
from fluss.spark.write.rows import Changes, RowConverter, gathered
from fluss.spark.write.spool import Spool
from fluss.spark.write.upsert import changes_of, upsert_writer, write_changes

SHARE_BYTES = 64 * 1024 * 1024
MAX_SHARES = 256
_DELETED = "__deleted"


def upsert_last_rows(plan: WritePlan, opened: OpenTable, batches: Batches) -> int:
    """Write the last row of every key once all rows of the task have arrived. Return how many rows arrived."""
    converter = RowConverter(plan)
    rows = LastRows(plan, opened)
    writer = upsert_writer(plan, opened)
    with Spool(rows.schema) as spool:
        for batch in gathered(batches, wanted_bytes(opened)):
            spool.add(rows.spooled(changes_of(plan, converter, batch)))

        def write(batch: pa.RecordBatch) -> None:
            *columns, deletes = batch.columns
            write_changes(plan, writer, Changes(pa.RecordBatch.from_arrays(columns, schema=plan.target), deletes))

        write_all(writer, write, rows.of(spool))
        return spool.rows


class LastRows:
    """Finds the last row of every key of one table, in batches with a column that marks deletes."""

    def __init__(self, plan: WritePlan, opened: OpenTable) -> None:
        schema = opened.access.schema
        names = schema.primary_key
        self._positions = [plan.target.get_field_index(name) for name in names]
        self._types = [schema.data_types[schema.position(name)] for name in names]
        properties = opened.info.get_properties()
        version = properties.get(MERGE_ENGINE_VERSION_COLUMN)
        self._version_position = None if version is None else plan.target.get_field_index(version)
        self._ignores_deletes = properties.get(DELETE_BEHAVIOR, "").upper() == "IGNORE"
        self.schema = plan.target.append(pa.field(_DELETED, pa.bool_(), nullable=False))

    def spooled(self, changes: Changes) -> pa.RecordBatch:
        """The rows with a column that marks deletes; without the deletes if the table ignores them."""
        batch = pa.RecordBatch.from_arrays([*changes.rows.columns, changes.deletes], schema=self.schema)
        return batch.filter(pc.invert(changes.deletes)) if self._ignores_deletes else batch

    def of(self, spool: Spool) -> Iterator[pa.RecordBatch]:
        """The last row of every key, in no particular order."""
        count = min(MAX_SHARES, -(-spool.size_bytes // SHARE_BYTES))
        if count <= 1:
            yield from self._merged(spool.batches())
            return
        with contextlib.ExitStack() as stack:
            shares = [stack.enter_context(Spool(self.schema, max_memory_bytes=0)) for _ in range(count)]
            for batch in spool.batches():
                self._divide(batch, shares)
            for share in shares:
                yield from self._merged(share.batches())
                share.close()

    def _divide(self, batch: pa.RecordBatch, shares: list[Spool]) -> None:
        numbers = fluss_buckets(self._keys(batch), len(shares))
        for number in np.unique(numbers).tolist():
            shares[number].add(batch.filter(pa.array(numbers == number)))

    def _merged(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return at most one batch. Rows are merged whenever they are as large as a share."""
        waiting: list[pa.RecordBatch] = []
        waiting_bytes = 0
        for batch in batches:
            waiting.append(batch)
            waiting_bytes += batch.nbytes
            if waiting_bytes >= SHARE_BYTES:
                waiting, waiting_bytes = [self._last(waiting)], 0
        if waiting:
            yield self._last(waiting)

    def _last(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        batch = pa.concat_batches(batches)
        if self._version_position is not None:  # the engine keeps the highest version, among equal ones the later row
            versions = batch.column(self._version_position)
            batch = batch.take(pc.array_sort_indices(versions, null_placement="at_start"))
        return batch.take(pa.array(last_of_each(self._keys(batch))))

    def _keys(self, batch: pa.RecordBatch) -> pa.Array:
        """Bytes that are equal for equal keys, partition columns included."""
        columns = [batch.column(position) for position in self._positions]
        return encode_keys(columns, self._types, KeyEncoding.COMPACTED, batch.num_rows)
