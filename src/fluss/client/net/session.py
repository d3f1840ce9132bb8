"""A session: the state shared by all objects of one connection.

It owns a reference to the I/O thread and one `Cluster`. Admins, tables, writers and scanners hold the session, so it
lives as long as any of them. States: open -> closing -> closed. Closing first runs the close hooks (writers flush
there, scanners stop), newest first, then closes the sockets, then releases the I/O thread; it happens once, however
often it is requested.

A session that is dropped or still open at interpreter exit warns with a `ResourceWarning` and is closed as well as
possible: without blocking when dropped, within `EXIT_CLOSE_SECONDS` at exit.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from fluss.client.net.cluster import Cluster
from fluss.client.net.io_thread import IoThread
from fluss.config import Config
from fluss.errors import FlussError

EXIT_CLOSE_SECONDS = 3.0

T = TypeVar("T")
CloseHook = Callable[[], Awaitable[None]]

_open_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """Opened by `open_session`. Methods may be called from any thread unless they say otherwise."""

    def __init__(self, io: IoThread, cluster: Cluster) -> None:
        self.io = io
        self.cluster = cluster
        self.config = cluster.config
        self._hooks: list[CloseHook] = []
        self._lock = threading.Lock()
        self._closing: concurrent.futures.Future[None] | None = None
        _open_sessions.add(self)
        _register_exit_hook()

    @property
    def is_closed(self) -> bool:
        """True once closing has begun."""
        return self._closing is not None

    def check_open(self) -> None:
        """Raise if the connection is closed, or belongs to the parent of a forked process."""
        self.io.check_usable()
        if self._closing is not None:
            raise FlussError("the connection is closed: open a new one with FlussConnection.create(config)")

    def __reduce__(self) -> NoReturn:
        raise FlussError(
            "a connection and the objects made from it cannot be pickled: pass the address or a Config, and "
            "connect in the other process"
        )

    # ---- work on the I/O thread ----

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the I/O thread and block for its result."""
        self._check(coroutine)
        return self.io.run(coroutine, timeout)

    def awaitable(self, coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Run a coroutine on the I/O thread; the result can be awaited from any event loop."""
        self._check(coroutine)
        return self.io.awaitable(coroutine)

    def _check(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            self.check_open()
        except FlussError:
            coroutine.close()
            raise

    # ---- closing ----

    def add_close_hook(self, hook: CloseHook) -> None:
        """`hook` is awaited on the I/O thread before the sockets close. A bound method keeps its object alive."""
        with self._lock:
            self._hooks.append(hook)

    def remove_close_hook(self, hook: CloseHook) -> None:
        """Remove the hook of an object that is closed before its connection."""
        with self._lock, contextlib.suppress(ValueError):
            self._hooks.remove(hook)

    def close(self) -> concurrent.futures.Future[None]:
        """Begin to close, unless it has begun; the future completes when it is done, with any error."""
        with self._lock:
            if self._closing is None:
                hooks, self._hooks = self._hooks[::-1], []
                _open_sessions.discard(self)
                if self.io.is_forked:  # the sockets belong to the parent, which continues to use them
                    self._closing = concurrent.futures.Future()
                    self._closing.set_result(None)
                else:
                    self._closing = _begin_close(self.io, self.cluster, hooks)
            return self._closing

    def __del__(self) -> None:
        if getattr(self, "_closing", self) is None and not self.io.is_forked:
            _warn_forgotten(self.config)
            with contextlib.suppress(Exception):
                self.close()


def _begin_close(io: IoThread, cluster: Cluster, hooks: list[CloseHook]) -> concurrent.futures.Future[None]:
    """Close everything but the session itself, which may be in destruction."""
    try:
        return io.submit(_close(io, cluster, hooks))
    except FlussError:  # the thread has ended: nothing is open
        future: concurrent.futures.Future[None] = concurrent.futures.Future()
        future.set_result(None)
        return future


async def _close(io: IoThread, cluster: Cluster, hooks: list[CloseHook]) -> None:
    first_error: BaseException | None = None
    try:
        for hook in hooks:
            try:
                await hook()
            except (Exception, asyncio.CancelledError) as error:
                first_error = first_error or error
    finally:
        await cluster.close()
        io.release()
    if first_error is not None:
        raise first_error


async def _make_cluster(config: Config) -> Cluster:
    cluster = Cluster(config)
    try:
        await cluster.start()
    except BaseException:
        await cluster.close()
        raise
    return cluster


async def open_session(config: Config) -> Session:
    """Connect from a coroutine of any event loop."""
    settings = _checked(config)
    io = IoThread.acquired()
    try:
        return Session(io, await io.awaitable(_make_cluster(settings)))
    except BaseException:
        io.release()
        raise


def open_session_blocking(config: Config) -> Session:
    """Connect from a thread without event loop."""
    settings = _checked(config)
    io = IoThread.acquired()
    try:
        return Session(io, io.run(_make_cluster(settings)))
    except BaseException:
        io.release()
        raise


def _checked(config: Config) -> Config:
    if not isinstance(config, Config):
        raise FlussError(f"config must be a fluss.Config, got {type(config).__name__}")
    config.validate()
    return config.copy()


def _warn_forgotten(config: Config) -> None:
    warnings.warn(
        f"a connection to {config.bootstrap_servers} was not closed: call close(), or use 'with' or 'async with'",
        ResourceWarning,
        stacklevel=3,
    )


def _close_at_exit() -> None:
    """Try to write rows that were appended but not flushed, for a bounded time."""
    closings = []
    for session in list(_open_sessions):
        if not session.io.is_forked:
            _warn_forgotten(session.config)
            closings.append(session.close())
    if closings:
        concurrent.futures.wait(closings, EXIT_CLOSE_SECONDS)


@functools.lru_cache(maxsize=1)
def _register_exit_hook() -> None:
    """Register the exit hook once, with the first session.

    The threading module's hooks run before plain `atexit` ones, newest first: before executors stop, before an embedded
    server of the same program stops (it was started earlier), and before the I/O thread is stopped.
    """
    register = getattr(threading, "_register_atexit", atexit.register)
    register(_close_at_exit)
