"""A pytest plug-in: a test that fails prints what is needed to repeat it.

The seed, the versions of what took part, the command, and the last lines of the logs of the servers that ran.
"""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.lanes import SEED_VARIABLE, seed

PACKAGES = ("pyarrow", "numpy", "protobuf", "rocksdict", "pyspark", "pyiceberg", "pandas", "polars", "hypothesis")
LOG_LINES = 25
LOGS = 4
ROOT = Path(__file__).parents[2]

_logs: list[Path] = []


def watch_log(path: Path) -> None:
    """A server writes to this file from now on."""
    if path not in _logs:
        _logs.append(path)


@functools.cache
def versions() -> str:
    """Of Python, of this project and of the packages below it."""
    found = [f"Python {platform.python_version()} on {platform.platform()}"]
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    found.append(f"commit {commit.stdout.strip() or 'unknown'}")
    for package in PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


def _tail(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        return f"(cannot be read: {error})"
    return "\n".join(lines[-LOG_LINES:])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the notes to a report of a failure."""
    report = yield
    if report.failed:
        command = f"{SEED_VARIABLE}={seed()} {Path(sys.executable).name} -m pytest '{item.nodeid}'"
        report.sections.append(("To repeat it", f"{command}\n{versions()}"))
        for path in [path for path in _logs if path.exists()][-LOGS:]:
            report.sections.append((f"End of {path}", _tail(path)))
    return report
