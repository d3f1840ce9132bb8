"""Merge engines: which row is kept when a key is written again.

Each is a `RowMerger`. `merger_for` selects one for a table and a request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss.codec.rows.varint import Bools
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.kv.table_format import KvTableFormat
from fluss.server.tablet.buckets.kv_rules import KvRules
from fluss.server.tablet.kv.merge.aggregation import AggregationMerger
from fluss.server.tablet.kv.merge.partial_update import PartialUpdateMerger, checked_targets
from fluss.server.tablet.kv.merge.put_batch import Row, RowMerger


class LastRowMerger:
    """Merges without a merge engine: the last write of a key wins."""

    def insert(self, new: Row) -> Row:
        return new

    def update(self, old: Row, new: Row) -> Row:
        return new

    def delete(self, old: Row) -> Row | None:
        return None


class FirstRowMerger(LastRowMerger):
    """Merges by the engine `first_row`: the first write of a key wins."""

    def update(self, old: Row, new: Row) -> Row:
        return old

    def chosen(self, table_format: KvTableFormat, olds: list[bytes | None], news: pa.Array) -> Bools:
        """Return a mask of the records to keep, which all have different keys: those whose key is new."""
        return np.array([old is None for old in olds], np.bool_)


class VersionedMerger(LastRowMerger):
    """Merges by the engine `versioned`: the highest version wins, of equal ones the later. Null is the lowest."""

    def __init__(self, position: int) -> None:
        self._position = position

    def update(self, old: Row, new: Row) -> Row:
        old_version, new_version = old[self._position], new[self._position]
        if old_version is None:
            return new
        return new if new_version is not None and new_version >= old_version else old

    def chosen(self, table_format: KvTableFormat, olds: list[bytes | None], news: pa.Array) -> Bools:
        """Return a mask of the records to keep, which all have different keys; `news` is an array of their values."""
        chosen: Bools = np.array([old is None for old in olds], np.bool_)
        known = np.flatnonzero(~chosen)
        if len(known):
            columns = table_format.reader.columns
            old_versions = columns(pa.array([olds[place] for place in known], pa.binary()))[self._position]
            new_versions = columns(news.take(pa.array(known)))[self._position]
            is_later = pc.fill_null(pc.greater_equal(new_versions, old_versions), False)
            chosen[known] = pc.or_(is_later, old_versions.is_null()).to_numpy(zero_copy_only=False)
        return chosen


class NumberingMerger:
    """Wraps another merger, and fills the auto-increment column of inserted rows."""

    def __init__(self, inner: RowMerger, position: int, next_number: Callable[[], int]) -> None:
        self._inner = inner
        self._position = position
        self._next_number = next_number

    def insert(self, new: Row) -> Row:
        row = list(self._inner.insert(new))
        row[self._position] = self._next_number()
        return row

    def update(self, old: Row, new: Row) -> Row:
        row = self._inner.update(old, new)
        if row is old or row[self._position] == old[self._position]:
            return row
        row = list(row)
        row[self._position] = old[self._position]
        return row

    def delete(self, old: Row) -> Row | None:
        return self._inner.delete(old)


def merger_for(
    rules: KvRules, target_columns: Sequence[int], next_number: Callable[[], int], *, overwrite: bool
) -> RowMerger | None:
    """The merger for one request; None if rows are written whole and the last one wins.

    FlussError 35 for invalid target columns, -1 if the engine does not support partial updates.
    """
    targets = checked_targets(rules, target_columns)
    engine = None if overwrite else rules.merge_engine
    if engine in ("first_row", "versioned") and targets is not None:
        raise FlussError(
            f"the merge engine {engine!r} of {rules.entry.path} does not support partial updates; write whole rows",
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )
    merger: RowMerger | None = None
    if engine == "first_row":
        merger = FirstRowMerger()
    elif engine == "versioned":
        merger = VersionedMerger(rules.version_position)
    elif engine == "aggregation":
        merger = AggregationMerger(rules, targets)
    elif targets is not None:
        merger = PartialUpdateMerger(rules, targets)
    if rules.auto_increment_position is not None:
        merger = NumberingMerger(merger or LastRowMerger(), rules.auto_increment_position, next_number)
    return merger
