"""The effect of a batch of upserts and deletes on a bucket: changelog rows, and the values to store.

Pure functions: old values in, result out. Records are merged in order, so a later record of a key sees the result of an
earlier one.

There are two functions. `merge_values` is for tables where the last write wins and rows are written whole: values are
handled as bytes, and only the changelog decodes them, all together and column by column (`whole_rows` does the same
without a loop over the records). `merge_rows` is for everything that depends on the content of rows (partial updates,
merge engines, auto-increment columns): rows are decoded, a `RowMerger` decides row by row, and the merged rows are
encoded column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from fluss.codec.batches.kv_values import encode_values
from fluss.codec.rows.arrow_values import column_from_values, column_to_values
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.kv.table_format import KvTableFormat

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 1, 2, 3, 4
Row = list[Any]


class MergeResult(NamedTuple):
    """The changelog of a batch, the new values by key (None: removed), and the change of the row count."""

    columns: list[pa.Array]
    change_types: bytes
    entries: dict[bytes, bytes | None]
    row_delta: int


class RowMerger(Protocol):
    """Merges single rows, given as logical values in the newest schema."""

    def insert(self, new: Row) -> Row:
        """The row to store for a key that has none; the same object as `new` if it is stored as it was sent."""

    def update(self, old: Row, new: Row) -> Row:
        """The row that replaces `old`; `old` itself for no change, `new` itself if it is stored as it was sent."""

    def delete(self, old: Row) -> Row | None:
        """The row that is left after a delete; None if it is removed."""


class DeletePolicy(NamedTuple):
    """How a table handles deletes: `ALLOW`, `IGNORE` or `DISABLE`."""

    behavior: str

    def check(self) -> bool:
        """True if deletes are applied, False if they are ignored; FlussError 57 if they are forbidden."""
        if self.behavior == "DISABLE":
            text = "deletes are disabled for this table ('table.delete.behavior' = 'DISABLE'); send only upserts"
            raise FlussError(text, ErrorCode.DELETION_DISABLED_EXCEPTION)
        return self.behavior != "IGNORE"


def merge_values(
    table_format: KvTableFormat,
    keys: Sequence[bytes],
    values: Sequence[bytes | None],
    current: dict[bytes, bytes | None],
    deletes: DeletePolicy,
    *,
    with_old: bool,
    knows_old: bool = True,
) -> MergeResult:
    """Merge whole rows, of which the last write wins. `current` has the old values by key.

    With `with_old`, the changelog has the old row of updates too. Without `knows_old`, `current` has only the old
    values of deleted keys, and every upsert counts as an update.
    """
    emitted: list[bytes] = []
    types = bytearray()
    touched: dict[bytes, bytes | None] = {}
    for key, value in zip(keys, values, strict=True):
        old = touched[key] if key in touched else current.get(key)
        if value is None:
            if deletes.check() and old is not None:
                emitted.append(old)
                types.append(DELETE)
                touched[key] = None
            continue
        if not knows_old:
            types.append(UPDATE_AFTER)
        elif old is None:
            types.append(INSERT)
        else:
            if with_old:
                emitted.append(old)
                types.append(UPDATE_BEFORE)
            types.append(UPDATE_AFTER)
        emitted.append(value)
        touched[key] = value
    columns = table_format.reader.columns(pa.array(emitted, pa.binary()))
    return MergeResult(columns, bytes(types), touched, types.count(INSERT) - types.count(DELETE))


class _Stored(NamedTuple):
    """A row, and its bytes if it is stored or was sent in this form."""

    row: Row
    value: bytes | None


def merge_rows(
    table_format: KvTableFormat,
    keys: Sequence[bytes],
    values: Sequence[bytes | None],
    current: dict[bytes, bytes | None],
    deletes: DeletePolicy,
    merger: RowMerger,
    *,
    with_old: bool,
) -> MergeResult:
    """Merge rows with a `RowMerger`. `current` has the old values by key; `with_old` is that of `merge_values`."""
    new_rows = iter(_rows(table_format, [value for value in values if value is not None]))
    old_values = [(key, value) for key, value in current.items() if value is not None]
    old_rows = _rows(table_format, [value for _, value in old_values])
    state: dict[bytes, _Stored | None] = {
        key: _Stored(row, value) for (key, value), row in zip(old_values, old_rows, strict=True)
    }
    touched: dict[bytes, None] = {}
    emitted: list[Row] = []
    types = bytearray()

    def replace(key: bytes, old: _Stored, new: _Stored) -> None:
        if with_old:
            emitted.append(old.row)
            types.append(UPDATE_BEFORE)
        emitted.append(new.row)
        types.append(UPDATE_AFTER)
        state[key], touched[key] = new, None

    for key, value in zip(keys, values, strict=True):
        old = state.get(key)
        if value is not None:
            new = next(new_rows)
            row = merger.insert(new) if old is None else merger.update(old.row, new)
            stored = _Stored(row, value if row is new else None)
            if old is None:
                emitted.append(row)
                types.append(INSERT)
                state[key], touched[key] = stored, None
            elif row is not old.row:
                replace(key, old, stored)
        elif deletes.check() and old is not None:
            left = merger.delete(old.row)
            if left is not None:
                replace(key, old, _Stored(left, None))
            else:
                emitted.append(old.row)
                types.append(DELETE)
                state[key], touched[key] = None, None
    entries = _encoded(table_format, {key: state[key] for key in touched})
    columns = _columns(table_format, emitted)
    return MergeResult(columns, bytes(types), entries, types.count(INSERT) - types.count(DELETE))


def _rows(table_format: KvTableFormat, values: list[bytes]) -> list[Row]:
    """Decode values to rows of logical values in the newest schema."""
    if not values:
        return []
    types = table_format.schema.data_types
    columns = table_format.reader.columns(pa.array(values, pa.binary()))
    lists = [column_to_values(column, data_type) for column, data_type in zip(columns, types, strict=True)]
    return [list(row) for row in zip(*lists, strict=True)]


def _columns(table_format: KvTableFormat, rows: list[Row]) -> list[pa.Array]:
    types = table_format.schema.data_types
    lists: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(types)
    return [column_from_values(values, data_type) for values, data_type in zip(lists, types, strict=True)]


def _encoded(table_format: KvTableFormat, states: dict[bytes, _Stored | None]) -> dict[bytes, bytes | None]:
    """The bytes of rows; those that the merger created are encoded with the newest schema."""
    made = [stored.row for stored in states.values() if stored is not None and stored.value is None]
    encoded = iter(())
    if made:
        batch = pa.RecordBatch.from_arrays(_columns(table_format, made), schema=table_format.changelog.arrow_schema)
        values = encode_values(batch, table_format.schema_id, table_format.schema, table_format.row_format)
        encoded = iter(values.to_pylist())
    return {
        key: None if stored is None else stored.value if stored.value is not None else next(encoded)
        for key, stored in states.items()
    }
