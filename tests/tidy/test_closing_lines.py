"""`dev.py test --all` can repeat the closing lines of all its runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.runner.closing_lines import FILE_VARIABLE
from tests.tidy.repository import ROOT

TESTS = """
import os, pytest

def test_good(): assert "FLUSS_TEST_CLOSING_LINES" not in os.environ
def test_bad(): assert False
def test_left_out(): pytest.skip("no reason")
"""


@pytest.mark.parametrize("processes", [[], pytest.param(["-n", "2"], marks=pytest.mark.all)], ids=["one", "several"])
def test_every_run_adds_its_counts_to_the_file(tmp_path: Path, processes: list[str]) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    lines = tmp_path / "lines"
    lines.write_text("of another run\n")
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "-c", os.devnull, *processes]
    command += ["-p", "tests.support.runner.closing_lines", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), FILE_VARIABLE: str(lines)}
    subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    first, said = lines.read_text(encoding="utf-8").splitlines()
    assert first == "of another run"
    assert said.rpartition(" in ")[0] == f"{Path(sys.prefix).name}: 1 failed, 1 passed, 1 skipped"
