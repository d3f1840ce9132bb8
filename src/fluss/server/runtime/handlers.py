"""What a server role must offer to the network layer, and what it gets from it.

A role (coordinator, tablet) is a `Service`: a map from API key to handler. The network layer owns connections, frames,
login and limits; a handler sees a parsed request and returns the answer. API_VERSIONS and AUTHENTICATE are answered by
the network layer itself.

Rules for handlers, which all run in the event loop's thread:

- Requests of one connection reach their handlers in arrival order. A handler that returns an answer is done. A handler
  that returns an awaitable has run its part before the first `await` in that order already; the rest runs later, and
  its answer may overtake or be overtaken by others.
- The `message` belongs to the handler. `ProduceRequest.records` are writable slices of a pooled buffer: they are valid
  until the handler's side calls `release()`, which it must do exactly once, also when it fails.
- An answer is a message, or a list of byte pieces which together are the encoded body. Pieces are sent without a copy:
  they must not change until the connection has written them.
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
    """Where collected bytes are counted."""

    def collected(self, owner: int, size: int) -> None:
        """So many more of a request."""

    async def room(self, owner: int) -> None:
        """Return when it may collect more."""


class RequestContext:
    """Who asks for what, through which listener. One per request, read-only for handlers.

    `connection` is the same object for all requests of a connection, and can be referred to weakly.
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
        """Say that the answer has grown by so many bytes; handlers whose answers may be large do, step by step."""
        self._uncounted_bytes += size
        if self._uncounted_bytes >= LARGE_STEP_BYTES and self._answers is not None:
            size, self._uncounted_bytes = self._uncounted_bytes, 0
            self.answer_bytes += size
            self._answers.collected(id(self), size)

    async def room(self) -> None:
        """Between two steps of a large answer: others first, if there is no memory for all."""
        if self.answer_bytes and self._answers is not None:
            await self._answers.room(id(self))


class ProduceRequest:
    """A write request whose record bytes stayed in the receive buffer.

    `message` has one `buckets_req` entry per element of `records`, in the same order, with empty `records` fields.
    """

    __slots__ = ("message", "records", "release")

    def __init__(self, message: Any, records: list[memoryview], release: Callable[[], None]) -> None:
        self.message = message
        self.records = records
        self.release = release


class Service(Protocol):
    """One server role."""

    server_type: int

    def apis(self) -> Mapping[int, Handler]:
        """The handlers by API key; also what API_VERSIONS lists."""
