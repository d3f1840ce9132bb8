"""Where the peers of the tests live, and how the things fetched into that folder are made exactly once.

`.peers/` in the checkout is ignored by git and may be deleted at any time: everything in it is fetched or made again.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import random
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PEERS = CHECKOUT / ".peers"

FETCH_TIMEOUT_SECONDS = 300
# Systems begin at 32768 (Linux) or 49152 when a program asks for any port; Spark Connect takes 15002.
NEVER_HANDED_OUT = range(16_000, 32_000)
PORT_SHARES = 32


class PeerMissingError(Exception):
    """A peer cannot be had on this machine; the text says what is missing and why (it becomes the skip reason)."""


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Let one process at a time make a peer: several test runs may share a checkout."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def make_once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `.peers/NAME`, filled by `make` if that did not succeed before.

    A marker file is written last, so that a folder whose making was interrupted is made again.
    """
    PEERS.mkdir(exist_ok=True)
    folder = PEERS / name
    marker = folder / ".complete"
    if marker.exists():
        return folder
    with _exclusive(PEERS / f"{name}.lock"):
        if not marker.exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            marker.touch()
    return folder


def run_fetch(command: Sequence[str], what: str) -> None:
    """Run a command that fetches something; every failure is a `PeerMissingError` with the end of its output."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=FETCH_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerMissingError(f"{what}: {error}") from error
    if done.returncode != 0:
        last_lines = " | ".join(line for line in done.stdout.splitlines()[-4:] if line.strip())
        raise PeerMissingError(f"{what}: {command[0]} ended with code {done.returncode}: {last_lines}")


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that are free now, all different, and that nobody gets without asking for them.

    Between this call and the start of a server, and while a server is restarted, they belong to nobody: a port that the
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
