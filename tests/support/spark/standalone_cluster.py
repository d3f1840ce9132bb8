"""A Spark cluster of separate processes on this machine: a master and workers, each on a loopback address of its own.

Workers have different addresses because Spark never runs two attempts of a task on the same host. Everything that the
processes write goes to files of the directory; they are ended by their ids.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from fluss.spark.java.java_runtime import prepare_environment
from tools.waiting import patience, wait_until

START_DEADLINE_SECONDS = 240.0
STOP_SECONDS = patience(30.0)
SMALL_HEAP = "256m"


class SparkCluster:
    """A running master, and one worker per host that comes a moment later. Use it in a `with` block."""

    def __init__(
        self,
        directory: Path,
        *,
        hosts: Sequence[str] = ("127.0.0.1", "127.0.0.2"),
        worker_cores: int = 1,
        worker_memory: str = "1g",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        prepare_environment({})
        self._directory = directory
        self._environment = {
            **os.environ,
            "SPARK_DAEMON_MEMORY": SMALL_HEAP,
            "SPARK_WORKER_DIR": str(directory / "work"),
            **(environment or {}),
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._worker_logs: list[Path] = []
        self.master = ""
        try:
            log = self._start("master", hosts[0], "master.Master", "--port", "0", "--webui-port", "0")
            self.master = self._wait_for(log, r"Starting Spark master at (spark://\S+)")
            resources = ("--cores", str(worker_cores), "--memory", worker_memory, "--webui-port", "0")
            for host in hosts:
                log = self._start(f"worker-{host}", host, "worker.Worker", *resources, self.master)
                self._worker_logs.append(log)
        except BaseException:
            self.stop()
            raise

    def wait_for_workers(self) -> None:
        """Until all of them are known to the master. A driver may start meanwhile."""
        for log in self._worker_logs:
            self._wait_for(log, r"(Successfully registered with master)")

    def _start(self, name: str, host: str, main_class: str, *arguments: str) -> Path:
        log = self._directory / f"{name}.log"
        environment = {**self._environment, "SPARK_LOCAL_IP": host}  # web pages and executors listen there too
        command = [f"{environment['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{main_class}"]
        command += ["--host", host, *arguments]
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        self._processes.append(process)
        return log

    def _wait_for(self, log: Path, pattern: str) -> str:
        def found() -> re.Match[str] | None:
            text = log.read_text(errors="replace")
            ended = [process.pid for process in self._processes if process.poll() is not None]
            assert not ended, f"a process of the Spark cluster ended: {text}"
            return re.search(pattern, text)

        match = wait_until(
            found, f"{pattern} in {log}", START_DEADLINE_SECONDS, seen=lambda: log.read_text(errors="replace")
        )
        assert match is not None
        return match.group(1)

    def stop(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> SparkCluster:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
