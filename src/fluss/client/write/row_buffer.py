"""The rows of one writer between `append` and the sender.

Rows wait as values in one flat list. A *taker* cuts off all whole rows as a chunk and converts it to record batches by
bucket. A full list is taken by the appending thread, which thus pays for the conversion; a partial one is taken by the
I/O thread, at once if nothing of this writer is in flight, else when that is acknowledged; if that takes longer than
`writer.batch-timeout-ms`, rows no longer wait for it. So a lone row is sent at once, and rows gather only under load.

Invariants:
- `flat` is never replaced, and one `+=` adds all values of a row: rows are never split, and `append` takes no lock.
- `handle` is the open chunk, or None while rows are taken. A generated `append` reads it, adds the row and checks it
  again: if rows were taken in between, the row is in one of the chunks since then, and `raced` returns a handle over
  all.
- A taken chunk gets its place in `_order` under the lock, and is passed to the sender only when all chunks before it
  were: rows are sent in the order of their appends although several threads convert at once.
- `idle` is True only if nothing waits and nothing is in flight; the next append then wakes the I/O thread. `drain` sets
  it and then checks `flat` again, so that no row is missed.

Threads: `append` (through the generated function), `write_batch`, `begin_flush` on any thread but the I/O
thread; `drain` and `on_settled` on the I/O thread only.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fluss.client.net.io_thread import IoThread
from fluss.client.net.metadata import ClientTable
from fluss.client.send.acknowledgements import Chunk, ChunkSpan, WriteResultHandle
from fluss.client.send.bucket_queue import Piece
from fluss.client.write.encoding_threads import try_help
from fluss.client.write.row_layout import LogRows, RowForm
from fluss.errors import FlussError
from fluss.model.paths import TableBucket

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss.client.send.sender import Sender

FIRST_CHUNK_ROWS = 64
# Measured: rows of five columns convert fastest in chunks of 4,096 to 16,384.
MAX_CHUNK_ROWS = 16_384
# Rows of at least this size are encoded by the thread that wrote them; smaller ones may still be merged by the sender.
MIN_CALLER_ENCODED_BYTES = 64 * 1024
# Arrow batches of at least this size are worth passing to a helper thread.
MIN_HELPED_BYTES = 256 * 1024
# Arrow batches are divided by bucket in steps of at most this size, so that each bucket's part fills a batch.
MAX_DIVIDED_BYTES = 16 * 1024 * 1024
MAX_REMEMBERED_FAILURES = 16
# After this long without an acknowledgement a warning is logged, once until there is one.
SILENT_SECONDS = 10.0

_buffers: weakref.WeakSet[RowBuffer] = weakref.WeakSet()


class RowBuffer:
    """The buffer of one writer; see the module docstring. `form` defaults to that of log tables."""

    def __init__(
        self, io: IoThread, sender: Sender, table: ClientTable, form: RowForm | None = None, digits: str = "error"
    ) -> None:
        config = sender.config
        self.table = table
        self.form = form or LogRows(table, config, self._available, digits)
        self._io = io
        self._sender = sender
        self._batch_bytes = config.writer_batch_size
        self._timeout_seconds = config.writer_batch_timeout_ms / 1000
        self._room_seconds = config.writer_buffer_wait_timeout_ms / 1000
        self._divided_bytes = max(self._batch_bytes, min(self._batch_bytes * self.form.spread, MAX_DIVIDED_BYTES))
        self._width = self.form.width
        self._lock = threading.Lock()
        self._order: deque[Chunk] = deque()
        self._unsettled: deque[Chunk] = deque()
        self._failed: deque[Chunk] = deque(maxlen=MAX_REMEMBERED_FAILURES)
        self._row_limit = FIRST_CHUNK_ROWS
        self._large_bytes = 0
        self._unreported: Chunk | None = None
        self._closed: FlussError | None = None
        self._drain_scheduled = False
        self._timer: Any = None
        self._watched: Chunk | None = None
        self._silent_at = 0.0
        # Used by the generated function; see row_function.RowSink.
        self.flat: list[Any] = []
        self.limit = self._row_limit * self._width
        self.handle: Chunk | None = Chunk(0, self)
        self.idle = True
        self.append: Callable[[object], WriteResultHandle] = self.form.make_append(self)
        sender.register(self)
        _buffers.add(self)

    # ---- called by the generated append ----

    def make_room(self) -> None:
        """Called if the list is full, or an error must be raised to the caller."""
        self._io.check_usable()
        self._raise_unreported()
        if self._is_full():
            self._sender.memory.wait_for_room(self._room_seconds)
            if self._is_full():  # not taken by another thread meanwhile
                self._take_and_convert(wake=True)
        self._set_limit()

    def settled(self) -> Chunk:
        """The open chunk, while another thread takes rows."""
        with self._lock:
            assert self.handle is not None
            return self.handle

    def raced(self, handle: Chunk) -> WriteResultHandle:
        """A handle for a row that was added while chunks were taken, `handle` the first one it can be in."""
        with self._lock:
            # Settled chunks are missing here: if the row is in one, there is nothing to wait for.
            chunks = [chunk for chunk in self._failed if chunk.number >= handle.number]
            for chunk in reversed(self._unsettled):
                if chunk.number < handle.number:
                    break
                chunks.append(chunk)
            if self.flat and self.handle is not None:
                chunks.append(self.handle)
        return chunks[0] if len(chunks) == 1 else ChunkSpan(chunks)

    def kick(self) -> None:
        """Wake the I/O thread for the first row after a pause."""
        self.idle = False
        try:
            self._io.call_soon(self.drain)
        except FlussError:
            self.idle = True
            raise

    def add_large(self, size_bytes: int) -> None:
        """Count a row that is much larger than usual: the list is full sooner."""
        self._large_bytes += size_bytes
        if self._large_bytes >= self._batch_bytes:
            self.limit = 0

    # ---- the other writes ----

    def write_batch(self, batch: pa.RecordBatch) -> WriteResultHandle:
        """Send the rows of an Arrow batch, which `ArrowInput` has checked, after everything appended before."""
        self._io.check_usable()
        self._raise_unreported()
        chunks: list[Chunk] = []
        size_bytes = batch.nbytes
        parts = _slices(batch, self._divided_bytes, size_bytes=size_bytes)
        for part in parts:
            self._sender.memory.wait_for_room(self._room_seconds)
            with self._lock:
                rows_chunk, rows, chunk = self._cut(extra=True)
            assert chunk is not None
            if rows_chunk is not None:
                self._convert(rows_chunk, rows, encode=True)
            fill = partial(self._fill_and_wake, chunk, part)
            if size_bytes < MIN_HELPED_BYTES * len(parts) or not try_help(fill):
                fill()
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else ChunkSpan(chunks)

    def begin_flush(self) -> Sequence[Chunk]:
        """Send what waits; return the chunks that must be settled for the flush."""
        self._io.check_usable()
        self._take_and_convert(wake=True)
        with self._lock:
            chunks = list(self._unsettled)
            if self._unreported is not None:
                chunks.append(self._unreported)
                self._unreported = None
        chunks += [chunk for chunk in list(self._sender.unreported) if chunk.owner is self and not chunk.reported]
        self._set_limit()
        return chunks

    async def room(self) -> None:
        """Wait in a coroutine until an append would not block."""
        await self._sender.memory.room()

    def check_usable(self) -> None:
        """Called by chunks; raise if they can no longer be waited for."""
        self._io.check_usable()

    @property
    def is_closed(self) -> bool:
        """True if it accepts no more rows."""
        return self._closed is not None

    def close(self, error: FlussError) -> None:
        """Let later writes raise `error`."""
        self._closed = error
        self._set_limit()

    # ---- taking and converting ----

    def _is_full(self) -> bool:
        return len(self.flat) >= self._row_limit * self._width or self._large_bytes >= self._batch_bytes

    def _set_limit(self) -> None:
        """Set the limit of the list; 0 makes the next append call `make_room`."""
        if self._closed is not None or self._unreported is not None or self._large_bytes >= self._batch_bytes:
            self.limit = 0
        else:
            self.limit = self._row_limit * self._width

    def _raise_unreported(self) -> None:
        if self._closed is not None:
            raise FlussError(self._closed.message, self._closed.error_code)
        with self._lock:
            chunk, self._unreported = self._unreported, None
        if chunk is not None:
            self._set_limit()
            if not chunk.reported and chunk.error is not None:
                chunk.reported = True
                raise FlussError(f"an earlier write failed: {chunk.error.message}", chunk.error.error_code)

    def _cut(self, *, extra: bool = False) -> tuple[Chunk | None, list[object], Chunk | None]:
        """Take all rows as a chunk (None if there are none), and one more chunk for `extra` rows. Lock held.

        `handle` must not return to a chunk whose rows were taken: an append that added its row after the cut would take
        that as a sign that nothing happened in between.
        """
        open_chunk = self.handle
        assert open_chunk is not None
        self.handle = None  # first, so that appends in between notice
        rows = self.flat[:]
        del self.flat[: len(rows)]
        taken: list[Chunk | None] = [None, None]
        for index, wanted in enumerate((bool(rows), extra)):
            if wanted:
                taken[index] = open_chunk
                self._order.append(open_chunk)
                self._unsettled.append(open_chunk)
                open_chunk = Chunk(open_chunk.number + 1, self)
        self.handle = open_chunk
        if rows:
            self._large_bytes = 0
        return taken[0], rows, taken[1]

    def _take_and_convert(self, *, wake: bool) -> None:
        with self._lock:
            chunk, rows, _ = self._cut()
        if chunk is not None:
            self._convert(chunk, rows, encode=wake)
            if wake:
                self._wake()

    def _convert(self, chunk: Chunk, rows: list[Any], *, encode: bool) -> None:
        self._fill(chunk, lambda: self.form.record_batch(rows), encode=encode)
        if chunk.pieces:
            size_bytes = sum(piece.size_bytes for piece in chunk.pieces)
            mean_bytes = max(1, size_bytes * self._width // len(rows))
            self._row_limit = max(FIRST_CHUNK_ROWS, min(MAX_CHUNK_ROWS, self._batch_bytes // mean_bytes))
        self._set_limit()

    def _fill(self, chunk: Chunk, make_batch: Callable[[], pa.RecordBatch], *, encode: bool) -> None:
        """Convert rows to pieces. The chunk becomes ready even after an error: later chunks wait for it."""
        pieces: list[Piece] = []
        error: FlussError | None = None
        try:
            for name, bucket_id, routed in self.form.route(make_batch()):
                for rows in _slices(routed, self._batch_bytes, self.form.encoder.max_batch_rows):
                    piece = Piece(chunk, self.form.encoder, name, bucket_id, rows)
                    if encode and piece.size_bytes >= MIN_CALLER_ENCODED_BYTES:
                        piece.data = list(self.form.encoder.encode_parts(rows))
                        piece.rows = None  # type: ignore[assignment]
                    pieces.append(piece)
            self._sender.memory.add(sum(piece.size_bytes for piece in pieces))
        except FlussError as caught:
            error = caught
        except Exception as caught:
            error = FlussError(f"rows for table {self.table.path} could not be converted: {caught!r}")
        except BaseException:
            error = FlussError(f"writing rows to table {self.table.path} was interrupted")
            raise
        finally:
            chunk.make_ready([] if error is not None else pieces, error)

    def _fill_and_wake(self, chunk: Chunk, batch: pa.RecordBatch) -> None:
        self._fill(chunk, lambda: batch, encode=True)
        self._wake()

    def _available(self, partition_name: str | None) -> Sequence[int]:
        """Buckets with a known leader, all if none has; reads the cache without waiting."""
        cluster, table = self._sender.cluster, self.table
        partition_id = None
        if partition_name is not None:
            partition_id = cluster.metadata.partition_id(table.path, partition_name)
        buckets = range(table.bucket_count)
        led = [
            bucket
            for bucket in buckets
            if cluster.leader_node(TableBucket(table.table_id, partition_id, bucket)) is not None
        ]
        return led or buckets

    def _wake(self) -> None:
        self.idle = False
        if self._drain_scheduled:
            return  # it has not begun yet, so it will see the chunks that are ready now
        self._drain_scheduled = True
        try:
            self._io.call_soon(self.drain)
        except FlussError:
            self._drain_scheduled = False
            raise

    # ---- on the I/O thread ----

    def drain(self) -> None:
        """Pass on ready chunks, take rows that may be sent, and become idle if there are none."""
        self._drain_scheduled = False
        self._sender.busy.add(self)
        self._hand_over()
        if self.flat and not self._unsettled:
            self._take_and_convert(wake=False)
            self._hand_over()
        self._sender.send()
        if self.flat or self._unsettled:
            if self._timer is None:
                self._watch()
            return
        self.idle = True
        if self.flat:  # a row was added before its thread could see the idle state
            self.idle = False
            self._io.loop.call_soon(self.drain)
        else:
            self._sender.busy.discard(self)

    def _watch(self) -> None:
        """Check later whether the oldest chunk is still in flight: then rows must not wait for it any longer."""
        oldest = self._unsettled[0] if self._unsettled else None
        if oldest is not self._watched:
            self._watched, self._silent_at = oldest, self._io.loop.time() + SILENT_SECONDS
        self._timer = self._io.loop.call_later(self._timeout_seconds, self._time_is_up, oldest)

    def _time_is_up(self, oldest: Chunk | None) -> None:
        self._timer = None
        if oldest is not None and not oldest.settled and self._io.loop.time() >= self._silent_at:
            self._silent_at = math.inf
            self._sender.tell_silence(self.table.path, SILENT_SECONDS)
        if self.flat and (oldest is None or not oldest.settled):
            self._take_and_convert(wake=False)
        if not self.idle:
            self.drain()

    def _hand_over(self) -> None:
        ready: list[Chunk] = []
        with self._lock:
            while self._order and self._order[0].ready:
                ready.append(self._order.popleft())
        for chunk in ready:
            pieces, chunk.pieces = chunk.pieces, []
            for piece in pieces:
                self._sender.add(piece)
            if not pieces:
                chunk.release(chunk.error)

    def on_settled(self, chunk: Chunk) -> None:
        """Called by chunks: drop the chunk, keep its error, send what can be sent now."""
        with self._lock:
            while self._unsettled and self._unsettled[0].settled:
                self._unsettled.popleft()
            if chunk.error is not None:
                self._failed.append(chunk)
                if not chunk.reported:
                    self._unreported = self._unreported or chunk
                    self._sender.unreported.append(chunk)
        if chunk.error is not None:
            self._set_limit()
        if not self._drain_scheduled:
            self._drain_scheduled = True
            self._io.loop.call_soon(self.drain)


def _slices(
    batch: pa.RecordBatch, max_bytes: int, max_rows: int | None = None, size_bytes: int | None = None
) -> list[pa.RecordBatch]:
    """Slices of about equal size within these limits. Without `size_bytes`, Arrow visits all columns to compute it."""
    count = -(-(batch.nbytes if size_bytes is None else size_bytes) // max_bytes)
    if max_rows is not None:
        count = max(count, -(-batch.num_rows // max_rows))
    if count <= 1 or batch.num_rows <= 1:
        return [batch] if batch.num_rows else []
    step = -(-batch.num_rows // count)
    return [batch.slice(start, step) for start in range(0, batch.num_rows, step)]


def _after_fork_in_child() -> None:
    """The I/O thread does not exist here: let the next append raise instead of collecting rows."""
    for buffer in list(_buffers):
        buffer.limit = 0


os.register_at_fork(after_in_child=_after_fork_in_child)
