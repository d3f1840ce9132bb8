"""A pytest plug-in: the closing line of a run also goes to a file, so that who starts several runs can repeat them all.

`python3 dev.py test --all` runs pytest in one environment after the other, and the first line is minutes above the end.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

FILE_VARIABLE = "FLUSS_TEST_CLOSING_LINES"
_started = time.monotonic()
_file: str | None = None


def pytest_configure() -> None:
    """Runs that tests start, and the other processes of this one, have nothing to say here."""
    global _file
    _file = os.environ.pop(FILE_VARIABLE, None)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The environment and what is in the closing line: counts, reruns, seconds."""
    if _file is None:
        return
    parts, _ = terminalreporter.build_summary_stats_line()
    counts = ", ".join(text for text, _ in parts)
    with Path(_file).open("a", encoding="utf-8") as lines:
        lines.write(f"{Path(sys.prefix).name}: {counts} in {time.monotonic() - _started:.0f} s\n")
