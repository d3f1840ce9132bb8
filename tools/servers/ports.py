"""Free ports of the loopback interface for servers; each process of a test run has its own share."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
from collections.abc import Iterator, Sequence

# Systems assign ports from 32768 (Linux) or 49152 on when a program asks for any port; Spark Connect takes 15002.
NEVER_HANDED_OUT = range(16_000, 32_000)
PORT_SHARES = 32


def free_ports(count: int) -> list[int]:
    """Return different ports of the loopback interface that are free now.

    The system never assigns these ports by itself. Otherwise another program could get one before the server starts, or
    while it restarts. Each process of a test run has its own share of the ports, because two processes could find the
    same port free, and uses all of its share in turn, because a server that is restarting still needs its port.
    """
    found: list[int] = []
    while len(found) < count:
        port = next(_own_ports)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


def ports_of(worker: str) -> range:
    """The ports of a process of pytest-xdist (`gw0`, `gw1`, ...), or of a run in one process."""
    digits = worker.removeprefix("gw")
    share = (1 + int(digits)) % PORT_SHARES if digits.isdecimal() else 0
    return NEVER_HANDED_OUT[share::PORT_SHARES]


def _in_turn(ports: Sequence[int]) -> Iterator[int]:
    """Return the ports endlessly, starting at a random one, because other test runs on this machine have the same."""
    start = random.randrange(len(ports))
    return itertools.cycle((*ports[start:], *ports[:start]))


_own_ports = _in_turn(ports_of(os.environ.get("PYTEST_XDIST_WORKER", "")))
