"""Why a connection is not read from, and how to see that its peer is gone all the same."""

from __future__ import annotations

import asyncio
import socket
from enum import IntFlag

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
