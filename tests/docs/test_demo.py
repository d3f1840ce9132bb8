"""`python3 dev.py demo`, as a user sees it: calm, complete, and ended by Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.docs.documents import CHECKOUT
from tests.docs.test_examples import PNG_START
from tools.demo import INTERRUPTED, STOPS, is_alive
from tools.waiting import patience, wait_until

DEMO_SECONDS = patience(280)


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The program; all that it keeps for itself is in `folder`."""
    command = [sys.executable, "-m", "tools.demo", *arguments]
    # As dev.py starts it: signals wait from the very beginning.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env={**os.environ, "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def work_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """What it has started by now: server and sensors first, Java and what Java starts after it."""
    return psutil.Process(process.pid).children(recursive=True)


def has_java(processes: list[psutil.Process]) -> bool:
    """Whether one of them is Java by now; others may end while one looks."""
    names = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            names.append(process.name())
    return "java" in names


def empty(folder: Path) -> Path:
    """Where it has its temporary files."""
    made = folder / "temporary"
    made.mkdir()
    return made


def test_what_it_shows(tmp_path: Path) -> None:
    folder, picture = empty(tmp_path), tmp_path / "drawn.png"
    with demo(folder, "--seconds", "2", "--plot", str(picture)) as process:
        printed, _ = process.communicate(timeout=DEMO_SECONDS)
    assert process.returncode == 0, printed
    said = "\n".join(re.sub(r"^ *\d+\.\d s  ", "", line) for line in printed.splitlines())
    total = re.search(r"^all ([\d,]+) readings are averaged", said, re.MULTILINE)
    assert total is not None, printed
    assert int(total[1].replace(",", "")) > 0
    assert re.search(r"^Spark has averaged the first [\d,]+ of them", said, re.MULTILINE)
    assert re.search(r"^ +attic +\d+ +-?\d+\.\d °C +-?\d+\.\d °C$", said, re.MULTILINE), "what Spark computed"
    assert re.search(r"^lookup of attic at \d\d:\d\d:\d\d: -?\d+\.\d °C, in \d+\.\d ms$", said, re.MULTILINE)
    assert f"the picture is {picture}" in said
    assert picture.read_bytes().startswith(PNG_START)
    assert len(said.partition("Next:\n")[2].splitlines()) == 3, "three commands to try"
    for noise in ("WARN", "Traceback", "NOTE: Picked up", " 0 of them"):
        assert noise not in printed
    assert list(folder.iterdir()) == []


def test_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    ends_and_leaves_nothing(tmp_path, "java")


@pytest.mark.all  # more moments
@pytest.mark.parametrize("moment", ["first", "workers", "picture"])
def test_it_ends_at_any_moment(tmp_path: Path, moment: str) -> None:
    ends_and_leaves_nothing(tmp_path, moment)


def ends_and_leaves_nothing(tmp_path: Path, moment: str) -> None:
    """A signal as soon as it has come so far: no process, no file, no traceback."""
    folder = empty(tmp_path)
    with demo(folder, "--seconds", "1", "--plot", str(tmp_path / "drawn.png")) as process:
        assert process.stdout is not None
        started: list[psutil.Process] = []
        if moment == "java":
            wait_until(lambda: has_java(work_of(process)), "Java is starting", DEMO_SECONDS)
        elif moment == "workers":
            wait_until(lambda: len(work_of(process)) > 4, "Java has started workers", DEMO_SECONDS)
        elif moment == "picture":
            while not process.stdout.readline().strip().endswith("in a primary-key table:"):
                assert process.poll() is None
        started = work_of(process)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=DEMO_SECONDS)
    assert process.returncode == INTERRUPTED, printed
    assert "Traceback" not in printed
    assert printed.splitlines()[-1].endswith("are gone")
    assert [child for child in started if is_alive(child.pid)] == []
    assert list(folder.iterdir()) == []
