"""`UpsertWriter`: rows into a primary-key table. Its common part with other writers is in `base_writer`.

Upserts and deletes of one thread keep their order for every key, also across retries and restarts of a server. Two
writers know nothing of each other: wait for the acknowledgement of one before the other writes the same key.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from fluss.client.fitting import ExtraDigits
from fluss.client.fitting.base import checked_extra_digits
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.client.send.acknowledgements import WriteResultHandle, joined_handle
from fluss.client.write.base_writer import BaseWriter, sender_of
from fluss.client.write.batch_streams import write_stream
from fluss.client.write.kv_rows import KvRows, check_targets, default_targets
from fluss.client.write.row_buffer import RowBuffer
from fluss.errors import FlussError

Row = dict[str, Any] | list[Any] | tuple[Any, ...]


class UpsertWriter(BaseWriter):
    """Writes rows to a primary-key table: `table.new_upsert().create_writer()`.

    With `targets` (positions of columns) it writes only those columns and leaves the others of a row unchanged.
    """

    def __init__(
        self,
        session: Session,
        table: ClientTable,
        targets: tuple[int, ...] | None = None,
        on_extra_digits: ExtraDigits = "error",
    ) -> None:
        if not table.has_primary_key:
            raise FlussError(f"table {table.path} has no primary key: use new_append() to write to it")
        session.check_open()
        self._session = session
        self._table = table
        self._targets = default_targets(table) if targets is None else targets
        self._extra_digits = checked_extra_digits(on_extra_digits)
        self._lock = threading.Lock()
        self._made: tuple[KvRows, RowBuffer] | None = None
        self._check_columns()

    def _check_columns(self) -> None:
        """Raise errors about the columns now."""
        check_targets(self._table, self._targets)

    def _make(self) -> tuple[KvRows, RowBuffer]:
        """Create the parts at the first write: builders are writers too, and most of them never write."""
        with self._lock:
            if self._made is None:
                self._session.check_open()
                check_targets(self._table, self._targets)
                rows = KvRows(self._table, self._session.config, self._targets, self._extra_digits)
                buffer = RowBuffer(self._session.io, sender_of(self._session), self._table, rows)
                self._made = rows, buffer
                # The generated functions themselves, which save one call per row.
                self.__dict__["upsert"] = buffer.append
                self.__dict__["delete"] = rows.make_delete(buffer)
            return self._made

    @property
    def _rows(self) -> KvRows:
        return self._make()[0]

    @property
    def _buffer(self) -> RowBuffer:  # type: ignore[override]
        return self._make()[1]

    def upsert(self, row: Row) -> WriteResultHandle:
        """Insert a row, or replace the one with the same primary key.

        A dict by column name (a missing key is null), or a list or tuple in column order; in a partial update of its
        columns only. A row that does not fit raises `FlussError` with column, expected type and value. Ignore the
        handle, or `await handle.wait()` for the acknowledgement: from then on lookups find the row.
        """
        return self._buffer.append(row)

    def delete(self, pk: Row) -> WriteResultHandle:
        """Delete a row by its primary key: a dict by column name, or a list or tuple in the order of the key.

        A partial update deletes only its columns: they become null, and the row is deleted when no other column has a
        value.
        """
        self._make()
        handle: WriteResultHandle = self.__dict__["delete"](pk)
        return handle

    def upsert_arrow(self, rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> WriteResultHandle:
        """Upsert all rows of a pyarrow Table, RecordBatch or stream, in their order. Columns are found by name.

        A table with a value that does not fit is refused as a whole. The batches of a stream are sent as they come; the
        error of a later one says which rows were written.
        """
        return self._write_rows(self._rows.upserts, rows, "upsert_arrow")

    def upsert_pandas(self, df: Any) -> WriteResultHandle:
        """Upsert all rows of a pandas DataFrame, in their order. An index with the name of a column is used as one."""
        return self._write(self._rows.upserts_of_frame(df, "upsert_pandas"))

    def delete_arrow(self, keys: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> WriteResultHandle:
        """Delete by primary keys: a pyarrow Table, RecordBatch or stream with exactly the columns of the key."""
        return self._write_rows(self._rows.deletes, keys, "delete_arrow")

    def delete_pandas(self, df: Any) -> WriteResultHandle:
        """Delete by primary keys: a pandas DataFrame with exactly the columns of the primary key."""
        return self._write(self._rows.deletes_of_frame(df, "delete_pandas"))

    def change_arrow(self, rows: pa.RecordBatch, deletes: pa.BooleanArray) -> WriteResultHandle:
        """Upsert rows and delete others in one call, in their order: `deletes` is true where a row's key is deleted.

        Of a delete, only the primary-key columns are used. For mixed changes, such as those from another
        table's changelog.
        """
        return self._write(self._rows.changes(rows, deletes, "change_arrow"))

    def write_arrow(self, table: pa.Table) -> None:
        """Alias of `upsert_arrow`, under the name used for log tables."""
        self._write_rows(self._rows.upserts, table, "write_arrow")

    def write_arrow_batch(self, batch: pa.RecordBatch) -> WriteResultHandle:
        """Alias of `upsert_arrow`, under the name used for log tables."""
        return self._write(self._rows.upserts(batch, "write_arrow_batch"))

    def write_pandas(self, df: Any) -> None:
        """Alias of `upsert_pandas`, under the name used for log tables."""
        self._write(self._rows.upserts_of_frame(df, "write_pandas"))

    def _write_rows(self, made: Callable[..., Iterator[pa.RecordBatch]], rows: object, call: str) -> WriteResultHandle:
        if not isinstance(rows, pa.RecordBatchReader):
            return self._write(made(rows, call))
        return write_stream(rows, lambda batch, first_row: self._write(made(batch, call, first_row)))

    def _write(self, batches: Iterable[pa.RecordBatch]) -> WriteResultHandle:
        return joined_handle([self._buffer.write_batch(batch) for batch in batches])

    def __repr__(self) -> str:
        names = self._table.schema.column_names
        columns = ""
        if len(self._targets) < len(names):
            columns = f", columns {', '.join(names[position] for position in self._targets)}"
        closed = ", closed" if self._made is not None and self._made[1].is_closed else ""
        return f"{type(self).__name__}({str(self._table.path)!r}{columns}{closed})"
