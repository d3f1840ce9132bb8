"""One ask of the lookup queue: keys of one place, the receiver of their answer, and the results so far."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fluss.client.keys.lookup_keys import Place
from fluss.errors import FlussError

T = TypeVar("T")

MAX_KEYS_PER_REQUEST = 8_192


class Ask:
    """Keys of one place and a future of `loop` for their answer, which gets one result per key.

    Usually all keys are in one request. An ask whose answer was too large continues in portions: `found` has the
    results of its first keys, the next request has the next `portion` keys, and no request that contains the ask has
    more than `room` keys, including those of other asks.
    """

    __slots__ = ("deadline", "error", "found", "future", "keys", "loop", "pause", "place", "portion", "room")

    def __init__(self, place: Place, keys: Sequence[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self.place = place
        self.keys = keys
        self.loop = loop
        self.future: asyncio.Future[list[Any]] = loop.create_future()
        self.found: list[Any] = []
        self.error: FlussError | None = None
        self.deadline = 0.0
        self.pause = 0.0
        self.room = MAX_KEYS_PER_REQUEST
        self.portion = min(len(keys), MAX_KEYS_PER_REQUEST)

    @property
    def next_keys(self) -> Sequence[bytes]:
        """The keys of the next request."""
        start = len(self.found)
        return self.keys[start : start + self.portion]

    def narrow(self, room: int) -> None:
        """Ask again, in requests of at most `room` keys."""
        self.room = room
        self.portion = min(self.portion, room)

    def take(self, values: list[Any]) -> bool:
        """Keep the results of a portion; return True if they were the last ones."""
        self.found += values
        self.portion = min(len(self.keys) - len(self.found), self.room)
        self.deadline = self.pause = 0.0
        return not self.portion


def deliver(loop: asyncio.AbstractEventLoop, asks: list[Ask]) -> None:
    """Deliver asks with a result to the event loop that waits for them."""
    post(loop, _finish, asks)


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[T], object], argument: T) -> None:
    """Schedule a callback in a user's event loop."""
    with contextlib.suppress(RuntimeError):  # a loop that has ended needs no answer
        loop.call_soon_threadsafe(callback, argument)


def _finish(asks: list[Ask]) -> None:
    """Set the results; runs in the user's event loop."""
    for ask in asks:
        if ask.future.done():
            continue  # the caller cancelled it
        if ask.error is not None:
            ask.future.set_exception(ask.error)
        else:
            ask.future.set_result(ask.found)
