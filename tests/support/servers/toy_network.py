"""A network server with a small service, running on an event loop in its own thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import uvloop

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.protocol.server_payloads import BucketRecords, fetch_response_pieces
from fluss.server.network.limits import NetworkLimits
from fluss.server.network.server import BoundListener, NetworkServer
from fluss.server.runtime.handlers import Handler, Piece, ProduceRequest, RequestContext
from fluss.server.security.sasl import Credentials
from tools.servers.wire_client import WireClient
from tools.waiting import patience

Result = TypeVar("Result")
START_DEADLINE_SECONDS = patience(60.0)


class ToyService:
    """Handlers of every kind. What a test wants to steer or see is an attribute; handlers run in the loop's thread."""

    server_type = 2

    def __init__(self) -> None:
        self.order: list[tuple[str, int]] = []
        self.contexts: list[RequestContext] = []
        self.parked: list[asyncio.Future[Any]] = []
        self.kept: list[ProduceRequest] = []
        self.keep_records = False
        self.fetch_payload: list[Piece] = [b"payload"]
        self.park_fetches = False

    def apis(self) -> Mapping[int, Handler]:
        """The handlers."""
        return {
            ApiKey.GET_METADATA: self.metadata,
            ApiKey.TABLE_EXISTS: self.table_exists,
            ApiKey.DATABASE_EXISTS: self.database_exists,
            ApiKey.LIST_TABLES: self.list_tables,
            ApiKey.GET_TABLE_INFO: self.get_table_info,
            ApiKey.GET_DATABASE_INFO: self.get_database_info,
            ApiKey.PRODUCE_LOG: self.produce,
            ApiKey.FETCH_LOG: self.fetch,
        }

    def metadata(self, context: RequestContext, request: pb.MetadataRequest) -> pb.MetadataResponse:
        """Answers at once, with the number of tables asked for as the port."""
        self.order.append(("metadata", context.request_id))
        self.contexts.append(context)
        node = pb.PbServerNode(node_id=0, host="h", port=len(request.table_path))
        return pb.MetadataResponse(coordinator_server=node)

    async def table_exists(self, context: RequestContext, request: pb.TableExistsRequest) -> pb.TableExistsResponse:
        """A coroutine that never waits."""
        self.order.append(("table_exists", context.request_id))
        return pb.TableExistsResponse(exists=True)

    async def database_exists(
        self, context: RequestContext, request: pb.DatabaseExistsRequest
    ) -> pb.DatabaseExistsResponse:
        """A coroutine that waits until the test lets it go on."""
        self.order.append(("database_exists", context.request_id))
        parked = asyncio.get_running_loop().create_future()
        self.parked.append(parked)
        exists = await asyncio.wait_for(parked, patience(60))
        return pb.DatabaseExistsResponse(exists=exists)

    def list_tables(self, context: RequestContext, request: pb.ListTablesRequest) -> pb.ListTablesResponse:
        """Fails with a code."""
        raise FlussError(f"database {request.database_name!r} does not exist", ErrorCode.DATABASE_NOT_EXIST)

    def get_table_info(self, context: RequestContext, request: pb.GetTableInfoRequest) -> pb.GetTableInfoResponse:
        """Fails unexpectedly."""
        raise RuntimeError("boom")

    def get_database_info(
        self, context: RequestContext, request: pb.GetDatabaseInfoRequest
    ) -> pb.GetDatabaseInfoResponse:
        """Answers with a message that lacks required fields."""
        return pb.GetDatabaseInfoResponse()

    def produce(self, context: RequestContext, request: ProduceRequest) -> pb.ProduceLogResponse:
        """Answers the number of record bytes per bucket as the base offset."""
        self.order.append(("produce", context.request_id))
        answer = pb.ProduceLogResponse()
        for bucket, records in zip(request.message.buckets_req, request.records, strict=True):
            if records:
                records[0] = 0  # the slices are writable
            answer.buckets_resp.add(bucket_id=bucket.bucket_id, base_offset=len(records))
        if self.keep_records:
            self.kept.append(request)
        else:
            request.release()
        return answer

    def fetch(self, context: RequestContext, request: pb.FetchLogRequest) -> list[Piece] | asyncio.Future[Any]:
        """Answers in pieces, at once or when the test lets it."""
        if self.park_fetches:
            parked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.parked.append(parked)
            return parked
        return self.fetch_answer()

    def fetch_answer(self) -> list[Piece]:
        """The body of a fetch answer."""
        bucket = pb.PbFetchLogRespForBucket(bucket_id=0, high_watermark=7)
        return fetch_response_pieces([(1, [BucketRecords(bucket, self.fetch_payload)])])


class RunningNetwork:
    """The server as tests see it from outside its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: NetworkServer, service: ToyService) -> None:
        self.loop = loop
        self.server = server
        self.service = service
        self.port = 0
        self.sasl_port = 0

    def client(self, timeout_seconds: float = 20.0) -> WireClient:
        """A new connection to the listener without login."""
        return WireClient("127.0.0.1", self.port, timeout_seconds)

    def sasl_client(self) -> WireClient:
        """A new connection to the listener with login."""
        return WireClient("127.0.0.1", self.sasl_port)

    def in_loop(self, function: Callable[[], Result]) -> Result:
        """Run a function in the loop's thread and return its result."""

        async def run() -> Result:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(START_DEADLINE_SECONDS)


def bound_socket() -> socket.socket:
    """A socket bound to a free port of the loopback address."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound


@contextmanager
def running_network(
    limits: NetworkLimits | None = None,
    users: Mapping[str, str] | None = None,
    *,
    service: ToyService | None = None,
    use_uvloop: bool = True,
) -> Iterator[RunningNetwork]:
    """A network server on a plain listener FLUSS and a SASL listener CLIENT."""
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop() if use_uvloop else asyncio.SelectorEventLoop()
    thread = threading.Thread(target=loop.run_forever, name="toy network server", daemon=True)
    thread.start()
    sockets = bound_socket(), bound_socket()
    toy = service or ToyService()

    async def start() -> RunningNetwork:
        listeners = [
            BoundListener("FLUSS", "PLAINTEXT", sockets[0], is_internal=True),
            BoundListener("CLIENT", "sasl", sockets[1]),
        ]
        server = NetworkServer(toy, listeners, limits, {"CLIENT": Credentials(users or {"admin": "secret"})})
        await server.start()
        return RunningNetwork(loop, server, toy)

    network = asyncio.run_coroutine_threadsafe(start(), loop).result(START_DEADLINE_SECONDS)
    network.port, network.sasl_port = (each.getsockname()[1] for each in sockets)
    try:
        yield network
    finally:
        asyncio.run_coroutine_threadsafe(network.server.stop(), loop).result(START_DEADLINE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(START_DEADLINE_SECONDS)
        loop.close()
