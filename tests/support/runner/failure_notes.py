"""A pytest plug-in: a test that fails prints what is needed to repeat it.

The seed, the versions of what took part, the command, and the last lines of the logs of the servers that ran.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.runner.lanes import LANE_VARIABLE, SEED_VARIABLE
from tools.peers.apache_fluss import VERSION as APACHE_FLUSS_VERSION
from tools.peers.pyfluss_environment import PYFLUSS_VERSION
from tools.servers.server_logs import latest_logs

PACKAGES = (
    "pyarrow",
    "numpy",
    "protobuf",
    "rocksdict",
    "pyspark",
    "pyiceberg",
    "pandas",
    "polars",
    "uvloop",
    "hypothesis",
)
LOG_LINES = 25
ROOT = Path(__file__).parents[3]


@functools.cache
def versions() -> str:
    """Of Python, of this project, of the packages below it and of the peers."""
    found = [f"Python {platform.python_version()} on {platform.platform()}"]
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    found.append(f"commit {commit.stdout.strip() or 'unknown'}")
    for package in PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {package}")
    java = shutil.which("java")
    if java is not None:
        said = subprocess.run([java, "-version"], capture_output=True, text=True).stderr.splitlines()
        found += [line for line in said if "version" in line]
    found.append(f"peers pyfluss {PYFLUSS_VERSION}, Apache Fluss {APACHE_FLUSS_VERSION}")
    return ", ".join(found)


def _command(item: pytest.Item) -> str:
    """A lane decides how many rounds and examples there are."""
    variables = [f"{name}={os.environ[name]}" for name in (SEED_VARIABLE, LANE_VARIABLE) if name in os.environ]
    return " ".join([*variables, Path(sys.executable).name, "-m", "pytest", "-m", "''", f"'{item.nodeid}'"])


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
        report.sections.append(("To repeat it", f"{_command(item)}\n{versions()}"))
        for path in latest_logs():
            report.sections.append((f"End of {path}", _tail(path)))
    return report
