"""The account of memory that answers take: a few small requests can ask for gigabytes.

Theory. A large answer takes memory twice: while its handler collects rows, and until the peer has received it. Handlers
report what they have collected (`RequestContext.collect`); what is queued for a peer is known here. Small answers are
not counted.

- A connection collects one large answer at a time; its next requests are not read meanwhile. Reading them earlier would
  not answer them sooner, since the peer has to receive the first answer before the second.
- When the answers of all connections together reach the limit of the process, requests that answer with rows wait,
  and of those under way only the oldest continues (`RequestContext.room`), so that one can always finish. Writes and
  all other requests are served. Peers that do not read their answers are soon disconnected.

The C library keeps freed memory, fragmented between blocks in use. After large answers it is made to release that.
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
    """The account of the memory that all answers of one server process take."""

    def __init__(self, limit_bytes: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit_bytes)
        self._loop = loop
        self._freed_bytes = 0

    def refund(self, count: int) -> None:
        """Subtract freed bytes; when they add up to many, return their memory to the system."""
        super().refund(count)
        before, self._freed_bytes = self._freed_bytes, self._freed_bytes + count
        if before < GIVE_BACK_AFTER_BYTES <= self._freed_bytes:
            self._loop.call_later(GIVE_BACK_DELAY_SECONDS, self._give_back)

    def _give_back(self) -> None:
        self._freed_bytes = 0
        give_back_memory()


class ConnectionAnswers:
    """The account of the memory that the answers of one connection take."""

    __slots__ = ("_collected", "_connection", "_queued", "_total")

    def __init__(self, connection: Connection, total: AnswersInMemory) -> None:
        self._connection = connection
        self._total = total
        self._collected = 0
        self._queued = 0

    def collected(self, owner: int, size: int) -> None:
        """Add bytes that the handler of a request has collected."""
        self._total.begin(owner)
        self._total.charge(size)
        self._collected += size
        self._connection.hold(Hold.ANSWERS)

    async def room(self, owner: int) -> None:
        """Wait until the request may collect more."""
        while not self._total.may_continue(owner):
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._total.wait(owner, lambda woken=woken: woken.done() or woken.set_result(None))  # type: ignore[misc]
            await woken

    def ended(self, owner: int, size: int) -> None:
        """Subtract everything that a request had collected, once its answer is complete or it has failed."""
        self._collected -= size
        self._total.refund(size)
        self._total.forget(owner)
        if not self._collected:
            self._connection.release_hold(Hold.ANSWERS)

    def queued(self, size: int) -> None:
        """Add the bytes of an answer that is queued for the peer, unless it is small."""
        if size >= LARGE_STEP_BYTES:
            self._queued += size
            self._total.charge(size)

    def taken(self) -> None:
        """Subtract all queued answers, once the peer has received them but for a negligible rest."""
        if self._queued:
            queued, self._queued = self._queued, 0
            self._total.refund(queued)

    def must_wait(self, view: memoryview, header: int) -> bool:
        """True if this request must wait because the account is full; the connection then continues by itself."""
        if read_request_header(view, header).api_key not in ROW_ANSWERS:
            return False
        self._connection.hold(Hold.ANSWERS)
        self._total.wait(id(self), lambda: self._connection.release_hold(Hold.ANSWERS))
        return True

    def lost(self) -> None:
        """Subtract what was queued for a lost connection; requests under way still call `ended`."""
        self._total.forget(id(self))
        self.taken()


# A function of glibc; other C libraries do not have it and release memory on their own.
_malloc_trim: Callable[[int], int] | None = (
    getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
)


def give_back_memory() -> None:
    """Return fragmented free memory to the system."""
    if _malloc_trim is not None:
        _malloc_trim(0)
