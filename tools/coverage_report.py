"""Runs tests and reports which lines of the package they ran: `python -m tools.coverage_report [arguments of pytest]`.

Servers, commands and workers of Spark are separate processes, most of them forked, some of them killed. Each process
writes its own file when it ends, in a folder that is deleted at the end; a killed process writes nothing, and a torn
file is left out with a warning. So the figures are a lower bound.

Prints lines and branches per package, the public names that no test mentions, and public functions none of whose lines
ran. The exit code is that of pytest, or 1 if a name is printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import coverage

from tools.public_names import ROOT, SOURCE, unexecuted, untouched, usages

FAST = [
    "tests/unit",
    "tests/tidy",
    "tests/contract",
    "-k",
    "not apache and not standalone",
    "-n",
    "2",
    "--dist",
    "loadfile",
]
TOP = "fluss"
# Python 3.14 is the first version whose interpreter monitoring supports branches.
MONITORED_SINCE = (3, 14)

SETTINGS = """\
[run]
branch = true
parallel = true
core = {core}
data_file = {folder}/data
source = {source}
omit = *_pb2.py
patch =
    _exit
    subprocess
disable_warnings = no-data-collected, module-not-imported, module-not-measured
"""


def settings(folder: Path) -> str:
    """The configuration of coverage, with its data in a folder."""
    core = "sysmon" if sys.version_info >= MONITORED_SINCE else "ctrace"
    return SETTINGS.format(core=core, folder=folder, source=SOURCE)


def package_of(path: Path) -> str:
    """The package of a file, directly below the top one."""
    below = path.relative_to(SOURCE).parts
    return f"{TOP}.{below[0]}" if len(below) > 1 else TOP


def by_package(summaries: Mapping[str, Mapping[str, int]]) -> dict[str, Counter[str]]:
    """Add up coverage's figures of files by package."""
    packages: dict[str, Counter[str]] = {}
    for file, summary in sorted(summaries.items()):
        counts = packages.setdefault(package_of(Path(file)), Counter())
        for what in ("num_statements", "covered_lines", "num_branches", "covered_branches"):
            counts[what] += summary[what]
    return packages


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def table(packages: Mapping[str, Counter[str]]) -> str:
    """The figures as a Markdown table, with the total in the last row."""
    rows = ["| package | lines | run | branches | taken |", "|---|---|---|---|---|"]
    everything: Counter[str] = sum(packages.values(), Counter())
    for package, counts in [*sorted(packages.items()), ("all", everything)]:
        lines = f"{counts['num_statements']} | {_share(counts['covered_lines'], counts['num_statements'])}"
        branches = f"{counts['num_branches']} | {_share(counts['covered_branches'], counts['num_branches'])}"
        rows.append(f"| {package} | {lines} | {branches} |")
    return "\n".join(rows)


def _listed(title: str, names: Iterable[str]) -> bool:
    """Print names under a title; return True if there are any."""
    found = list(names)
    print(f"\n{title}: {len(found) or 'none'}")
    for name in found:
        print(f"  {name}")
    return bool(found)


def report(folder: Path, configuration: Path) -> bool:
    """Print the whole report; return True if there are public names that no test uses."""
    measured = coverage.Coverage(config_file=str(configuration))
    measured.combine([str(folder)], strict=False)
    written = folder / "report.json"
    measured.json_report(outfile=str(written))
    files: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))["files"]
    summaries = {str((ROOT / file).resolve()): found["summary"] for file, found in files.items()}
    print(table(by_package(summaries)))
    data = measured.get_data()
    missed, silent = unexecuted(lambda file: data.lines(file) or ())
    for space in silent:
        print(f"\n{space}: no function ran in these tests; its functions are not listed")
    is_missed = _listed("Public functions of which no line ran", missed)
    return _listed("Public names that no test mentions", untouched(usages(ROOT / "tests"))) or is_missed


def main(arguments: list[str]) -> int:
    """Run pytest with the arguments, by default the fast tests, and report."""
    with tempfile.TemporaryDirectory(prefix="fluss-coverage-") as name:
        folder = Path(name)
        configuration = folder / "coverage.ini"
        configuration.write_text(settings(folder), encoding="utf-8")
        command = [sys.executable, "-m", "coverage", "run", f"--rcfile={configuration}", "-m", "pytest"]
        code = subprocess.run([*command, *(arguments or FAST)], cwd=ROOT, env={**os.environ}).returncode
        if not list(folder.glob("data.*")):
            print("no process wrote its coverage")
            return code or 1
        return code if not report(folder, configuration) else code or 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
