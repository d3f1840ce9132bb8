"""A pytest plug-in: temporary files of a run are in one folder, which goes with the run.

Tests kill servers, Java machines and test processes, which then clear nothing away. The folder of pytest (`tmp_path`)
stays where it is, so that one can look at it after a failure.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest

JAVA_OPTIONS = "JAVA_TOOL_OPTIONS"

_made: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """The process that was started makes the folder; those that run tests for it inherit the variables."""
    if hasattr(config, "workerinput"):
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="fluss-tests-")
    _made.append(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ[JAVA_OPTIONS] = f"{os.environ.get(JAVA_OPTIONS, '')} -Djava.io.tmpdir={folder}".strip()


def pytest_unconfigure() -> None:
    """Processes that end at this moment may still write: they find nothing, and that is all right."""
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)
