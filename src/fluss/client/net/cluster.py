"""The cluster as one client sees it: metadata, a connection per server, and the choice of the right one.

A `Cluster` belongs to one `FlussConnection` and lives on the I/O thread: all its methods are called there. Invariants:
at most one connection per server; concurrent callers share the opening of a connection (single flight); after a failed
attempt the next one to that server waits for a back-off that doubles from `FIRST_BACKOFF_SECONDS` to
`LAST_BACKOFF_SECONDS`. The same metadata request is never in flight twice.

Errors: a server that cannot be reached gives code 1, and a bucket without a leader gives code 44 after
`LEADER_WAIT_SECONDS`; all other errors have the server's own code. `close()` is final: pending callers get an error.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import Message

from fluss.client.net.handshake import open_connection
from fluss.client.net.metadata import ClientTable, MetadataCache, read_table
from fluss.client.net.rpc import RpcConnection
from fluss.config import Config, parse_addresses
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import PhysicalTablePath, TableBucket, TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey, Role
from fluss.values.basic import COORDINATOR_SERVER, ServerNode

BOOTSTRAP_ATTEMPTS = 4
FIRST_BACKOFF_SECONDS = 0.05
LAST_BACKOFF_SECONDS = 1.0
LEADER_WAIT_SECONDS = 30.0
LEADER_RETRY_SECONDS = 0.05

# Codes after which a read-only call may be retried, at another server or after a metadata refresh.
_TRANSPORT_CODES = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIME_OUT})


class _Server:
    """The state of one server: a connection, an attempt to open one, or the pause before the next attempt."""

    __slots__ = ("backoff", "connection", "not_before", "opening")

    def __init__(self) -> None:
        self.connection: RpcConnection | None = None
        self.opening: asyncio.Future[RpcConnection] | None = None
        self.backoff = 0.0
        self.not_before = 0.0


class Cluster:
    """Created on the I/O thread; `await start()` connects it. See the module docstring."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.metadata = MetadataCache()
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._servers: dict[tuple[str, str, int], _Server] = {}
        self._refreshes: dict[object, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # ---- start and end ----

    async def start(self) -> None:
        """Reach one of the bootstrap servers and learn the cluster from it."""
        addresses = parse_addresses(self.config.bootstrap_servers)
        pause = FIRST_BACKOFF_SECONDS
        for attempt in range(BOOTSTRAP_ATTEMPTS):
            try:
                await self._bootstrap(addresses)
                if self.metadata.tablets or attempt == BOOTSTRAP_ATTEMPTS - 1:
                    return
            except FlussError as error:
                if not error.is_retriable or attempt == BOOTSTRAP_ATTEMPTS - 1:
                    raise
            await asyncio.sleep(pause)
            pause *= 2

    async def _bootstrap(self, addresses: list[tuple[str, int]]) -> None:
        """Use the first address that answers; its connection serves this request only."""
        last: FlussError | None = None
        for address in addresses:
            try:
                connection = await open_connection(address, self.config)
            except FlussError as error:
                last = error
                continue
            try:
                self.metadata.merge(await connection.call(ApiKey.GET_METADATA, pb.MetadataRequest()))
                self._adopt(connection)
                return
            except FlussError as error:
                last = error
            finally:
                if not self._owns(connection):
                    connection.close()
        assert last is not None
        raise last

    def _adopt(self, connection: RpcConnection) -> None:
        """Keep the bootstrap connection if it is to the coordinator, as it usually is."""
        node = self.metadata.coordinator
        if node is not None and (node.host, node.port) == connection.address and connection.server_type == 1:
            server = self._servers.setdefault(_key(node), _Server())
            if server.connection is None and server.opening is None:
                self._keep(server, connection)

    def _owns(self, connection: RpcConnection) -> bool:
        return any(server.connection is connection for server in self._servers.values())

    async def close(self) -> None:
        """Close all sockets. Calls in flight fail."""
        self.closed = True
        for task in [*self._tasks, *self._refreshes.values()]:
            task.cancel()
        for server in list(self._servers.values()):
            if server.connection is not None:
                server.connection.close(_closed_error())
        self._servers.clear()
        await asyncio.sleep(0)

    # ---- connections ----

    async def connection(self, node: ServerNode) -> RpcConnection:
        """The connection to a server, opened if necessary."""
        if self.closed:
            raise _closed_error()
        server = self._servers.setdefault(_key(node), _Server())
        if server.connection is not None and not server.connection.closed:
            return server.connection
        if server.opening is None:
            task = self._loop.create_task(self._open(node, server))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            server.opening = task
        try:
            return await asyncio.shield(server.opening)
        except asyncio.CancelledError:
            if self.closed:
                raise _closed_error() from None
            raise

    def open_connection_to(self, node: ServerNode) -> RpcConnection | None:
        """The connection to a server if it is open now. Does not wait, for hot paths."""
        server = self._servers.get(_key(node))
        if server is None or server.connection is None or server.connection.closed:
            return None
        return server.connection

    async def _open(self, node: ServerNode, server: _Server) -> RpcConnection:
        try:
            pause = server.not_before - self._loop.time()
            if pause > 0:
                await asyncio.sleep(pause)
            role = Role.COORDINATOR if node.server_type == COORDINATOR_SERVER else Role.TABLET
            connection = await open_connection((node.host, node.port), self.config, role)
        except FlussError:
            server.backoff = min(server.backoff * 2 or FIRST_BACKOFF_SECONDS, LAST_BACKOFF_SECONDS)
            server.not_before = self._loop.time() + server.backoff
            raise
        finally:
            server.opening = None
        if self.closed:
            connection.close()
            raise _closed_error()
        self._keep(server, connection)
        return connection

    def _keep(self, server: _Server, connection: RpcConnection) -> None:
        server.connection = connection
        server.backoff = server.not_before = 0.0

        def lost(gone: RpcConnection) -> None:
            if server.connection is gone:
                server.connection = None

        connection.add_close_listener(lost)

    # ---- finding servers ----

    async def coordinator(self) -> RpcConnection:
        """The connection to the coordinator, located again if it is unknown or does not answer at its old address."""
        node = self.metadata.coordinator
        if node is not None:
            try:
                return await self.connection(node)
            except FlussError as error:
                if self.closed or error.error_code not in _TRANSPORT_CODES:
                    raise
        await self.refresh()
        node = self.metadata.coordinator
        if node is None:
            raise FlussError("the cluster has no coordinator at the moment; retry later", ErrorCode.NETWORK_EXCEPTION)
        return await self.connection(node)

    async def any_tablet(self) -> RpcConnection:
        """A tablet server, an already connected one if possible."""
        nodes = list(self.metadata.tablets.values())
        random.shuffle(nodes)
        for node in nodes:
            open_one = self.open_connection_to(node)
            if open_one is not None:
                return open_one
        last = FlussError("the cluster has no tablet server at the moment", ErrorCode.NETWORK_EXCEPTION)
        for node in nodes:
            try:
                return await self.connection(node)
            except FlussError as error:
                last = error
        raise last

    async def leader(self, bucket: TableBucket, path: TablePath) -> RpcConnection:
        """The connection to the leader of a bucket; waits up to `LEADER_WAIT_SECONDS` for one to exist."""
        deadline = self._loop.time() + LEADER_WAIT_SECONDS
        pause = LEADER_RETRY_SECONDS
        while True:
            node = self.metadata.leader(bucket)
            try:
                if node is not None:
                    return await self.connection(node)
                error = _no_leader(bucket, path)
                partition_ids = [] if bucket.partition_id is None else [bucket.partition_id]
                await self.refresh(tables=[path], partition_ids=partition_ids)
                if self.metadata.leader(bucket) is not None:
                    continue
            except FlussError as caught:
                if self.closed or not caught.is_retriable:
                    raise
                error = caught
                self.metadata.forget_leader(bucket)
            if self._loop.time() + pause > deadline:
                raise error
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_BACKOFF_SECONDS)

    def pauses(self) -> Iterator[float]:
        """Seconds to wait before each retry at a leader, until a request would have timed out.

        For a moment after its election, a leader may be known to all servers but itself.
        """
        deadline = self._loop.time() + min(LEADER_WAIT_SECONDS, self.config.request_timeout_ms / 1000)
        pause = LEADER_RETRY_SECONDS
        while self._loop.time() + pause < deadline and not self.closed:
            yield pause
            pause = min(pause * 2, LAST_BACKOFF_SECONDS)

    def leader_node(self, bucket: TableBucket) -> ServerNode | None:
        """The cached leader of a bucket, without a request."""
        return self.metadata.leader(bucket)

    def invalidate(self, bucket: TableBucket) -> None:
        """Drop the cached leader of a bucket, which a call has shown to be wrong."""
        self.metadata.forget_leader(bucket)

    def invalidate_server(self, node_id: int) -> None:
        """Drop a server that does not answer as the leader of its buckets."""
        self.metadata.forget_server(node_id)

    # ---- tables and partitions ----

    async def table(self, path: TablePath, *, fresh: bool = False) -> ClientTable:
        """A table from the cache, or from the server if not cached or `fresh`. Code 7 if it does not exist."""
        table = None if fresh else self.metadata.table(path)
        if table is None:
            self.metadata.forget_table(path)
            await self.refresh(tables=[path], fresh=fresh)
            table = self.metadata.table(path)
        if table is None:  # missing in the answer: it may exist, but not for this user
            table = await self.table_info(path)
        return table

    async def table_info(self, path: TablePath) -> ClientTable:
        """A table as described by the coordinator's GET_TABLE_INFO."""
        request = pb.GetTableInfoRequest()
        request.table_path.database_name, request.table_path.table_name = path.database_name, path.table_name
        answer = await self.call_coordinator(ApiKey.GET_TABLE_INFO, request, idempotent=True)
        return read_table(
            path,
            answer.table_id,
            answer.schema_id,
            answer.table_json,
            answer.created_time,
            answer.modified_time,
            answer.remote_data_dir if answer.HasField("remote_data_dir") else None,
        )

    async def partition_id(self, path: TablePath, partition_name: str) -> int:
        """The id of a partition; code 36 if it does not exist."""
        partition_id = self.metadata.partition_id(path, partition_name)
        if partition_id is None:
            await self.table(path)  # an answer about a partition names its table by id only
            await self.refresh(partitions=[PhysicalTablePath(path, partition_name)])
            partition_id = self.metadata.partition_id(path, partition_name)
        if partition_id is None:
            text = f"table {path} has no partition {partition_name!r}; create it before writing to it"
            raise FlussError(text, ErrorCode.PARTITION_NOT_EXISTS)
        return partition_id

    # ---- metadata requests ----

    async def refresh(
        self,
        tables: Iterable[TablePath] = (),
        partitions: Iterable[PhysicalTablePath] = (),
        partition_ids: Iterable[int] = (),
        *,
        fresh: bool = False,
    ) -> None:
        """Request metadata of servers, the given tables and partitions. `fresh` never joins a request in flight."""
        if self.closed:
            raise _closed_error()
        wanted = (tuple(tables), tuple(partitions), tuple(partition_ids))
        task = None if fresh else self._refreshes.get(wanted)
        if task is None:
            task = self._loop.create_task(self._ask_metadata(*wanted))
            self._refreshes[wanted] = task
            self._tasks.add(task)
            task.add_done_callback(lambda done: self._refreshed(wanted, done))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if self.closed:
                raise _closed_error() from None
            raise

    def _refreshed(self, wanted: object, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._refreshes.get(wanted) is task:
            del self._refreshes[wanted]
        if not task.cancelled():
            task.exception()  # retrieved, even if no caller waits

    async def _ask_metadata(
        self, tables: tuple[TablePath, ...], partitions: tuple[PhysicalTablePath, ...], partition_ids: tuple[int, ...]
    ) -> None:
        request = pb.MetadataRequest(partitions_id=partition_ids)
        for path in tables:
            request.table_path.add(database_name=path.database_name, table_name=path.table_name)
        for partition in partitions:
            path = partition.table_path
            request.partitions_path.add(
                database_name=path.database_name,
                table_name=path.table_name,
                partition_name=partition.partition_name,
            )
        try:
            self.metadata.merge(await self.call_tablet(ApiKey.GET_METADATA, request))
        except FlussError as error:
            # Apache Fluss answers -1 for a table that does not exist; GET_TABLE_INFO knows the right code.
            if error.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                for path in tables:
                    await self.table_info(path)
            raise

    async def call_tablet(self, api_key: int, request: Message) -> Any:
        """Send a read-only request to any tablet server, or to another one if it cannot be reached."""
        for _ in range(2):
            try:
                return await (await self.any_tablet()).call(api_key, request)
            except FlussError as error:
                if self.closed or error.error_code not in _TRANSPORT_CODES:
                    raise
            # All tablet servers may have moved: ask the bootstrap servers.
            await self._bootstrap(parse_addresses(self.config.bootstrap_servers))
        return await (await self.any_tablet()).call(api_key, request)

    async def call_coordinator(self, api_key: int, request: Message, *, idempotent: bool = False) -> Any:
        """Send a request to the coordinator. An idempotent one is retried once after a lost connection."""
        connection = await self.coordinator()
        try:
            return await connection.call(api_key, request)
        except FlussError as error:
            lost = error.error_code == ErrorCode.NETWORK_EXCEPTION
            moved = error.error_code == ErrorCode.NOT_COORDINATOR_LEADER_EXCEPTION
            if self.closed or not (moved or (lost and idempotent)):
                raise
        await self.refresh()
        return await (await self.coordinator()).call(api_key, request)


def _key(node: ServerNode) -> tuple[str, str, int]:
    return node.uid, node.host, node.port


def _closed_error() -> FlussError:
    return FlussError("the connection is closed", ErrorCode.CLIENT_ERROR)


def _no_leader(bucket: TableBucket, path: TablePath) -> FlussError:
    partition = "" if bucket.partition_id is None else f" of partition {bucket.partition_id}"
    text = f"bucket {bucket.bucket_id}{partition} of table {path} has no leader at the moment"
    return FlussError(text, ErrorCode.LEADER_NOT_AVAILABLE_EXCEPTION)
