"""Ports for servers: free ones of the loopback interface, a share of them for each process of a test run."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
from collections.abc import Iterator, Sequence

# Systems begin at 32768 (Linux) or 49152 when a program asks for any port; Spark Connect takes 15002.
NEVER_HANDED_OUT = range(16_000, 32_000)
PORT_SHARES = 32


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that are free now, all different, and given to no program that does not ask.

    Between this call and the start of a server, and while a server is restarted, no program holds them: a port that the
    system hands out by itself could be another program's by then. The other processes of a test run draw from other
    ports, since two of them would now and then find the same one free, and each takes all of its own in turn, since a
    server that is away for a moment still has its port.
    """
    found: list[int] = []
    while len(found) < count:
        port = next(_own_ports)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


def ports_of(worker: str) -> range:
    """The share of a process of pytest-xdist (`gw0`, `gw1`, ...), or of a run in one process."""
    digits = worker.removeprefix("gw")
    share = (1 + int(digits)) % PORT_SHARES if digits.isdecimal() else 0
    return NEVER_HANDED_OUT[share::PORT_SHARES]


def _in_turn(ports: Sequence[int]) -> Iterator[int]:
    """Without end, from a random place on: other test runs on this machine begin elsewhere."""
    start = random.randrange(len(ports))
    return itertools.cycle((*ports[start:], *ports[:start]))


_own_ports = _in_turn(ports_of(os.environ.get("PYTEST_XDIST_WORKER", "")))
