"""Rows of the lake, corrected by later changes: a hash merge by key, in which the newest row of a key wins.

The changes are kept in memory, one image per key, with a flag for deletions: a key that was changed and then deleted
must still hide its row in the lake. The rows of the lake stream past them, in any order of keys.

A `Tail` is used by one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fluss.client.engine.admin import ClientTable
from fluss.client.engine.keys import ChangedKeys, last_of_each, newest_images, table_key_plan
from fluss.client.engine.rows import LogRows
from fluss.codec.keys.encoding import KeyEncoding, encode_keys

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Bools

# Changes that are collected before duplicate keys are removed.
MAX_UNMERGED_ROWS = 500_000

# Types whose values can be keys as they are: equal keys have equal values, which Arrow can hash.
_PLAIN_ROOTS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "CHAR", "STRING", "BINARY", "BYTES", "DATE"})


class MergeKeys:
    """The keys of rows within a bucket, found by column names, in any form that is unique per key."""

    def __init__(self, table: ClientTable) -> None:
        self.names = table_key_plan(table).primary_columns
        self._types = [table.schema.data_types[table.schema.position(name)] for name in self.names]
        self._is_plain = len(self.names) == 1 and self._types[0].root in _PLAIN_ROOTS

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """An array with one key per row."""
        columns = [batch.column(batch.schema.get_field_index(name)) for name in self.names]
        if self._is_plain:
            return columns[0]
        return encode_keys(columns, self._types, KeyEncoding.COMPACTED, batch.num_rows)


class Tail:
    """The last image of every key that changed. Batches have the columns of `schema`, the key among them.

    `size_bytes` is the memory that the images take.
    """

    def __init__(self, keys: MergeKeys, schema: pa.Schema) -> None:
        self._keys = keys
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._deleted: list[Bools] = []
        self._unmerged = 0
        self.size_bytes = 0

    def add(self, rows: LogRows) -> None:
        """Add the next changes of the log."""
        batch, deleted = newest_images(rows)
        if not batch.num_rows:
            return  # only old images; the new ones follow
        self._batches.append(batch)
        self._deleted.append(deleted)
        self._unmerged += batch.num_rows
        self.size_bytes += batch.get_total_buffer_size()
        if self._unmerged >= MAX_UNMERGED_ROWS:
            self.merge()

    def merge(self) -> None:
        """Keep the last image of each key."""
        if not self._unmerged:
            return
        (batch,) = pa.Table.from_batches(self._batches, self._schema).combine_chunks().to_batches()
        last = last_of_each(self._keys.of(batch))
        self._batches = [batch.take(pa.array(last))]
        self._deleted = [np.concatenate(self._deleted)[last]]
        self._unmerged = 0
        self.size_bytes = self._batches[0].get_total_buffer_size()

    def correct(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return rows of the lake whose keys have not changed, then the current rows of changed keys."""
        self.merge()
        if not self._batches:
            yield from batches
            return
        changed = ChangedKeys(self._keys.of(self._batches[0]))
        for group in changed.groups(batches):
            masks = changed.unchanged([self._keys.of(batch) for batch in group])
            for batch, mask in zip(group, masks, strict=True):
                count = mask.true_count
                if count:
                    yield batch if count == batch.num_rows else batch.filter(mask)
        (there,), (deleted,) = self._batches, self._deleted
        if deleted.any():
            there = there.filter(pa.array(~deleted))
        if there.num_rows:
            yield there
