"""The servers that the contract and the documents are tried on, each started once per test run, when first asked for.

All have a plaintext listener FLUSS and a listener CLIENT with SASL/PLAIN for the users of `tools.servers.logins`.
A test says in its name which target it ran on; a target that cannot be had is a skip with the reason.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import fluss
from tools.peers.apache_fluss import ApacheFluss
from tools.peers.cache import PeerMissingError
from tools.servers.logins import TWO_LISTENERS, USERS
from tools.servers.server_process import ServerProcess

TARGET_NAMES = ("embedded", "standalone", "apache")
STANDALONE_TABLETS = 2


@dataclass(frozen=True)
class Target:
    """A running server."""

    name: str
    bootstrap_servers: str
    sasl_bootstrap_servers: str
    tablet_count: int

    @property
    def is_apache(self) -> bool:
        return self.name == "apache"

    def config(self, **options: str) -> fluss.Config:
        """A configuration for the plaintext listener; options by their property names."""
        return fluss.Config({"bootstrap.servers": self.bootstrap_servers, **options})

    def sasl_config(self, user: str = "alice", password: str | None = None) -> fluss.Config:
        """A configuration for the listener that wants a login."""
        return fluss.Config(
            {
                "bootstrap.servers": self.sasl_bootstrap_servers,
                "security.protocol": "sasl",
                "security.sasl.username": user,
                "security.sasl.password": USERS[user] if password is None else password,
            }
        )


_running = contextlib.ExitStack()


@functools.cache
def _start(name: str) -> Target | str:
    """The target, or the reason why there is none."""
    directory = Path(tempfile.mkdtemp(prefix=f"fluss-{name}-"))  # it goes with the run, after its server
    if name == "embedded":
        cluster = _running.enter_context(fluss.embedded(directory / "data", config=TWO_LISTENERS))
        return Target(name, cluster.bootstrap_servers, cluster.listener_address("CLIENT"), 1)
    if name == "standalone":
        server = _running.enter_context(
            ServerProcess(directory / "data", bind=None, tablets=STANDALONE_TABLETS, config=TWO_LISTENERS)
        )
        return Target(name, server.addresses["FLUSS"], server.addresses["CLIENT"], STANDALONE_TABLETS)
    try:
        peer = _running.enter_context(ApacheFluss())
    except PeerMissingError as error:
        return str(error)
    return Target(name, peer.bootstrap_servers, peer.sasl_bootstrap_servers, 1)


def running_target(name: str) -> Target:
    """The running server of that name; skips the test where it cannot be had."""
    target = _start(name)
    if isinstance(target, str):
        pytest.skip(target)
    return target


atexit.register(_running.close)
