"""A `fluss server` whose answers are counted on their way: for tests of what is not sent.

Servers report no figures about their traffic, so everything goes through a relay. The server listens on one loopback
address and tells clients another one, where the relay listens on the same ports: also connections to tablets, whose
addresses clients learn from the server, pass through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers.targets import Target
from tools.servers.ports import free_ports
from tools.servers.server_process import LOOPBACK, ServerProcess
from tools.servers.wire_client import WireClient
from tools.waiting import patience

RELAY_HOST = "127.0.0.2"
CHUNK_BYTES = 1 << 16
START_DEADLINE_SECONDS = patience(60.0)


class Relay:
    """Hands bytes on between clients and the ports of a server, in a thread of its own."""

    def __init__(self) -> None:
        self.answered_bytes = 0
        """What went to clients so far."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()

    def listen(self, port: int) -> None:
        """Relay this port from now on."""

        async def start() -> None:
            await asyncio.start_server(lambda *client: self._relay(port, *client), RELAY_HOST, port)

        asyncio.run_coroutine_threadsafe(start(), self._loop).result(START_DEADLINE_SECONDS)

    def close(self) -> None:
        """Cut all connections."""

        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(START_DEADLINE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_DEADLINE_SECONDS)
        self._loop.close()

    async def _relay(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(LOOPBACK, port)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(self._hand_on(reader, to_server), self._answer(from_server, writer))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._hand_on(reader, writer, is_answer=True)

    async def _hand_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool = False
    ) -> None:
        with contextlib.suppress(ConnectionError):  # clients may leave as they like
            while data := await reader.read(CHUNK_BYTES):
                if is_answer:
                    self.answered_bytes += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.contextmanager
def counted_server(directory: Path) -> Iterator[tuple[Target, Relay]]:
    """A server with one tablet, and the relay that all its clients use."""
    (port,) = free_ports(1)
    listeners = {
        "bind.listeners": f"FLUSS://{LOOPBACK}:{port}",
        "advertised.listeners": f"FLUSS://{RELAY_HOST}:{port}",
    }
    with (
        ServerProcess(directory / "data", bind=None, tablets=1, config=listeners),
        contextlib.closing(Relay()) as relay,
    ):
        with WireClient.connect(f"{LOOPBACK}:{port}") as client:
            ports = [node.port for node in client.metadata().tablet_servers]
        for each in (port, *ports):
            relay.listen(each)
        yield Target("standalone", f"{RELAY_HOST}:{port}", "", tablet_count=1), relay
