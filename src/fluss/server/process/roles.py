"""The roles of a server, coordinator and tablet, assembled from their parts.

The same classes run in a child process each, or all on one loop in an embedding program. A role may be created in any
thread, but everything from `start` to `stop` happens in the thread of its event loop: there its catalog connection is
opened and its sockets are served. States: new -> (start) serving -> (stop) stopped; `stop` may also be called after a
`start` that failed halfway.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any

from fluss.server.apis.topology import Topology
from fluss.server.catalog import Catalog, CatalogStore
from fluss.server.catalog.database_file import CATALOG_FILE_NAME
from fluss.server.config.server_config import ServerConfig
from fluss.server.coordinator.service import CoordinatorService
from fluss.server.network.limits import NetworkLimits
from fluss.server.network.server import BoundListener, NetworkServer
from fluss.server.process.sockets import COORDINATOR_ROLE, ServerSockets, tablet_role
from fluss.server.runtime.handlers import Service
from fluss.server.runtime.listeners import format_address
from fluss.server.tablet.service import TabletService

logger = logging.getLogger(__name__)


def now_ms() -> int:
    """Return the time in milliseconds since the epoch: the clock of all roles."""
    return time.time_ns() // 1_000_000


class Role:
    """The base class of roles: a catalog, a service behind a network server, and background work."""

    def __init__(
        self, name: str, config: ServerConfig, topology: Topology, listeners: tuple[BoundListener, ...]
    ) -> None:
        self.name = name
        self._config = config
        self._topology = topology
        self._listeners = listeners
        self._store: CatalogStore | None = None
        self._network: NetworkServer | None = None
        self._background: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the catalog, start the service and its listeners; return when the first request can be answered."""
        self._store = CatalogStore(self._config.data_dir / CATALOG_FILE_NAME)
        service, background = await self._start_service(Catalog(self._store))
        self._network = NetworkServer(service, self._listeners, _network_limits(self._config), self._config.credentials)
        await self._network.start()
        self._background = asyncio.create_task(background, name=f"{self.name} background")

    def describe(self) -> str:
        """Describe for the log where the role serves, and the options that were given."""
        listeners = ", ".join(
            f"{listener.name}://{format_address(*listener.socket.getsockname()[:2])}" for listener in self._listeners
        )
        given = [f"{name}={value}" for name, value in sorted(self._config.public_values().items())]
        return f"{listeners}; options: {', '.join(given) or 'none, all have defaults'}"

    async def wait_failed(self) -> None:
        """Never return; raise if background work fails, because the role is then incomplete."""
        assert self._background is not None, "the role is not started"
        await asyncio.shield(self._background)
        raise RuntimeError(f"background work of {self.name} ended unexpectedly")

    async def stop(self) -> None:
        """Stop accepting requests, finish those under way, make everything durable, close."""
        if self._network is not None:
            await self._network.stop()
        if self._background is not None:
            self._background.cancel()
            await asyncio.gather(self._background, return_exceptions=True)
        await self._stop_service()
        if self._store is not None:
            self._store.close()
            self._store = None

    async def _start_service(self, catalog: Catalog) -> tuple[Service, Coroutine[Any, Any, None]]:
        raise AssertionError("each role implements this method")

    async def _stop_service(self) -> None:
        raise AssertionError("each role implements this method")


class CoordinatorRole(Role):
    """The role that changes metadata: databases, tables, partitions, permissions and options."""

    _service: CoordinatorService | None = None

    async def _start_service(self, catalog: Catalog) -> tuple[Service, Coroutine[Any, Any, None]]:
        self._service = CoordinatorService(self._config, catalog, self._topology, now_ms)
        return self._service, self._service.run_background()

    async def _stop_service(self) -> None:
        if self._service is not None:
            self._service.close()
            self._service = None


class TabletRole(Role):
    """The role that stores buckets and serves the requests that read and write them."""

    _service: TabletService | None = None

    def __init__(self, server_id: int, config: ServerConfig, sockets: ServerSockets) -> None:
        name = tablet_role(server_id)
        super().__init__(name, config, sockets.topology, sockets.roles[name])
        self._server_id = server_id

    async def _start_service(self, catalog: Catalog) -> tuple[Service, Coroutine[Any, Any, None]]:
        self._service = TabletService(self._config, catalog, self._topology, self._server_id, now_ms)
        await self._service.start()
        return self._service, self._service.run_background()

    async def _stop_service(self) -> None:
        if self._service is not None:
            await self._service.stop()
            self._service = None


def _network_limits(config: ServerConfig) -> NetworkLimits:
    defaults = NetworkLimits()
    # The oldest frame may use the half of the shared memory that is for ordinary frames: so larger frames need more.
    more_bytes = 2 * max(0, config.max_request_size - defaults.max_request_bytes)
    return NetworkLimits(
        max_request_bytes=config.max_request_size,
        max_received_bytes_in_memory=defaults.max_received_bytes_in_memory + more_bytes,
        max_shared_received_bytes=defaults.max_shared_received_bytes + more_bytes,
        max_connections=config.max_connections,
        idle_seconds=config.connection_max_idle_ms / 1000,
    )


def role_names(config: ServerConfig) -> list[str]:
    """Return the roles of a server, the coordinator first: it creates the catalog that tablets read."""
    return [COORDINATOR_ROLE, *(tablet_role(server_id) for server_id in range(config.tablet_count))]


def make_role(name: str, config: ServerConfig, sockets: ServerSockets) -> Role:
    """Return the role of that name, not started."""
    if name == COORDINATOR_ROLE:
        return CoordinatorRole(name, config, sockets.topology, sockets.roles[name])
    return TabletRole(role_names(config).index(name) - 1, config, sockets)
