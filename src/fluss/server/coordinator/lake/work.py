"""Work that blocks on a lake or on remote files, away from the event loop.

Theory. Each piece of work gets a thread of its own and a time limit. A lake that does not answer costs its caller an
error and nobody else anything: the thread is left behind (it is a daemon, so it does not hold up an exit either), and
whatever it still does later is found by the repetition, because every step of the coordinator can be repeated. Threads
that were left behind are counted; too many of them, and new work is refused at once until some have come back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from fluss.errors import ErrorCode, FlussError

WORK_LIMIT_THREADS = 16

T = TypeVar("T")


class LakeWork:
    """Runs functions in threads; `run` is called on the event loop."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_seconds = limit_ms / 1000
        self._running = 0
        self._lock = threading.Lock()

    async def run(self, doing: str, work: Callable[[], T]) -> T:
        """The result of `work`, or its error; code 25 when the time is over or too much is under way."""
        with self._lock:
            if self._running >= WORK_LIMIT_THREADS:
                raise FlussError(
                    f"{doing}: {self._running} earlier requests still wait for the lake; check its catalog and storage",
                    ErrorCode.REQUEST_TIME_OUT,
                )
            self._running += 1
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        thread = threading.Thread(target=self._work, args=(work, loop, future), name="fluss-lake", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            with self._lock:
                self._running -= 1
            raise FlussError(f"{doing}: no thread for it ({error}); try again", ErrorCode.REQUEST_TIME_OUT) from error
        try:
            return await asyncio.wait_for(future, self._limit_seconds)
        except TimeoutError:
            raise FlussError(
                f"{doing}: the lake did not answer within {self._limit_seconds:g} s. Check its catalog and storage and "
                "repeat the call; what it does later is found then",
                ErrorCode.REQUEST_TIME_OUT,
            ) from None

    def _work(self, work: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = work()
        except Exception as raised:
            error = raised
        finally:
            with self._lock:
                self._running -= 1
        try:
            loop.call_soon_threadsafe(_settle, future, result, error)
        except RuntimeError:
            return  # The loop is closed: the server stopped, nobody waits.


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # the caller has given up
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
