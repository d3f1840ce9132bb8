"""`fluss server` as real processes: started, watched, killed, stopped.

`ServerProcess` starts the command and waits for its ready line. Standard error goes to a file, so that a server never
blocks on a full pipe and a failed test can show the server's log.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil

from tools.servers.ports import free_ports
from tools.servers.server_logs import watch_log
from tools.waiting import patience, wait_until

START_DEADLINE_SECONDS = patience(120.0)
STOP_DEADLINE_SECONDS = patience(90.0)

LOOPBACK = "127.0.0.1"
COMMAND = (sys.executable, "-m", "fluss.cli.main")


class ServerFailedError(AssertionError):
    """The server ended before it was ready; the message has its standard error."""


class ServerProcess:
    """A `fluss server`, started by the constructor and by `start` after `kill` or `stop`.

    The end of a `with` block stops it cleanly, or kills it after an error. `config` are options of the server by name.
    By default it listens on a free port, the same one after every start.
    """

    def __init__(
        self,
        data: Path,
        *arguments: str,
        bind: str | None = LOOPBACK,
        tablets: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        self.log_path = data.parent / f"{data.name}.log"
        watch_log(self.log_path)
        self._command: list[str] = [*COMMAND, "server", "--data", str(data), *arguments]
        if bind == LOOPBACK:
            bind = f"{LOOPBACK}:{free_ports(1)[0]}"
        if bind is not None:
            self._command += ["--bind", bind]
        if tablets is not None:
            self._command += ["--tablets", str(tablets)]
        for name, value in (config or {}).items():
            self._command += ["--option", f"{name}={value}"]
        self.start()

    def start(self) -> None:
        """Start the command and wait for its ready line."""
        started_at = time.monotonic()
        with self.log_path.open("ab") as log_file:
            self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log_file, text=True)
        self.ready_line = self._wait_ready()
        self.ready_seconds = time.monotonic() - started_at

    def _wait_ready(self) -> str:
        stream = self.process.stdout
        assert stream is not None
        watchdog = threading.Timer(START_DEADLINE_SECONDS, self.process.kill)
        watchdog.start()
        try:
            line = stream.readline()
        finally:
            watchdog.cancel()
        if not line:
            code = self.process.wait()
            raise ServerFailedError(f"the server ended with exit code {code} before it was ready\n{self.log_text()}")
        return line.strip()

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses (host:port) by listener name, from the ready line."""
        return dict(re.findall(r"(\w+)://([^\s,]+)", self.ready_line))

    @property
    def address(self) -> str:
        """host:port of the first listener."""
        return next(iter(self.addresses.values()))

    def log_text(self) -> str:
        """The standard error of the server so far."""
        return self.log_path.read_text(errors="replace")

    def process_of(self, role: str) -> psutil.Process | None:
        """The child process with a role ("coordinator", "tablet-0"), if it runs."""
        for child in psutil.Process(self.process.pid).children():
            try:
                if child.name() == f"fluss-{role}"[:15] and child.status() != psutil.STATUS_ZOMBIE:
                    return child
            except psutil.NoSuchProcess:
                continue
        return None

    def kill_role(self, role: str) -> int:
        """`kill -9` the process of one role; return its id."""
        child = self.process_of(role)
        assert child is not None, f"{role} does not run"
        os.kill(child.pid, signal.SIGKILL)
        return int(child.pid)

    def kill(self) -> None:
        """`kill -9` the supervisor and every role at once, as if the system ended all processes of the user."""
        children = psutil.Process(self.process.pid).children()
        self.process.kill()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self.process.wait()
        wait_until(lambda: not any(map(_is_alive, children)), "the killed processes are gone")
        self._close_output()

    def kill_child(self, number: int) -> int:
        """`kill -9` a child by its number: 0 is the coordinator, the others are the tablets. Return its id."""
        role = "coordinator" if number == 0 else f"tablet-{number - 1}"
        wait_until(lambda: self.process_of(role), f"{role} runs")
        return self.kill_role(role)

    def stop(self) -> int:
        """Send SIGTERM, wait until the server ends, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_DEADLINE_SECONDS)
        self._close_output()
        return code

    def _close_output(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def run_command(arguments: Sequence[str], deadline_seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run a `fluss` command to its end."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=patience(deadline_seconds))


def _is_alive(process: psutil.Process) -> bool:
    """True unless the process has ended. A zombie counts as ended, because it holds no resources."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
