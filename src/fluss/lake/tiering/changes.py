"""The last image of every key that changed in a range of a changelog, including deleted keys.

One thread uses a `ChangeFold`. Changes are merged by key when there are as many new ones as merged ones, and at least
`MIN_UNMERGED_ROWS`: so every row is merged about twice, however many there are. Memory is at most twice the size of the
changes of different keys; callers stop adding when it `is_full`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from fluss.client.engine.keys import last_of_each
from fluss.client.engine.rows import LogRows
from fluss.lake.reading.merge import MergeKeys
from fluss.lake.tiering.log_reading import with_lake_columns
from fluss.model.paths import ChangeType

if TYPE_CHECKING:
    import numpy.typing as npt

MIN_UNMERGED_ROWS = 200_000


class Changes(NamedTuple):
    """Changed keys, and the rows of those that still exist, in offset order; None if there are none."""

    keys: pa.Array | None
    rows: pa.RecordBatch | None


class ChangeFold:
    """Folds changes by key: add them in the order of the log, then take `changes` once."""

    def __init__(self, keys: MergeKeys) -> None:
        self._keys = keys
        self._batches: list[pa.RecordBatch] = []
        self._deleted: list[npt.NDArray[np.bool_]] = []
        self._merged = self._unmerged = 0
        self._merged_keys: pa.Array | None = None

    def is_full(self, max_bytes: int) -> bool:
        """True if the changes of different keys take half of `max_bytes`; with more, merging would not fit."""
        if self._size_bytes() <= max_bytes:
            return False
        self._merge()
        return self._size_bytes() > max_bytes // 2

    def _size_bytes(self) -> int:
        return sum(int(batch.get_total_buffer_size()) for batch in self._batches)

    def add(self, rows: LogRows) -> None:
        """Add the next changes; rows have all columns of the table."""
        batch = with_lake_columns(rows)
        deleted = np.zeros(batch.num_rows, np.bool_)
        if rows.change_types is not None:
            types = np.frombuffer(rows.change_types, np.uint8)
            # The old row of an update is not needed: its new row follows, in this round or in the next one.
            kept = np.flatnonzero(types != ChangeType.UPDATE_BEFORE)
            batch = batch if len(kept) == len(types) else batch.take(pa.array(kept))
            deleted = types[kept] == ChangeType.DELETE
        if not batch.num_rows:
            return
        self._batches.append(batch)
        self._deleted.append(deleted)
        self._unmerged += batch.num_rows
        if self._unmerged >= max(MIN_UNMERGED_ROWS, self._merged):
            self._merge()

    def _merge(self) -> None:
        """Keep only the last row of each key."""
        self._unmerged = 0
        joined = pa.Table.from_batches(self._batches).combine_chunks().to_batches()
        if not joined:
            return
        (batch,) = joined
        deleted = np.concatenate(self._deleted)
        keys = self._keys.of(batch)
        last = last_of_each(keys)
        picked = pa.array(last)
        self._batches, self._deleted, self._merged = [batch.take(picked)], [deleted[last]], len(last)
        self._merged_keys = keys.take(picked)

    def changes(self) -> Changes:
        """The merged changes."""
        if not self._batches:
            return Changes(self._merged_keys, None)
        self._merge()
        (batch,), (deleted,) = self._batches, self._deleted
        rows = batch if not deleted.any() else batch.filter(pa.array(~deleted))
        return Changes(self._merged_keys, rows if rows.num_rows else None)
