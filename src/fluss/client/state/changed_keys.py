"""Finding rows whose key has changed: a set of keys that many batches are compared with.

Integers that are close together are looked up in a table of flags, a few array operations per batch. Other keys
are hashed by Arrow, which hashes the set again for every call: so batches are compared in groups.

Immutable, used by any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Bools

# A table of flags is used up to this size, and up to this many per key.
MAX_FLAGS = 1 << 24
MAX_FLAGS_PER_KEY = 256
# Rows that are compared at a time: per key of the set, at most, and their size.
COMPARED_ROWS_PER_KEY = 8
MAX_COMPARED_ROWS = 1 << 20
MAX_COMPARED_BYTES = 64 * 1024 * 1024


class ChangedKeys:
    """A set of keys, given as an Arrow array without nulls that is not empty."""

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys
        self._flags: Bools | None = None
        if pa.types.is_integer(keys.type):
            numbers = keys.to_numpy().astype(np.int64)
            self._low, high = int(numbers.min()), int(numbers.max())
            span = high - self._low + 1
            if span <= min(MAX_FLAGS, len(keys) * MAX_FLAGS_PER_KEY):
                # One more flag at the end that is never set, for all numbers out of range.
                self._flags = np.zeros(span + 1, np.bool_)
                self._flags[numbers - self._low] = True

    def groups(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
        """Group batches that are to be compared together."""
        wanted = 0 if self._flags is not None else min(len(self._keys) * COMPARED_ROWS_PER_KEY, MAX_COMPARED_ROWS)
        group: list[pa.RecordBatch] = []
        count = size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            group.append(batch)
            count += batch.num_rows
            size += batch.get_total_buffer_size()
            if count >= wanted or size >= MAX_COMPARED_BYTES:
                yield group
                group, count, size = [], 0, 0
        if group:
            yield group

    def unchanged(self, keys: list[pa.Array]) -> list[pa.Array]:
        """For each array of keys, a mask of those not in the set."""
        if self._flags is not None:
            return [self._without_flag(each) for each in keys]
        joined = pc.invert(pc.is_in(pa.chunked_array(keys), value_set=self._keys)).combine_chunks()
        starts = np.cumsum([0, *(len(each) for each in keys[:-1])])
        return [joined.slice(int(start), len(each)) for start, each in zip(starts, keys, strict=True)]

    def _without_flag(self, keys: pa.Array) -> pa.Array:
        assert self._flags is not None
        last = len(self._flags) - 1
        # As unsigned numbers, negative and overflowing differences are large, and so out of range.
        places = (keys.to_numpy().astype(np.int64) - np.int64(self._low)).view(np.uint64)
        return pa.array(~self._flags[np.minimum(places, np.uint64(last)).astype(np.int64)])
