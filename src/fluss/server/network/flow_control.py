"""Why a connection is not read from, how to see that its peer is gone all the same, and how writing can be held."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from enum import IntFlag

from fluss.server.runtime.handlers import Piece

# In these releases `writelines` of asyncio's own transports never calls `pause_writing` (CVE-2024-12254).
_WRITELINES_FORGETS_TO_PAUSE = (3, 12, 0) <= sys.version_info[:3] < (3, 12, 9) or (
    (3, 13, 0) <= sys.version_info[:3] < (3, 13, 2)
)
TCP_STATE_CLOSED, TCP_STATE_CLOSE_WAIT = 7, 8  # Linux's numbers


def peer_is_gone(transport: asyncio.Transport | None) -> bool:
    """Whether the peer has closed its side: what reading would tell, if the connection were read from."""
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
    """Write pieces in order, such that the transport says when too much is waiting for the peer."""
    if len(pieces) > 1 and not (_WRITELINES_FORGETS_TO_PAUSE and type(transport).__module__.startswith("asyncio")):
        transport.writelines(pieces)
        return
    for piece in pieces:
        transport.write(piece)
