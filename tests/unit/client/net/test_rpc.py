"""One connection against a server that misbehaves in every way a test can think of."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from fluss.client.net.handshake import open_connection
from fluss.client.net.rpc import MAX_ANSWER_FRAME_BYTES, RECEIVE_BUFFER_BYTES, RpcConnection
from fluss.config import Config
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey, Role
from fluss.protocol.frames import error_frame
from tests.support.servers.scripted_server import CLOSE, ScriptedServer, handshake, success
from tools.waiting import patience

T = TypeVar("T")
LIST = ApiKey.LIST_DATABASES
REQUEST = pb.ListDatabasesRequest()


def names(*values: str) -> bytes:
    return pb.ListDatabasesResponse(database_name=values).SerializeToString()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, patience(60)))


async def connect(server: ScriptedServer, **options: str) -> RpcConnection:
    return await open_connection(server.address, Config({"request-timeout": "5000", **options}))


async def failure(awaitable: Any) -> FlussError:
    with pytest.raises(FlussError) as caught:
        await awaitable
    return caught.value


def test_answers_are_matched_by_request_id() -> None:
    waiting: list[int] = []

    def script(number: int, api_key: int, request_id: int, body: bytes) -> bytes | None:
        waiting.append(request_id)
        if len(waiting) < 3:
            return None
        return b"".join(success(each, names(f"n{each}")) for each in reversed(waiting))

    async def body() -> None:
        with ScriptedServer(script) as server:
            connection = await connect(server)
            answers = await asyncio.gather(*(connection.call(LIST, REQUEST) for _ in range(3)))
            assert [answer.database_name[0] for answer in answers] == ["n1", "n2", "n3"]
            assert connection.pending_count == 0
            connection.close()

    run(body())


def test_frames_of_every_size_arrive_whole() -> None:
    sizes = [0, 1, 100, RECEIVE_BUFFER_BYTES - 30, RECEIVE_BUFFER_BYTES, RECEIVE_BUFFER_BYTES + 1, 3_000_000, 5]

    def script(number: int, api_key: int, request_id: int, body: bytes) -> bytes:
        return success(request_id, names("x" * sizes[request_id - 1]))

    async def body() -> None:
        with ScriptedServer(script) as server:
            connection = await connect(server)
            answers = await asyncio.gather(*(connection.call(LIST, REQUEST) for _ in sizes))
            assert [len(answer.database_name[0]) for answer in answers] == sizes
            connection.close()

    run(body())


def test_an_error_frame_fails_only_its_request() -> None:
    def script(number: int, api_key: int, request_id: int, body: bytes) -> bytes:
        return error_frame(request_id, 7, "no such table") if request_id == 1 else success(request_id, names("a"))

    async def body() -> None:
        with ScriptedServer(script) as server:
            connection = await connect(server)
            error = await failure(connection.call(LIST, REQUEST))
            assert (error.error_code, error.message) == (7, "no such table")
            assert (await connection.call(LIST, REQUEST)).database_name == ["a"]
            connection.close()

    run(body())


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (CLOSE, "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "check that this is a Fluss server"),
        (struct.pack(">i", MAX_ANSWER_FRAME_BYTES + 1), "check that this is a Fluss server"),
        (struct.pack(">i", -1), "check that this is a Fluss server"),
        (struct.pack(">ib", 2, 0) + b"x", "too short"),
    ],
)
def test_a_broken_connection_fails_everything_on_it(answer: bytes, text: str) -> None:
    async def body() -> None:
        with ScriptedServer(lambda *_: answer) as server:
            connection = await connect(server)
            first, second = connection.call(LIST, REQUEST), connection.call(LIST, REQUEST)
            error = await failure(first)
            assert error.error_code == ErrorCode.NETWORK_EXCEPTION
            assert text in error.message
            assert (await failure(second)).error_code == ErrorCode.NETWORK_EXCEPTION
            assert connection.closed
            assert (await failure(connection.call(LIST, REQUEST))).error_code == ErrorCode.NETWORK_EXCEPTION

    run(body())


def test_a_server_failure_frame_ends_the_connection_with_its_error() -> None:
    failure_frame = bytes.fromhex("00000006 02 0803 120178")

    async def body() -> None:
        with ScriptedServer(lambda *_: failure_frame) as server:
            connection = await connect(server)
            error = await failure(connection.call(LIST, REQUEST))
            assert (error.error_code, error.message) == (3, "x")
            assert connection.closed

    run(body())


@pytest.mark.parametrize(("code", "expected"), [(46, -1), (70, 1), (-1, -1), (48, -1), (12, 1)])
def test_a_server_failure_frame_does_not_decide_about_writes(code: int, expected: int) -> None:
    """It belongs to no request, so writes in flight may have been done; 46 or 12 alone would say that they were not."""
    body_bytes = pb.ErrorResponse(error_code=code, error_message="x").SerializeToString()
    failure_frame = struct.pack(">ib", 1 + len(body_bytes), 2) + body_bytes

    async def body() -> None:
        with ScriptedServer(lambda _, key, *__: failure_frame if key == ApiKey.LIST_DATABASES else None) as server:
            connection = await connect(server)
            log = connection.produce(pb.ProduceLogRequest(acks=-1, table_id=1, timeout_ms=1), [])
            put = connection.produce(pb.PutKvRequest(acks=-1, table_id=1, timeout_ms=1), [])
            other = connection.call(LIST, REQUEST)
            for write in (log, put):
                error = await failure(write)
                assert error.error_code == expected
                assert "x" in error.message
            assert (await failure(other)).error_code == code

    run(body())


def test_silence_ends_in_a_time_out_and_the_connection_is_given_up() -> None:
    async def body() -> None:
        with ScriptedServer(lambda *_: None) as server:
            connection = await connect(server)
            error = await failure(connection.call(LIST, REQUEST, timeout_ms=80))
            assert error.error_code == ErrorCode.REQUEST_TIME_OUT
            assert "no answer to LIST_DATABASES" in error.message
            assert connection.closed

    run(body())


def test_a_late_answer_is_dropped_while_others_go_on() -> None:
    def script(number: int, api_key: int, request_id: int, body: bytes) -> bytes | None:
        if api_key == ApiKey.LIST_TABLES:
            return None
        late = success(1, names("late")) if api_key == ApiKey.DATABASE_EXISTS else b""
        return late + success(request_id, b"\x08\x01" if late else names("now"))

    async def body() -> None:
        with ScriptedServer(script) as server:
            connection = await connect(server)
            silent = connection.call(ApiKey.LIST_TABLES, pb.ListTablesRequest(database_name="x"), timeout_ms=1000)
            while not silent.done():  # other answers show that the connection is alive
                assert (await connection.call(LIST, REQUEST)).database_name == ["now"]
            assert (await failure(silent)).error_code == ErrorCode.REQUEST_TIME_OUT
            assert not connection.closed
            exists = await connection.call(ApiKey.DATABASE_EXISTS, pb.DatabaseExistsRequest(database_name="x"))
            assert exists.exists
            connection.close()

    run(body())


def test_a_cancelled_call_does_not_disturb_others() -> None:
    def script(number: int, api_key: int, request_id: int, body: bytes) -> bytes | None:
        return None if request_id == 1 else success(1, names("a")) + success(request_id, names("b"))

    async def body() -> None:
        with ScriptedServer(script) as server:
            connection = await connect(server)
            connection.call(LIST, REQUEST).cancel()
            assert (await connection.call(LIST, REQUEST)).database_name == ["b"]
            connection.close()

    run(body())


def test_an_unreadable_answer_fails_its_request_only() -> None:
    def script(number: int, api_key: int, request_id: int, body: bytes) -> bytes:
        return success(request_id, b"\xff\xff\xff" if request_id == 1 else names("a"))

    async def body() -> None:
        with ScriptedServer(script) as server:
            connection = await connect(server)
            assert (await failure(connection.call(LIST, REQUEST))).error_code == ErrorCode.CORRUPT_MESSAGE
            assert (await connection.call(LIST, REQUEST)).database_name == ["a"]
            connection.close()

    run(body())


def test_an_api_that_the_server_lacks_is_refused_without_asking() -> None:
    def script(number: int, api_key: int, request_id: int, body: bytes) -> bytes:
        answer = pb.ApiVersionsResponse()
        answer.api_versions.add(api_key=ApiKey.PUT_KV, min_version=0, max_version=1)
        answer.api_versions.add(api_key=ApiKey.LOOKUP, min_version=5, max_version=6)
        answer.api_versions.add(api_key=31_000, min_version=0, max_version=0)
        return success(request_id, answer.SerializeToString())

    async def body() -> None:
        with ScriptedServer(script, own_handshake=True) as server:
            connection = await connect(server)
            assert connection.version(ApiKey.PUT_KV) == 1
            assert not connection.supports(ApiKey.LOOKUP)
            error = await failure(connection.call(LIST, REQUEST))
            assert error.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert server.requests == [ApiKey.API_VERSIONS]
            connection.close()

    run(body())


def test_a_server_of_another_role_is_refused() -> None:
    def script(number: int, api_key: int, request_id: int, body: bytes) -> bytes:
        return handshake(request_id, Role.TABLET)

    async def body() -> None:
        with ScriptedServer(script, own_handshake=True) as server:
            error = await failure(open_connection(server.address, Config(), Role.COORDINATOR))
            assert "is a tablet server, not a coordinator server" in error.message
            connection = await open_connection(server.address, Config(), Role.TABLET)
            connection.close()

    run(body())


def test_login_sends_plain_and_repeats_what_the_server_calls_temporary() -> None:
    tokens: list[bytes] = []

    def script(number: int, api_key: int, request_id: int, body: bytes) -> bytes:
        tokens.append(pb.AuthenticateRequest.FromString(body).token)
        if len(tokens) == 1:
            return error_frame(request_id, ErrorCode.RETRIABLE_AUTHENTICATE_EXCEPTION, "busy")
        return success(request_id, pb.AuthenticateResponse(challenge=b"").SerializeToString())

    async def body() -> None:
        with ScriptedServer(script) as server:
            login = {"security.protocol": "sasl", "security.sasl.username": "me", "security.sasl.password": "pw"}
            connection = await connect(server, **login)
            assert tokens == [b"\0me\0pw"] * 2
            connection.close()

    run(body())


def test_an_unreachable_server_is_a_network_error() -> None:
    error = run(failure(open_connection(("127.0.0.1", 1), Config())))
    assert error.error_code == ErrorCode.NETWORK_EXCEPTION
    assert "check that the server runs and the address is right" in error.message
    error = run(failure(open_connection(("no-such-host.invalid", 1), Config())))
    assert error.error_code == ErrorCode.NETWORK_EXCEPTION
