"""`FlussConnection`: a connection to a cluster, the entry point of the API."""

from __future__ import annotations

from typing import TypeVar

from fluss.api.admin import FlussAdmin
from fluss.api.table import FlussTable
from fluss.client.engine.engine import Engine
from fluss.client.net.context_managed import EndsWithAnyBlock
from fluss.client.net.metadata import ClientTable
from fluss.client.net.self_awaitable import Closing, runs_in_event_loop
from fluss.client.net.session import Session, open_session, open_session_blocking
from fluss.config import Config
from fluss.model.paths import TablePath
from fluss.values.basic import as_table_path

# A close waits for the acknowledgement of every appended row, or until a writer gives up because its retries or
# time-outs are exhausted.
CLOSE_TIMEOUT_SECONDS = 600.0

C = TypeVar("C", bound="BaseConnection")


class BaseConnection(EndsWithAnyBlock):
    """The common part of the blocking and the awaitable connection."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @classmethod
    async def create(cls: type[C], config: Config | None = None) -> C:
        """Connect to a cluster. Code 1 if no server can be reached, 46 if the login is refused."""
        return cls(await open_session(Config() if config is None else config))

    @classmethod
    async def connect(cls: type[C], config: Config | None = None) -> C:
        """Alias of `create`."""
        return await cls.create(config)

    @classmethod
    def open(cls: type[C], config: Config | None = None) -> C:
        """Connect without `await`: blocks until it is connected."""
        return cls(open_session_blocking(Config() if config is None else config))

    @property
    def config(self) -> Config:
        """A copy of the configuration."""
        return self._session.config.copy()

    @property
    def is_closed(self) -> bool:
        """True once `close` was called."""
        return self._session.is_closed

    def get_admin(self) -> FlussAdmin:
        """A `FlussAdmin` for the cluster. It may also be awaited, as in pyfluss."""
        self._session.check_open()
        return FlussAdmin(self._session)

    def _leave(self) -> None:
        close_blocking(self)

    async def _leave_awaiting(self) -> None:
        await Closing(self._session.close(), CLOSE_TIMEOUT_SECONDS)

    async def _open_table(self, table_path: TablePath | str) -> ClientTable:
        path = as_table_path(table_path)
        return await self._session.awaitable(self._session.cluster.table(path, fresh=True))

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"{type(self).__name__}({self._session.config.bootstrap_servers!r}, {state})"


class FlussConnection(BaseConnection):
    """A connection to a cluster: `await FlussConnection.create(config)`.

    Close it with `close()`, or use it in a `with` or `async with` block.
    """

    async def get_table(self, table_path: TablePath | str) -> FlussTable:
        """A table for reading and writing. Code 7 if it does not exist."""
        return FlussTable(self._session, await self._open_table(table_path))

    def close(self) -> Closing:
        """Send all appended rows, then close. Without `await`, the call blocks until that is done."""
        closing = Closing(self._session.close(), CLOSE_TIMEOUT_SECONDS)
        if not runs_in_event_loop():
            closing.wait()
        return closing


# ---- for other modules of `api`, and for Spark, the lake and the commands ----


def session_of(connection: BaseConnection) -> Session:
    """The client session behind a connection. Only for modules of `api`."""
    return connection._session


def engine_of(connection: BaseConnection) -> Engine:
    """The internal interface of a connection that Spark, the lake and the commands use."""
    return Engine(connection._session)


def open_table(connection: FlussConnection, path: TablePath, timeout_seconds: float | None = None) -> FlussTable:
    """Like `get_table`, but blocks, also in a thread with an event loop."""
    session = connection._session
    return FlussTable(session, session.run(session.cluster.table(path, fresh=True), timeout_seconds))


def close_blocking(connection: BaseConnection) -> None:
    """Like `close`, but blocks also in a thread with an event loop."""
    Closing(connection._session.close(), CLOSE_TIMEOUT_SECONDS).wait()
