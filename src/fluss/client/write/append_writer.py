"""`AppendWriter`: rows into a log table. Its common part with other writers is in `base_writer`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fluss.client.fitting import ExtraDigits
from fluss.client.input.frame_input import table_of_frame
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.client.send.acknowledgements import WriteResultHandle
from fluss.client.write.base_writer import BaseWriter, sender_of
from fluss.client.write.batch_streams import write_stream
from fluss.client.write.row_buffer import RowBuffer
from fluss.client.write.row_layout import LogRows
from fluss.errors import FlussError


class AppendWriter(BaseWriter):
    """Writes rows to a log table: `table.new_append().create_writer()`."""

    def __init__(self, session: Session, table: ClientTable, on_extra_digits: ExtraDigits = "error") -> None:
        if table.has_primary_key:
            raise FlussError(f"table {table.path} has a primary key: use new_upsert() to write to it")
        session.check_open()
        self._session = session
        self._buffer = RowBuffer(session.io, sender_of(session), table, digits=on_extra_digits)
        assert isinstance(self._buffer.form, LogRows)
        self._form = self._buffer.form
        # The generated function itself, which saves one call per row.
        self.__dict__["append"] = self._buffer.append

    @classmethod
    def create(cls, session: Session, table: ClientTable) -> AppendWriter:
        """Alias of the constructor."""
        return cls(session, table)

    def append(self, row: dict[str, Any] | list[Any] | tuple[Any, ...]) -> WriteResultHandle:
        """Append a row: a dict by column name (a missing key is null), or a list or tuple in column order.

        A row that does not fit the schema raises `FlussError` with column, expected type and value. The row may be
        changed afterwards. Ignore the handle, or `await handle.wait()` for the acknowledgement.
        """
        return self._buffer.append(row)

    def write_arrow(self, table: pa.Table | pa.RecordBatchReader) -> None:
        """Append all rows of a pyarrow Table, or of a stream of batches. Columns are found by name.

        A table with a value that does not fit is refused as a whole. The batches of a stream are sent as they come; the
        error of a later one says which rows were written.

        >>> writer.write_arrow(pa.table({"id": [1, 2], "name": ["a", "b"]}))        # doctest: +SKIP
        >>> writer.write_arrow(parquet_dataset.scanner().to_reader())               # doctest: +SKIP
        """
        if isinstance(table, pa.RecordBatchReader):
            write_stream(table, self._write_streamed)
            return
        for batch in self._form.batches(table, "write_arrow"):
            self._buffer.write_batch(batch)

    def _write_streamed(self, batch: pa.RecordBatch, first_row: int) -> WriteResultHandle:
        return self._buffer.write_batch(self._form.batch(batch, first_row))

    def write_arrow_batch(self, batch: pa.RecordBatch) -> WriteResultHandle:
        """Append all rows of a pyarrow RecordBatch, of any partition and bucket."""
        return self._buffer.write_batch(self._form.batch(batch))

    def write_pandas(self, df: Any) -> None:
        """Append all rows of a pandas DataFrame. An index named like a column is used as one, others are ignored."""
        self.write_arrow(table_of_frame(self._form.arrow_input, df, "write_pandas"))
