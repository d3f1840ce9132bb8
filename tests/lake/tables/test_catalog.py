"""Opening the catalog of the lake, in one process and in several at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OPENERS = 4
ROUNDS = 3
OPEN_AT_A_SIGNAL = """
import sys
from pathlib import Path
from fluss.lake.tables.iceberg.catalog import open_catalog

print("ready", flush=True)
for directory in sys.stdin:
    open_catalog({}, Path(directory.strip())).list_namespaces()
    print("opened", flush=True)
"""


@pytest.mark.all
def test_programs_that_open_a_new_catalog_at_the_same_moment(tmp_path: Path) -> None:
    """The server, a tiering service and a reader may all be the first."""
    command, pipe = [sys.executable, "-c", OPEN_AT_A_SIGNAL], subprocess.PIPE
    openers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) for _ in range(OPENERS)]
    try:
        for opener in openers:
            assert opener.stdout is not None
            assert opener.stdout.readline() == "ready\n"
        for number in range(ROUNDS):
            for opener in openers:
                assert opener.stdin is not None
                opener.stdin.write(f"{tmp_path / str(number)}\n")
            for opener in openers:
                assert opener.stdout is not None
                assert opener.stdout.readline() == "opened\n", "this one failed, see its traceback"
    finally:
        for opener in openers:
            opener.communicate()
