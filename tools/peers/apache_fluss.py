"""A real Apache Fluss 0.9.1 cluster on loopback: ZooKeeper, one coordinator, one tablet server or several.

The published jar is fetched with Maven into the folder of `tools.peers.cache`. Each of the processes has a plaintext
listener FLUSS and, except ZooKeeper, a listener CLIENT that requires SASL/PLAIN. The processes are ended by their own
ids, ZooKeeper last.

By hand: `python -m tools.peers.apache_fluss [tablets=3]` starts a cluster, prints its addresses, and serves until
Ctrl-C.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tools.peers.cache import PeerMissingError, make_once, run_fetch
from tools.servers.logins import jaas_config
from tools.servers.ports import free_ports
from tools.waiting import patience

VERSION = "0.9.1"
START_TIMEOUT_SECONDS = patience(90.0)
STOP_TIMEOUT_SECONDS = patience(15.0)

# For clusters of tests: small heaps, and a ZooKeeper that does not wait for the disk, because servers end if a busy
# disk costs them their sessions. Benchmarks run with the defaults of the Java machine.
SMALL_HEAP = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no")

_OPENED_MODULES = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
# In the order in which they start: main class, arguments inside the directory of the cluster.
_PROGRAMS = {
    "zookeeper": ("org.apache.fluss.shaded.zookeeper3.org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"),
    "coordinator": ("org.apache.fluss.server.coordinator.CoordinatorServer", "--configDir", "coordinator"),
}
_TABLET = ("org.apache.fluss.server.tablet.TabletServer", "--configDir")
_LOST_COORDINATOR = b"NotifyLeaderAndIsr batch request from coordinator to tablet server is not empty"
_GET_METADATA_FRAME = bytes.fromhex("0000000803f4000000000001")


def library() -> Path:
    """The folder with the jars, fetched on the first call; `PeerMissingError` with the reason if that is impossible."""
    if shutil.which("java") is None:
        raise PeerMissingError("Apache Fluss needs Java 17 or newer, but there is no `java` on the PATH")
    if shutil.which("mvn") is None:
        raise PeerMissingError("Apache Fluss is fetched with Maven, but there is no `mvn` on the PATH")

    def fetch(folder: Path) -> None:
        pom = Path(__file__).with_name("apache_fluss_pom.xml")
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        run_fetch(
            ["mvn", "-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={folder}"],
            f"Apache Fluss {VERSION} could not be fetched with Maven",
        )
        if not list(folder.glob("fluss-server-*.jar")):
            raise PeerMissingError(f"Maven succeeded, but there is no fluss-server jar in {folder}")

    return make_once(f"apache-fluss-{VERSION}", fetch)


RUNNING: list[ApacheFluss] = []
"""The clusters of this process, from their start to their stop."""


class ApacheFluss:
    """One cluster. `start()` returns when its tablet servers are registered; `stop()` ends what `start()` began.

    Tablet servers are numbered from 0, and these numbers are their ids. Each of them has a replica of every bucket,
    unless the configuration sets another replication factor.
    """

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        directory: Path | None = None,
        java_options: Sequence[str] = SMALL_HEAP,
        tablets: int = 1,
    ) -> None:
        self._library = library()  # may raise, so it comes before anything is created
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="apache-fluss-"))
        self._config = dict(config or {})
        self._java_options = tuple(java_options)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._coordinator_log_read = 0
        self.healed = 0  # the number of times that `heal` had to restart processes
        zookeeper, *ports = free_ports(3 + 2 * tablets)
        self._zookeeper_port = zookeeper
        self._coordinator_ports, *self._tablet_ports = zip(ports[::2], ports[1::2], strict=True)
        self._programs = _PROGRAMS | {name: (*_TABLET, name) for name in map(_tablet, range(tablets))}

    @property
    def bootstrap_servers(self) -> str:
        """The plaintext address of the coordinator."""
        return f"127.0.0.1:{self._coordinator_ports[0]}"

    @property
    def sasl_bootstrap_servers(self) -> str:
        """The address of the coordinator's listener that requires SASL/PLAIN."""
        return f"127.0.0.1:{self._coordinator_ports[1]}"

    @property
    def process_ids(self) -> list[int]:
        """The ids of the Java processes that run now."""
        return [process.pid for process in self._processes.values() if process.poll() is None]

    def start(self) -> None:
        """Start the processes and wait until a client can create tables."""
        atexit.register(self.stop)
        RUNNING.append(self)
        self._write_configuration()
        for name in self._programs:
            self._launch(name)
        self.wait_until_ready()

    def _wait_for_zookeeper(self) -> None:
        """Wait until ZooKeeper serves: a server that connects earlier may get no answer for a minute, and then ends."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not _serves_as_zookeeper(self._zookeeper_port):
            self._fail_if_a_process_ended()
            if time.monotonic() > deadline:
                raise TimeoutError(f"ZooKeeper is not ready after {START_TIMEOUT_SECONDS} s\n{self.log_tails()}")
            time.sleep(0.05)

    def wait_until_ready(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Wait until coordinator and tablet servers list the tablet servers that run, and no others."""
        deadline = time.monotonic() + timeout_seconds
        running = [ports for number, ports in enumerate(self._tablet_ports) if _tablet(number) in self._processes]
        for port, _ in (self._coordinator_ports, *running):
            while _listed_tablet_servers(port) != len(running):
                self._fail_if_a_process_ended()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"Apache Fluss is not ready after {timeout_seconds} s\n{self.log_tails()}")
                time.sleep(0.05)

    def is_lost(self) -> bool:
        """True if a process has ended by itself, or the coordinator has been stuck since the last `heal`.

        Coordinator and tablet servers end when ZooKeeper's disk is so busy that they lose their sessions.

        If the coordinator of 0.9.1 is notified of a new partition before the partition's table, it fails on the missing
        table and leaves a request half built. After that it refuses to build others, so no bucket gets a leader.
        """
        if any(process.poll() is not None for process in self._processes.values()):
            return True
        with (self.directory / "coordinator.log").open("rb") as lines:
            lines.seek(self._coordinator_log_read)
            return _LOST_COORDINATOR in lines.read()

    def heal(self) -> None:
        """If `is_lost`, start the processes that have ended again, and restart the coordinator."""
        if not self.is_lost():
            return
        self.healed += 1
        self._processes["coordinator"].terminate()  # a killed one would stay registered in ZooKeeper for a while
        self._processes["coordinator"].wait(START_TIMEOUT_SECONDS)
        self._coordinator_log_read = (self.directory / "coordinator.log").stat().st_size
        for name in self._programs:
            if name in self._processes and self._processes[name].poll() is not None:
                self._launch(name)
        self.wait_until_ready()

    def restart_tablet(self) -> None:
        """Stop the first tablet server and start it again, on the same ports and data."""
        self.stop_tablet()
        self.start_tablet()

    def stop_tablet(self) -> None:
        """Stop the first tablet server cleanly: after a kill, a lone replica of 0.9.1 needs over a minute to serve."""
        process = self._processes.pop(_tablet(0))
        process.terminate()
        process.wait()
        self.wait_until_ready()

    def kill_tablet(self, number: int) -> None:
        """End a tablet server with `kill -9`; the other servers notice when its session with ZooKeeper has expired."""
        process = self._processes.pop(_tablet(number))
        process.kill()
        process.wait()

    def start_tablet(self, number: int = 0) -> None:
        """Start a tablet server that is stopped, on the same ports and data; do nothing if it runs.

        Waits until the coordinator has noticed the stop: otherwise it would not send the server the buckets that it
        leads.
        """
        if _tablet(number) not in self._processes:
            self.wait_until_ready()
            self._launch(_tablet(number))
            self.wait_until_ready()

    def stop(self) -> None:
        """End all processes and remove the data (unless the directory was given by the caller)."""
        atexit.unregister(self.stop)
        if self in RUNNING:
            RUNNING.remove(self)
        for name in reversed(self._programs):
            process = self._processes.pop(name, None)
            if process is None:
                continue
            process.kill()  # nothing of this cluster is kept, so it need not stop cleanly
            process.wait(STOP_TIMEOUT_SECONDS)
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def log_tails(self, lines: int = 15) -> str:
        """The last lines that each process has written, for error messages."""
        parts = []
        for path in sorted(self.directory.glob("*.log")):
            tail = "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
            parts.append(f"--- {path.name}\n{tail}")
        return "\n".join(parts)

    def __enter__(self) -> ApacheFluss:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, name: str) -> None:
        log4j = f"-Dlog4j.configurationFile={self.directory / 'log4j2.properties'}"
        command = ["java", *self._java_options, *_OPENED_MODULES, log4j, "-cp", f"{self._library}/*"]
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*command, *self._programs[name]], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory
            )
        if name == "zookeeper":
            self._wait_for_zookeeper()

    def _write_configuration(self) -> None:
        for name in ("zookeeper-data", "remote", *list(self._programs)[1:]):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        (self.directory / "zoo.cfg").write_text(
            f"tickTime=2000\ndataDir={self.directory / 'zookeeper-data'}\nclientPort={self._zookeeper_port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
        )
        (self.directory / "log4j2.properties").write_text(
            "rootLogger.level = WARN\nrootLogger.appenderRef.out.ref = Out\n"
            "appender.out.type = Console\nappender.out.name = Out\n"
            "appender.out.layout.type = PatternLayout\nappender.out.layout.pattern = %d %p %c %m%n%throwable\n"
        )
        common = {
            "zookeeper.address": f"127.0.0.1:{self._zookeeper_port}",
            "remote.data.dir": str(self.directory / "remote"),
            "internal.listener.name": "FLUSS",
            "security.protocol.map": "CLIENT:sasl",
            "security.sasl.enabled.mechanisms": "plain",
            "security.sasl.plain.jaas.config": jaas_config(),
            "super.users": "User:admin",
            "default.replication.factor": str(len(self._tablet_ports)),
        }
        tablet_only = {
            "kv.snapshot.interval": "30s",
            # A server that stops asks repeatedly for another one to take its buckets, even if there is none.
            "tablet-server.controlled-shutdown.retry-interval": "10ms",
        }
        coordinator = {**common, **self._config, "bind.listeners": _listeners(self._coordinator_ports)}
        self._write_yaml("coordinator", coordinator)
        for number, ports in enumerate(self._tablet_ports):
            data = self.directory / ("data" if number == 0 else f"data-{number}")
            data.mkdir(exist_ok=True)
            own = {"tablet-server.id": str(number), "data.dir": str(data), "bind.listeners": _listeners(ports)}
            self._write_yaml(_tablet(number), {**common, **tablet_only, **self._config, **own})

    def _write_yaml(self, name: str, values: Mapping[str, str]) -> None:
        lines = "".join(f"{key}: {value}\n" for key, value in values.items())
        (self.directory / name / "server.yaml").write_text(lines)

    def _fail_if_a_process_ended(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} of Apache Fluss ended with code {process.returncode}\n{self.log_tails()}")


def _tablet(number: int) -> str:
    """The name of a tablet server's process, log and configuration."""
    return f"tablet-{number}"


def _listeners(ports: tuple[int, int]) -> str:
    return f"FLUSS://127.0.0.1:{ports[0]}, CLIENT://127.0.0.1:{ports[1]}"


def _serves_as_zookeeper(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"srvr")
            return b"Mode:" in b"".join(iter(lambda: connection.recv(4096), b""))
    except OSError:
        return False


def _listed_tablet_servers(port: int) -> int:
    """The number of tablet servers that a server lists, from a raw frame: no client under test is used here."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(_GET_METADATA_FRAME)
            with connection.makefile("rb") as stream:
                (length,) = struct.unpack(">i", stream.read(4))
                frame = stream.read(length)
    except (OSError, struct.error):
        return -1
    body = frame[5:]
    position = listed = 0
    while position + 1 < len(body) and frame[0] == 0:
        listed += body[position] == 0x12  # field 2, tablet_servers
        position += 2 + body[position + 1]  # server nodes are shorter than 128 bytes: one byte of length
    return listed


def main() -> None:
    """Serve until interrupted; `key=value` arguments are added to the configuration of the servers."""
    config = dict(argument.split("=", 1) for argument in sys.argv[1:])
    with ApacheFluss(config, tablets=int(config.pop("tablets", "1"))) as cluster:
        print(f"plaintext {cluster.bootstrap_servers}, SASL/PLAIN {cluster.sasl_bootstrap_servers}", end=", ")
        print(f"logs in {cluster.directory}, processes {cluster.process_ids}, own id {os.getpid()}", flush=True)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.pause()


if __name__ == "__main__":
    main()
