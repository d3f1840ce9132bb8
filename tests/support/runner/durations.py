"""A pytest plug-in: `--times` prints where the time of a run went, by folder, file and test."""

from __future__ import annotations

from collections import defaultdict

import pytest

FILES = 40
TESTS = 40


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option."""
    parser.addoption("--times", action="store_true", help="print where the time went, by folder, file and test")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tables of seconds; those of all processes together."""
    if not config.getoption("times"):
        return
    tests: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):  # set-up and tear-down count too
                tests[report.nodeid] += report.duration
    folders: dict[str, float] = defaultdict(float)
    files: dict[str, float] = defaultdict(float)
    for nodeid, seconds in tests.items():
        file = nodeid.partition("::")[0]
        files[file] += seconds
        folders["/".join(file.split("/")[:2])] += seconds
    for title, table, most in (("folder", folders, len(folders)), ("file", files, FILES), ("test", tests, TESTS)):
        terminalreporter.write_line(f"\n| {title} | seconds |\n|---|---|")
        for name in sorted(table, key=lambda name: -table[name])[:most]:
            terminalreporter.write_line(f"| {name} | {table[name]:.1f} |")
    terminalreporter.write_line(f"\n{sum(tests.values()):.0f} s in all test processes together")
