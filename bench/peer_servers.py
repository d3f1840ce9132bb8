"""Apache Kafka and Redis for `bench --peers`: fetched, started, and configured to sync or not.

Kafka's jars come from Maven Central; Redis is the one on the PATH or, on Debian, that of its packages, unpacked into
the cache without installing them; the clients of both are wheels in a separate environment. If something cannot be
fetched, `PeerMissingError` is raised, whose message becomes the reason of the skip.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from pathlib import Path

from bench.servers import LoadProcess
from tools.peers.cache import PeerMissingError, make_once, run_fetch
from tools.servers.ports import free_ports

KAFKA, REDIS = "Kafka", "Redis"
KAFKA_VERSION = "4.1.0"
CLIENTS = ("confluent-kafka==2.12.2", "redis==7.1.0", "hiredis==3.3.0")
REDIS_PACKAGES = ["redis-server", "redis-tools", "libjemalloc2", "liblzf1", "liblua5.1-0", "lua-cjson", "lua-bitop"]
REDIS_PACKAGES += ["libatomic1", "libhiredis0.14"]
START_SECONDS = 60.0
STOP_SECONDS = 20.0
RETRY_SECONDS = 0.05
QUIET_LOG = """<Configuration status="off"><Loggers><Root level="off"/></Loggers></Configuration>"""
KAFKA_SETTINGS = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
log.dirs={data}
offsets.topic.replication.factor=1
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
"""


def client_python() -> Path:
    """The interpreter of the environment with the clients of Kafka and Redis."""
    interpreter = f"{sys.version_info.major}.{sys.version_info.minor}"

    def make(folder: Path) -> None:
        run_fetch([sys.executable, "-m", "venv", "--clear", str(folder)], "no virtual environment for Kafka and Redis")
        python = str(folder / "bin" / "python")
        options = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
        run_fetch([python, "-m", "pip", "install", *options, *CLIENTS], f"pip could not fetch {', '.join(CLIENTS)}")

    name = "-".join(package.replace("==", "-") for package in CLIENTS)
    return make_once(f"{name}-python{interpreter}", make, "bin/python") / "bin" / "python"


def kafka_library() -> Path:
    """The folder with Kafka's jars."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise PeerMissingError(f"Kafka needs Java, and is fetched with Maven: no `{program}` on the path")

    def fetch(folder: Path) -> None:
        pom = Path(__file__).with_name("kafka_pom.xml")
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        command = ["mvn", "-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={folder}"]
        run_fetch(command, f"Kafka {KAFKA_VERSION} could not be fetched with Maven")

    return make_once(f"kafka-{KAFKA_VERSION}", fetch, f"kafka_2.13-{KAFKA_VERSION}.jar")


def redis_command() -> tuple[str, dict[str, str]]:
    """The program, and the variables that it needs."""
    installed = shutil.which("redis-server")
    if installed is not None:
        return installed, {}
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise PeerMissingError(f"Redis: no `redis-server` on the path, and no `{program}` to fetch Debian's")

    def fetch(folder: Path) -> None:
        what = "Redis: no `redis-server` on the path, and Debian's packages could not be fetched"
        run_fetch(["sh", "-c", 'cd "$0" && exec apt-get download -qq "$@"', str(folder), *REDIS_PACKAGES], what)
        for package in folder.glob("*.deb"):
            run_fetch(["dpkg-deb", "-x", str(package), str(folder)], what)
        program, variables = unpacked(folder)
        settings = [f"{name}={value}" for name, value in variables.items()]
        run_fetch(["env", *settings, program, "--version"], "Redis: Debian's program does not run here")

    return unpacked(make_once("redis-debian", fetch, "usr/bin/redis-server"))


def unpacked(folder: Path) -> tuple[str, dict[str, str]]:
    """The program in unpacked packages, and where its libraries are."""
    libraries = {str(path.parent) for path in (folder / "usr" / "lib").rglob("*.so*")}
    return str(folder / "usr" / "bin" / "redis-server"), {"LD_LIBRARY_PATH": os.pathsep.join(sorted(libraries))}


def redis_version() -> str:
    """The version of the Redis program."""
    program, variables = redis_command()
    done = subprocess.run([program, "--version"], capture_output=True, text=True, env={**os.environ, **variables})
    return done.stdout.partition(" v=")[2].partition(" ")[0]


class PeerServer(ABC):
    """A server in its own folder; `start` returns when its port is open and its client runs."""

    name: str

    def __init__(self, directory: Path) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.name.lower()}-", dir=directory))
        self.port = free_ports(1)[0]
        self._processes: list[subprocess.Popen[bytes]] = []
        self.driver: LoadProcess | None = None

    @abstractmethod
    def _launch(self) -> None:
        """Start the processes."""

    def start(self) -> None:
        """Start server and client."""
        self._launch()
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                if time.monotonic() > deadline or any(process.poll() is not None for process in self._processes):
                    raise PeerMissingError(f"{self.name} did not start: {self._last_line()}") from None
                time.sleep(RETRY_SECONDS)
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        command = [str(client_python()), "-m", "bench.peer_driver", self.name, str(self.port)]
        self.driver = LoadProcess(command, environment)

    def stop(self) -> None:
        """End everything, remove the data."""
        if self.driver is not None:
            self.driver.close()
        for process in self._processes:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, command: list[str], variables: dict[str, str] | None = None) -> None:
        with (self.directory / "log.txt").open("ab") as log:
            environment = {**os.environ, **(variables or {})}
            self._processes.append(
                subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log, env=environment)
            )

    def _last_line(self) -> str:
        lines = (self.directory / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.strip()), "its log is empty")


class KafkaServer(PeerServer):
    """One broker that is its own controller (KRaft), with the default settings of Kafka and Java."""

    name = KAFKA

    def __init__(self, directory: Path) -> None:
        self._library = kafka_library()
        client_python()
        super().__init__(directory)

    def _launch(self) -> None:
        (controller,) = free_ports(1)
        settings = self.directory / "server.properties"
        data = self.directory / "data"
        settings.write_text(KAFKA_SETTINGS.format(port=self.port, controller=controller, data=data), encoding="utf-8")
        (self.directory / "log4j2.xml").write_text(QUIET_LOG, encoding="utf-8")
        java = ["java", f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}", "-cp", f"{self._library}/*"]
        form = ["kafka.tools.StorageTool", "format", "--standalone", "-t", _cluster_id(), "-c", str(settings)]
        run_fetch([*java, *form], "Kafka's storage could not be formatted")
        self._run([*java, "kafka.Kafka", str(settings)])


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class RedisServer(PeerServer):
    """One server with an append-only file, synced before each answer (`always`) or by the system (`no`)."""

    name = REDIS

    def __init__(self, directory: Path, fsync: str) -> None:
        self._program, self._variables = redis_command()
        client_python()
        super().__init__(directory)
        self._fsync = fsync

    def _launch(self) -> None:
        settings = {"port": self.port, "bind": "127.0.0.1", "dir": self.directory, "save": ""}
        settings |= {"appendonly": "yes", "appendfsync": self._fsync}
        words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        self._run([self._program, *words], self._variables)
