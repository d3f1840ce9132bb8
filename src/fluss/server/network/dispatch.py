"""Parses request frames, calls their handlers, and encodes the answers.

Everything here runs in the event loop's thread, one frame after another in arrival order. Every frame whose request id
is known gets an answer: code 2 for unknown keys and versions, code 3 for malformed bodies, code 46 for requests before
login, the code of a handler's error, and code -1 with a short message for anything unexpected.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import Message

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import APIS, ApiKey
from fluss.protocol.frames import REQUEST_HEADER_BYTES, error_frame, success_frame
from fluss.protocol.parsing import parse_request
from fluss.protocol.server_payloads import split_produce, split_put_kv, split_stage
from fluss.server.network import eager_tasks
from fluss.server.network.buffers import Lease
from fluss.server.network.login_attempts import LoginAttempts
from fluss.server.runtime.handlers import USER_TYPE, Handler, ProduceRequest, RequestContext, Service
from fluss.server.security.permissions import rule_of

if TYPE_CHECKING:
    from fluss.server.network.connection import Connection

logger = logging.getLogger("fluss.server.network")

MAX_UNEXPECTED_ERROR_TEXT_CHARACTERS = 200
# Requests that only wait for data are cancelled when their peer is gone; writes are always finished.
CANCELLED_WITH_THE_CONNECTION = frozenset({int(ApiKey.FETCH_LOG)})

# Requests with definitions: documents that are parsed and checked in one step of the event loop. Half a MiB is a table
# with five thousand columns.
DEFINITIONS = frozenset(
    int(key)
    for key in (
        ApiKey.CREATE_DATABASE,
        ApiKey.ALTER_DATABASE,
        ApiKey.CREATE_TABLE,
        ApiKey.ALTER_TABLE,
        ApiKey.ALTER_CLUSTER_CONFIGS,
    )
)
MAX_DEFINITION_BYTES = 512 * 1024

_HEADER = struct.Struct(">hhi")
_SPLITS: dict[int, Callable[[memoryview], tuple[object, list[memoryview]]]] = {
    ApiKey.PRODUCE_LOG: split_produce,
    ApiKey.PUT_KV: split_put_kv,
    ApiKey.STAGE_LOG: split_stage,
}


class _Route(NamedTuple):
    handler: Handler
    min_version: int
    max_version: int
    request: type[Message]
    split: Callable[[memoryview], tuple[Any, list[memoryview]]] | None


class Dispatcher:
    """Passes requests to the handlers of one service, and their answers to the connections."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.login_attempts = LoginAttempts()
        self._routes: dict[int, _Route] = {}
        for key, handler in service.apis().items():
            rule_of(key)  # A key without a declared permission is not served.
            api = APIS[ApiKey(key)]
            self._routes[int(key)] = _Route(
                handler, api.min_version, api.max_version, api.request, _SPLITS.get(int(key))
            )
        self._builtin = {int(ApiKey.API_VERSIONS): self._api_versions, int(ApiKey.AUTHENTICATE): self._authenticate}
        self._versions_body = self._encode_versions(service.server_type)

    def _encode_versions(self, server_type: int) -> bytes:
        answer = pb.ApiVersionsResponse(server_type=server_type)
        for key in sorted({*self._routes, *self._builtin}):
            api = APIS[ApiKey(key)]
            answer.api_versions.add(api_key=key, min_version=api.min_version, max_version=api.max_version)
        return answer.SerializeToString()

    def refuse_size(self, view: memoryview, start: int, size: int) -> tuple[int, int, str] | None:
        """Return the error (request id, code, message) for a large frame, whose header begins at `start`.

        Return None for a write, which may be that large.
        """
        api_key, _, request_id = _HEADER.unpack_from(view, start)
        route = self._routes.get(api_key)
        if route is not None and route.split is not None:
            return None
        text = f"a request of {size} bytes is too large for API {api_key}; only writes may be that large"
        return request_id, int(ErrorCode.CORRUPT_MESSAGE), text

    def serve(
        self, connection: Connection, view: memoryview, start: int, stop: int, lease: Lease | None = None
    ) -> None:
        """Serve the frame whose header begins at `start`. With a lease, the view is a buffer of this frame alone."""
        api_key, api_version, request_id = _HEADER.unpack_from(view, start)
        body = view[start + REQUEST_HEADER_BYTES : stop]
        kept_lease: Lease | None = None
        try:
            route = self._routes.get(api_key)
            if route is None or not connection.login.is_ready or api_key in self._builtin:
                self._serve_other(connection, api_key, api_version, request_id, body)
                return
            if not route.min_version <= api_version <= route.max_version:
                raise _unsupported_version(api_key, api_version)
            request: Any
            if route.split is None:
                if len(body) > MAX_DEFINITION_BYTES and api_key in DEFINITIONS:
                    raise _too_large(api_key, len(body))
                request = parse_request(route.request, body)
            else:
                if lease is None:
                    body = memoryview(bytearray(body))
                    lease = connection.charge_records(len(body))
                message, records = route.split(body)
                kept_lease, lease = lease, None
                request = ProduceRequest(message, records, kept_lease.release)
            context = self._context(connection, api_key, api_version, request_id)
            reply = route.handler(context, request)
            if isinstance(reply, Message):
                connection.send(success_frame(request_id, reply.SerializeToString()))
            elif isinstance(reply, list):
                connection.send_pieces(request_id, reply)
            else:
                self._answer_later(connection, context, reply, kept_lease)
        except Exception as error:
            if kept_lease is not None:
                kept_lease.abandon()
            connection.send(self._error_frame(request_id, api_key, error))
        finally:
            if lease is not None:
                lease.release()

    def _context(self, connection: Connection, api_key: int, api_version: int, request_id: int) -> RequestContext:
        listener = connection.listener
        return RequestContext(
            api_key,
            api_version,
            request_id,
            listener.name,
            connection.login.principal_name,
            USER_TYPE,
            listener.is_internal,
            connection.client_host,
            connection.answers,
            connection,
        )

    def _serve_other(
        self, connection: Connection, api_key: int, api_version: int, request_id: int, body: memoryview
    ) -> None:
        """Serve what does not go to a handler: handshake, login, and refused requests."""
        builtin = self._builtin.get(api_key)
        if builtin is not None:
            if api_version != 0:
                raise _unsupported_version(api_key, api_version)
            builtin(connection, request_id, body)
        elif not connection.login.is_ready:
            text = "this listener needs a login: configure the client for SASL/PLAIN"
            raise FlussError(text, ErrorCode.AUTHENTICATE_EXCEPTION)
        else:
            raise FlussError(
                f"API key {api_key} is not served here; API_VERSIONS lists the keys that are",
                ErrorCode.UNSUPPORTED_VERSION,
            )

    def _api_versions(self, connection: Connection, request_id: int, body: memoryview) -> None:
        parse_request(pb.ApiVersionsRequest, body)
        connection.send(success_frame(request_id, self._versions_body))

    def _authenticate(self, connection: Connection, request_id: int, body: memoryview) -> None:
        request: pb.AuthenticateRequest = parse_request(pb.AuthenticateRequest, body)
        wait: float | None = 0.0
        if not connection.login.is_ready:
            wait = self.login_attempts.wait_seconds(connection.client_host, self._loop.time())
        if wait is None:
            text = "too many failed logins from this address; try again in a minute"
            raise FlussError(text, ErrorCode.RETRIABLE_AUTHENTICATE_EXCEPTION)
        if wait <= 0:
            self._judge(connection, request_id, request)
            return
        connection.begin_request()
        self._loop.call_later(wait, self._judge_late, connection, request_id, request)

    def _judge_late(self, connection: Connection, request_id: int, request: pb.AuthenticateRequest) -> None:
        """Judge a login attempt after the pause for its address."""
        if not connection.is_closing:
            self._judge(connection, request_id, request)
        connection.end_request()
        connection.flush_later()

    def _judge(self, connection: Connection, request_id: int, request: pb.AuthenticateRequest) -> None:
        answer = pb.AuthenticateResponse()
        try:
            if connection.login.authenticate(request.protocol, request.token):
                answer.challenge = b""  # present and empty, as clients of Apache Fluss expect
        except FlussError as error:
            self.login_attempts.note_failure(connection.client_host, self._loop.time())
            connection.send(self._error_frame(request_id, int(ApiKey.AUTHENTICATE), error))
            logger.warning(
                "login from %s on listener %s refused: %s",
                connection.client_host,
                connection.listener.name,
                error.message,
            )
            if connection.login.failures >= connection.server.limits.max_login_failures_per_connection:
                connection.close("too many failed logins")
            return
        connection.send(success_frame(request_id, answer.SerializeToString()))

    def _answer_later(
        self, connection: Connection, context: RequestContext, awaitable: object, lease: Lease | None
    ) -> None:
        """Answer when the awaitable is done; the handler has run up to its first wait."""
        if inspect.iscoroutine(awaitable):
            future = eager_tasks.start_eagerly(awaitable, self._loop)
        elif isinstance(awaitable, asyncio.Future):
            future = awaitable
        else:
            raise TypeError(
                f"the handler of API {context.api_key} must return an answer, a coroutine or a future, got "
                f"{type(awaitable).__name__}"
            )
        if future.done():
            self._deliver(connection, context, lease, future)
            return
        connection.begin_request()
        if context.api_key in CANCELLED_WITH_THE_CONNECTION:
            connection.cancel_on_loss.add(future)
        future.add_done_callback(partial(self._finished, connection, context, lease))

    def _finished(
        self, connection: Connection, context: RequestContext, lease: Lease | None, future: asyncio.Future[Any]
    ) -> None:
        connection.cancel_on_loss.discard(future)
        self._deliver(connection, context, lease, future)
        connection.end_request()
        connection.flush_later()

    def _deliver(
        self, connection: Connection, context: RequestContext, lease: Lease | None, future: asyncio.Future[Any]
    ) -> None:
        """Queue the answer of a handler that has finished, or its error."""
        request_id = context.request_id
        try:
            reply = future.result()
            if isinstance(reply, list):
                connection.send_pieces(request_id, reply)
            else:
                connection.send(success_frame(request_id, reply.SerializeToString()))
        except asyncio.CancelledError:
            if lease is not None:
                lease.abandon()
            text = "the server cancelled the request, because it stops or the connection ended; send it again"
            connection.send(error_frame(request_id, ErrorCode.REQUEST_TIME_OUT, text))
        except Exception as error:
            if lease is not None:
                lease.abandon()
            connection.send(self._error_frame(request_id, context.api_key, error))
        finally:
            if context.answer_bytes:
                connection.answers.ended(id(context), context.answer_bytes)

    def _error_frame(self, request_id: int, api_key: int, error: Exception) -> bytes:
        if isinstance(error, FlussError):
            code = error.error_code if error.error_code >= -1 else int(ErrorCode.UNKNOWN_SERVER_ERROR)
            return error_frame(request_id, code, error.message)
        name = ApiKey(api_key).name if api_key in self._routes else str(api_key)
        logger.error("%s failed unexpectedly", name, exc_info=error)
        text = f"{name} failed: {type(error).__name__}: {error}"[:MAX_UNEXPECTED_ERROR_TEXT_CHARACTERS]
        return error_frame(request_id, ErrorCode.UNKNOWN_SERVER_ERROR, text)


def _too_large(api_key: int, size: int) -> FlussError:
    text = (
        f"a definition of {size} bytes is too large for API {ApiKey(api_key).name}; the limit is {MAX_DEFINITION_BYTES}"
    )
    return FlussError(text, ErrorCode.CORRUPT_MESSAGE)


def _unsupported_version(api_key: int, api_version: int) -> FlussError:
    api = APIS[ApiKey(api_key)]
    served = f"{api.min_version} to {api.max_version}"
    text = f"version {api_version} of API {ApiKey(api_key).name} is not supported; supported are {served}"
    return FlussError(text, ErrorCode.UNSUPPORTED_VERSION)
