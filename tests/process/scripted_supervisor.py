"""A supervisor whose children do as they are told: `python -m tests.process.scripted_supervisor MODE DIR`.

Each child appends a line to DIR/<role>.starts. Modes: `serve` (ready at once, until SIGTERM), `stubborn` (ignores
SIGTERM; the supervisor is soon out of patience), `deaf` (the same with a patient supervisor), `crash` (never ready),
`refuse` (exit code for "cannot start").
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from fluss.server.exit_codes import EXIT_CANNOT_START
from fluss.server.supervisor import Supervisor

STUBBORN_DEADLINE_SECONDS = 0.5


def main(mode: str, directory: Path) -> int:
    def child_main(role: str, report_ready: Callable[[], None], life_line: int) -> int:
        starts = directory / f"{role}.starts"
        with starts.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if mode == "refuse":
            return EXIT_CANNOT_START
        if mode == "crash":
            raise RuntimeError("scripted")
        stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda number, frame: None if mode in ("stubborn", "deaf") else stopped.set())
        report_ready()
        threading.Thread(target=lambda: os.read(life_line, 1) or os._exit(70), daemon=True).start()
        stopped.wait()
        return 0

    deadline = STUBBORN_DEADLINE_SECONDS if mode == "stubborn" else 30.0
    return Supervisor(["a", "b"], child_main, "all ready", stop_deadline_seconds=deadline).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
