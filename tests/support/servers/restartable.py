"""Servers that a test may take away and bring back, of each kind, each started once per test run when first asked for.

They are not those of `tests.support.servers.targets`, whose users must not be disturbed. They keep their address and
their data over a restart. Small segments are moved to remote storage after a moment, primary-key tables get snapshots,
and permissions are checked on the listener CLIENT (the internal listener FLUSS allows everything), so that one more
Apache Fluss serves all tests with such wishes.
"""

from __future__ import annotations

import atexit
import contextlib
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import pytest

import fluss
from tests.support.servers.targets import Target
from tests.support.tables.log_workload import create_table
from tools.peers.apache_fluss import ApacheFluss
from tools.peers.cache import PeerMissingError
from tools.servers.logins import jaas_config
from tools.servers.ports import free_ports
from tools.servers.server_process import ServerProcess
from tools.servers.wire_client import WireClient
from tools.waiting import patience

STANDALONE_TABLETS = 2
SOUND_WITHIN_SECONDS = patience(15.0)
_SHARED_OPTIONS = {
    "log.segment.file-size": "16kb",
    "log.index.interval-size": "1kb",
    "authorizer.enabled": "true",
}
_OUR_OPTIONS = {
    **_SHARED_OPTIONS,
    "remote.log.task-interval-duration": "50ms",
    "log.retention.check-interval": "50ms",
    "kv.snapshot.interval": "200ms",
    "internal.listener.name": "FLUSS",
    "security.protocol.map": "CLIENT:sasl",
    "security.sasl.enabled.mechanisms": "plain",
    "security.sasl.plain.jaas.config": jaas_config(),
    "super.users": "User:admin",
}
_APACHE_OPTIONS = {
    **_SHARED_OPTIONS,
    "remote.log.task-interval-duration": "1s",
    "log.retention.check-interval": "1s",
    "kv.snapshot.interval": "2s",
}

# For tables whose log is read with plain fetches: nothing leaves the server's own disk.
ALL_LOCAL = {"table.log.tiered.local-segments": "1000"}


class RestartableServer(ABC):
    """A server with an address that it keeps.

    `goes_away` is as hard as the server can bear: `kill -9` of our processes, a clean stop of Apache Fluss (whose lone
    replicas need more than a minute after a kill) and of a server inside this process.
    """

    target: Target
    data_directory: Path
    remote_directory: Path
    is_away = False

    def goes_away(self) -> None:
        """After this there is no answer."""
        self.is_away = True
        self._end()

    def comes_back(self) -> None:
        """After this it serves again; nothing happens if it does."""
        if self.is_away:
            self._start()
            self.is_away = False

    def disturb_tablet(self, number: int) -> None:
        """Let one of its tablets go away and come back by itself."""
        raise NotImplementedError(f"the {self.target.name} server has no tablets of their own")

    def is_sound(self) -> bool:
        """Whether it can be used for another test."""
        return True

    @abstractmethod
    def close(self) -> None:
        """End it for good."""

    @abstractmethod
    def _end(self) -> None: ...

    @abstractmethod
    def _start(self) -> None: ...

    def config(self, **options: str) -> fluss.Config:
        """A configuration for its plaintext listener."""
        return self.target.config(**options)


class Embedded(RestartableServer):
    """Our server inside this process."""

    def __init__(self, directory: Path) -> None:
        self._options = _with_ports(directory)
        self.data_directory, self.remote_directory = directory / "data", directory / "remote"
        self._start()
        self.target = Target(
            "embedded", self._cluster.bootstrap_servers, self._cluster.listener_address("CLIENT"), tablet_count=1
        )

    def _end(self) -> None:
        self._cluster.close()

    def _start(self) -> None:
        self._cluster = fluss.embedded(self.data_directory, config=self._options)

    def close(self) -> None:
        self._cluster.close()


class Standalone(RestartableServer):
    """`fluss server` as processes."""

    def __init__(self, directory: Path) -> None:
        self.data_directory, self.remote_directory = directory / "data", directory / "remote"
        self._server = ServerProcess(
            self.data_directory, bind=None, tablets=STANDALONE_TABLETS, config=_with_ports(directory)
        )
        addresses = self._server.addresses
        self.target = Target("standalone", addresses["FLUSS"], addresses["CLIENT"], STANDALONE_TABLETS)

    def _end(self) -> None:
        self._server.kill()

    def _start(self) -> None:
        self._server.start()

    def disturb_tablet(self, number: int) -> None:
        self._server.kill_child(1 + number % STANDALONE_TABLETS)

    def close(self) -> None:
        self._server.stop()


class Apache(RestartableServer):
    """Apache Fluss; its one tablet server goes away."""

    def __init__(self, directory: Path) -> None:
        self._cluster = ApacheFluss(_APACHE_OPTIONS, directory=directory)
        self.data_directory, self.remote_directory = directory / "data", directory / "remote"
        self._cluster.__enter__()
        self.target = Target("apache", self._cluster.bootstrap_servers, self._cluster.sasl_bootstrap_servers, 1)
        self._restarts = self._known_restarts = 0

    def is_sound(self) -> bool:
        """Under load its coordinator may stop to give leaders to new tables after a restart: try one."""
        if self._restarts == self._known_restarts:
            return True
        name = f"probe_{self._restarts}"
        create_table(self.target.bootstrap_servers, name, buckets=1)
        deadline = time.monotonic() + SOUND_WITHIN_SECONDS
        while time.monotonic() < deadline:
            with WireClient.connect(self.target.bootstrap_servers) as client:
                (bucket,) = client.metadata(("fluss", name)).table_metadata[0].bucket_metadata
            if bucket.HasField("leader_id"):
                self._known_restarts = self._restarts
                return True
            time.sleep(0.05)
        return False

    def _end(self) -> None:
        self._cluster.stop_tablet()

    def _start(self) -> None:
        self._restarts += 1
        self._cluster.start_tablet()

    def close(self) -> None:
        self._cluster.stop()


class Disturbance:
    """One way in which a server is disturbed while clients work."""

    def __init__(self, name: str) -> None:
        kind, _, part = name.partition("-")
        self.server = restartable_server(kind)
        self._only_tablet = part == "tablet"
        # Each takes Apache Fluss more than four seconds.
        self.count = 1 if self.server.target.is_apache else 3

    def happens(self, number: int) -> None:
        """The disturbance of that number; when it returns, the server serves or is about to."""
        if self._only_tablet:
            self.server.disturb_tablet(number)
        else:
            self.server.goes_away()
            self.server.comes_back()


def _with_ports(directory: Path) -> Mapping[str, str]:
    plain, sasl = free_ports(2)
    listeners = f"FLUSS://127.0.0.1:{plain}, CLIENT://127.0.0.1:{sasl}"
    return {**_OUR_OPTIONS, "bind.listeners": listeners, "remote.data.dir": str(directory / "remote")}


KINDS: Mapping[str, type[RestartableServer]] = {"embedded": Embedded, "standalone": Standalone, "apache": Apache}
DISTURBANCES = (*KINDS, "standalone-tablet")
_running = contextlib.ExitStack()


_servers: dict[str, RestartableServer | str] = {}


def _new_server(name: str) -> RestartableServer | str:
    """The server, or the reason why there is none."""
    directory = Path(tempfile.mkdtemp(prefix=f"fluss-{name}-"))  # it goes with the run, after its server
    try:
        server = KINDS[name](directory)  # type: ignore[call-arg]
    except PeerMissingError as error:
        return str(error)
    _running.callback(server.close)
    return server


def restartable_server(name: str) -> RestartableServer:
    """The running server of that name; skips the test where it cannot be had."""
    server = _servers.get(name)
    if isinstance(server, RestartableServer) and not server.is_sound():
        server.close()
        server = None
    if server is None:
        server = _servers[name] = _new_server(name)
    if isinstance(server, str):
        pytest.skip(server)
    return server


atexit.register(_running.close)
