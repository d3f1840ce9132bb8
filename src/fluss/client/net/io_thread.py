"""The I/O thread: one background thread with an event loop, shared by all connections of a process.

States: not started -> running -> stopped. `IoThread.shared()` returns the running one or starts it; every connection
holds a reference (`acquire`/`release`). If there is none for `IDLE_STOP_SECONDS`, the thread ends; the next
connection starts a new one.

`submit`, `run`, `awaitable`, `call_soon`, `acquire` and `release` may be called from any thread, but `run` never from
the I/O thread itself (it would wait for itself). Everything that belongs to a connection (sockets, metadata, queues) is
used on the I/O thread only.

Two cases need care. A forked child has the objects but not the thread: any use of an old object in it raises an error
that explains this, and a new connection in the child starts its own thread. At interpreter exit the loop is stopped and
joined for at most `EXIT_JOIN_SECONDS`, so that a forgotten connection never keeps a program from ending.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fluss.errors import ErrorCode, FlussError

try:
    from uvloop import new_event_loop as _new_event_loop
except ImportError:
    from asyncio import new_event_loop as _new_event_loop  # type: ignore[assignment]

IDLE_STOP_SECONDS = 5.0
EXIT_JOIN_SECONDS = 3.0
START_SECONDS = 30.0

T = TypeVar("T")

logger = logging.getLogger(__name__)
_lock = threading.Lock()
_shared: IoThread | None = None


class _Process:
    """The id of this process. Asking the kernel for it costs more than the rest of a hand-over, so it is cached."""

    number = os.getpid()

    @classmethod
    def forked(cls) -> None:
        cls.number = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Process.forked)


class IoThread:
    """An event loop running on its own thread. Use `IoThread.shared()`."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = _new_event_loop()
        self.loop.set_exception_handler(_log_stray_error)
        self._pid = _Process.number
        self._references = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name="fluss-io", daemon=True)
        started = threading.Event()
        self.loop.call_soon(started.set)
        self._thread.start()
        started.wait(START_SECONDS)

    @classmethod
    def shared(cls) -> IoThread:
        """The I/O thread of this process, started if there is none."""
        global _shared
        with _lock:
            if _shared is None or _shared._stopping:
                _shared = cls()
            return _shared

    @classmethod
    def acquired(cls) -> IoThread:
        """The I/O thread with a reference taken, in one step: an idle thread cannot stop in between."""
        global _shared
        with _lock:
            if _shared is None or _shared._stopping:
                _shared = cls()
            _shared._references += 1
            return _shared

    # ---- references ----

    def acquire(self) -> None:
        """Keep the thread alive until `release`."""
        with _lock:
            self._references += 1

    def release(self) -> None:
        """Return a reference; after the last one the thread ends when it has been idle for a while."""
        with _lock:
            self._references -= 1
            if self._references or self.is_forked or self._stopping:
                return
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.call_later, IDLE_STOP_SECONDS, self._stop_if_idle)

    def _stop_if_idle(self) -> None:
        with _lock:
            if self._references == 0:
                self._stopping = True
                self.loop.stop()

    # ---- work ----

    @property
    def is_forked(self) -> bool:
        """True if this object was inherited from a parent process, without its thread."""
        return self._pid != _Process.number

    @property
    def is_current(self) -> bool:
        """True if the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def check_usable(self) -> None:
        """Raise if the thread can no longer accept work."""
        if self.is_forked:
            raise FlussError(
                f"this connection belongs to process {self._pid}, and a forked process does not inherit its I/O "
                "thread: open a new connection in the child, or start it with the 'spawn' method",
                ErrorCode.CLIENT_ERROR,
            )
        if self._stopping:
            raise FlussError("the client's I/O thread has ended; the connection is closed", ErrorCode.CLIENT_ERROR)

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        """Run `callback` on the I/O thread; the cheapest way to hand over work."""
        if self._stopping or self._pid != _Process.number:
            self.check_usable()
        try:
            self.loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            self._stopping = True
            self.check_usable()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the I/O thread. Cancelling the future cancels the coroutine."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            self.call_soon(self._start, coroutine, future)
        except FlussError:
            coroutine.close()
            raise
        return future

    def _start(self, coroutine: Coroutine[Any, Any, T], future: concurrent.futures.Future[T]) -> None:
        task = self.loop.create_task(coroutine)

        def finished(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                future.cancel()
                if not future.done():
                    future.set_exception(FlussError("the call was cancelled: the connection was closed"))
                return
            error = task.exception()
            if not future.set_running_or_notify_cancel():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        def cancelled(future: concurrent.futures.Future[T]) -> None:
            if future.cancelled():
                with contextlib.suppress(RuntimeError):
                    self.loop.call_soon_threadsafe(task.cancel)

        task.add_done_callback(finished)
        future.add_done_callback(cancelled)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the I/O thread and block for its result; the time-out is in seconds."""
        if self.is_current:
            coroutine.close()
            raise FlussError("blocking calls must not be made on the client's I/O thread, e.g. in a callback")
        future = self.submit(coroutine)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise FlussError(f"no result after {timeout} seconds", ErrorCode.REQUEST_TIME_OUT) from None
        except concurrent.futures.CancelledError:
            raise FlussError("the call was cancelled: the connection was closed") from None
        except BaseException:
            future.cancel()  # KeyboardInterrupt: the caller no longer waits
            raise

    def awaitable(self, coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Start a coroutine on the I/O thread; the result can be awaited from any event loop."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            coroutine.close()
            raise FlussError("an awaitable call requires a running event loop; call it inside a coroutine") from None
        if running is self.loop:
            return running.create_task(coroutine)
        future: asyncio.Future[T] = running.create_future()
        started: list[asyncio.Task[T]] = []
        try:
            self.call_soon(self._start_for, running, coroutine, future, started)
        except FlussError:
            coroutine.close()
            raise

        def abandoned(future: asyncio.Future[T]) -> None:
            if future.cancelled():  # its start was scheduled earlier, so it comes first
                with contextlib.suppress(RuntimeError):
                    self.loop.call_soon_threadsafe(lambda: started[0].cancel())

        future.add_done_callback(abandoned)
        return future

    def _start_for(
        self,
        running: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, T],
        future: asyncio.Future[T],
        started: list[asyncio.Task[T]],
    ) -> None:
        """Deliver the result to the user's loop with one call; a loop that was closed meanwhile needs no answer."""
        task = self.loop.create_task(coroutine)
        started.append(task)

        def deliver() -> None:
            if future.done():
                return
            if task.cancelled():
                future.cancel()
            elif (error := task.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        def finished(task: asyncio.Task[T]) -> None:
            if not task.cancelled():
                task.exception()  # retrieved, even if no caller awaits it
            with contextlib.suppress(RuntimeError):
                running.call_soon_threadsafe(deliver)

        task.add_done_callback(finished)

    # ---- life ----

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            with contextlib.suppress(Exception):
                self.loop.run_until_complete(asyncio.sleep(0))
            with contextlib.suppress(Exception):
                self.loop.close()

    def stop(self, timeout: float = EXIT_JOIN_SECONDS) -> None:
        """Stop the loop and wait a bounded time for the thread."""
        if self.is_forked:
            return
        self._stopping = True
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_current:
            self._thread.join(timeout)


def _log_stray_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    logger.error("%s", context.get("message", "error on the I/O thread"), exc_info=error)


def _after_fork_in_child() -> None:
    """A thread that does not exist here may have held the lock; the shared thread does not exist here either."""
    global _lock, _shared
    _lock = threading.Lock()
    _shared = None


def _stop_at_exit() -> None:
    if _shared is not None:
        _shared.stop()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_stop_at_exit)
