"""Threads for calls that block on a lake or on remote files.

Theory. Each call gets its own thread and a time limit. If a lake does not respond, its caller gets an error and no
other request is affected: the thread is abandoned (it is a daemon, so it does not delay an exit either). If it
completes later, a repeated request finds its result, because every step of the coordinator is idempotent. Abandoned
threads are counted; when there are too many, new calls are refused until some have ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from fluss.errors import ErrorCode, FlussError

WORK_LIMIT_THREADS = 16

T = TypeVar("T")


class LakeThreads:
    """Runs blocking functions in threads. `run` is called on the event loop."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_seconds = limit_ms / 1000
        self._running = 0
        self._lock = threading.Lock()

    async def run(self, doing: str, work: Callable[[], T]) -> T:
        """Return the result of `work`, or raise its error; code 25 on a timeout or if too many calls are under way."""
        with self._lock:
            if self._running >= WORK_LIMIT_THREADS:
                raise FlussError(
                    f"{doing}: {self._running} earlier calls still wait for the lake; check its catalog and storage",
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
            raise FlussError(
                f"{doing}: cannot start a thread ({error}); try again", ErrorCode.REQUEST_TIME_OUT
            ) from error
        try:
            return await asyncio.wait_for(future, self._limit_seconds)
        except TimeoutError:
            raise FlussError(
                f"{doing}: the lake did not respond within {self._limit_seconds:g} s; check its catalog and storage, "
                "and repeat the call, which finds anything that is completed late",
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
            return  # The loop is closed because the server stopped; no caller waits.


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # the caller has given up
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
