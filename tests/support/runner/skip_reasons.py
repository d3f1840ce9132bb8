"""A pytest plug-in: at the end of a run, why tests were skipped, and how many for each reason."""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Reports come from all processes of a run, so this is right with pytest-xdist too."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if reasons:
        terminalreporter.section("why tests were skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5} {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    where = report.longrepr  # path, line, "Skipped: " and the reason
    return where[2].removeprefix("Skipped: ") if isinstance(where, tuple) else str(where)
