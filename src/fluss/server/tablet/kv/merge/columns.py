"""Partial updates column by column, for batches without deletes whose keys are all different.

The result is exactly that of `merge_rows` with a `PartialUpdateMerger`, but without a Python object per value; a
property test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fluss.codec.batches.kv_values import encode_values
from fluss.server.storage.kv.table_format import KvTableFormat
from fluss.server.tablet.kv.merge.put_batch import INSERT, UPDATE_AFTER, UPDATE_BEFORE, MergeResult

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Bools

# Below this the fixed cost of array operations is larger than a loop over the rows.
COLUMN_WISE_MIN_RECORDS = 64


def merge_partial_columns(
    table_format: KvTableFormat,
    keys: Sequence[bytes],
    values: Sequence[bytes | None],
    olds: Sequence[bytes | None],
    written: Sequence[bool],
    *,
    with_old: bool,
) -> MergeResult:
    """Merge upserts of different keys; `olds` are their previous values, `written` is True for the target columns.

    At least one column outside the key is written, so every record changes something.
    """
    count = len(keys)
    known = np.array([old is not None for old in olds], np.bool_)
    old_columns = table_format.reader.columns(pa.array([old for old in olds if old is not None], pa.binary()))
    new_columns = table_format.reader.columns(pa.array(values, pa.binary()))
    # The index of each record's old row among the old rows; null if it has none.
    places = pa.array(np.cumsum(known) - 1, mask=~known)
    merged = [
        new if is_written else old.take(places)
        for old, new, is_written in zip(old_columns, new_columns, written, strict=True)
    ]
    columns, types = _changelog(old_columns, merged, known, with_old=with_old)
    batch = pa.RecordBatch.from_arrays(merged, schema=table_format.changelog.arrow_schema)
    encoded = encode_values(batch, table_format.schema_id, table_format.schema, table_format.row_format)
    entries: dict[bytes, bytes | None] = dict(zip(keys, encoded.to_pylist(), strict=True))
    return MergeResult(columns, types, entries, count - int(known.sum()))


def _changelog(
    old_columns: list[pa.Array], merged: list[pa.Array], known: Bools, *, with_old: bool
) -> tuple[list[pa.Array], bytes]:
    """Changelog rows and change types: per record its old row (if it has one and `with_old` is set) and its new row."""
    before = known if with_old else np.zeros(len(known), np.bool_)
    ends = np.cumsum(before.astype(np.int64) + 1)
    types = np.full(int(ends[-1]), UPDATE_BEFORE, np.uint8)
    types[ends - 1] = np.where(known, UPDATE_AFTER, INSERT)
    if not before.any():
        return merged, types.tobytes()
    # Source rows: the old ones, then the new ones.
    old_count = int(known.sum())
    index = np.empty(len(types), np.int64)
    index[ends - 1] = old_count + np.arange(len(known))
    index[(ends - 2)[before]] = np.arange(old_count)
    order = pa.array(index)
    return [
        pa.concat_arrays([old, new]).take(order) for old, new in zip(old_columns, merged, strict=True)
    ], types.tobytes()
