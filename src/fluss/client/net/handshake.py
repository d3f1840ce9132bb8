"""Opening a connection: TCP, API_VERSIONS, and SASL/PLAIN if configured."""

from __future__ import annotations

import asyncio
import socket

from fluss.client.net.rpc import RpcConnection
from fluss.config import Config
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey, Role
from fluss.version import VERSION

CLIENT_NAME = "flusspy"
FIRST_LOGIN_RETRY_SECONDS = 0.1
LAST_LOGIN_RETRY_SECONDS = 5.0


async def open_connection(address: tuple[str, int], config: Config, role: Role | None = None) -> RpcConnection:
    """Open a connection that is ready for calls; `FlussError` 1 if the server is unreachable, 46 for a bad login."""
    loop = asyncio.get_running_loop()
    connection = RpcConnection(loop, address, config.request_timeout_ms)
    host, port = address
    try:
        await asyncio.wait_for(
            loop.create_connection(lambda: connection, host, port, family=_family(host)),
            config.connect_timeout_ms / 1000,
        )
    except TimeoutError:
        text = f"cannot connect to {connection}: no answer within {config.connect_timeout_ms} ms"
        raise FlussError(text, ErrorCode.NETWORK_EXCEPTION) from None
    except (OSError, UnicodeError) as error:
        text = f"cannot connect to {connection}: {_reason(error)}; check that the server runs and the address is right"
        raise FlussError(text, ErrorCode.NETWORK_EXCEPTION) from None
    try:
        await _shake_hands(connection, config, role)
    except BaseException:
        connection.close()
        raise
    return connection


def _family(host: str) -> int:
    """The address family: IPv6 for numeric IPv6 addresses only, since servers usually listen on IPv4."""
    return socket.AF_INET6 if ":" in host else socket.AF_UNSPEC


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


async def _shake_hands(connection: RpcConnection, config: Config, role: Role | None) -> None:
    timeout_ms = min(config.connect_timeout_ms, config.request_timeout_ms)
    request = pb.ApiVersionsRequest(client_software_name=CLIENT_NAME, client_software_version=VERSION)
    answer = await connection.call(ApiKey.API_VERSIONS, request, timeout_ms)
    connection.set_versions(answer)
    if role is not None and connection.server_type not in (None, role):
        found = Role(connection.server_type).name or str(connection.server_type)
        text = f"{connection} is a {found.lower()} server, not a {str(role.name).lower()} server"
        raise FlussError(text, ErrorCode.NETWORK_EXCEPTION)
    if config.security_protocol == "sasl":
        await _log_in(connection, config, timeout_ms)


async def _log_in(connection: RpcConnection, config: Config, timeout_ms: int) -> None:
    """Log in with SASL/PLAIN, which is one message; a challenge after it is empty. Code 51 means to retry shortly."""
    token = b"\0" + config.security_sasl_username.encode() + b"\0" + config.security_sasl_password.encode()
    request = pb.AuthenticateRequest(protocol=config.security_sasl_mechanism, token=token)
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
    pause = FIRST_LOGIN_RETRY_SECONDS
    while True:
        try:
            await connection.call(ApiKey.AUTHENTICATE, request, timeout_ms)
            return
        except FlussError as error:
            retriable = error.error_code == ErrorCode.RETRIABLE_AUTHENTICATE_EXCEPTION
            if not retriable or asyncio.get_running_loop().time() + pause > deadline:
                raise FlussError(
                    f"{connection} refused the login of {config.security_sasl_username!r}: {error.message}",
                    error.error_code,
                ) from None
        await asyncio.sleep(pause)
        pause = min(pause * 2, LAST_LOGIN_RETRY_SECONDS)
