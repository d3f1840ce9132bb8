"""The examples with Spark run as a newcomer runs them: a process of its own, a server inside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.documents import CHECKOUT
from tools.waiting import patience

EXAMPLE_SECONDS = patience(280)
PNG_START = b"\x89PNG\r\n\x1a\n"


def run_example(folder: Path, name: str, *arguments: str) -> str:
    """What the program prints on standard output; Spark and Java write to the other one."""
    command = [sys.executable, str(CHECKOUT / "examples" / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=EXAMPLE_SECONDS)
    assert done.returncode == 0, "\n".join([*_causes(done.stderr), done.stderr[-4000:]])
    assert "Traceback" not in done.stderr
    return done.stdout


def _causes(stderr: str) -> list[str]:
    """The beginnings of Java's long stories."""
    return [line for line in stderr.splitlines() if "Caused by" in line or "Serialization stack" in line]


@pytest.mark.all  # the demo is made of the same parts, see test_demo.py
def test_the_pipeline(tmp_path: Path) -> None:
    printed = run_example(tmp_path, "pipeline.py", "--seconds", "4", "--plot", "drawn.png").splitlines()
    readings = printed[-1].partition("all ")[2].partition(" readings")[0]
    assert int(readings.replace(",", "")) > 0
    assert f"{readings} readings, " in printed[-2], "the last progress line has them all"
    assert "attic at" in printed[-2], "and a lookup"
    assert (tmp_path / "drawn.png").read_bytes().startswith(PNG_START)


@pytest.mark.all  # README has nearly the same, see test_readme.py
def test_the_lakehouse(tmp_path: Path) -> None:
    assert run_example(tmp_path, "lakehouse.py").splitlines() == [
        "in the lake, by duckdb:",
        "  Oslo: 500 orders, 62500.00",
        "  Paris: 500 orders, 62375.00",
        "lake and log: 1010 orders",
        "  of them in the lake: 1000",
        "  bob is in Rome",
        "in the lake, after another round:",
        "  Paris: 505 orders, 63630.00",
        "  Rome: 505 orders, 63756.25",
    ]


@pytest.mark.all  # two more Java machines
def test_the_declarative_pipeline(tmp_path: Path) -> None:
    first, second = run_example(tmp_path, "declarative_pipeline.py").split("run 2\n")
    assert first.splitlines() == [
        "run 1",
        "  paid orders: [1]",
        "  last order of ada: number 1 over 9.50",
        "  last order of bob: number 2 over 3.00",
    ]
    assert second.splitlines() == [
        "  paid orders: [1, 3]",
        "  last order of ada: number 3 over 7.25",
        "  last order of bob: number 2 over 3.00",
    ]
