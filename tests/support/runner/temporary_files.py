"""A pytest plug-in: temporary files of a run are in one folder, which goes with the run.

Tests kill servers, Java machines and test processes, which then clear nothing away. The folder of pytest (`tmp_path`)
stays where it is, so that one can look at it after a failure.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import pytest

JAVA_OPTIONS = "JAVA_TOOL_OPTIONS"


def pytest_configure(config: pytest.Config) -> None:
    """The process that was started makes the folder; those that run tests for it inherit the variables."""
    if hasattr(config, "workerinput"):
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="fluss-tests-")
    # First in, last out: what ends at the end of the process, such as servers, still has its files.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ[JAVA_OPTIONS] = f"{os.environ.get(JAVA_OPTIONS, '')} -Djava.io.tmpdir={folder}".strip()
