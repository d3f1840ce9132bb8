"""How much memory answers may take: a few small requests can ask for gigabytes.

Theory. A large answer is in memory twice: while its handler collects rows, and until the peer has taken it. Handlers
say what they have collected (`RequestContext.collect`); what was queued for a peer is known here. Small answers are not
counted.

- One connection collects one large answer at a time: its next requests wait unread. They would not be answered sooner
  otherwise, the peer has to take the first answer before the second.
- When the answers of all connections together reach the limit of the process, requests that answer with rows wait, and
  of those that have begun only the oldest goes on (`RequestContext.room`), so that there is always one that ends.
  Writes and everything else are served. Peers that do not take their answers meanwhile are cut off soon.

Freed memory stays with the C library, in pieces between others. After large answers it is told to give them back.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from fluss.protocol.api_keys import ApiKey
from fluss.protocol.frames import read_request_header
from fluss.server.network.buffers import BytesInMemory
from fluss.server.network.flow_control import Hold
from fluss.server.runtime.handlers import LARGE_STEP_BYTES

if TYPE_CHECKING:
    from fluss.server.network.connection import Connection

GIVE_BACK_AFTER_BYTES = 32 * 1024 * 1024
GIVE_BACK_DELAY_SECONDS = 1.0

ROW_ANSWERS = frozenset(
    int(key)
    for key in (
        ApiKey.LOOKUP,
        ApiKey.PREFIX_LOOKUP,
        ApiKey.LIMIT_SCAN,
        ApiKey.SCAN_KV,
        ApiKey.SCAN_KV_RANGE,
        ApiKey.FETCH_LOG,
    )
)


class AnswersInMemory(BytesInMemory):
    """The account of one server process."""

    def __init__(self, limit_bytes: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit_bytes)
        self._loop = loop
        self._freed_bytes = 0

    def refund(self, count: int) -> None:
        """`count` bytes are gone; when they are many, give their memory back to the system."""
        super().refund(count)
        before, self._freed_bytes = self._freed_bytes, self._freed_bytes + count
        if before < GIVE_BACK_AFTER_BYTES <= self._freed_bytes:
            self._loop.call_later(GIVE_BACK_DELAY_SECONDS, self._give_back)

    def _give_back(self) -> None:
        self._freed_bytes = 0
        give_back_memory()


class ConnectionAnswers:
    """The part of one connection."""

    __slots__ = ("_collected", "_connection", "_queued", "_total")

    def __init__(self, connection: Connection, total: AnswersInMemory) -> None:
        self._connection = connection
        self._total = total
        self._collected = 0
        self._queued = 0

    def collected(self, owner: int, size: int) -> None:
        """The handler of a request has collected so many more bytes."""
        self._total.begin(owner)
        self._total.charge(size)
        self._collected += size
        self._connection.hold(Hold.ANSWERS)

    async def room(self, owner: int) -> None:
        """Return when the request may collect more."""
        while not self._total.may_go_on(owner):
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._total.wait(owner, lambda woken=woken: woken.done() or woken.set_result(None))  # type: ignore[misc]
            await woken

    def ended(self, owner: int, size: int) -> None:
        """The answer is made, or the request has failed; `size` is all it had collected."""
        self._collected -= size
        self._total.refund(size)
        self._total.forget(owner)
        if not self._collected:
            self._connection.release_hold(Hold.ANSWERS)

    def queued(self, size: int) -> None:
        """An answer waits for the peer."""
        if size >= LARGE_STEP_BYTES:
            self._queued += size
            self._total.charge(size)

    def taken(self) -> None:
        """The peer has taken all of it, up to what is little enough to be forgotten."""
        if self._queued:
            queued, self._queued = self._queued, 0
            self._total.refund(queued)

    def must_wait(self, view: memoryview, header: int) -> bool:
        """When the account is full: whether this request waits until it is not; then it is continued by itself."""
        if read_request_header(view, header).api_key not in ROW_ANSWERS:
            return False
        self._connection.hold(Hold.ANSWERS)
        self._total.wait(id(self), lambda: self._connection.release_hold(Hold.ANSWERS))
        return True

    def lost(self) -> None:
        """The connection is gone; requests under way still end by themselves."""
        self._total.forget(id(self))
        self.taken()


# Of glibc; other C libraries have no such function and give back by themselves.
_malloc_trim: Callable[[int], int] | None = (
    getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
)


def give_back_memory() -> None:
    """Return what is free between other things to the system."""
    if _malloc_trim is not None:
        _malloc_trim(0)
