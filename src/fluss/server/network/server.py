"""The network side of one server process: listeners, connections, and the sweep that ends overdue ones.

Theory. One event loop, one thread. Sockets are bound by the caller (the supervisor keeps them across restarts). The
server owns what connections share: the receive buffer, the pool of big buffers, the account of received bytes, a coarse
clock. The clock advances with every sweep, so reading it costs nothing; deadlines are as exact as the sweep.

When the number of connections is at its limit, a new one replaces the oldest that never sent a request; if there is
none, the new one is refused. So silent peers cannot lock out other clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fluss.errors import ErrorCode, FlussError
from fluss.server.network.answer_memory import AnswersInMemory
from fluss.server.network.buffers import BufferPool, ReceivedInMemory
from fluss.server.network.connection import Connection
from fluss.server.network.dispatch import Dispatcher
from fluss.server.network.limits import NetworkLimits
from fluss.server.runtime.handlers import Service
from fluss.server.security.sasl import Credentials

logger = logging.getLogger("fluss.server.network")

RECEIVE_BUFFER_BYTES = 256 * 1024
LISTEN_BACKLOG_CONNECTIONS = 1024
# libuv accepts one connection per iteration of the loop. With dozens of busy connections, iterations are slow and new
# ones would wait long, so all waiting connections are accepted together.
MAX_CONNECTIONS_AT_ONCE = 128
MOST_SWEEPS_AT_ONCE = 2
# This many of the process's file descriptors are reserved for files.
FILE_DESCRIPTORS_FOR_FILES = 256
# A connection without a request may be new rather than silent, so it is not replaced before this time.
MIN_SILENCE_SECONDS = 1.0

PLAINTEXT = "PLAINTEXT"
SASL = "SASL"


@dataclass(frozen=True)
class BoundListener:
    """A bound (not necessarily listening) socket, and how to serve it."""

    name: str
    protocol: str  # PLAINTEXT or SASL
    socket: socket.socket
    is_internal: bool = False


class NetworkServer:
    """Serves one service on its listeners. Created and used in the event loop's thread."""

    def __init__(
        self,
        service: Service,
        listeners: Sequence[BoundListener],
        limits: NetworkLimits | None = None,
        credentials: Mapping[str, Credentials] | None = None,
    ) -> None:
        self.limits = limits or NetworkLimits()
        self.loop = asyncio.get_running_loop()
        # The clock for deadlines of peers; see `_sweep`.
        self.now = self._swept_at = self.loop.time()
        self.dispatcher = Dispatcher(service, self.loop)
        self.pool = BufferPool(self.limits.max_pooled_bytes)
        self.received = ReceivedInMemory(
            self.limits.max_received_bytes_in_memory, self.limits.max_shared_received_bytes, self.loop
        )
        self.answers = AnswersInMemory(self.limits.max_answer_bytes_in_memory, self.loop)
        self._listeners = tuple(listeners)
        self._credentials = dict(credentials or {})
        self._shared_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._connections: dict[Connection, None] = {}  # in the order of their arrival
        self._max_connections = _connection_limit(self.limits.max_connections)
        self._servers: list[asyncio.AbstractServer] = []
        self._accepting: set[asyncio.Task[object]] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._progress = asyncio.Event()
        for listener in self._listeners:
            self.credentials_of(listener)

    @property
    def receive_buffer(self) -> memoryview:
        """The buffer that connections share between `get_buffer` and `buffer_updated`."""
        return self._shared_buffer

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def credentials_of(self, listener: BoundListener) -> Credentials | None:
        """The users of a listener; None if it needs no login."""
        if listener.protocol.upper() == PLAINTEXT:
            return None
        if listener.protocol.upper() != SASL:
            text = f"listener {listener.name}: unknown protocol {listener.protocol!r}; use PLAINTEXT or sasl"
            raise FlussError(text, ErrorCode.INVALID_CONFIG_EXCEPTION)
        return self._credentials.get(listener.name, Credentials({}))

    async def start(self) -> None:
        """Accept connections on all listeners."""
        if sys.platform == "win32" and not isinstance(self.loop, asyncio.SelectorEventLoop):
            # The proactor loop fills a buffer some time after requesting it, so buffers could not be shared.
            text = f"on Windows the server requires asyncio.SelectorEventLoop, got {type(self.loop).__name__}"
            raise FlussError(text, ErrorCode.INVALID_CONFIG_EXCEPTION)
        for listener in self._listeners:
            server = await self.loop.create_server(
                lambda listener=listener: Connection(self, listener),  # type: ignore[misc]
                sock=listener.socket,
                backlog=LISTEN_BACKLOG_CONNECTIONS,
            )
            self._servers.append(server)
        self._sweep_timer = self.loop.call_later(self.limits.sweep_seconds(), self._sweep)

    async def stop(self) -> None:
        """Stop accepting, let requests under way finish for a limited time, end all connections."""
        self._is_stopping = True
        for server in self._servers:
            server.close()
        self._servers.clear()
        deadline = self.loop.time() + self.limits.stop_grace_seconds
        for connection in tuple(self._connections):
            for future in tuple(connection.cancel_on_loss):
                future.cancel()
        await self._wait_until(lambda: not any(each.in_flight for each in self._connections), deadline)
        for connection in tuple(self._connections):
            connection.close()
        await self._wait_until(lambda: not self._connections, deadline)
        for connection in tuple(self._connections):
            connection.abort()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        await asyncio.sleep(0)

    async def _wait_until(self, condition: Callable[[], bool], deadline: float) -> None:
        while not condition():
            self._progress.clear()
            try:
                await asyncio.wait_for(self._progress.wait(), deadline - self.loop.time())
            except TimeoutError:
                return

    def note_progress(self) -> None:
        """Wake a stopping server, which waits for requests and connections to end."""
        self._progress.set()

    # ---- for connections ----

    def add(self, connection: Connection) -> bool:
        """Add a new connection; False if there is no room for it."""
        if self._is_stopping:
            return False
        if len(self._connections) >= self._max_connections and not self._make_room():
            logger.warning(
                "connection of %s refused: all %d connections that the server accepts are in use",
                connection.client_host,
                self._max_connections,
            )
            return False
        self._connections[connection] = None
        if not self._accepting:
            self._accept_waiting(connection.listener)
        return True

    def _accept_waiting(self, listener: BoundListener) -> None:
        for _ in range(MAX_CONNECTIONS_AT_ONCE):
            try:
                accepted, _ = listener.socket.accept()
            except OSError:  # no connection is waiting, or the loop reports the error at its next accept
                return
            accepting: asyncio.Task[object] = self.loop.create_task(
                self.loop.connect_accepted_socket(lambda: Connection(self, listener), accepted)
            )
            self._accepting.add(accepting)
            accepting.add_done_callback(self._accepting.discard)

    def remove(self, connection: Connection) -> None:
        """Forget a connection that was lost."""
        self._connections.pop(connection, None)
        self._progress.set()

    def _make_room(self) -> bool:
        newest = self.loop.time() - MIN_SILENCE_SECONDS
        for connection in self._connections:
            if connection.opened_at > newest:
                return False
            if connection.served_requests == 0:
                del self._connections[connection]
                connection.abort()
                return True
        return False

    # ---- time ----

    def _sweep(self) -> None:
        # Time in which this process did not run, on a busy machine or during a long step, does not count against its
        # peers: it could not see what they sent, or that they were ready to receive answers.
        swept_before, self._swept_at = self._swept_at, self.loop.time()
        self.now += min(self._swept_at - swept_before, MOST_SWEEPS_AT_ONCE * self.limits.sweep_seconds())
        memory_is_short, answers_wait = self.received.has_waiting, self.answers.has_waiting
        for connection in tuple(self._connections):
            reason = connection.overdue_reason(self.now, memory_is_short, answers_wait)
            if reason is not None:
                logger.info(
                    "connection of %s on %s ended: %s",
                    connection.client_host,
                    connection.listener.name,
                    reason,
                )
                connection.abort()
        self._sweep_timer = self.loop.call_later(self.limits.sweep_seconds(), self._sweep)


def _connection_limit(wanted: int) -> int:
    """Return the wanted number, or fewer if the process may not open so many file descriptors."""
    with contextlib.suppress(ImportError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            return max(1, min(wanted, soft - min(FILE_DESCRIPTORS_FOR_FILES, soft // 2)))
    return wanted
