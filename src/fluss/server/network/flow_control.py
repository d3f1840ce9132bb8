"""Flow control of a connection: reasons to stop reading, detecting a lost peer without reading, and writing."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from enum import IntFlag

from fluss.server.runtime.handlers import Piece

# In these Python releases, `writelines` of asyncio's own transports never calls `pause_writing` (CVE-2024-12254).
_WRITELINES_FORGETS_TO_PAUSE = (3, 12, 0) <= sys.version_info[:3] < (3, 12, 9) or (
    (3, 13, 0) <= sys.version_info[:3] < (3, 13, 2)
)
TCP_STATE_CLOSED, TCP_STATE_CLOSE_WAIT = 7, 8  # as numbered by Linux


def peer_is_gone(transport: asyncio.Transport | None) -> bool:
    """True if the peer has closed its side; works without reading from the connection."""
    if transport is None or not hasattr(socket, "TCP_INFO"):
        return False
    state = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state in (TCP_STATE_CLOSED, TCP_STATE_CLOSE_WAIT)


class Hold(IntFlag):
    """Reasons not to read from a connection."""

    NONE = 0
    IN_FLIGHT = 1
    UNSENT = 2
    MEMORY = 4
    TURN = 8
    ANSWERS = 16


def write_pieces(transport: asyncio.WriteTransport, pieces: Sequence[Piece]) -> None:
    """Write pieces in order, so that the transport calls `pause_writing` when too much is waiting for the peer."""
    if len(pieces) > 1 and not (_WRITELINES_FORGETS_TO_PAUSE and type(transport).__module__.startswith("asyncio")):
        transport.writelines(pieces)
        return
    for piece in pieces:
        transport.write(piece)
