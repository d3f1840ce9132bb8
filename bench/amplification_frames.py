"""Unfinished frames: many connections announce large writes and send what the server accepts, while others append.

The server limits frames in transit to a share of its memory and reads no more than that. The measure is the time of an
append of another client meanwhile, including its way to the disk.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from bench.amplification_rows import one_row
from fluss.protocol.api_keys import ApiKey
from fluss.protocol.frames import request_frame
from tools.servers.wire_client import WireClient

FRAMES = 60
FRAME_BYTES = 99 * 1024 * 1024
_PIECE = random.Random(1).randbytes(256 * 1024)
_POLL_SECONDS = 0.05


class Appends(NamedTuple):
    """The times of appends."""

    number: int
    median_ms: float
    longest_ms: float


class UnfinishedFrames:
    """Connections that send frames whose last bytes never come."""

    def __init__(self, address: tuple[str, int], frames: int, frame_bytes: int) -> None:
        self.sent_bytes = 0
        self._ended = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._connections: list[socket.socket] = []
        header = bytearray(request_frame(ApiKey.PRODUCE_LOG, 0, 1, b""))
        struct.pack_into(">i", header, 0, frame_bytes)
        for _ in range(frames):
            connection = socket.create_connection(address)
            connection.sendall(header)
            connection.setblocking(False)
            self._connections.append(connection)
            self._selector.register(connection, selectors.EVENT_WRITE, [frame_bytes - len(header)])
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        while not self._ended.is_set():
            if not self._selector.get_map():
                return
            for key, _ in self._selector.select(_POLL_SECONDS):
                self._send_some(key)

    def _send_some(self, key: selectors.SelectorKey) -> None:
        room, connection = key.data, key.fileobj
        assert isinstance(connection, socket.socket)
        try:
            sent = connection.send(_PIECE[: room[0]])
        except BlockingIOError:
            return
        except OSError:
            sent = room[0] = 0  # the server has closed it
        room[0] -= sent
        self.sent_bytes += sent
        if not room[0]:
            self._selector.unregister(connection)

    def close(self) -> None:
        """Close the connections with their frames unfinished."""
        self._ended.set()
        self._thread.join()
        self._selector.close()
        for connection in self._connections:
            connection.close()


@contextlib.contextmanager
def unfinished_frames(
    address: tuple[str, int], frames: int = FRAMES, frame_bytes: int = FRAME_BYTES
) -> Iterator[UnfinishedFrames]:
    """Keep unfinished frames open for a while."""
    sending = UnfinishedFrames(address, frames, frame_bytes)
    try:
        yield sending
    finally:
        sending.close()


def time_appends(address: tuple[str, int], table_id: int, seconds: float) -> Appends:
    """Append a small batch repeatedly."""
    batch = one_row()
    took: list[float] = []
    with WireClient(*address) as client:
        until = time.perf_counter() + seconds
        while not took or time.perf_counter() < until:
            began = time.perf_counter()
            result = client.produce(table_id, 0, batch)
            took.append((time.perf_counter() - began) * 1000)
            assert not result.HasField("error_code"), result
    return Appends(len(took), sorted(took)[len(took) // 2], max(took))
