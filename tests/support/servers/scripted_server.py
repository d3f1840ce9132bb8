"""A server that does what a test tells it: answers, errors, silence, cut connections, nonsense.

It runs on a thread of its own with blocking sockets. The script is a function from (connection number, api key,
request id, body) to the bytes of the answer, or None for silence, or `CLOSE` to cut the connection.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import APIS, ApiKey
from fluss.protocol.frames import success_prefix

CLOSE = b"CLOSE"
Script = Callable[[int, int, int, bytes], "bytes | None"]


def success(request_id: int, body: bytes) -> bytes:
    """A whole success frame."""
    return success_prefix(request_id, len(body)) + body


def handshake(request_id: int, server_type: int | None = None) -> bytes:
    """The answer to API_VERSIONS of a server that serves everything."""
    answer = pb.ApiVersionsResponse(server_type=server_type)
    for key, api in APIS.items():
        answer.api_versions.add(api_key=key, min_version=api.min_version, max_version=api.max_version)
    return success(request_id, answer.SerializeToString())


class ScriptedServer:
    """Listens from construction to `close`; the handshake is answered unless the script does it."""

    def __init__(self, script: Script, *, own_handshake: bool = False) -> None:
        self._script = script
        self._own_handshake = own_handshake
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.connections = 0
        self.requests: list[int] = []
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(connection)
            threading.Thread(target=self._serve, args=(connection, self.connections), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError, struct.error), connection, connection.makefile("rb") as stream:
            while True:
                (length,) = struct.unpack(">i", stream.read(4))
                frame = stream.read(length)
                api_key, _, request_id = struct.unpack_from(">hhi", frame)
                if api_key == ApiKey.API_VERSIONS and not self._own_handshake:
                    connection.sendall(handshake(request_id))
                    continue
                self.requests.append(api_key)
                answer = self._script(number, api_key, request_id, frame[8:])
                if answer == CLOSE:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                if answer is not None:
                    connection.sendall(answer)

    def close(self) -> None:
        """Stop listening and cut all connections."""
        self._listener.close()
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
