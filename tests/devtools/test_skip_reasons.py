"""The end of a test run says why tests were skipped, also when several processes have run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT
from tools.waiting import patience

CODE = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_skipped(number):
    pytest.skip("no Java here")

@pytest.mark.skipif(True, reason="on Tuesdays only")
def test_marked(): ...

def test_passes(): ...
"""


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["alone", "two processes"])
def test_the_reasons(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "test_some.py").write_text(CODE, encoding="utf-8")
    plugins = ["-p", "tests.support.runner.skip_reasons", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), *plugins, *options, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience(120))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if "why tests were skipped" in line)
    assert lines[start + 1 : start + 3] == ["    3 no Java here", "    1 on Tuesdays only"]
