"""The merge of whole rows, of which the last one of a key wins, for all records of a batch at once.

The result is exactly that of `merge_values`, which loops over the records and is meant for small batches; a property
test compares the two. Here values stay in Arrow arrays: the changelog consists of rows taken from stored and new
values, in an order that is computed with arrays, and only these rows are decoded.

The store should get its rows in key order. Sorting arrays and then converting them to Python objects is much cheaper
than sorting the objects, which are scattered over memory. The changelog keeps the order of the records.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from fluss.codec.batches.kv_batch import KvRecords
from fluss.codec.rows.column_buffers import first_words
from fluss.codec.rows.varint import Bools, Bytes, Int64s
from fluss.server.storage.kv.table_format import KvTableFormat
from fluss.server.tablet.kv.merge.put_batch import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    DeletePolicy,
    MergeResult,
    merge_values,
)

Keys = list[bytes]
Values = list[bytes | None]
OldValues = Callable[[Keys, pa.Array | None], Values]


def merge_whole_rows(
    table_format: KvTableFormat, records: KvRecords, old_values: OldValues, deletes: DeletePolicy, *, full_image: bool
) -> MergeResult:
    """Merge a batch of whole rows. `old_values` looks up distinct keys, given as a list and as an array.

    Without `full_image`, the changelog has no old rows of updates.
    """
    key_array, array = records.keys, records.values
    has_deletes = bool(array.null_count)
    if full_image and not has_deletes:
        # Sorting may swap records with equal keys. If there are any, the dict is shorter, and nothing was done yet.
        order = np.argsort(first_words(key_array))
        sorted_keys = key_array.take(pa.array(order))
        keys = sorted_keys.to_pylist()
        entries = dict(zip(keys, array.take(pa.array(order)).to_pylist(), strict=True))
        if len(entries) == len(keys):
            return _merge_different_keys(table_format, array, old_values(keys, sorted_keys), entries, order)
    keys, values = records.key_list, records.value_list
    if has_deletes and not deletes.check():
        kept = np.flatnonzero(_is_valid(array))
        keys, values, array = [keys[place] for place in kept], [values[place] for place in kept], array.drop_null()
        key_array = key_array.take(pa.array(kept))
        has_deletes = False
    entries = dict(zip(keys, values, strict=True))
    if not full_image:
        if has_deletes:
            deleted = list({key: None for key, value in zip(keys, values, strict=True) if value is None})
            known = dict(zip(deleted, old_values(deleted, pa.array(deleted, pa.binary())), strict=True))
            return merge_values(table_format, keys, values, known, deletes, with_old=False, knows_old=False)
        return MergeResult(table_format.reader.columns(array), bytes((UPDATE_AFTER,)) * len(keys), entries, 0)
    return _merge_any(table_format, key_array, array, old_values, entries)


def merge_chosen_rows(table_format: KvTableFormat, records: KvRecords, olds: Values, chosen: Bools) -> MergeResult:
    """Merge those upserts of different keys that are chosen; `olds` are the old values of all keys."""
    keys, values, array = records.key_list, records.value_list, records.values
    if not chosen.all():
        kept = np.flatnonzero(chosen)
        array = array.take(pa.array(kept))
        keys = [keys[place] for place in kept]
        values, olds = [values[place] for place in kept], [olds[place] for place in kept]
    return _merge_different_keys(table_format, array, olds, dict(zip(keys, values, strict=True)), np.arange(len(keys)))


def _merge_different_keys(
    table_format: KvTableFormat, array: pa.Array, olds: Values, entries: dict[bytes, bytes | None], order: Int64s
) -> MergeResult:
    """Merge the usual batch, upserts of different keys. `olds[i]` is the old value of the record at `order[i]`."""
    count = len(array)
    missing = olds.count(None)
    if missing == count:
        return MergeResult(table_format.reader.columns(array), bytes((INSERT,)) * count, entries, count)
    stored = pa.array(olds, pa.binary())
    old_places = np.empty(count, np.int64)
    old_places[order] = np.arange(count)
    plan = _plan(_is_valid(stored)[old_places], np.ones(count, np.bool_), old_places, count + np.arange(count))
    return _outcome(table_format, stored, array, plan, entries)


def _merge_any(
    table_format: KvTableFormat,
    keys: pa.Array,
    array: pa.Array,
    old_values: OldValues,
    entries: dict[bytes, bytes | None],
) -> MergeResult:
    """Merge a batch with deletes or with several records of a key, each of which sees the result of the one before."""
    count = len(array)
    coded = keys.dictionary_encode()
    codes = np.asarray(coded.indices).astype(np.int64)
    different: Keys = coded.dictionary.to_pylist()
    stored = pa.array(old_values(different, coded.dictionary), pa.binary())
    is_upsert = _is_valid(array)
    # The index of the previous record with the same key, or -1.
    order = np.argsort(codes, kind="stable")
    is_same = codes[order][1:] == codes[order][:-1]
    before = np.full(count, -1)
    before[order[1:]] = np.where(is_same, order[:-1], -1)
    has_old = np.where(before >= 0, is_upsert[before], _is_valid(stored)[codes])
    old_places = np.where(before >= 0, len(different) + before, codes)
    plan = _plan(has_old, is_upsert, old_places, len(different) + np.arange(count))
    touched = np.zeros(len(different), np.bool_)
    touched[codes[has_old | is_upsert]] = True
    for place in np.flatnonzero(~touched).tolist():
        del entries[different[place]]
    return _outcome(table_format, stored, array, plan, entries)


def _plan(has_old: Bools, is_upsert: Bools, old_places: Int64s, new_places: Int64s) -> tuple[Int64s, Bytes]:
    """The changelog's rows and their change types: per record its old row and its new row, if they exist."""
    sizes = has_old.astype(np.int64) + is_upsert
    ends = np.cumsum(sizes)
    firsts = ends - sizes
    places = np.empty(int(ends[-1]) if len(ends) else 0, np.int64)
    types = np.empty(len(places), np.uint8)
    places[firsts[has_old]] = old_places[has_old]
    places[ends[is_upsert] - 1] = new_places[is_upsert]
    types[firsts[has_old]] = np.where(is_upsert[has_old], UPDATE_BEFORE, DELETE)
    types[ends[is_upsert] - 1] = np.where(has_old[is_upsert], UPDATE_AFTER, INSERT)
    return places, types


def _outcome(
    table_format: KvTableFormat,
    stored: pa.Array,
    array: pa.Array,
    plan: tuple[Int64s, Bytes],
    entries: dict[bytes, bytes | None],
) -> MergeResult:
    places, types = plan
    rows = pa.concat_arrays([stored, array]).take(pa.array(places))
    row_delta = int((types == INSERT).sum()) - int((types == DELETE).sum())
    return MergeResult(table_format.reader.columns(rows), types.tobytes(), entries, row_delta)


def _is_valid(array: pa.Array) -> Bools:
    mask: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return mask
