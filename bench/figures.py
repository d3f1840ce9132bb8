"""The result of every part of the benchmarks: figures with stable names.

A part returns a `Run`. `bench.record` keeps runs in the repository, `bench.compare` compares those of two commits.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Setting = str | int | float | bool | list[Any] | None

# Settings of output files do not affect figures.
_NOT_SETTINGS = frozenset({"directory", "json", "markdown"})


@dataclass(frozen=True)
class Figure:
    """A row of a table: our figure, those of peers in the same run, and the ratio in the table."""

    row: str
    title: str
    value: float
    unit: str
    peers: Mapping[str, float] = field(default_factory=dict)
    ratio: float | None = None

    @property
    def is_rate(self) -> bool:
        """True if more is better. All other units are times and sizes."""
        return self.unit.endswith("/s")


@dataclass(frozen=True)
class Run:
    """The figures of one part, and its settings from the command line."""

    part: str
    settings: Mapping[str, Setting]
    figures: list[Figure]

    def write(self, path: Path, source: str) -> None:
        """Write the run to a file; `source` is the code that was measured."""
        path.write_text(json.dumps({"source": source, **asdict(self)}, indent=1), encoding="utf-8")


def read_run(path: Path) -> tuple[Run, str]:
    """Read a run that `Run.write` wrote, and the code that was measured."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    return Run(kept["part"], kept["settings"], [Figure(**figure) for figure in kept["figures"]]), kept["source"]


def settings_of(options: argparse.Namespace) -> dict[str, Setting]:
    """The settings of the measurement from the command line."""
    return {name: value for name, value in vars(options).items() if name not in _NOT_SETTINGS}


def number(value: float | None) -> str:
    """Format a figure for tables."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def machine_text() -> str:
    """A short description of the machine, for the line above a table."""
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, load {load:.1f}"


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the files that all parts can write."""
    parser.add_argument("--directory", type=Path, help="where servers keep their data (default: a temporary one)")
    parser.add_argument("--json", type=Path, help="write all figures of all rounds here")
    parser.add_argument("--markdown", type=Path, help="write the table here")


def write_files(options: argparse.Namespace, text: str, title: str, rounds: object) -> None:
    """Write the requested files."""
    if options.markdown is not None:
        options.markdown.write_text(text + "\n", encoding="utf-8")
    if options.json is not None:
        options.json.write_text(json.dumps({"setting": title, "rounds": rounds}, indent=1), encoding="utf-8")
