"""`Engine`: a connection as Spark and the lake use it.

Coroutines of an engine, of its `admin` and of a `TableAccess` belong to the I/O thread: `run` takes them there and
blocks for the result. An engine has no state but the session, so any number of them may be made for one connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from fluss.client.calls.admin import AdminCalls
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.config import Config
from fluss.model.paths import TablePath

if TYPE_CHECKING:
    from google.protobuf.message import Message

T = TypeVar("T")


class Engine:
    """Made by `fluss.api.connection.engine_of`. Any thread may use it; `run` blocks, so not the I/O thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.admin = AdminCalls(session.cluster)
        """The admin calls, as coroutines for `run`."""

    @property
    def config(self) -> Config:
        """The options of the connection; not a copy."""
        return self._session.config

    @property
    def connection_key(self) -> object:
        """The same object for all engines of a connection, and gone with it: a key for weak dictionaries."""
        return self._session

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_seconds: float | None = None) -> T:
        """Run a coroutine on the I/O thread and wait for its result."""
        return self._session.run(coroutine, timeout_seconds)

    async def describe(self, path: TablePath) -> ClientTable:
        """The table as the servers describe it now. Code 7 if it does not exist."""
        return await self._session.cluster.table(path, fresh=True)

    async def call_coordinator(self, api_key: int, request: Message, *, idempotent: bool = False) -> Any:
        """Send a request to the coordinator; an idempotent one is sent again once after a lost connection."""
        return await self._session.cluster.call_coordinator(api_key, request, idempotent=idempotent)

    def add_close_hook(self, hook: Callable[[], Awaitable[None]]) -> None:
        """Have `hook` awaited on the I/O thread before the connection closes."""
        self._session.add_close_hook(hook)


def session_of(engine: Engine) -> Session:
    """The session of a connection, for the client and `api`."""
    return engine._session
