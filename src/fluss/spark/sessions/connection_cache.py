"""Connections of a Spark process, shared by everything that runs in it.

Spark keeps Python workers for many tasks and creates new source objects for each, so connections are kept per process,
one per set of client options. A connection is leased (`open_table`, `lease`) and given back; one without a lease is
closed after `IDLE_CLOSE_SECONDS`, and the longest idle one is closed at once if there are more than
`MAX_IDLE_CONNECTIONS`. States of an entry: leased (count > 0) -> idle -> closed.

Workers are forked from a daemon: a child must not use its parent's connections. The cache belongs to the process that
created it (`_owner_pid`); another process starts with an empty one and leaves the old sockets alone.

All functions may be called from any thread. All waits end: opening after the client's `connect-timeout`
(`CONNECT_TIMEOUT_MS` unless the user sets it), calls after `CALL_SECONDS`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import os
import threading
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyspark import TaskContext

from fluss.api.connection import FlussConnection, close_blocking
from fluss.api.connection import open_table as open_fluss_table
from fluss.api.table import FlussTable, access_of
from fluss.client.engine.admin import AdminCalls, TableInfo
from fluss.client.engine.engine import Engine
from fluss.client.engine.table import TableAccess
from fluss.errors import FlussError
from fluss.spark.options.parsing import ClientOptions, FlussOptions
from fluss.values.basic import as_table_path

IDLE_CLOSE_SECONDS = 30.0
MAX_IDLE_CONNECTIONS = 8
CONNECT_TIMEOUT_MS = 30_000
CALL_SECONDS = 120.0

T = TypeVar("T")


@dataclass(frozen=True)
class OpenTable:
    """A table with its leased connection; valid inside the `with` block of `open_table`."""

    connection: FlussConnection
    table: FlussTable
    info: TableInfo

    @functools.cached_property
    def access(self) -> TableAccess:
        """The interface by which tasks and planners read the table."""
        return access_of(self.table)

    @property
    def engine(self) -> Engine:
        """The connection, for coroutines: `opened.run(opened.admin.list_partition_infos(path, None))`."""
        return self.access.engine

    @property
    def admin(self) -> AdminCalls:
        """The admin calls, as coroutines for `run`."""
        return self.engine.admin

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_seconds: float = CALL_SECONDS) -> T:
        """Run a coroutine of the client on the I/O thread, and return its result."""
        return self.engine.run(coroutine, timeout_seconds)


@dataclass
class _Entry:
    connection: FlussConnection
    leases: int = 0
    idle_since: float = field(default_factory=time.monotonic)


_lock = threading.Lock()
_entries: dict[ClientOptions, _Entry] = {}
_answered: set[str] = set()
"""Addresses of clusters to which this process, or the one that it was forked from, has connected."""
_owner_pid = os.getpid()
_sweeper: threading.Timer | None = None


@contextlib.contextmanager
def open_table(options: FlussOptions) -> Iterator[OpenTable]:
    """Open the table in the options, as the servers describe it now. Code 7 if it does not exist."""
    with lease(options.client) as connection:
        table = open_fluss_table(connection, as_table_path(options.table), CALL_SECONDS)
        if TaskContext.get() is not None:
            _freeze_objects()
        yield OpenTable(connection, table, table.get_table_info())


@contextlib.contextmanager
def lease(options: ClientOptions) -> Iterator[FlussConnection]:
    """Lease a connection with these options for the `with` block."""
    entry = _take(options)
    try:
        yield entry.connection
    finally:
        _give_back(entry)


def has_answered(options: ClientOptions) -> bool:
    """True if a server has answered at this address, now or earlier."""
    return options.bootstrap_servers in _answered


def close_all() -> None:
    """Close every connection of this process that is not leased."""
    with _lock:
        idle = [key for key, entry in _entries.items() if entry.leases == 0]
        closing = [_entries.pop(key).connection for key in idle]
    for connection in closing:
        close_blocking(connection)


def _take(options: ClientOptions) -> _Entry:
    _forget_parents_connections()
    with _lock:
        entry = _entries.get(options)
        if entry is not None and not entry.connection.is_closed:
            entry.leases += 1
            return entry
    connection = _connect(options)  # outside the lock: a server that does not answer must not block other callers
    _register_exit_hook()
    with _lock:
        entry = _entries.get(options)
        if entry is None or entry.connection.is_closed:
            entry = _entries[options] = _Entry(connection)
        entry.leases += 1
        spare = None if entry.connection is connection else connection
    if spare is not None:  # another thread was faster
        close_blocking(spare)
    return entry


def _connect(options: ClientOptions) -> FlussConnection:
    config = options.config()
    if "connect_timeout_ms" not in config.explicit():
        config.connect_timeout_ms = CONNECT_TIMEOUT_MS
    try:
        connection = FlussConnection.open(config)
    except FlussError as error:
        raise FlussError(
            f"no connection to {options.bootstrap_servers} from this Spark process: {error.message}", error.error_code
        ) from error
    _answered.add(options.bootstrap_servers)
    return connection


def _give_back(entry: _Entry) -> None:
    with _lock:
        entry.leases -= 1
        entry.idle_since = time.monotonic()
    if entry.leases == 0:
        _close_idle(IDLE_CLOSE_SECONDS)
        _sweep_later()


def _sweep_later() -> None:
    """Check for idle connections later; one timer at a time, however many leases come back."""
    global _sweeper
    with _lock:
        if _sweeper is not None and _sweeper.is_alive():
            return
        _sweeper = threading.Timer(IDLE_CLOSE_SECONDS, _sweep)
        _sweeper.daemon = True
        _sweeper.start()


def _sweep() -> None:
    global _sweeper
    _close_idle(IDLE_CLOSE_SECONDS / 2)  # so an idle entry is closed after 1 to 1.5 times `IDLE_CLOSE_SECONDS`
    with _lock:
        _sweeper = None
        left = bool(_entries)
    if left:
        _sweep_later()


def _close_idle(seconds: float) -> None:
    """Close connections idle longer than `seconds`; if over `MAX_IDLE_CONNECTIONS` are idle, also the longest idle."""
    now = time.monotonic()
    with _lock:
        idle = [(entry.idle_since, key) for key, entry in _entries.items() if entry.leases == 0]
        idle.sort(key=lambda item: item[0])
        surplus = len(idle) - MAX_IDLE_CONNECTIONS
        expired = [key for rank, (since, key) in enumerate(idle) if rank < surplus or now - since > seconds]
        closing = [_entries.pop(key).connection for key in expired]
    for connection in closing:
        close_blocking(connection)


def _forget_parents_connections() -> None:
    """Forget the parent's connections in a forked child. Sessions detect the fork themselves and close nothing."""
    global _owner_pid, _lock, _sweeper
    if _owner_pid != os.getpid():
        _lock = threading.Lock()  # another thread of the parent may have held it during the fork
        _entries.clear()
        _sweeper = None
        _owner_pid = os.getpid()


@functools.lru_cache(maxsize=1)
def _freeze_objects() -> None:
    """Speed up Spark's workers, which collect garbage after every task: scanning all modules took 0.1 s.

    All present objects live as long as the process, so the collector need not scan them again.
    """
    gc.freeze()


@functools.lru_cache(maxsize=1)
def _register_exit_hook() -> None:
    """Register after the first connection, so that the hook runs before the client's own, which would warn."""
    register = getattr(threading, "_register_atexit", atexit.register)
    register(close_all)
