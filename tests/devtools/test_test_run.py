"""The test run itself: tests that hang or kill their process fail, the others run, and no process is left."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from tests.tidy.repository import ROOT
from tools.waiting import patience, wait_until

PLUGINS = [
    "-p",
    "tests.support.runner.time_limits",
    "-p",
    "tests.support.runner.dead_workers",
    "-p",
    "no:cacheprovider",
]
RUN_SECONDS = patience(200)


def run_tests(folder: Path, code: str, *arguments: str, limit_seconds: float) -> str:
    """Run the tests of a file as `dev.py` does; return what was printed, errors included."""
    (folder / "test_some.py").write_text(textwrap.dedent(code), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), *PLUGINS]
    ours = ("PYTEST_", "FLUSS_TEST_")  # of the run that this test belongs to
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    environment |= {"FLUSS_TEST_LIMIT_SECONDS": str(limit_seconds), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *arguments, str(folder)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_SECONDS,
    )
    assert done.returncode == 1, done.stdout
    return done.stdout


HANGING = """
    import threading

    import pytest

    def hang():
        threading.Event().wait()

    @pytest.fixture
    def hangs_at_first():
        hang()

    @pytest.fixture
    def hangs_at_last():
        yield
        hang()

    def test_set_up(hangs_at_first): ...
    def test_call():
        try:
            hang()
        except Exception:  # code that tries again after errors
            hang()
    def test_tear_down(hangs_at_last): ...
    def test_afterwards(): ...
"""


@pytest.mark.all
def test_every_phase_of_a_test_has_a_limit(tmp_path: Path) -> None:
    printed = run_tests(tmp_path, HANGING, limit_seconds=3)
    assert "1 failed, 2 passed, 2 errors" in printed
    for phase, name in (("set-up", "test_set_up"), ("call", "test_call"), ("tear-down", "test_tear_down")):
        assert f"{phase} of test_some.py::{name} runs for" in printed
        assert f"TestHangsError: {phase}: no result after" in printed
    assert printed.count("in hang\n") >= 6, "stacks are shown at half time and at the end"


DEADLY = """
    import ctypes, os, pathlib, signal, subprocess, time

    import pytest

    def deaths():
        os.kill(os.getpid(), signal.SIGKILL)

    def is_deaf():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # as foreign code that never looks at signals
        ctypes.PyDLL(None).sleep(600)  # and lets no other thread of Python run

    @pytest.mark.parametrize("number", range(4))
    def test_some(number):
        if number == 2:
            with pathlib.Path("children").open("a") as file:
                print(subprocess.Popen(["sleep", "600"]).pid, file=file)
            WAY()
"""


@pytest.mark.parametrize(("way", "limit_seconds"), [("deaths", 60), pytest.param("is_deaf", 2, marks=pytest.mark.all)])
def test_a_process_that_dies_costs_one_test_and_leaves_nothing(tmp_path: Path, way: str, limit_seconds: float) -> None:
    two = ["-n", "2", "--dist", "loadfile"]
    printed = run_tests(tmp_path, DEADLY.replace("WAY", way), *two, limit_seconds=limit_seconds)
    assert "1 failed, 3 passed, 1 error" in printed
    assert "an earlier process died in this test" in printed
    (child,) = (int(line) for line in (tmp_path / "children").read_text().split())
    wait_until(lambda: not psutil.pid_exists(child), "the child of the dead process is killed")
