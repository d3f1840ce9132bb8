"""A supervisor with scripted children: `python -m tests.process.scripted_supervisor MODE DIR`.

Each child appends a line to DIR/<role>.starts. Modes: `serve` (ready at once, until SIGTERM), `stubborn` (ignores
SIGTERM; the supervisor is soon out of patience), `deaf` (the same with a patient supervisor), `crash` (never ready),
`refuse` (exit code for "cannot start"), `silent` (the first `b` serves and never beats again), `tight` (as `serve`),
`recovering` (`b` is busy for longer than a hang takes before it serves). In the last three a child hangs after a few
seconds without a beat.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from fluss.server.process import supervisor
from fluss.server.process.supervisor import HANG_SECONDS, Supervisor
from fluss.server.runtime.exit_codes import EXIT_CANNOT_START
from fluss.server.runtime.heartbeat import BEAT_SECONDS, HeartbeatSender

STUBBORN_DEADLINE_SECONDS = 0.5
SHORT_HANG_SECONDS = 12.0  # longer than any pause between heartbeats, even on a busy machine
SAME_STOP_REQUEST_SECONDS = 2.0


def main(mode: str, directory: Path) -> int:
    def child_main(role: str, heart: HeartbeatSender, life_line: int) -> int:
        starts = directory / f"{role}.starts"
        with starts.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if mode == "refuse":
            return EXIT_CANNOT_START
        if mode == "crash":
            raise RuntimeError("scripted")
        stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda number, frame: None if mode in ("stubborn", "deaf") else stopped.set())
        if mode == "recovering" and role == "b":
            heart.beat_while_starting()
            time.sleep(SHORT_HANG_SECONDS + 2)  # its only loop does nothing else
        heart.ready()
        threading.Thread(target=lambda: os.read(life_line, 1) or os._exit(70), daemon=True).start()
        while not stopped.wait(BEAT_SECONDS):
            if mode != "silent" or role != "b" or len(starts.read_text().splitlines()) > 1:
                heart.beat_once()
        return 0

    deadline = STUBBORN_DEADLINE_SECONDS if mode == "stubborn" else 30.0
    hang = SHORT_HANG_SECONDS if mode in ("silent", "tight", "recovering") else HANG_SECONDS
    supervisor.SAME_STOP_REQUEST_SECONDS = SAME_STOP_REQUEST_SECONDS
    return Supervisor(["a", "b"], child_main, "all ready", deadline, hang).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
