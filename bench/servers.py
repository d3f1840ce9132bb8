"""The two servers under test, and the driver processes that generate the load."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from tools.peers.apache_fluss import ApacheFluss
from tools.peers.cache import CHECKOUT
from tools.peers.pyfluss_environment import pyfluss_python
from tools.servers.ports import free_ports
from tools.servers.server_process import ServerProcess

PYFLUSS = "pyfluss"
OUR_CLIENT = "fluss"
# The client of the checkout even if PYTHONPATH has another commit: servers are compared with one client.
CHECKOUT_CLIENT = "fluss of this checkout"


def client_command(client: str) -> tuple[str, str]:
    """The interpreter that has a client, and the client's module with the API of pyfluss."""
    return (str(pyfluss_python()), "fluss") if client == PYFLUSS else (sys.executable, "fluss.aio")


class LoadProcess:
    """A process that generates load: a JSON line for every step, a JSON line of figures for every answer."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._read()

    @property
    def process_id(self) -> int:
        """The process of the client."""
        return self._process.pid

    def call(self, workload: str, **arguments: Any) -> dict[str, Any]:
        """Run a workload; return its figures."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"workload": workload, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise RuntimeError(f"{workload}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the driver ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Driver(LoadProcess):
    """A `bench.driver` process with one of the clients, which runs one step at a time."""

    def __init__(self, bootstrap: str, client: str = PYFLUSS) -> None:
        python, module = client_command(client)
        self.is_ours = client != PYFLUSS
        environment = dict(os.environ)
        if client != OUR_CLIENT:
            environment.pop("PYTHONPATH", None)
        environment.setdefault("RUST_LOG", "off")
        super().__init__([python, "-m", "bench.driver", bootstrap, module], environment)


class Server(ABC):
    """A server that can be started on an empty directory, with its driver; `start` measures itself."""

    name: str

    def __init__(self, directory: Path, client: str = PYFLUSS) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=directory))
        self.bootstrap = ""
        self.driver: Driver | None = None
        self._client = client

    @abstractmethod
    def _launch(self) -> None:
        """Start the processes."""

    @abstractmethod
    def _end(self) -> None:
        """End the processes."""

    @abstractmethod
    def process_ids(self) -> list[int]:
        """All processes of the server."""

    def start(self) -> float:
        """Start; return the seconds until the first table was created.

        The driver runs before the clock starts: it stands for an application, whose imports do not count.
        """
        self.driver = Driver(self.bootstrap, self._client)
        started_at = time.time()
        self._launch()
        return float(self.driver.call("first_table", started_at=started_at)["seconds"])

    def stop(self) -> None:
        """End driver and server and remove the data."""
        if self.driver is not None:
            self.driver.close()
        self._end()
        shutil.rmtree(self.directory, ignore_errors=True)


class OurServer(Server):
    """`fluss server` of this checkout."""

    name = "fluss"

    def __init__(self, directory: Path, tablets: int, flush: str, client: str = PYFLUSS) -> None:
        super().__init__(directory, client)
        (port,) = free_ports(1)
        self.bootstrap = f"127.0.0.1:{port}"
        self._tablets = tablets
        self._flush = flush
        self._server: ServerProcess | None = None

    def _launch(self) -> None:
        config = {"log.flush": self._flush}
        data = self.directory / "data"
        self._server = ServerProcess(data, bind=self.bootstrap, tablets=self._tablets, config=config)

    def _end(self) -> None:
        if self._server is not None:
            self._server.stop()

    def kill(self) -> None:
        """`kill -9` of all processes."""
        assert self._server is not None
        self._server.kill()

    def restart(self) -> None:
        """Start again on the same data after `kill`; return when it listens."""
        assert self._server is not None
        self._server.start()

    def process_ids(self) -> list[int]:
        assert self._server is not None
        try:
            supervisor = psutil.Process(self._server.process.pid)
            return [supervisor.pid, *(child.pid for child in supervisor.children(recursive=True))]
        except psutil.NoSuchProcess:
            return []


class ApacheServer(Server):
    """Apache Fluss with default Java settings."""

    name = "apache"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._cluster = ApacheFluss(directory=self.directory, java_options=())
        self.bootstrap = self._cluster.bootstrap_servers

    def _launch(self) -> None:
        self._cluster.start()

    def _end(self) -> None:
        self._cluster.stop()

    def process_ids(self) -> list[int]:
        return self._cluster.process_ids


def proportional_memory(process_ids: Iterable[int]) -> dict[str, float]:
    """Megabytes of all processes together, shared pages counted once (PSS).

    `anonymous` leaves out mapped files: pages of the page cache that the kernel can reclaim.
    """
    total = anonymous = 0
    for process_id in process_ids:
        for line in Path(f"/proc/{process_id}/smaps_rollup").read_text().splitlines():
            key, _, value = line.partition(":")
            if key == "Pss":
                total += int(value.split()[0])
            elif key == "Pss_Anon":
                anonymous += int(value.split()[0])
    return {"total": total / 1024, "anonymous": anonymous / 1024}
