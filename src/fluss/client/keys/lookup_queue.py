"""The queue of lookups: an idle server gets one at once; those that arrive while it is busy share the next request.

One `LookupQueue` per connection, table and kind (by key or by prefix) serves all lookupers of that table, so that many
tasks and many lookupers share requests. Requests do not wait for a timer: an idle server gets a single lookup at
once; a server with `MAX_REQUESTS_IN_FLIGHT_PER_SERVER` open requests gets all later ones in the next request.

Life of an `Ask` (some keys of one place): pending (any thread appended it) -> located (I/O thread: its partition and
leader are known) -> waiting at the leader's server -> in flight -> delivered. A retriable error takes it back to
locating, with a growing pause and fresh metadata, until `MAX_RETRY_SECONDS` have passed; a leader that cannot be found
at the moment is such an error too. A partition that does not exist delivers "nothing found", or `NO_PARTITION` if the
table has a lake that may have it. When the answer of a request is too large for the server (code 13), the asks without
an answer are sent again in requests of half as many keys; only a key that was sent alone gets the error.

Threads: `submit` and `room` may be called by any thread, everything else runs on the I/O thread. Only `_pending` is
used by both: others append, the I/O thread takes from its front. At most `MAX_ACTIVE_KEYS` keys are past pending, and
callers wait when `MAX_PENDING_ASKS` asks are pending.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from typing import Any

from fluss.client.keys.lookup_keys import Place
from fluss.client.keys.lookup_request import MAX_KEYS_PER_REQUEST, Ask, deliver, post
from fluss.client.net.cluster import Cluster
from fluss.client.net.io_thread import IoThread
from fluss.client.net.rpc import RpcConnection
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket, TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey

MAX_REQUESTS_IN_FLIGHT_PER_SERVER = 2
MAX_ACTIVE_KEYS = 65_536
MAX_PENDING_ASKS = 25_600
MAX_RETRY_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.02
LAST_PAUSE_SECONDS = 1.0

NO_PARTITION: object = object()
"""The result if the partition is not in Fluss."""

_RETRIED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIME_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
        ErrorCode.FENCED_LEADER_EPOCH_EXCEPTION,
        ErrorCode.LEADER_NOT_AVAILABLE_EXCEPTION,
        ErrorCode.KV_STORAGE_EXCEPTION,
        ErrorCode.STORAGE_EXCEPTION,
    }
)


class _Server:
    """The asks that wait for one tablet server, and the number of its open requests."""

    __slots__ = ("in_flight", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[TableBucket, Ask]] = deque()
        self.in_flight = 0


class LookupQueue:
    """Sends the lookups of one table; see the module docstring."""

    def __init__(
        self,
        io: IoThread,
        cluster: Cluster,
        path: TablePath,
        table_id: int,
        *,
        by_prefix: bool,
        tells_partitions: bool = False,
    ) -> None:
        self._io = io
        self._cluster = cluster
        self._path = path
        self._table_id = table_id
        self._by_prefix = by_prefix
        self._api = ApiKey.PREFIX_LOOKUP if by_prefix else ApiKey.LOOKUP
        nothing: Any = () if by_prefix else None
        self._nothing = NO_PARTITION if tells_partitions else nothing
        self._pending: list[Ask] = []
        self._is_woken = False
        self._room_waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._servers: dict[RpcConnection, _Server] = {}
        self._locating: dict[Place, list[Ask]] = {}
        self._active_keys = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- any thread ----

    @property
    def is_full(self) -> bool:
        """True if callers have to wait for `room` first."""
        return len(self._pending) >= MAX_PENDING_ASKS

    def submit(self, ask: Ask) -> None:
        """Queue an ask."""
        self._pending.append(ask)
        if not self._is_woken:
            self._is_woken = True
            self._io.call_soon(self._drain)

    async def room(self) -> None:
        """Return when fewer than `MAX_PENDING_ASKS` are pending; awaited in the user's event loop."""
        loop = asyncio.get_running_loop()
        while self.is_full:
            future: asyncio.Future[None] = loop.create_future()
            self._room_waiters.append((loop, future))
            if not self.is_full:  # it became empty before we were in the list
                return
            await future

    # ---- taking and locating ----

    def _drain(self) -> None:
        self._is_woken = False
        if self._cluster.closed:
            self._fail_pending()
            return
        taken = 0
        while taken < len(self._pending) and self._active_keys < MAX_ACTIVE_KEYS:
            self._active_keys += len(self._pending[taken].keys)
            taken += 1
        asks = self._pending[:taken]
        del self._pending[:taken]
        for ask in asks:
            self._route(ask)
        self._send_all()
        if self._room_waiters and not self.is_full:
            self._let_in()

    def _let_in(self) -> None:
        for _ in range(min(len(self._room_waiters), MAX_PENDING_ASKS - len(self._pending))):
            loop, future = self._room_waiters.popleft()
            post(loop, _set_none, future)

    def _route(self, ask: Ask) -> None:
        """Pass an ask to its server, at once if the leader is known."""
        bucket = self._bucket(ask.place)
        if bucket is not None:
            node = self._cluster.leader_node(bucket)
            connection = None if node is None else self._cluster.open_connection_to(node)
            if connection is not None:
                self._enqueue(connection, bucket, ask)
                return
        self._locate_soon(ask, refresh=False)

    def _bucket(self, place: Place) -> TableBucket | None:
        partition_id = None
        if place.partition_name is not None:
            partition_id = self._cluster.metadata.partition_id(self._path, place.partition_name)
            if partition_id is None:
                return None
        return TableBucket(self._table_id, partition_id, place.bucket_id)

    def _enqueue(self, connection: RpcConnection, bucket: TableBucket, ask: Ask) -> None:
        server = self._servers.get(connection)
        if server is None:
            self._forget_closed()
            server = self._servers[connection] = _Server()
        server.waiting.append((bucket, ask))

    def _forget_closed(self) -> None:
        for connection in [known for known, server in self._servers.items() if known.closed and not server.in_flight]:
            if not self._servers[connection].waiting:
                del self._servers[connection]

    def _locate_soon(self, ask: Ask, *, refresh: bool) -> None:
        ask.deadline = ask.deadline or asyncio.get_running_loop().time() + MAX_RETRY_SECONDS
        together = self._locating.get(ask.place)
        if together is not None:
            together.append(ask)
            return
        self._locating[ask.place] = [ask]
        task = self._cluster_task(self._locate(ask.place, ask.pause, refresh))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cluster_task(self, coroutine: Any) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coroutine)

    async def _locate(self, place: Place, pause: float, refresh: bool) -> None:
        error: FlussError | None = None
        try:
            if pause:
                await asyncio.sleep(pause)
            if refresh and place.partition_name is not None:
                self._cluster.metadata.forget_partition(self._path, place.partition_name)
            if refresh:
                await self._check_table()
            partition_id = None
            if place.partition_name is not None:
                partition_id = await self._cluster.partition_id(self._path, place.partition_name)
            bucket = TableBucket(self._table_id, partition_id, place.bucket_id)
            if self._cluster.leader_node(bucket) is None and not refresh:
                await self._check_table()
            connection = await self._cluster.leader(bucket, self._path)
        except FlussError as caught:
            error = caught
        except asyncio.CancelledError:
            error = FlussError("the connection is closed", ErrorCode.CLIENT_ERROR)
        asks = self._locating.pop(place)
        if error is None:
            for ask in asks:
                if not ask.pause:
                    ask.deadline = 0.0  # no failure so far
                self._enqueue(connection, bucket, ask)
            self._send(connection)
        elif error.error_code == ErrorCode.PARTITION_NOT_EXISTS:
            for ask in asks:
                ask.found = [self._nothing] * len(ask.keys)
            self._deliver(asks)
        else:
            self._retry(asks, error)

    async def _check_table(self) -> None:
        """Refresh the leaders, and check that the table was not dropped: buckets of a dropped one get no leader."""
        await self._cluster.refresh(tables=[self._path], fresh=True)
        table = self._cluster.metadata.table(self._path)
        if table is not None and table.table_id != self._table_id:
            text = f"table {self._path} was dropped and created again since it was opened: open it again"
            raise FlussError(text, ErrorCode.TABLE_NOT_EXIST)

    # ---- sending ----

    def _send_all(self) -> None:
        for connection, server in list(self._servers.items()):
            if server.waiting:
                self._send(connection)

    def _send(self, connection: RpcConnection) -> None:
        server = self._servers[connection]
        while server.waiting and server.in_flight < MAX_REQUESTS_IN_FLIGHT_PER_SERVER:
            groups: dict[TableBucket, list[Ask]] = {}
            count, room = 0, MAX_KEYS_PER_REQUEST
            while server.waiting:
                bucket, ask = server.waiting[0]
                room = min(room, ask.room)
                if count and count + ask.portion > room:
                    break
                server.waiting.popleft()
                groups.setdefault(bucket, []).append(ask)
                count += ask.portion
            server.in_flight += 1
            future = connection.call(self._api, self._request(groups))
            future.add_done_callback(functools.partial(self._answered, connection, groups, count))

    def _request(self, groups: dict[TableBucket, list[Ask]]) -> Any:
        request: Any = (pb.PrefixLookupRequest if self._by_prefix else pb.LookupRequest)(table_id=self._table_id)
        for bucket, asks in groups.items():
            item = request.buckets_req.add(bucket_id=bucket.bucket_id, partition_id=bucket.partition_id)
            for ask in asks:
                item.keys.extend(ask.next_keys)
        return request

    def _answered(
        self, connection: RpcConnection, groups: dict[TableBucket, list[Ask]], size: int, done: asyncio.Future[Any]
    ) -> None:
        self._servers[connection].in_flight -= 1
        error = _error_of(done)
        if error is not None:
            for bucket, asks in groups.items():
                self._without_answer(connection, bucket, asks, error, size)
        else:
            self._take_answer(connection, groups, size, done.result())
        self._send(connection)

    def _take_answer(
        self, connection: RpcConnection, groups: dict[TableBucket, list[Ask]], size: int, answer: Any
    ) -> None:
        finished: list[Ask] = []
        for item in answer.buckets_resp:
            partition_id = item.partition_id if item.HasField("partition_id") else None
            bucket = TableBucket(self._table_id, partition_id, item.bucket_id)
            asks = groups.pop(bucket, None)
            if asks is None:
                continue
            if item.HasField("error_code") and item.error_code:
                text = item.error_message or f"{bucket} of {self._path} cannot be looked up"
                self._without_answer(connection, bucket, asks, FlussError(text, item.error_code), size)
                continue
            if self._by_prefix:
                values: list[Any] = [list(found.values) for found in item.value_lists]
            else:
                values = [found.values or None for found in item.values]
            if len(values) != sum([ask.portion for ask in asks]):
                text = f"{len(values)} values in the answer do not match the keys of {bucket} of {self._path}"
                self._failed(asks, FlussError(text, ErrorCode.CORRUPT_MESSAGE))
                continue
            at = 0
            for ask in asks:
                end = at + ask.portion
                if ask.take(values[at:end]):
                    finished.append(ask)
                else:
                    self._enqueue(connection, bucket, ask)
                at = end
        self._deliver(finished)
        for bucket, asks in groups.items():  # missing in the answer
            error = FlussError(f"no answer for {bucket} of {self._path}", ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION)
            self._without_answer(connection, bucket, asks, error, size)

    def _without_answer(
        self, connection: RpcConnection, bucket: TableBucket, asks: list[Ask], error: FlussError, size: int
    ) -> None:
        """Retry or fail asks whose request, with this many keys, failed."""
        if error.error_code == ErrorCode.RECORD_TOO_LARGE_EXCEPTION and size > 1:
            for ask in asks:
                ask.narrow(size // 2)
                self._enqueue(connection, bucket, ask)
            return
        if error.error_code in _RETRIED:
            self._cluster.invalidate(bucket)
        self._retry(asks, error)

    # ---- ends ----

    def _retry(self, asks: list[Ask], error: FlussError) -> None:
        if error.error_code not in _RETRIED or self._cluster.closed:
            self._failed(asks, error)
            return
        now = asyncio.get_running_loop().time()
        given_up = []
        for ask in asks:
            ask.deadline = ask.deadline or now + MAX_RETRY_SECONDS
            ask.pause = min(ask.pause * 2, LAST_PAUSE_SECONDS) or FIRST_PAUSE_SECONDS
            if now + ask.pause > ask.deadline:
                given_up.append(ask)
            else:
                self._locate_soon(ask, refresh=True)
        self._failed(given_up, error)

    def _failed(self, asks: list[Ask], error: FlussError) -> None:
        for ask in asks:
            ask.error = FlussError(error.message, error.error_code)
        self._deliver(asks)

    def _deliver(self, asks: list[Ask]) -> None:
        """Deliver results with one call per waiting event loop."""
        if not asks:
            return
        by_loop: dict[asyncio.AbstractEventLoop, list[Ask]] = {}
        for ask in asks:
            self._active_keys -= len(ask.keys)
            by_loop.setdefault(ask.loop, []).append(ask)
        for loop, finished in by_loop.items():
            deliver(loop, finished)
        if self._pending and not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _fail_pending(self) -> None:
        asks = self._pending[:]
        del self._pending[: len(asks)]
        self._active_keys += sum(len(ask.keys) for ask in asks)
        self._failed(asks, FlussError("the connection is closed", ErrorCode.CLIENT_ERROR))
        self._let_in()


def _set_none(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _error_of(done: asyncio.Future[Any]) -> FlussError | None:
    if done.cancelled():
        return FlussError("the request was cancelled", ErrorCode.NETWORK_EXCEPTION)
    error = done.exception()
    if error is None or isinstance(error, FlussError):
        return error
    return FlussError(f"the request failed: {error}")
