"""Rows of the lake corrected by the changes since: a hash merge by key, newest wins, deletions drop.

The changes are held, one image per key, with a mark where it is a deletion: a key that was changed and then deleted
must still hide its row in the lake. The rows of the lake stream past them, in any order of keys.

A `Tail` is used by one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.client.lookup.keys import table_key_plan
from fluss.client.metadata import ClientTable
from fluss.client.scanner.log_rows import LogRows
from fluss.client.table_read.changelog import newest_images
from fluss.codec.keys import KeyEncoding, encode_keys

# Changes that are collected before equal keys are thrown out.
MAX_UNMERGED_ROWS = 500_000
# Rows of the lake that are compared at a time: each comparison hashes the keys of the tail once.
MAX_COMPARED_ROWS = 1 << 20
MAX_COMPARED_BYTES = 64 * 1024 * 1024

# Equal values are equal keys, and Arrow hashes them as they are.
_PLAIN_ROOTS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "CHAR", "STRING", "BINARY", "BYTES", "DATE"})


class MergeKeys:
    """The keys of rows within a bucket, found by column names; any form will do in which different keys differ."""

    def __init__(self, table: ClientTable) -> None:
        self.names = table_key_plan(table).primary_columns
        self._types = [table.schema.data_types[table.schema.position(name)] for name in self.names]
        self._is_plain = len(self.names) == 1 and self._types[0].root in _PLAIN_ROOTS

    def of(self, batch: Any) -> Any:
        """An array with one key per row."""
        columns = [batch.column(batch.schema.get_field_index(name)) for name in self.names]
        if self._is_plain:
            return columns[0]
        return encode_keys(columns, self._types, KeyEncoding.COMPACTED, batch.num_rows)


class Tail:
    """The last image of every key that changed. Batches have the columns of `schema`, the key among them.

    `size_bytes` is what it holds in memory.
    """

    def __init__(self, keys: MergeKeys, schema: Any) -> None:
        self._keys = keys
        self._schema = schema
        self._batches: list[Any] = []
        self._deleted: list[Any] = []
        self._unmerged = 0
        self.size_bytes = 0

    def add(self, rows: LogRows) -> None:
        """The next changes."""
        batch, deleted = newest_images(rows)
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
        encoded = self._keys.of(batch).dictionary_encode()
        last = np.zeros(len(encoded.dictionary), np.int64)
        last[np.asarray(encoded.indices)] = np.arange(batch.num_rows)  # of equal keys the last one stays
        last.sort()
        self._batches = [batch.take(pa.array(last))]
        self._deleted = [np.concatenate(self._deleted)[last]]
        self._unmerged = 0
        self.size_bytes = self._batches[0].get_total_buffer_size()

    def correct(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Rows of the lake whose keys have not changed, then the rows of those that have and are there."""
        self.merge()
        if not self._batches:
            yield from batches
            return
        changed = self._keys.of(self._batches[0])
        for group in _groups(batches, min(len(changed), MAX_COMPARED_ROWS)):
            keys = pa.chunked_array([self._keys.of(batch) for batch in group])
            kept = pc.invert(pc.is_in(keys, value_set=changed)).combine_chunks()
            start = 0
            for batch in group:
                mask = kept.slice(start, batch.num_rows)
                start += batch.num_rows
                count = mask.true_count
                if count:
                    yield batch if count == batch.num_rows else batch.filter(mask)
        there = self._batches[0].filter(pa.array(~self._deleted[0]))
        if there.num_rows:
            yield there


def _groups(batches: Iterable[Any], rows: int) -> Iterator[list[Any]]:
    """So many batches at a time that hashing the changed keys anew for each group costs less than the group itself."""
    group: list[Any] = []
    count = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        group.append(batch)
        count += batch.num_rows
        size += batch.get_total_buffer_size()
        if count >= rows or size >= MAX_COMPARED_BYTES:
            yield group
            group, count, size = [], 0, 0
    if group:
        yield group
