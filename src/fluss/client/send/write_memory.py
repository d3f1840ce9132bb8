"""The limit on unacknowledged bytes of all writers of a connection, and waiting for room.

`add` and `release` count; they never wait. A caller waits for room before it hands over rows, not afterwards: rows
that have their place in the sending order must not wait for later rows. So the limit may be exceeded by one batch per
writing thread. `release` is called on the I/O thread, everything else on any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

from fluss.errors import FlussError

# A waiter checks the clock and signals at least this often.
WAIT_STEP_SECONDS = 1.0


class MemoryBudget:
    """Counts unacknowledged bytes against `writer.buffer.memory-size`."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._room = threading.Condition()
        self._futures: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._error: FlussError | None = None

    @property
    def has_room(self) -> bool:
        return self.used_bytes < self.limit_bytes

    def add(self, size_bytes: int) -> None:
        """Called when rows were handed over."""
        with self._room:
            self.used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Called when rows are acknowledged or have failed."""
        with self._room:
            self.used_bytes -= size_bytes
            assert self.used_bytes >= 0, "more was released than added"
            if not self.has_room:
                return
            self._room.notify_all()
            futures, self._futures = self._futures, []
        _complete(futures)

    def close(self, error: FlussError) -> None:
        """Fail all waiters: no more room will be made."""
        with self._room:
            self._error = error
            self._room.notify_all()
            futures, self._futures = self._futures, []
        _complete(futures)

    def wait_for_room(self, timeout_seconds: float) -> None:
        """Block the calling thread until less than the limit is used. The I/O thread makes room without the caller."""
        if self.has_room and self._error is None:
            return
        with self._room:
            deadline = time.monotonic() + timeout_seconds
            while not self.has_room and self._error is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise FlussError(
                        f"no room for more rows after {timeout_seconds:g} seconds: {self.used_bytes} bytes are not "
                        f"acknowledged, writer.buffer.memory-size is {self.limit_bytes}"
                    )
                self._room.wait(min(left, WAIT_STEP_SECONDS))
            if self._error is not None:
                raise self._error

    async def room(self) -> None:
        """Wait for room in a coroutine of any event loop."""
        loop = asyncio.get_running_loop()
        while True:
            with self._room:
                if self._error is not None:
                    raise self._error
                if self.has_room:
                    return
                future: asyncio.Future[None] = loop.create_future()
                self._futures.append((loop, future))
            await future


def _complete(futures: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]]) -> None:
    for loop, future in futures:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(_wake, future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
