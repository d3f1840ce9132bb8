"""Results that work with and without `await`.

`AwaitsToItself`: a value that is there already; `await` gives the value itself.
`Closing`: the end of a connection. `await conn.close()` waits without blocking the event loop; a plain `conn.close()`
blocks until it is done: at once when no event loop runs in the calling thread, otherwise when the result is dropped,
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
    """Mix-in for objects that need no waiting, in places where documents write `await`."""

    def __await__(self: _Self) -> Generator[Any, None, _Self]:
        return self
        yield  # makes it a generator, which never gets here


class Closing:
    """Returned by `close()`; see the module's text."""

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
        """Block until it is done; raises what went wrong, e.g. rows that could not be written."""
        self._awaited = True
        try:
            self._future.result(self._timeout)
        except concurrent.futures.TimeoutError:
            raise self._too_long() from None

    def _too_long(self) -> FlussError:
        text = f"the connection is not closed after {self._timeout:.0f} seconds: rows are still waiting to be written"
        return FlussError(text, ErrorCode.REQUEST_TIME_OUT)

    def __del__(self) -> None:
        if self._awaited:
            return
        try:
            self.wait()
        except Exception as error:
            # Nobody is there to catch it, and losing it silently would hide lost rows.
            logger.error("closing the connection failed: %s", error)


def runs_in_event_loop() -> bool:
    """Whether the calling thread runs an event loop now."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
