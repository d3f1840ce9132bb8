"""The table of the four pairs of client and server, with ratios to pyfluss on Apache Fluss."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bench.figures import Figure, number

OURS_ON_OURS = "fluss on fluss"
OURS_ON_APACHE = "fluss on Apache Fluss"
PYFLUSS_ON_OURS = "pyfluss on fluss"
PYFLUSS_ON_APACHE = "pyfluss on Apache Fluss"
PAIRS = (OURS_ON_OURS, OURS_ON_APACHE, PYFLUSS_ON_OURS, PYFLUSS_ON_APACHE)

Rounds = Mapping[str, Sequence[float]]
"""The figures of all rounds by workload: rows per second, or milliseconds of each lone row."""


@dataclass(frozen=True)
class Measure:
    """A line of the table: its figures, which share of them, and how many times the peer's ours should be.

    If the peer lacks the workload, `against` is the one to compare with. `limit` is a goal that does not depend on the
    peer: at least so many thousand rows per second, or at most so many milliseconds.
    """

    workload: str
    title: str
    share: float | None  # None: the figures are rates and the median counts; else the percentile of times
    goal: float | None
    against: str | None = None
    limit: float | None = None

    @property
    def of_peer(self) -> Measure:
        """The line that has the peer's figure for this one."""
        return self if self.against is None else replace(self, workload=self.against)

    @property
    def row(self) -> str:
        """A stable name of the line: workloads with percentiles have several lines."""
        return self.workload if self.share in (None, 0.5) else f"{self.workload}_p{self.share * 100:g}"

    @property
    def unit(self) -> str:
        """The unit, which is in parentheses in the title."""
        (unit,) = re.findall(r"\((k \w+/s|ms)\)", self.title)
        return str(unit)


MEASURES = (
    Measure("append_arrow", "append Arrow, 16 columns, 0.9 KB rows (k rows/s)", None, 1.0),
    Measure("append_rows", "append rows, dicts of 5 columns (k rows/s)", None, 1.0),
    Measure("scan_all", "scan all 16 columns (k rows/s)", None, 1.5),
    Measure("scan_two", "scan 2 of 16 columns (k rows/s)", None, 1.5),
    Measure("poll_records", "poll records, 5 columns (k rows/s)", None, 1.5),
    Measure("append_arrow_level", "append Arrow, the table names ZSTD level 3 (k rows/s)", None, 1.0),
    Measure("scan_all_level", "scan all, the table names ZSTD level 3 (k rows/s)", None, 1.5),
    Measure("scan_two_level", "scan 2 of 16, the table names ZSTD level 3 (k rows/s)", None, 1.5),
    Measure("append_arrow_plain", "append Arrow, no compression (k rows/s)", None, 1.0),
    Measure("scan_all_plain", "scan all, no compression (k rows/s)", None, 1.5),
    Measure("scan_two_plain", "scan 2 of 16, no compression (k rows/s)", None, 1.5),
    Measure("acknowledged", "one row acknowledged, p50 (ms)", 0.5, 50.0),
    Measure("acknowledged", "one row acknowledged, p99 (ms)", 0.99, None),
    Measure("polled", "one row until a polling scanner has it, p50 (ms)", 0.5, 100.0),
    Measure("polled", "one row until a polling scanner has it, p99 (ms)", 0.99, None),
    Measure("echo", "bare echo on loopback at that time (ms)", 0.5, None),
)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def figure(rounds: Rounds, measure: Measure) -> float | None:
    """The figure of a pair to show, in the unit of the title."""
    values = rounds.get(measure.workload)
    if not values:
        return None
    return statistics.median(values) / 1000 if measure.share is None else percentile(values, measure.share)


def times_faster(ours: float | None, peer: float | None, measure: Measure) -> float | None:
    """How many times faster: rates divide one way, times the other."""
    if not ours or not peer:
        return None
    return ours / peer if measure.share is None else peer / ours


def _verdict(ours: float | None, ratio: float | None, measure: Measure) -> str:
    if measure.limit is not None:
        if ours is None:
            return ""
        is_rate = measure.share is None
        is_reached = ours >= measure.limit if is_rate else ours <= measure.limit
        return f"at {'least' if is_rate else 'most'} {measure.limit:g}, {'reached' if is_reached else 'missed'}"
    if measure.goal is None:
        return ""
    reached = "" if ratio is None else (", reached" if ratio >= measure.goal else ", missed")
    return f"{measure.goal:g}{reached}"


def markdown(figures: Mapping[str, Rounds], title: str, measures: Sequence[Measure] = MEASURES) -> str:
    """The table: four figures, three ratios (how many times faster than pyfluss on Apache Fluss), the goal."""
    ratios = " | ".join(f"{pair}: times" for pair in PAIRS[:3])
    lines = [title.strip(), "", f"| | {' | '.join(PAIRS)} | {ratios} | goal |", "|---" * (len(PAIRS) + 5) + "|"]
    for measure in measures:
        values = {pair: figure(figures.get(pair, {}), measure) for pair in PAIRS}
        if all(value is None for value in values.values()):
            continue
        peer = figure(figures.get(PYFLUSS_ON_APACHE, {}), measure.of_peer)
        faster = [times_faster(values[pair], peer, measure) for pair in PAIRS[:3]]
        if measure.workload == "echo":
            faster = [None] * 3
        cells = [
            *map(number, values.values()),
            *map(number, faster),
            _verdict(values[OURS_ON_OURS], faster[0], measure),
        ]
        lines.append(f"| {measure.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figures_of(figures: Mapping[str, Rounds], measures: Sequence[Measure] = MEASURES) -> list[Figure]:
    """The lines as figures of our client on our server; the other pairs are its peers."""
    rows = []
    for measure in measures:
        values = {pair: figure(figures.get(pair, {}), measure) for pair in PAIRS}
        ours = values.pop(OURS_ON_OURS)
        if ours is None:
            continue
        peer = figure(figures.get(PYFLUSS_ON_APACHE, {}), measure.of_peer)
        ratio = None if measure.workload == "echo" else times_faster(ours, peer, measure)
        peers = {pair: value for pair, value in values.items() if value is not None}
        rows.append(Figure(measure.row, measure.title, ours, measure.unit, peers, ratio))
    return rows
