"""Two commits of ours in turns: `python -m bench --compare BEFORE AFTER [--client | --kv | ...] [--rounds N] ...`.

A round runs the part once with the code of each commit, each in a process of its own with a fresh server; every second
round starts with the other commit. The result is the ratio of the two within a round, since disturbances of the machine
in that minute affect both: the median of those ratios, and an interval from resampling the rounds (bootstrap). Ratios
are how many times better AFTER is: rates divide one way, times and sizes the other.

The workloads are those of this checkout; only the package comes from the commits, through PYTHONPATH. `.` is the
present code of this checkout. Servers are driven by the client of this checkout, so that only servers are compared; in
all other parts client and server are of the same commit. No peer is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.figures import Figure, machine_text, number, read_run
from bench.record import CHECKOUT, git
from bench.run import WARM_MEGABYTES, warm_page_cache

DEFAULT_ROUNDS = 6
LOWEST_RATIO = 0.95
# With fewer rounds the interval is hardly more than the range of the measurements.
CERTAIN_ROUNDS = 5
DRAWS = 4_000
INTERVAL_SHARE = 0.95
# A measure of the machine, not of our code.
CONTROLS = frozenset({"echo"})
WORKING_TREE = "."
LAST_LINES = 15

ONE_ROUND = ("--rounds", "1", "--warm-megabytes", "0")


@dataclass(frozen=True)
class Part:
    """A part of the benchmarks: its module, and the options that make it measure one round without peers."""

    module: str
    options: tuple[str, ...]


PARTS: dict[str, Part] = {
    "server": Part("run", ("--only-ours", "--starts", "2", *ONE_ROUND)),
    "client": Part("client", ("--only-ours", *ONE_ROUND)),
    "kv": Part("kv", ("--only-ours", *ONE_ROUND)),
    "spark": Part("spark", ONE_ROUND),
    "lake": Part("lake", ONE_ROUND),
    "peers": Part("peers", ONE_ROUND),
    "growth": Part("growth", ()),
    "memory": Part("memory", ()),
    "amplification": Part("amplification", ()),
}

Round = tuple[Mapping[str, Figure], Mapping[str, Figure]]
"""Figures by row, before and after."""


@dataclass(frozen=True)
class Ratio:
    """A row of the comparison: medians of both, and how many times better the second is, with an interval."""

    row: str
    title: str
    unit: str
    before: float
    after: float
    ratio: float
    low: float
    high: float
    rounds: int

    @property
    def is_below(self) -> bool:
        """True if the row counts as slower."""
        return self.row not in CONTROLS and self.ratio < LOWEST_RATIO

    @property
    def is_certain(self) -> bool:
        """True if there were enough rounds, and the interval excludes that the row is as good as before."""
        return self.high < 1 and self.rounds >= CERTAIN_ROUNDS

    @property
    def remark(self) -> str:
        """The text of the last column."""
        if self.row in CONTROLS:
            return "the machine"
        if not self.is_below:
            return ""
        return f"below {LOWEST_RATIO:g}" if self.is_certain else f"perhaps below {LOWEST_RATIO:g}"


def times_better(before: Figure, after: Figure) -> float | None:
    """How many times better `after` is; None if a figure is missing or zero."""
    if before.value <= 0 or after.value <= 0:
        return None
    return after.value / before.value if before.is_rate else before.value / after.value


def interval(values: Sequence[float], draws: int = DRAWS) -> tuple[float, float]:
    """The range of the median of resampled rounds in 95 of 100 cases. Equal values give equal ranges."""
    chance = random.Random(len(values))
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(draws))
    cut = int(draws * (1 - INTERVAL_SHARE) / 2)
    return medians[cut], medians[-cut - 1]


def ratios(rounds: Sequence[Round]) -> list[Ratio]:
    """The rows that both commits have, in the order of the table."""
    found = []
    for row, first in (rounds[0][0] if rounds else {}).items():
        pairs = [(left[row], right[row]) for left, right in rounds if row in left and row in right]
        values = [value for pair in pairs if (value := times_better(*pair)) is not None]
        if values:
            before, after = (statistics.median(pair[side].value for pair in pairs) for side in (0, 1))
            ratio = statistics.median(values)
            found.append(Ratio(row, first.title, first.unit, before, after, ratio, *interval(values), len(values)))
    return found


def markdown(rows: Sequence[Ratio], title: str, before: str, after: str) -> str:
    """The table, and the rows that are below the limit."""
    head = f"| row | | unit | {before} | {after} | times better | 95 % interval | |"
    lines = [title, "", head, "|---" * 8 + "|"]
    for row in rows:
        figures = f"{number(row.before)} | {number(row.after)} | {row.ratio:.3f} | {row.low:.3f} to {row.high:.3f}"
        shown = row.title.replace(f" ({row.unit})", "")
        lines.append(f"| {row.row} | {shown} | {row.unit} | {figures} | {row.remark} |")
    return "\n".join([*lines, "", verdict(rows)])


def verdict(rows: Sequence[Ratio]) -> str:
    """The rows that are below the limit, and those that may be."""
    below = [row.row for row in rows if row.is_below and row.is_certain]
    perhaps = [row.row for row in rows if row.is_below and not row.is_certain]
    said = []
    if below:
        said.append(f"Below {LOWEST_RATIO:g}: {', '.join(below)}.")
    if perhaps:
        said.append(f"Perhaps below {LOWEST_RATIO:g}, more rounds are needed to decide: {', '.join(perhaps)}.")
    return " ".join(said) or f"No row is below {LOWEST_RATIO:g}."


def unpack(commit: str, folder: Path) -> Path:
    """Unpack the package of a commit; return its folder."""
    if commit == WORKING_TREE:
        return CHECKOUT / "src"
    sha = git("rev-parse", "--verify", f"{commit}^{{commit}}")
    target = folder / sha
    if not target.exists():
        packed = folder / f"{sha}.zip"
        git("archive", "--format=zip", f"--output={packed}", sha, "src")
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(target)
        packed.unlink()
    return target / "src"


def measure(part: str, source: Path, arguments: Sequence[str], folder: Path) -> dict[str, Figure]:
    """Run a part once with the package of a folder."""
    written = folder / "figures.json"
    chosen = [] if part == "server" else [f"--{part}"]
    command = [sys.executable, "-m", "bench", *chosen, *PARTS[part].options, *arguments, "--figures-to", str(written)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        said = "\n".join(done.stdout.splitlines()[-LAST_LINES:])
        raise SystemExit(f"bench: the code in {source} ended with code {done.returncode}:\n{said}")
    run, used = read_run(written)
    written.unlink()
    if Path(used) != source:
        raise SystemExit(f"bench: {used} was measured instead of {source}")
    return {figure.row: figure for figure in run.figures}


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options of a comparison, and those that go to the part."""
    parser = argparse.ArgumentParser(
        prog="python -m bench --compare BEFORE AFTER", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help="how often each commit is measured")
    parser.add_argument("--warm-megabytes", type=int, default=WARM_MEGABYTES, help="written and deleted first")
    parser.add_argument("--json", type=Path, help="write all figures of all rounds and the ratios here")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    options, rest = parser.parse_known_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options, rest


def compare(part: str, before: str, after: str, arguments: list[str]) -> list[Ratio]:
    """Measure both commits in turns and print the table."""
    options, rest = parse(arguments)
    folder = Path(tempfile.mkdtemp(prefix="fluss-bench-compare-"))
    rounds: list[Round] = []
    try:
        sources = [unpack(commit, folder) for commit in (before, after)]
        warm_page_cache(folder, options.warm_megabytes)
        for turn in range(options.rounds):
            figures: dict[int, dict[str, Figure]] = {}
            for side in (1, 0) if turn % 2 else (0, 1):
                figures[side] = measure(part, sources[side], rest, folder)
            rounds.append((figures[0], figures[1]))
            print(f"  round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = ratios(rounds)
    names = [_name(commit) for commit in (before, after)]
    title = f"{machine_text()}; {part} {' '.join(rest)}".rstrip() + f", {options.rounds} rounds in turns."
    text = markdown(rows, title, *names)
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(text + "\n", encoding="utf-8")
    if options.json is not None:
        raw = [[{row: figure.value for row, figure in side.items()} for side in one] for one in rounds]
        kept = {"setting": title, "commits": names, "rounds": raw, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return rows


def _name(commit: str) -> str:
    return "this checkout" if commit == WORKING_TREE else git("rev-parse", "--short", f"{commit}^{{commit}}")
