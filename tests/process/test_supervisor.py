"""The supervisor alone, with scripted children: start, restart, crash loops, stops."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.process.scripted_supervisor import SAME_STOP_REQUEST_SECONDS, SHORT_HANG_SECONDS
from tools.waiting import patience, wait_until


@contextmanager
def scripted(mode: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.process.scripted_supervisor", mode, str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def starts(directory: Path, role: str) -> list[int]:
    path = directory / f"{role}.starts"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def has_starts(directory: Path, count: int) -> bool:
    return len(starts(directory, "b")) == count


def read_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "all ready\n"


def test_one_ready_line_then_a_clean_stop(tmp_path: Path) -> None:
    with scripted("serve", tmp_path) as process:
        read_ready(process)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=patience(120))
        assert process.returncode == 0
        assert output == ""
        assert "killed" not in errors
    assert len(starts(tmp_path, "a")) == len(starts(tmp_path, "b")) == 1


def test_an_interrupt_to_the_whole_group_is_a_clean_stop_too(tmp_path: Path) -> None:
    with scripted("serve", tmp_path) as process:
        read_ready(process)
        for child in psutil.Process(process.pid).children():
            child.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=patience(120))
        assert process.returncode == 0
        assert "restarting" not in errors


def test_a_killed_child_is_restarted_and_the_ready_line_is_not_repeated(tmp_path: Path) -> None:
    with scripted("serve", tmp_path) as process:
        read_ready(process)
        for killed in range(1, 4):
            os.kill(starts(tmp_path, "b")[-1], signal.SIGKILL)
            wait_until(functools.partial(has_starts, tmp_path, killed + 1), "the child is back")
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=patience(120))
        assert output == ""
        assert errors.count("was killed by signal 9 (SIGKILL); restarting it") == 3
    assert len(starts(tmp_path, "a")) == 1


@pytest.mark.all
def test_a_child_that_never_serves_ends_the_server_after_the_limit(tmp_path: Path) -> None:
    with scripted("crash", tmp_path) as process:
        _, errors = process.communicate(timeout=patience(120))
        assert process.returncode == 1
        assert "it died 10 times before it could serve, so the server stops" in errors
    assert max(len(starts(tmp_path, role)) for role in "ab") == 10


def test_a_child_that_cannot_start_ends_the_server_at_once(tmp_path: Path) -> None:
    with scripted("refuse", tmp_path) as process:
        _, errors = process.communicate(timeout=patience(120))
        assert process.returncode == 1
        assert "cannot start, see the line above; the server stops" in errors
    assert len(starts(tmp_path, "a")) <= 1


def test_children_that_ignore_the_stop_are_killed_after_the_deadline(tmp_path: Path) -> None:
    with scripted("stubborn", tmp_path) as process:
        read_ready(process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=patience(120))
        assert process.returncode == 0
        assert "a, b did not stop in time and will be killed" in errors
    assert not any(psutil.pid_exists(starts(tmp_path, role)[0]) for role in "ab")


def test_simultaneous_signals_are_one_request_and_a_later_one_kills(tmp_path: Path) -> None:
    """Tools like ``timeout`` signal the process and then its group; a user presses Ctrl-C again."""
    with scripted("deaf", tmp_path) as process:
        read_ready(process)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        second_request_at = time.monotonic() + 2 * SAME_STOP_REQUEST_SECONDS
        wait_until(lambda: time.monotonic() >= second_request_at, "the signals are no longer the same request")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=patience(120))
    assert process.returncode == 0
    assert "a, b did not stop in time and will be killed" in errors


def test_the_death_of_the_supervisor_ends_its_children(tmp_path: Path) -> None:
    with scripted("serve", tmp_path) as process:
        read_ready(process)
        children = psutil.Process(process.pid).children()
        assert len(children) == 2
        process.kill()
        _, alive = psutil.wait_procs(children, timeout=patience(120))
        assert alive == []


def test_a_child_that_hangs_shows_its_stacks_and_is_replaced(tmp_path: Path) -> None:
    with scripted("silent", tmp_path) as process:
        read_ready(process)
        wait_until(functools.partial(has_starts, tmp_path, 2), "another child serves instead")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=patience(120))
    silent, _, killed = errors.partition("its stacks follow")
    assert re.search(r"b \(process \d+\): no heartbeat for \d+ s, $", silent)
    assert "in child_main" in killed, "where it hangs"
    assert re.search(r"b \(process \d+\): no heartbeat for \d+ s, killing it; nothing acknowledged is lost", killed)
    assert len(starts(tmp_path, "a")) == 1, "a process that sends heartbeats is left alone"


@pytest.mark.all
def test_a_child_in_recovery_sends_heartbeats_from_a_thread_and_is_not_killed(tmp_path: Path) -> None:
    with scripted("recovering", tmp_path) as process:
        read_ready(process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=patience(120))
    assert "silent" not in errors
    assert len(starts(tmp_path, "b")) == 1


@pytest.mark.all
def test_a_server_that_was_suspended_as_a_whole_continues(tmp_path: Path) -> None:
    with scripted("tight", tmp_path) as process:
        read_ready(process)
        everybody = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
        for each in everybody:
            each.suspend()
        time.sleep(SHORT_HANG_SECONDS + 2)
        for each in everybody:
            each.resume()
        time.sleep(SHORT_HANG_SECONDS)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=patience(120))
    assert "silent" not in errors
    assert len(starts(tmp_path, "a")) == len(starts(tmp_path, "b")) == 1
