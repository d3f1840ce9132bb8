"""A pytest plug-in: a test process that dies costs one test, and leaves nothing behind.

`pytest-xdist` starts another process in its place, which would run the deadly test again, as often as processes may be
replaced (its schedulers by file and scope do not note that the test is over). So a test leaves a file while it runs; a
process that finds such a file of an earlier one fails the test instead of running it.

Servers and Java machines that the dead process had started would go on and take the machine from the others. Every
process of a test run has a variable in its environment, which its children inherit; a small process waits for the death
of the test process and then kills all that have the variable. `python -m tests.support.runner.dead_workers` is that
process.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil
import pytest

from tools.waiting import patience

VARIABLE = "FLUSS_TEST_PROCESS"
POLL_SECONDS = 0.5
KILL_SECONDS = patience(60.0)
REPOSITORY = Path(__file__).parents[3]

_crashed_before: set[str] = set()


def _notes() -> Path | None:
    """The folder shared by the processes of a run; None where there is one process only."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    return Path(tempfile.gettempdir()) / f"fluss-test-run-{run}" if run else None


def _note(nodeid: str) -> Path | None:
    folder = _notes()
    return folder / hashlib.sha256(nodeid.encode()).hexdigest() if folder else None


def pytest_configure(config: pytest.Config) -> None:
    """Mark this process and everything that it will start; the one that only hands out tests starts nothing."""
    if getattr(config.option, "numprocesses", None):
        return
    os.environ[VARIABLE] = uuid.uuid4().hex
    folder = _notes()
    if folder is not None:
        folder.mkdir(exist_ok=True)
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", __name__, str(os.getpid()), os.environ[VARIABLE]]
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    subprocess.Popen(command, cwd=REPOSITORY, env=environment, start_new_session=True, **silent)  # type: ignore[call-overload]


def pytest_unconfigure() -> None:
    """The last process of a run takes the folder away."""
    folder = _notes()
    if folder is not None and folder.exists() and not any(folder.iterdir()):
        folder.rmdir()


def pytest_runtest_logstart(nodeid: str) -> None:
    """From here on the process may die in this test."""
    note = _note(nodeid)
    if note is not None:
        if note.exists():
            _crashed_before.add(nodeid)
        note.parent.mkdir(exist_ok=True)
        note.write_text(nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """It did not."""
    note = _note(nodeid)
    if note is not None:
        note.unlink(missing_ok=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Once is enough."""
    if item.nodeid in _crashed_before:
        pytest.fail("an earlier process died in this test; it is not tried again", pytrace=False)


def kill_all_of(token: str) -> None:
    """Kill until there is none left: they may be about to start others."""
    deadline = time.monotonic() + KILL_SECONDS
    while (found := _processes_of(token)) and time.monotonic() < deadline:
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:  # ended meanwhile, as it should
                continue
        psutil.wait_procs(found, timeout=1)


def _processes_of(token: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(VARIABLE) == token:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # gone, or another user's: not ours in either case
            continue
    return found


def main(parent: int, token: str) -> None:
    """Wait for the death of the test process, clean or not."""
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    kill_all_of(token)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
