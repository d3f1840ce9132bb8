"""Results that work with and without `await`.

`AwaitsToItself`: an object that is available at once; `await` returns the object itself.
`Closing`: the end of a connection. `await conn.close()` waits without blocking the event loop. A plain `conn.close()`
blocks until it is done: at once if no event loop runs in the calling thread, otherwise when the result is dropped,
which CPython does at the end of the statement.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Generator
from typing import Any, TypeVar

from fluss.errors import ErrorCode, FlussError

_Self = TypeVar("_Self", bound="AwaitsToItself")

logger = logging.getLogger(__name__)


class AwaitsToItself:
    """Mix-in for objects that need no waiting, where the documentation uses `await`."""

    def __await__(self: _Self) -> Generator[Any, None, _Self]:
        return self
        yield  # makes it a generator; never reached


class Closing:
    """Returned by `close()`; see the module docstring."""

    __slots__ = ("_awaited", "_future", "_timeout")

    def __init__(self, future: concurrent.futures.Future[None], timeout: float) -> None:
        self._future = future
        self._timeout = timeout
        self._awaited = False

    def __await__(self) -> Generator[Any, None, None]:
        self._awaited = True
        return self._wait().__await__()

    async def _wait(self) -> None:
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._future)), self._timeout)
        except TimeoutError:
            raise self._too_long() from None

    def wait(self) -> None:
        """Block until it is done; raise its error, e.g. about rows that could not be written."""
        self._awaited = True
        try:
            self._future.result(self._timeout)
        except concurrent.futures.TimeoutError:
            raise self._too_long() from None

    def _too_long(self) -> FlussError:
        text = f"closing the connection took longer than {self._timeout:.0f} seconds: rows still wait to be written"
        return FlussError(text, ErrorCode.REQUEST_TIME_OUT)

    def __del__(self) -> None:
        if self._awaited:
            return
        try:
            self.wait()
        except Exception as error:
            # No caller can catch it here, and ignoring it would hide lost rows.
            logger.error("closing the connection failed: %s", error)


def runs_in_event_loop() -> bool:
    """True if the calling thread runs an event loop now."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
