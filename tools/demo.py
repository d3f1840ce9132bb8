"""`python3 dev.py demo`: shows the whole system at work. `tools/demo_work.py` does the work.

This process draws, and supervises the one that works. That one has its own session of processes: server and client in
one program, Java, Spark's Python workers. Their data is in one temporary folder, and their other output goes to a file
in it, whose last lines are shown if something fails.

Ctrl-C: signals that end programs are blocked from the start and checked between two updates of the screen, so that they
never interrupt anything halfway. Then every process of the session is killed, and the folder is removed when no process
is left to write to it. A clean shutdown is not needed, because nothing is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
LOOK_SECONDS = 0.05
BAR_WIDTH = 24
LAST_LINES = 15
INTERRUPTED = 130

NEXT = """Next:
  .venv/bin/python examples/quickstart.py          a first table in thirty lines
  .venv/bin/fluss server --data my-data            a server that keeps running
  .venv/bin/python examples/lakehouse.py           tables with a lake: Iceberg files, read by DuckDB"""


class Screen:
    """Permanent lines, and on a terminal a progress bar below them."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._moves = stream.isatty()
        self._has_bar = False
        self._start = time.monotonic()

    def say(self, text: str, *, timed: bool = True) -> None:
        """Print a permanent line; with `timed`, after the seconds since the start."""
        self.clear()
        stamp = f"{time.monotonic() - self._start:5.1f} s  " if timed else ""
        print(f"{stamp}{text}", file=self._stream, flush=True)

    def draw(self, share: float, text: str) -> None:
        """Draw the progress bar, on a terminal only."""
        if not self._moves:
            return
        full = round(max(0.0, min(1.0, share)) * BAR_WIDTH)
        line = f"         [{'#' * full}{'-' * (BAR_WIDTH - full)}] {text}"
        self._stream.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
        self._stream.flush()
        self._has_bar = True

    def clear(self) -> None:
        """Remove the bar."""
        if self._has_bar:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._has_bar = False


class Work:
    """The process that does the work, and all processes that it starts."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self.log = folder / "log.txt"
        command = [sys.executable, "-m", "tools.demo_work", str(folder), *arguments]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(folder)},
                stdin=subprocess.PIPE,  # closing it ends the process, even if this one is killed
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def events(self) -> Iterator[dict[str, Any] | None]:
        """The events that the process reports until it ends; None while there are none."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        waiting = b""
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                if selector.select(LOOK_SECONDS):
                    read = os.read(descriptor, 1 << 16)
                    if not read:
                        return
                    *lines, waiting = (waiting + read).split(b"\n")
                    yield from (json.loads(line) for line in lines)
                yield None

    def last_lines(self) -> str:
        """The last lines that the processes wrote to their log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])

    def kill(self) -> int:
        """Kill every process of the session; return the exit code of the first one."""
        while left := self._session():
            for process_id in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process_id, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LOOK_SECONDS)
        return self._process.wait()

    def _session(self) -> list[int]:
        found = []
        for process_id in psutil.pids():
            with contextlib.suppress(OSError, psutil.Error):
                if os.getsid(process_id) == self._process.pid and is_alive(process_id):
                    found.append(process_id)
        return found


def is_alive(process_id: int) -> bool:
    """True if the process exists and is not a zombie."""
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def show(work: Work, screen: Screen) -> int | None:
    """Show events; return None when the work has ended, or the signal that is to end this process."""
    for event in work.events():
        stops = signal.sigpending() & STOPS
        if stops:
            return int(min(stops))
        if event is None:
            continue
        if "say" in event:
            screen.say(event["say"], timed=event.get("timed", True))
        else:
            screen.draw(event["bar"], event["text"])
    return None


def main(arguments: list[str]) -> int:
    """Run the demo; return 0 on success."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    parser = argparse.ArgumentParser(prog="dev.py demo", description="Sensors, a server, Spark, lookups, a picture.")
    parser.add_argument("--seconds", type=float, default=20, help="how long the sensors run (default: 20)")
    parser.add_argument(
        "--plot", type=Path, default=Path("pipeline.png"), help="file for the picture (default: pipeline.png)"
    )
    options = parser.parse_args(arguments)
    screen = Screen(sys.stdout)
    screen.say("Sensors write, Spark averages, you look up. Ctrl-C ends it and leaves nothing behind.\n", timed=False)
    folder = Path(tempfile.mkdtemp(prefix="fluss-"))
    work = None
    try:
        work = Work(folder, [str(options.seconds), str(options.plot.absolute())])
        stopped_by = show(work, screen)
        code = work.kill()
        screen.clear()
        if stopped_by is not None:
            screen.say("ended: the demo's processes, sockets and files are gone")
            return INTERRUPTED
        if code != 0:
            screen.say(f"the demo failed; the last lines of its log:\n\n{work.last_lines()}")
            return 1
    finally:
        if work is not None:
            work.kill()
        shutil.rmtree(folder, ignore_errors=True)
    screen.say(f"\n{NEXT}", timed=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
