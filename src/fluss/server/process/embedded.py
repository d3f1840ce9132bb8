"""A server inside a program: a thread with its own event loop runs the coordinator and the tablets.

Theory. The constructor of `EmbeddedCluster` starts the server and `close` stops it; the owner calls both, from one
thread at a time. In between, the private thread owns the loop and all roles; the owner only reads addresses. The data
directory is locked as by a standalone server, so only one server serves it at a time. A cluster that was not closed is
closed at interpreter exit; after a kill, the directory recovers like any other.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - its exit hook must be registered before ours, so that it runs after ours
import functools
import os
import threading
import weakref
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from types import TracebackType
from typing import Any

from fluss.errors import ErrorCode, FlussError
from fluss.server.config.server_config import ServerConfig
from fluss.server.process.data_directory import DataDirectory
from fluss.server.process.roles import Role, make_role, role_names
from fluss.server.process.sockets import open_sockets
from fluss.server.runtime.event_loop import new_event_loop
from fluss.server.runtime.listeners import format_address
from fluss.server.runtime.log_output import count_repetitions

START_DEADLINE_SECONDS = 120.0
STOP_DEADLINE_SECONDS = 30.0


_open_clusters: weakref.WeakSet[EmbeddedCluster] = weakref.WeakSet()


def _close_at_exit(cluster: EmbeddedCluster) -> None:
    """Close the cluster when the interpreter exits, while executors still accept work.

    `atexit` is too late for that, because the threading module has shut executors down by then. That module's hooks run
    in the reverse order of their registration; on a Python without such hooks, `atexit` is the fallback.
    """
    _register_exit_hook()
    _open_clusters.add(cluster)


@functools.lru_cache(maxsize=1)
def _register_exit_hook() -> None:
    register = getattr(threading, "_register_atexit", atexit.register)
    register(_close_open_clusters)


def _close_open_clusters() -> None:
    for cluster in list(_open_clusters):
        cluster.close()


class EmbeddedCluster:
    """A running server. As a context manager, it stops when the block ends."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._directory = DataDirectory(config.data_dir)
        try:
            self._sockets = open_sockets(config, self._directory)
        except BaseException:
            self._directory.close()
            raise
        self._end_counting = count_repetitions()
        self._loop = new_event_loop()
        self._roles: list[Role] = []
        self._closed = False
        self._owner_process = os.getpid()
        self._thread = threading.Thread(target=self._run_loop, name="fluss-embedded", daemon=True)
        self._thread.start()
        try:
            self._call(self._start_roles(), START_DEADLINE_SECONDS)
        except BaseException:
            self.close()
            raise
        _close_at_exit(self)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the first listener, for clients."""
        return self.listener_address(self._config.listeners[0].name)

    @property
    def data_dir(self) -> Path:
        return self._config.data_dir

    def listener_address(self, name: str) -> str:
        """Return ``host:port`` of the coordinator's listener of that name."""
        addresses = self._sockets.topology.coordinator
        if name not in addresses:
            raise FlussError(
                f"there is no listener {name!r}; the listeners are {', '.join(addresses)}", ErrorCode.CLIENT_ERROR
            )
        return format_address(*addresses[name])

    def close(self) -> None:
        """Stop all roles, make everything durable, unlock the directory. Repeated calls do nothing."""
        if self._closed or os.getpid() != self._owner_process:
            return
        self._closed = True
        _open_clusters.discard(self)
        try:
            self._call(self._stop_roles(), STOP_DEADLINE_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_DEADLINE_SECONDS)
            self._sockets.close()
            self._directory.close()
            self._end_counting()

    def __enter__(self) -> EmbeddedCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "serving"
        return f"EmbeddedCluster({self.bootstrap_servers}, {state}, data {self.data_dir})"

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, None], deadline_seconds: float) -> None:
        """Run a coroutine on the private loop and wait for it, from the owner's thread."""
        future: Future[None] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            future.result(deadline_seconds)
        except FutureTimeoutError:
            future.cancel()
            raise FlussError(
                f"the embedded server did not start or stop within {deadline_seconds:.0f} s; look for warnings in its "
                "log",
                ErrorCode.REQUEST_TIME_OUT,
            ) from None

    async def _start_roles(self) -> None:
        for name in role_names(self._config):
            role = make_role(name, self._config, self._sockets)
            self._roles.append(role)
            await role.start()

    async def _stop_roles(self) -> None:
        """Stop the tablets first, the coordinator last; a failure does not keep the others from stopping."""
        errors: list[BaseException] = []
        while self._roles:
            role = self._roles.pop()
            try:
                await role.stop()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


def start_embedded(
    directory: str | os.PathLike[str], *, tablets: int, config: Mapping[str, str] | None, bind: str
) -> EmbeddedCluster:
    """Implements `fluss.embedded`. Options are those of a ``server.yaml``; the arguments take precedence over them."""
    overrides = {**(config or {}), "data.dir": os.fspath(directory), "server.tablets": str(tablets)}
    if "bind.listeners" not in overrides:
        overrides["bind.listeners"] = bind
    return EmbeddedCluster(ServerConfig.load(None, overrides))
