"""Handles, which tell a caller when its rows are acknowledged.

A `Chunk` is a set of rows that were taken out of a writer together; it is the handle of each of its rows, so a row
needs no object of its own. It becomes batches of one or more buckets, counts the unacknowledged ones, and is settled
when none is left: with success, or with the first error.

Life of a chunk: open (rows may still be added) -> taken -> ready (converted; `pieces` will become batches) -> settled.
The thread that converts a chunk fills in `pieces` and `pending` and then sets `ready`; after that only the I/O thread
touches it (`release`). Waiters come from any thread; they register under one lock for all handles, which settling
takes too, so none is missed. Futures and events are created only if a caller waits. All futures of one event loop are
completed by one wake-up of that loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from fluss.errors import ErrorCode, FlussError

_lock = threading.Lock()


class WriteResultHandle:
    """Returned by write calls: ignore it, or `await handle.wait()` for the server's acknowledgement."""

    __slots__ = ()

    def wait(self) -> PendingResult:
        """The acknowledgement: `await handle.wait()`, or `handle.wait().result(timeout)` without event loop."""
        return PendingResult(self._chunks(), "wait()")

    @property
    def is_done(self) -> bool:
        """True if the rows are acknowledged or have failed."""
        return all(chunk.settled for chunk in self._chunks())

    def _chunks(self) -> Sequence[Chunk]:
        raise TypeError("a handle must be created by a writer")

    def __repr__(self) -> str:
        chunks = self._chunks()
        error = next((chunk.error for chunk in chunks if chunk.error is not None), None)
        if error is not None:
            return f"WriteResultHandle(failed: {error.message})"
        return f"WriteResultHandle({'acknowledged' if self.is_done else 'pending'})"


class ChunkOwner(Protocol):
    """The writer that a chunk comes from."""

    def on_settled(self, chunk: Chunk) -> None:
        """Called when a chunk is acknowledged or has failed, before its waiters are woken. I/O thread."""

    def check_usable(self) -> None:
        """Raise if no chunk can be settled any more, as in a forked process."""


class Chunk(WriteResultHandle):
    """Rows taken together. `number` grows with every chunk of a writer."""

    __slots__ = ("_waiters", "error", "number", "owner", "pending", "pieces", "ready", "reported", "settled")

    def __init__(self, number: int, owner: ChunkOwner) -> None:
        self.number = number
        self.owner = owner
        self.pending = 1  # unsettled pieces; a chunk without pieces is settled by one `release` too
        self.error: FlussError | None = None
        self.settled = False
        self.reported = False
        self.ready = False
        self.pieces: list[Any] = []
        self._waiters: list[Waiter] | None = None

    def _chunks(self) -> Sequence[Chunk]:
        return (self,)

    # ---- the writer's side ----

    def make_ready(self, pieces: list[Any], error: FlussError | None = None) -> None:
        """Set the pieces of the chunk, or the error if there are none."""
        self.pieces = pieces
        self.pending = max(1, len(pieces))
        self.error = error
        self.ready = True

    def release(self, error: FlussError | None = None) -> None:
        """Called once per piece, on success or failure. I/O thread."""
        if error is not None and self.error is None:
            self.error = error
        self.pending -= 1
        assert self.pending >= 0, "a batch was settled twice"
        if self.pending == 0:
            with _lock:
                self.settled = True
                waiters, self._waiters = self._waiters, None
                # A waiter sees the error; the writer need not raise it again.
                self.reported = self.reported or bool(waiters and self.error is not None)
            self.owner.on_settled(self)
            if waiters:
                _wake(waiters)

    # ---- the waiters' side ----

    def add_waiter(self, waiter: Waiter) -> bool:
        """Register a waiter to be woken when the chunk is settled; False if it already is."""
        self.owner.check_usable()
        with _lock:
            if self.settled:
                self.reported = True
                return False
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            return True

    def remove_waiter(self, waiter: Waiter) -> None:
        """Remove a waiter that gave up."""
        with _lock:
            if self._waiters is not None:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)


class ChunkSpan(WriteResultHandle):
    """The handle of a row whose chunk is one of several: another thread took rows while it was added."""

    __slots__ = ("_members",)

    def __init__(self, members: Iterable[Chunk]) -> None:
        self._members = tuple(members)

    def _chunks(self) -> Sequence[Chunk]:
        return self._members


def chunks_of(handle: WriteResultHandle) -> Sequence[Chunk]:
    """The chunks that a handle stands for."""
    return handle._chunks()


def joined_handle(handles: Sequence[WriteResultHandle]) -> WriteResultHandle:
    """One handle for several writes."""
    return handles[0] if len(handles) == 1 else ChunkSpan(chunk for handle in handles for chunk in handle._chunks())


class _LoopWaiter:
    """A future of an event loop that completes when a number of chunks are settled."""

    __slots__ = ("future", "left", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, left: int) -> None:
        self.loop = loop
        self.future: asyncio.Future[None] = loop.create_future()
        self.left = left


class _ThreadWaiter:
    """The counterpart of `_LoopWaiter` for a blocking thread."""

    __slots__ = ("event", "left")

    def __init__(self, left: int) -> None:
        self.event = threading.Event()
        self.left = left


Waiter: TypeAlias = _LoopWaiter | _ThreadWaiter


def _wake(waiters: list[Waiter]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for waiter in waiters:
        with _lock:  # chunks of one span may be settled by different threads
            waiter.left -= 1
            done = waiter.left == 0
        if not done:
            continue
        if isinstance(waiter, _ThreadWaiter):
            waiter.event.set()
        else:
            by_loop.setdefault(waiter.loop, []).append(waiter.future)
    for loop, futures in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: no task waits there
            loop.call_soon_threadsafe(_complete, futures)


def _complete(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class PendingResult:
    """The completion of some writes: `await` it in a coroutine, or call `result()` to block a thread.

    Raises the `FlussError` of the first write that failed.
    """

    __slots__ = ("_chunks", "_name", "_used")

    def __init__(self, chunks: Sequence[Chunk], name: str) -> None:
        self._chunks = chunks
        self._name = name
        self._used = False

    def __await__(self) -> Generator[Any, None, None]:
        self._used = True
        return self._wait().__await__()

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        chunks = self._chunks
        unsettled = [chunk for chunk in chunks if not chunk.settled]
        if unsettled:
            waiter = _LoopWaiter(loop, len(unsettled))
            self._register(unsettled, waiter)
            if waiter.left:
                try:
                    await waiter.future
                except asyncio.CancelledError:
                    for chunk in unsettled:
                        chunk.remove_waiter(waiter)
                    raise
        self._raise(chunks)

    def result(self, timeout: float | None = None) -> None:
        """Block until it is done, at most `timeout` seconds (then `FlussError` 25)."""
        self._used = True
        chunks = self._chunks
        unsettled = [chunk for chunk in chunks if not chunk.settled]
        if unsettled:
            waiter = _ThreadWaiter(len(unsettled))
            self._register(unsettled, waiter)
            if waiter.left and not waiter.event.wait(timeout):
                for chunk in unsettled:
                    chunk.remove_waiter(waiter)
                raise FlussError(f"not acknowledged after {timeout} seconds", ErrorCode.REQUEST_TIME_OUT)
        self._raise(chunks)

    @staticmethod
    def _register(chunks: Sequence[Chunk], waiter: Waiter) -> None:
        for chunk in chunks:
            if not chunk.add_waiter(waiter):
                with _lock:
                    waiter.left -= 1

    @staticmethod
    def _raise(chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            if chunk.error is not None:
                chunk.reported = True
        for chunk in chunks:
            if chunk.error is not None:
                raise FlussError(chunk.error.message, chunk.error.error_code)

    def __del__(self) -> None:
        if not self._used:
            warnings.warn(
                f"the result of {self._name} was dropped: await it, or call result() to wait",
                RuntimeWarning,
                stacklevel=2,
            )
