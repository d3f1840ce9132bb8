"""The common part of writers of log tables and primary-key tables: flushing, back-pressure, closing.

All write calls only hand rows over and return at once, unless `writer.buffer.memory-size` bytes are unacknowledged:
then they block the calling thread until the I/O thread, which does not depend on the caller, has made room. A coroutine
that writes more than its server accepts should `await writer.ready()` (or a handle, or `flush()`) from time to time: it
waits there without blocking its event loop, and the next row finds room.

A write that fails is reported by its handle, by `flush()`, or by the next write, whichever comes first.
Writers may be used by several threads and tasks at once; rows of one thread keep their order within a bucket.
"""

from __future__ import annotations

import threading
import weakref

from fluss.client.net.context_managed import EndsWithAnyBlock
from fluss.client.net.metadata import ClientTable
from fluss.client.net.self_awaitable import runs_in_event_loop
from fluss.client.net.session import Session
from fluss.client.send.acknowledgements import PendingResult
from fluss.client.send.sender import Sender
from fluss.client.write.row_buffer import RowBuffer
from fluss.errors import FlussError

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


class BaseWriter(EndsWithAnyBlock):
    """A writer around a row buffer, which subclasses make."""

    _buffer: RowBuffer

    def flush(self) -> PendingResult:
        """Wait for everything written so far: `await writer.flush()`, or block with `writer.flush().result()`."""
        return PendingResult(self._buffer.begin_flush(), "flush()")

    async def ready(self) -> None:
        """Wait until there is room for more rows; back-pressure for coroutines."""
        await self._buffer.room()

    def close(self) -> PendingResult:
        """Flush, and accept no more rows. `await` it; outside of an event loop the call itself waits."""
        result = PendingResult(self._buffer.begin_flush(), "close()")
        self._buffer.close(FlussError(f"the writer of table {self._buffer.table.path} is closed"))
        if not runs_in_event_loop():
            result.result()
        return result

    def _leave(self) -> None:
        self.flush().result()

    async def _leave_awaiting(self) -> None:
        await self.flush()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._buffer.table.path)!r}{', closed' if self._buffer.is_closed else ''})"


def table_of(writer: BaseWriter) -> ClientTable:
    """The table that a writer writes to, as it was when the writer was made."""
    return writer._buffer.table
