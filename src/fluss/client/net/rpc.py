"""One connection to one server: frames out, answers in, matched by request id.

States: connecting (TCP, API_VERSIONS, login) -> ready -> closed; closed is final, `Cluster` then opens a new one. All
methods run on the I/O thread. A request is answered, failed by an error frame (with the server's code), timed out (code
25) or failed because the connection was lost (code 1); it never stays pending.

Receiving: bytes arrive in one reusable buffer; a frame that does not fit into the rest of it gets its own buffer, into
which the socket then reads directly. Record bytes of fetch answers are slices of that buffer, which exists as long as
any slice of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from google.protobuf.message import DecodeError, Message

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import kv_range_api_pb2 as range_pb
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.protocol.api_keys import APIS, ApiKey
from fluss.protocol.client_payloads import (
    FetchAnswer,
    ScanAnswer,
    WriteRequest,
    split_fetch_response,
    split_scan_response,
    write_request_pieces,
)
from fluss.protocol.frames import (
    LENGTH_BYTES,
    TYPE_SUCCESS,
    read_error,
    read_length,
    read_response,
)
from fluss.protocol.server_payloads import BytesLike

RECEIVE_BUFFER_BYTES = 256 * 1024
# Larger than any answer to a reasonable fetch, and smaller than the length that the bytes "HTTP" would mean.
MAX_ANSWER_FRAME_BYTES = 1024 * 1024 * 1024
WRITE_HIGH_WATER_BYTES = 4 * 1024 * 1024
REQUEST_ID_MASK = 0x7FFFFFFF

_REQUEST = struct.Struct(">ihhi")
_WRITE_KEYS: dict[type[Message], ApiKey] = {
    pb.ProduceLogRequest: ApiKey.PRODUCE_LOG,
    pb.PutKvRequest: ApiKey.PUT_KV,
    staged_pb.StageLogRequest: ApiKey.STAGE_LOG,
}
_APPEND_KEYS = frozenset({ApiKey.PRODUCE_LOG, ApiKey.PUT_KV})


class _Pending(NamedTuple):
    future: asyncio.Future[Any]
    api_key: int
    timer: asyncio.TimerHandle


class RpcConnection(asyncio.BufferedProtocol):
    """Created by `handshake.open_connection`, which also negotiates versions and logs in."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: tuple[str, int], request_timeout_ms: int) -> None:
        self.address = address
        self.server_type: int | None = None
        self.closed = False
        self._loop = loop
        self._request_timeout_ms = request_timeout_ms
        self._versions: dict[int, int] = {ApiKey.API_VERSIONS: 0, ApiKey.AUTHENTICATE: 0}
        self._pending: dict[int, _Pending] = {}
        self._next_id = 0
        self._transport: asyncio.WriteTransport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._close_listeners: list[Callable[[RpcConnection], None]] = []
        self._buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._filled = 0
        self._big: memoryview | None = None
        self._big_filled = 0
        self._last_received = loop.time()

    # ---- calls ----

    def call(self, api_key: int, message: Message, timeout_ms: int | None = None) -> asyncio.Future[Any]:
        """Send a request; the future returns the answer message. `timeout_ms` defaults to the configuration."""
        return self._send(api_key, [message.SerializeToString()], timeout_ms)

    def produce(
        self, message: WriteRequest, records: Sequence[BytesLike | Sequence[BytesLike]], timeout_ms: int | None = None
    ) -> asyncio.Future[Any]:
        """Send PRODUCE_LOG, PUT_KV or STAGE_LOG: bucket entries without records, and the record buffers of each entry.

        The buffers must not change until the answer arrives.
        """
        return self._send(_WRITE_KEYS[type(message)], write_request_pieces(message, records), timeout_ms)

    def fetch(self, message: pb.FetchLogRequest, timeout_ms: int | None = None) -> asyncio.Future[FetchAnswer]:
        """Send FETCH_LOG; returns the answer without records, and records per bucket. The long poll counts extra."""
        if timeout_ms is None:
            timeout_ms = self._request_timeout_ms + message.max_wait_ms
        return self._send(ApiKey.FETCH_LOG, [message.SerializeToString()], timeout_ms)

    def scan(self, message: pb.ScanKvRequest | range_pb.ScanKvRangeRequest) -> asyncio.Future[ScanAnswer]:
        """Send SCAN_KV or SCAN_KV_RANGE; returns the answer without rows, and the bytes of the rows."""
        api_key = ApiKey.SCAN_KV if isinstance(message, pb.ScanKvRequest) else ApiKey.SCAN_KV_RANGE
        return self._send(api_key, [message.SerializeToString()], None)

    def supports(self, api_key: int) -> bool:
        """True if the server serves this API."""
        return api_key in self._versions

    def version(self, api_key: int) -> int:
        """The negotiated version of an API; `FlussError` 2 if the server does not serve it."""
        try:
            return self._versions[api_key]
        except KeyError:
            name = ApiKey(api_key).name
            raise FlussError(
                f"the server at {self} does not serve {name}: it is older than this client, or has another role",
                ErrorCode.UNSUPPORTED_VERSION,
            ) from None

    async def drain(self) -> None:
        """Wait until the socket takes more, or the connection is lost."""
        await self._writable.wait()

    @property
    def is_writable(self) -> bool:
        """False while more than `WRITE_HIGH_WATER_BYTES` wait for the socket."""
        return self._writable.is_set()

    @property
    def pending_count(self) -> int:
        """The number of requests without an answer."""
        return len(self._pending)

    def add_close_listener(self, listener: Callable[[RpcConnection], None]) -> None:
        """Call `listener` once on the I/O thread when the connection is lost; at once if it already is."""
        if self.closed:
            listener(self)
        else:
            self._close_listeners.append(listener)

    def close(self, error: FlussError | None = None) -> None:
        """Close the socket; everything pending fails with `error`."""
        self._lost(error or FlussError(f"the connection to {self} was closed", ErrorCode.NETWORK_EXCEPTION))

    def __str__(self) -> str:
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._pending)} pending"
        return f"RpcConnection({self}, {state})"

    def _send(self, api_key: int, pieces: list[BytesLike], timeout_ms: int | None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.closed or self._transport is None:
            future.set_exception(FlussError(f"the connection to {self} is closed", ErrorCode.NETWORK_EXCEPTION))
            return future
        try:
            version = self.version(api_key)
        except FlussError as error:
            future.set_exception(error)
            return future
        request_id = self._next_id
        self._next_id = request_id + 1 & REQUEST_ID_MASK
        timeout_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        timer = self._loop.call_later(timeout_ms / 1000, self._expire, request_id, timeout_ms)
        self._pending[request_id] = _Pending(future, api_key, timer)
        body_bytes = sum(piece.nbytes if isinstance(piece, memoryview) else len(piece) for piece in pieces)
        header = _REQUEST.pack(8 + body_bytes, api_key, version, request_id)
        first = header + bytes(pieces[0])
        if len(pieces) == 1:
            self._transport.write(first)
        else:
            pieces[0] = first
            self._transport.writelines(pieces)
        return future

    def _expire(self, request_id: int, timeout_ms: int) -> None:
        pending = self._pending.pop(request_id, None)
        if pending is None:
            return
        name = ApiKey(pending.api_key).name
        error = FlussError(f"no answer to {name} from {self} within {timeout_ms} ms", ErrorCode.REQUEST_TIME_OUT)
        if not pending.future.done():
            pending.future.set_exception(error)
        if self._loop.time() - self._last_received >= timeout_ms / 1000:
            # No byte arrived in all that time: the peer may have vanished, so do not use it again.
            self._lost(FlussError(f"{self} no longer answers", ErrorCode.NETWORK_EXCEPTION))

    def set_versions(self, answer: pb.ApiVersionsResponse) -> None:
        """Keep what both sides understand: the highest common version of every API."""
        for entry in answer.api_versions:
            known = APIS.get(entry.api_key)  # type: ignore[call-overload]
            if known is None:
                continue
            highest = min(known.max_version, entry.max_version)
            if highest >= max(known.min_version, entry.min_version):
                self._versions[entry.api_key] = highest
        self.server_type = answer.server_type if answer.HasField("server_type") else None

    # ---- the transport's side ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        plain = transport.get_extra_info("socket")
        if plain is not None:
            with contextlib.suppress(OSError):
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, error: Exception | None) -> None:
        reason = f": {error}" if error is not None else ""
        self._lost(FlussError(f"{self} closed the connection{reason}", ErrorCode.NETWORK_EXCEPTION))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _lost(self, error: FlussError) -> None:
        if self.closed:
            return
        self.closed = True
        pending, self._pending = self._pending, {}
        for entry in pending.values():
            entry.timer.cancel()
            if not entry.future.done():
                entry.future.set_exception(FlussError(error.message, error.error_code))
        self._writable.set()
        if self._transport is not None:
            self._transport.abort()
        listeners, self._close_listeners = self._close_listeners, []
        for listener in listeners:
            listener(self)

    # ---- receiving ----

    def get_buffer(self, size_hint: int) -> memoryview:
        if self._big is not None:
            return self._big[self._big_filled :]
        return self._buffer[self._filled :]

    def buffer_updated(self, count: int) -> None:
        self._last_received = self._loop.time()
        try:
            if self._big is None:
                self._filled += count
                self._take_frames()
                return
            self._big_filled += count
            if self._big_filled == len(self._big):
                frame, self._big = self._big, None
                self._answer(frame)
        except (FlussError, DecodeError) as error:
            self._lost(FlussError(f"{self} sent unreadable data: {error}", ErrorCode.NETWORK_EXCEPTION))

    def _take_frames(self) -> None:
        """Process every whole frame in the buffer; keep the start of the next one, or give it its own buffer."""
        position, filled = 0, self._filled
        while filled - position >= LENGTH_BYTES:
            length = read_length(self._buffer, position)
            if not 1 <= length <= MAX_ANSWER_FRAME_BYTES:
                text = f"invalid frame length {length}; check that this is a Fluss server"
                raise FlussError(text, ErrorCode.NETWORK_EXCEPTION)
            start = position + LENGTH_BYTES
            if start + length > filled:
                if length + LENGTH_BYTES > len(self._buffer) - position:
                    self._begin_big(length, start, filled)
                    return
                break
            position = start + length
            self._answer(memoryview(bytes(self._buffer[start:position])))
            if self.closed:
                return
        rest = filled - position
        if position and rest:
            self._buffer[:rest] = bytes(self._buffer[position:filled])
        self._filled = rest

    def _begin_big(self, length: int, start: int, filled: int) -> None:
        # numpy does not clear the memory, unlike bytearray: the socket is about to overwrite all of it.
        self._big = np.empty(length, np.uint8).data
        self._big_filled = filled - start
        self._big[: self._big_filled] = self._buffer[start:filled]
        self._filled = 0

    def _answer(self, frame: memoryview) -> None:
        response = read_response(frame)
        if response.request_id is None:
            self._server_failed(read_error(response.body))
            return
        pending = self._pending.pop(response.request_id, None)
        if pending is None:
            return  # it timed out before
        pending.timer.cancel()
        if pending.future.done():
            return  # the caller cancelled it
        if response.type == TYPE_SUCCESS:
            try:
                pending.future.set_result(_decode(pending.api_key, response.body))
            except (FlussError, DecodeError) as error:
                name = ApiKey(pending.api_key).name
                text = f"the answer of {self} to {name} cannot be read: {error}"
                pending.future.set_exception(FlussError(text, ErrorCode.CORRUPT_MESSAGE))
        else:
            pending.future.set_exception(read_error(response.body))

    def _server_failed(self, error: FlussError) -> None:
        """Handle an error of the server that belongs to no request. Writes in flight may have been done, whatever its
        code says: their error has a code with an unknown outcome."""
        code = ErrorCode.NETWORK_EXCEPTION if error.is_retriable else ErrorCode.UNKNOWN_SERVER_ERROR
        for entry in self._pending.values():
            if entry.api_key in _APPEND_KEYS and not entry.future.done():
                text = f"{self} ended the connection: {error}; the rows may or may not have been written"
                entry.future.set_exception(FlussError(text, code))
        self._lost(error)


def _decode(api_key: int, body: memoryview) -> Any:
    if api_key == ApiKey.FETCH_LOG:
        return split_fetch_response(body)
    if api_key in (ApiKey.SCAN_KV, ApiKey.SCAN_KV_RANGE):
        return split_scan_response(body)
    return APIS[ApiKey(api_key)].response.FromString(body)  # type: ignore[arg-type]  # buffers work too
