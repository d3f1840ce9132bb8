"""`AppendWriter`: rows into a log table.

All write calls only hand rows over and return at once, unless `writer.buffer.memory-size` bytes wait for their
acknowledgement: then they block the calling thread until the I/O thread, which needs no help of the caller, has made
room. A coroutine that writes more than its server takes should `await writer.ready()` (or a handle, or `flush()`) now
and then: it waits there without blocking its event loop, and `append` finds room.

A write that fails is reported by its handle, by `flush()`, or by the next write, whichever is asked first.
Writers may be used by several threads and tasks at once; rows of one thread keep their order within a bucket.
"""

from __future__ import annotations

import threading
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from fluss.client.awaitable import runs_in_event_loop
from fluss.client.metadata import ClientTable
from fluss.client.session import Session
from fluss.client.writer.handles import PendingResult, WriteResultHandle
from fluss.client.writer.row_buffer import RowBuffer
from fluss.client.writer.sender import Sender
from fluss.errors import FlussError

if TYPE_CHECKING:
    import pyarrow as pa

_senders: weakref.WeakKeyDictionary[Session, Sender] = weakref.WeakKeyDictionary()
_senders_lock = threading.Lock()


def sender_of(session: Session) -> Sender:
    """The sender of a connection, made for its first writer; closing the connection flushes it."""
    with _senders_lock:
        sender = _senders.get(session)
        if sender is None:
            sender = Sender(session.cluster)
            session.add_close_hook(sender.close)
            _senders[session] = sender
        return sender


class AppendWriter:
    """Writes rows to a log table: `table.new_append().create_writer()`."""

    def __init__(self, session: Session, table: ClientTable) -> None:
        if table.has_primary_key:
            raise FlussError(f"table {table.path} has a primary key: use new_upsert() to write to it")
        session.check_open()
        self._session = session
        self._buffer = RowBuffer(session.io, sender_of(session), table)
        # The generated function itself, one call less for every row.
        self.__dict__["append"] = self._buffer.append

    @classmethod
    def create(cls, session: Session, table: ClientTable) -> AppendWriter:
        """Same as the constructor."""
        return cls(session, table)

    def append(self, row: dict[str, Any] | list[Any] | tuple[Any, ...]) -> WriteResultHandle:
        """Append a row: a dict by column name (a missing key is null), or a list or tuple in column order.

        A row that does not fit the schema raises `FlussError` with column, expected type and value. The row may be
        changed afterwards. Ignore the handle, or `await handle.wait()` for the acknowledgement.
        """
        return self._buffer.append(row)

    def write_arrow(self, table: pa.Table) -> None:
        """Append all rows of a pyarrow Table. Columns are found by name."""
        for batch in self._buffer.arrow_input.batches(table):
            self._buffer.write_batch(batch)

    def write_arrow_batch(self, batch: pa.RecordBatch) -> WriteResultHandle:
        """Append all rows of a pyarrow RecordBatch, whatever partitions and buckets they belong to."""
        return self._buffer.write_batch(batch)

    def write_pandas(self, df: Any) -> None:
        """Append all rows of a pandas DataFrame; its index is left out."""
        self.write_arrow(self._buffer.arrow_input.from_pandas(df))

    def flush(self) -> PendingResult:
        """Wait for everything written so far: `await writer.flush()`, or block with `writer.flush().result()`."""
        return PendingResult(self._buffer.begin_flush(), "flush()")

    async def ready(self) -> None:
        """Wait until there is room for more rows: back-pressure for coroutines."""
        await self._buffer.room()

    def close(self) -> PendingResult:
        """Flush, and take no more rows. `await` it; outside of an event loop the call itself waits."""
        result = self.flush()
        self._buffer.close(FlussError(f"the writer of table {self._buffer.table.path} is closed"))
        if not runs_in_event_loop():
            result.result()
        return result

    def __enter__(self) -> AppendWriter:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> Literal[False]:
        try:
            self.flush().result()
        except FlussError:
            if exc_value is None:
                raise  # otherwise the first error is the interesting one
        return False

    async def __aenter__(self) -> AppendWriter:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> Literal[False]:
        try:
            await self.flush()
        except FlussError:
            if exc_value is None:
                raise
        return False

    def __repr__(self) -> str:
        return f"AppendWriter({str(self._buffer.table.path)!r})"
