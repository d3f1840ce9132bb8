"""One TCP connection: it receives bytes, passes frames to the dispatcher, sends answers, and applies back-pressure.

Theory. Everything runs in the event loop's thread.

There are three places for received bytes, of which at most one is in use:

- *shared buffer*: one per server process. Nothing runs between `get_buffer`, the read and `buffer_updated`, so
  connections can share it; an idle connection owns no buffer. Frames that are complete in it are served in place.
- `_pending`: the start of a frame of at most `BIG_FRAME_BYTES`. It is put before the next read.
- `_big`: a frame above that size, received straight into its own pooled buffer.

`_backlog` has complete frames that were received but must wait, because the connection is held. While it exists,
nothing is read, so it is never longer than the shared buffer.

A connection is *held* while any of these is true: too many requests under way, too many unsent bytes, no room for
received bytes, or its turn is over (`Hold`). While held, it neither reads nor serves. When the last reason is gone, it
serves the backlog and then reads again.

Answers are collected in `_out` and written once per turn; those that are ready after the turn are written once per
iteration of the event loop.

States: open -> closing (no more input, `_out` is still written) -> lost. `close` and `abort` may be called in any
state.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from fluss.protocol.frames import LENGTH_BYTES, REQUEST_HEADER_BYTES, error_frame, read_length, success_prefix
from fluss.protocol.server_payloads import pieces_size
from fluss.server.network.answer_memory import ConnectionAnswers
from fluss.server.network.buffers import Lease
from fluss.server.network.flow_control import Hold, peer_is_gone, write_pieces
from fluss.server.runtime.handlers import ANONYMOUS_NAME, Piece
from fluss.server.security.sasl import Login

if TYPE_CHECKING:
    from fluss.server.network.server import BoundListener, NetworkServer

logger = logging.getLogger("fluss.server.network")

BIG_FRAME_BYTES = 64 * 1024
FRAME_START_BYTES = LENGTH_BYTES + REQUEST_HEADER_BYTES


class Connection(asyncio.BufferedProtocol):
    """The server's side of one TCP connection; asyncio calls it when bytes arrive and when the connection is lost."""

    def __init__(self, server: NetworkServer, listener: BoundListener) -> None:
        self.server = server
        self.listener = listener
        self.client_host = ""
        self.login = Login(server.credentials_of(listener), ANONYMOUS_NAME)
        self.in_flight = 0
        self.answers = ConnectionAnswers(self, server.answers)
        self.cancel_on_loss: set[asyncio.Future[object]] = set()
        self.served_requests = 0
        self.is_closing = False
        self.opened_at = self.active_at = self.progress_at = self.unsent_moved_at = server.now
        self._unsent_seen = 0
        self._limits = server.limits
        self._loop = server.loop
        self._transport: asyncio.Transport | None = None
        self._hold = Hold.NONE
        self._pending = b""
        self._backlog = memoryview(b"")
        self._big: memoryview | None = None
        self._big_size = self._big_position = self._progress_mark = self._turn_mark = 0
        self._out: list[Piece] = []
        self._out_bytes = 0
        self._flush_is_scheduled = self._continue_is_scheduled = False

    # ---- the transport's calls ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register a connection that was just accepted; the server may refuse it."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else ""
        self._transport.set_write_buffer_limits(high=self._limits.max_unsent_bytes_before_pause)
        if not self.server.add(self):
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer into which the transport receives the next bytes."""
        if self._big is not None:
            end = min(self._big_size, self._big_position + self.server.received.step_bytes(id(self)))
            return self._big[self._big_position : end]
        shared = self.server.receive_buffer
        carried = len(self._pending)
        room = self.server.received.start_bytes(len(shared) - carried)
        if carried:
            shared[:carried] = self._pending
        return shared[carried : carried + room]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle `nbytes` that arrived in the buffer from `get_buffer`."""
        if self.is_closing:
            return
        if self._big is not None:
            self._big_arrived(nbytes)
            return
        self._consume(self.server.receive_buffer, len(self._pending) + nbytes)

    def eof_received(self) -> bool | None:
        """The peer has closed its side: let the transport close too, since clients never close only one direction."""
        return None

    def pause_writing(self) -> None:
        """Too many bytes are waiting for the peer: stop reading."""
        self.unsent_moved_at = self.server.now
        self.hold(Hold.UNSENT)

    def resume_writing(self) -> None:
        """The peer has received most of the waiting bytes: read again."""
        self.answers.taken()
        self.release_hold(Hold.UNSENT)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after the connection, whichever side ended it."""
        self.is_closing = True
        self._drop_big()
        self.server.received.forget(id(self))
        self.answers.lost()
        self._pending, self._backlog = b"", memoryview(b"")
        self._out, self._transport = [], None
        for future in tuple(self.cancel_on_loss):
            future.cancel()
        self.server.remove(self)

    # ---- receiving ----

    def _consume(self, view: memoryview, end: int) -> None:
        """Serve the complete frames in `view[:end]`; keep the rest."""
        start = served = 0
        turn = self._limits.max_requests_per_turn
        serve, answers = self.server.dispatcher.serve, self.server.answers
        while end - start >= LENGTH_BYTES:
            size = read_length(view, start) + LENGTH_BYTES
            if not self._is_acceptable(view, start, end, size):
                return
            stop = start + size
            if stop > end:
                break
            if self._hold or served >= turn:
                break
            if answers.is_full and self.answers.must_wait(view, start + LENGTH_BYTES):
                break
            serve(self, view, start + LENGTH_BYTES, stop)
            if self.is_closing:
                return
            served += 1
            start = stop
            if self._out_bytes > self._limits.max_unsent_bytes_before_pause:
                self._flush()
        if served:
            self.served_requests += served
            self.active_at = self.progress_at = self.server.now
        self._flush()
        self._keep(view, start, end, served >= turn)

    def _keep(self, view: memoryview, start: int, end: int, turn_is_over: bool) -> None:
        """Store the unserved rest in `_backlog`, `_big` or `_pending`."""
        rest = end - start
        if rest >= FRAME_START_BYTES:
            size = read_length(view, start) + LENGTH_BYTES
            if size <= rest:
                self._backlog, self._pending = memoryview(bytearray(view[start:end])), b""
                if turn_is_over:
                    self._hold_for_a_turn()
                return
            if size > BIG_FRAME_BYTES:
                self._pending = b""
                self._begin_big(view[start:end], size)
                return
        if not self._pending:
            self.progress_at = self.server.now  # the time limit of a small frame starts at its first byte
        self._pending = bytes(view[start:end])

    def _is_acceptable(self, view: memoryview, start: int, end: int, size: int) -> bool:
        """True if a frame of this size is allowed; otherwise end the connection."""
        limits = self._limits
        if not FRAME_START_BYTES <= size <= limits.max_request_bytes:
            self.close(f"invalid frame length of {size - LENGTH_BYTES} bytes")
            return False
        if not self.login.is_ready and size > limits.max_request_before_login_bytes:
            self.close(f"a frame of {size} bytes is too large before login")
            return False
        if size <= limits.max_control_request_bytes:
            return True
        if end - start >= FRAME_START_BYTES:
            refusal = self.server.dispatcher.refuse_size(view, start + LENGTH_BYTES, size)
            if refusal is not None:
                self._out.append(error_frame(*refusal))
                self.close(f"a frame of {size} bytes is too large for a request without records")
                return False
        return True

    def _begin_big(self, head: memoryview, size: int) -> None:
        server = self.server
        try:
            self._big = server.pool.take(size)
        except (OSError, MemoryError, ValueError) as error:
            self.close(f"no memory for a frame of {size} bytes: {error}")
            return
        count = len(head)
        self._big[:count] = head
        self._big_size, self._big_position, self._progress_mark, self._turn_mark = size, count, count, count
        self.progress_at = server.now
        server.received.begin_frame(id(self), size)
        server.received.charge_frame(id(self), count)
        self._hold_if_memory_is_full()

    def _big_arrived(self, nbytes: int) -> None:
        self._big_position += nbytes
        self.server.received.charge_frame(id(self), nbytes)
        if self._big_position - self._progress_mark >= self.server.received.min_progress_bytes:
            self._progress_mark = self._big_position
            self.progress_at = self.server.now
        if self._big_position < self._big_size:
            if self.server.received.turn_is_over(self._big_position - self._turn_mark):
                self._turn_mark = self._big_position
                self._hold_for_a_turn()
            self._hold_if_memory_is_full()
            return
        assert self._big is not None
        buffer, size = self._big, self._big_size
        self._big = None
        self.server.received.end(id(self))
        self.served_requests += 1
        self.active_at = self.progress_at = self.server.now
        lease = Lease(self._loop, self.server.received, size, self.server.pool, buffer)
        self.server.dispatcher.serve(self, buffer, LENGTH_BYTES, size, lease)
        self._flush()
        self._hold_if_memory_is_full()

    def _drop_big(self) -> None:
        if self._big is not None:
            self._big = None
            self.server.received.refund(self._big_position)

    def _hold_if_memory_is_full(self) -> None:
        received = self.server.received
        if not received.may_continue(id(self)) and not self.is_closing:
            self.hold(Hold.MEMORY)
            received.wait(id(self), lambda: self.release_hold(Hold.MEMORY))

    # ---- holding ----

    def _hold_for_a_turn(self) -> None:
        self.hold(Hold.TURN)
        self._loop.call_soon(self.release_hold, Hold.TURN)

    def hold(self, reason: Hold) -> None:
        """Stop reading and serving for a reason, until `release_hold` has removed it and all others."""
        if not self._hold and self._transport is not None and not self.is_closing:
            self._transport.pause_reading()
        self._hold |= reason

    def release_hold(self, reason: Hold) -> None:
        """Remove a reason not to read; if it was the last one, continue soon."""
        if not self._hold & reason:
            return
        self._hold &= ~reason
        if not self._hold and not self._continue_is_scheduled and not self.is_closing:
            # Continue in a later step, because the caller may be waking many connections.
            self._continue_is_scheduled = True
            self._loop.call_soon(self._continue)

    def _continue(self) -> None:
        self._continue_is_scheduled = False
        if self.is_closing or self._hold:
            return
        self.progress_at = self.server.now  # while it was held, the peer could not make progress
        if self._backlog:
            backlog, self._backlog = self._backlog, memoryview(b"")
            self._consume(backlog, len(backlog))
        if not self._hold and not self._backlog and not self.is_closing and self._transport is not None:
            self._transport.resume_reading()

    def begin_request(self) -> None:
        """Count a request that will be answered later."""
        self.in_flight += 1
        if self.in_flight >= self._limits.max_in_flight_requests_per_connection:
            self.hold(Hold.IN_FLIGHT)

    def end_request(self) -> None:
        """Count a request as done: it was answered, or its answer is no longer wanted."""
        self.in_flight -= 1
        self.server.note_progress()
        if self._hold & Hold.IN_FLIGHT and self.in_flight <= self._limits.max_in_flight_requests_per_connection // 2:
            self.release_hold(Hold.IN_FLIGHT)

    def charge_records(self, size: int) -> Lease:
        """Charge record bytes that were copied out of the shared buffer."""
        self.server.received.charge(size)
        self._hold_if_memory_is_full()
        return Lease(self._loop, self.server.received, size)

    # ---- sending ----

    def send(self, frame: bytes) -> None:
        """Queue a complete frame for this turn's write; ignored after the end of the connection."""
        if self.is_closing:
            return
        self._out.append(frame)
        self._out_bytes += len(frame)
        self.answers.queued(len(frame))

    def send_pieces(self, request_id: int, pieces: list[Piece]) -> None:
        """Queue a success answer whose body is a list of pieces."""
        if self.is_closing:
            return
        size = pieces_size(pieces)
        self._out.append(success_prefix(request_id, size))
        self._out += pieces
        self._out_bytes += size
        self.answers.queued(size)

    def flush_later(self) -> None:
        """Write everything that is queued by the end of this iteration of the event loop."""
        if self._out and not self._flush_is_scheduled:
            self._flush_is_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_scheduled = False
        out = self._out
        if not out or self._transport is None:
            return
        self._out, self._out_bytes = [], 0
        self.active_at = self.server.now
        write_pieces(self._transport, out)
        unsent = self.unsent_bytes()
        if unsent <= self._limits.max_unsent_bytes_before_pause:
            self.answers.taken()  # otherwise `resume_writing` is called
        elif unsent > self._limits.max_unsent_bytes_per_connection:
            logger.warning("connection of %s aborted: the peer does not read its answers", self.client_host)
            self.abort()

    def unsent_bytes(self) -> int:
        """Return the number of bytes that were written to the transport and not yet sent."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # ---- ending ----

    def close(self, reason: str = "") -> None:
        """End the connection once everything queued is written."""
        if self.is_closing or self._transport is None:
            return
        if reason:
            logger.info(
                "connection of %s on %s closed: %s",
                self.client_host,
                self.listener.name,
                reason,
            )
        self._flush()
        self.is_closing = True
        self.unsent_moved_at = self.server.now
        self._drop_big()
        self._transport.close()

    def abort(self) -> None:
        """End the connection immediately; what is queued is not sent."""
        self.is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def overdue_reason(self, now: float, memory_is_short: bool, answers_wait: bool) -> str | None:
        """Return why the connection must end now, or None. Called by the server's sweep."""
        limits = self._limits
        unsent = self.unsent_bytes()
        if unsent == 0 or unsent != self._unsent_seen:
            self._unsent_seen = unsent
            self.unsent_moved_at = now
        elif now - self.unsent_moved_at > (
            limits.write_stall_under_pressure_seconds if answers_wait else limits.write_stall_seconds
        ):
            return "the peer does not read its answers"
        if self.is_closing:
            return None
        if self._hold and peer_is_gone(self._transport):
            return "the peer has closed its side"
        if not self.login.is_ready and now - self.opened_at > limits.login_seconds:
            return "no login in time"
        if (self._big is not None or self._pending) and not self._hold:
            hurry = memory_is_short and self._big is not None
            stall = limits.frame_stall_under_pressure_seconds if hurry else limits.frame_stall_seconds
            if now - self.progress_at > stall:
                return "the rest of a frame does not arrive"
        elif not self.in_flight and not unsent and now - self.active_at > limits.idle_seconds:
            return "idle"
        return None
