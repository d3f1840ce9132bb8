"""A small blocking client on raw sockets, for tests and benchmarks that speak the wire protocol themselves.

The client has one socket, knows no leaders and never retries. `call` sends a request and waits for the answer with the
same request id; `send` and `receive` are for pipelining; `send_bytes` is for bytes that a correct client never sends.
"""

from __future__ import annotations

import contextlib
import socket
from types import TracebackType
from typing import Any

from google.protobuf.message import Message

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import APIS, ApiKey
from fluss.protocol.frames import TYPE_SUCCESS, read_error, read_length, read_response, request_frame
from tools.waiting import patience

DEFAULT_TIMEOUT_SECONDS = patience(60.0)


class WireClient:
    """One connection to a server. Use it as a context manager."""

    def __init__(self, host: str, port: int, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next_request_id = 0
        self._sent: dict[int, int] = {}
        self._early: dict[int, tuple[int, bytes]] = {}

    @classmethod
    def connect(cls, address: str, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> WireClient:
        """Connect to `host:port`."""
        host, _, port = address.rpartition(":")
        return cls(host.strip("[]"), int(port), timeout_seconds)

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    # ---- messages ----

    def call(self, api_key: int, request: Message, api_version: int = 0) -> Any:
        """Send a request and return its answer; `FlussError` for an error frame."""
        return self.receive(self.send(api_key, request, api_version))

    def send(self, api_key: int, request: Message | bytes, api_version: int = 0) -> int:
        """Send a request without waiting for the answer; return its request id."""
        request_id = self._next_request_id
        self._next_request_id += 1
        self._sent[request_id] = api_key
        body = request if isinstance(request, bytes) else request.SerializePartialToString()
        self.send_bytes(request_frame(api_key, api_version, request_id, body))
        return request_id

    def receive(self, request_id: int) -> Any:
        """Wait for the answer to a request that was sent; other answers may arrive before it."""
        while request_id not in self._early:
            received_id, kind, body = self.receive_frame()
            self._early[received_id] = kind, body
        kind, body = self._early.pop(request_id)
        api_key = self._sent.pop(request_id)
        if kind != TYPE_SUCCESS:
            raise read_error(body)
        return APIS[ApiKey(api_key)].response.FromString(body)

    def receive_any(self) -> int:
        """Wait for the next answer to any request and return the request's id; `receive` returns the answer."""
        received_id, kind, body = self.receive_frame()
        self._early[received_id] = kind, body
        return received_id

    # ---- frames and bytes ----

    def receive_frame(self) -> tuple[int, int, bytes]:
        """Receive a frame as (request id, response type, body); `FlussError` 1 if the server closed the connection."""
        response = read_response(self.receive_exactly(read_length(self.receive_exactly(4))))
        if response.request_id is None:
            raise read_error(response.body)
        return response.request_id, response.type, bytes(response.body)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def receive_exactly(self, count: int) -> bytes:
        """Receive exactly `count` bytes; `FlussError` 1 if the server closes the connection before."""
        data = bytearray(count)
        view = memoryview(data)
        position = 0
        while position < count:
            received = self.socket.recv_into(view[position:])
            if received == 0:
                raise FlussError("the server closed the connection", ErrorCode.NETWORK_EXCEPTION)
            position += received
        return bytes(data)

    def is_closed_by_server(self) -> bool:
        """Wait until the server closes the connection; False if it sends bytes or the time-out expires."""
        with contextlib.suppress(TimeoutError, socket.timeout):
            try:
                return self.socket.recv(1) == b""
            except ConnectionError:
                return True
        return False

    # ---- common calls ----

    def api_versions(self) -> pb.ApiVersionsResponse:
        """The handshake that every client begins with."""
        request = pb.ApiVersionsRequest(client_software_name="wire", client_software_version="1")
        answer: pb.ApiVersionsResponse = self.call(ApiKey.API_VERSIONS, request)
        return answer

    def authenticate(self, user: str, password: str, mechanism: str = "PLAIN") -> pb.AuthenticateResponse:
        """Log in with SASL/PLAIN."""
        token = b"\x00" + user.encode() + b"\x00" + password.encode()
        request = pb.AuthenticateRequest(protocol=mechanism, token=token)
        answer: pb.AuthenticateResponse = self.call(ApiKey.AUTHENTICATE, request)
        return answer

    def metadata(self, *tables: tuple[str, str]) -> pb.MetadataResponse:
        """GET_METADATA for (database, table) pairs."""
        request = pb.MetadataRequest()
        for database, table in tables:
            request.table_path.add(database_name=database, table_name=table)
        answer: pb.MetadataResponse = self.call(ApiKey.GET_METADATA, request)
        return answer

    def produce(
        self,
        table_id: int,
        bucket_id: int,
        records: bytes,
        *,
        partition_id: int | None = None,
        acks: int = -1,
        timeout_ms: int = 30_000,
    ) -> pb.PbProduceLogRespForBucket:
        """Write batches to one bucket; the caller checks the `error_code` of the answer."""
        request = pb.ProduceLogRequest(acks=acks, table_id=table_id, timeout_ms=timeout_ms)
        request.buckets_req.add(bucket_id=bucket_id, partition_id=partition_id, records=records)
        answer: pb.ProduceLogResponse = self.call(ApiKey.PRODUCE_LOG, request)
        return answer.buckets_resp[0]

    def fetch(
        self,
        table_id: int,
        bucket_id: int,
        offset: int,
        *,
        partition_id: int | None = None,
        max_bytes: int = 16 * 1024 * 1024,
        max_bytes_for_bucket: int = 1024 * 1024,
        max_wait_ms: int | None = None,
        min_bytes: int | None = None,
        projected_fields: tuple[int, ...] | None = None,
    ) -> pb.PbFetchLogRespForBucket:
        """Read one bucket; the caller checks the `error_code` of the answer."""
        request = pb.FetchLogRequest(
            follower_server_id=-1, max_bytes=max_bytes, max_wait_ms=max_wait_ms, min_bytes=min_bytes
        )
        table = request.tables_req.add(
            table_id=table_id,
            projection_pushdown_enabled=projected_fields is not None,
            projected_fields=projected_fields,
        )
        table.buckets_req.add(
            partition_id=partition_id, bucket_id=bucket_id, fetch_offset=offset, max_fetch_bytes=max_bytes_for_bucket
        )
        answer: pb.FetchLogResponse = self.call(ApiKey.FETCH_LOG, request)
        return answer.tables_resp[0].buckets_resp[0]
