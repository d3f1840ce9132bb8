"""The interface between server roles and the network layer.

A role (coordinator, tablet) is a `Service`: a map from API key to handler. The network layer owns connections, frames,
login and limits; a handler sees a parsed request and returns the answer. API_VERSIONS and AUTHENTICATE are answered by
the network layer itself.

Rules for handlers, which all run in the event loop's thread:

- Requests of one connection reach their handlers in arrival order. A handler that returns an answer is done. A handler
  that returns an awaitable has already run its part before the first `await` in that order; the rest runs later, and
  its answer may overtake or be overtaken by others.
- The `message` belongs to the handler. `ProduceRequest.records` are writable slices of a pooled buffer: they are
  valid until the handler calls `release()`, which it must do exactly once, even if it fails.
- An answer is a message, or a list of byte pieces that together are the encoded body. Pieces are sent without a copy,
  so they must not change until the connection has written them.
- `FlussError` becomes an error frame with its code. Anything else becomes code -1 and one (rate limited) log line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from google.protobuf.message import Message

Piece: TypeAlias = bytes | bytearray | memoryview
Reply: TypeAlias = Message | list[Piece]
Handler: TypeAlias = Callable[["RequestContext", Any], Reply | Awaitable[Reply]]

ANONYMOUS_NAME = "ANONYMOUS"
USER_TYPE = "User"
LARGE_STEP_BYTES = 64 * 1024


class AnswerAccount(Protocol):
    """The account of the bytes that a connection's requests collect for their answers."""

    def collected(self, owner: int, size: int) -> None:
        """Add bytes that a request has collected."""

    async def room(self, owner: int) -> None:
        """Wait until the request may collect more."""


class RequestContext:
    """The sender, listener and API of one request; read-only for handlers.

    `connection` is the same object for all requests of a connection, and supports weak references.
    """

    __slots__ = (
        "_answers",
        "_uncounted_bytes",
        "answer_bytes",
        "api_key",
        "api_version",
        "client_host",
        "connection",
        "is_internal",
        "listener",
        "principal_name",
        "principal_type",
        "request_id",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int = 0,
        request_id: int = 0,
        listener: str = "FLUSS",
        principal_name: str = ANONYMOUS_NAME,
        principal_type: str = USER_TYPE,
        is_internal: bool = False,
        client_host: str = "127.0.0.1",
        answers: AnswerAccount | None = None,
        connection: object | None = None,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.request_id = request_id
        self.listener = listener
        self.principal_name = principal_name
        self.principal_type = principal_type
        self.is_internal = is_internal
        self.client_host = client_host
        self.connection = connection
        self.answer_bytes = 0
        self._answers = answers
        self._uncounted_bytes = 0

    def collect(self, size: int) -> None:
        """Report that the answer has grown; handlers of possibly large answers call this at every step."""
        self._uncounted_bytes += size
        if self._uncounted_bytes >= LARGE_STEP_BYTES and self._answers is not None:
            size, self._uncounted_bytes = self._uncounted_bytes, 0
            self.answer_bytes += size
            self._answers.collected(id(self), size)

    async def room(self) -> None:
        """Wait between two steps of a large answer while there is not enough memory for all answers."""
        if self.answer_bytes and self._answers is not None:
            await self._answers.room(id(self))


class ProduceRequest:
    """A write request whose record bytes are still in the receive buffer.

    `message` has one `buckets_req` entry per element of `records`, in the same order, with empty `records` fields.
    """

    __slots__ = ("message", "records", "release")

    def __init__(self, message: Any, records: list[memoryview], release: Callable[[], None]) -> None:
        self.message = message
        self.records = records
        self.release = release


class Service(Protocol):
    """A server role, as the network layer sees it."""

    server_type: int

    def apis(self) -> Mapping[int, Handler]:
        """Return the handlers by API key; API_VERSIONS lists these keys."""
