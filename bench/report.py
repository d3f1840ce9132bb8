"""The table of ratios, from medians."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.figures import Figure, number

AT_LEAST = "at least"
AT_MOST = "at most"

# workload, title, unit, divisor for printing, kind of goal, goal of ours / Apache Fluss (None: for information)
_WORKLOADS: tuple[tuple[str, str, str, float, str, float | None], ...] = (
    ("append_arrow_zstd", "append Arrow, 16 columns, 0.9 KB rows", "k rows/s", 1000, AT_LEAST, 1.0),
    ("append_arrow_plain", "the same, table without compression", "k rows/s", 1000, AT_LEAST, 1.0),
    ("append_rows", "append rows, dicts of 5 columns", "k rows/s", 1000, AT_LEAST, 1.0),
    ("scan_all_zstd", "scan all 16 columns", "k rows/s", 1000, AT_LEAST, 1.0),
    ("scan_all_plain", "the same, table without compression", "k rows/s", 1000, AT_LEAST, 1.0),
    ("scan_two_zstd", "scan 2 of 16 columns", "k rows/s", 1000, AT_LEAST, 1.0),
    ("scan_two_plain", "the same, table without compression", "k rows/s", 1000, AT_LEAST, 1.0),
    ("lone_polled", "one row until a polling scanner has it", "ms", 1, AT_MOST, 1.0),
    ("lone_acknowledged", "one row until it is acknowledged", "ms", 1, AT_MOST, None),
    ("start", "start until the first table is created", "s", 1, AT_MOST, 0.1),
    ("memory_idle", "memory idle (PSS of all processes)", "MB", 1, AT_MOST, 0.5),
    ("memory_loaded", "memory after the load (PSS)", "MB", 1, AT_MOST, 0.5),
    ("memory_loaded_anonymous", "memory after the load, without mapped files", "MB", 1, AT_MOST, None),
    ("echo", "bare echo on loopback at that time", "ms", 1, AT_MOST, None),
)


@dataclass(frozen=True)
class Line:
    """One row of the table; `ratio` is ours / Apache Fluss."""

    workload: str
    title: str
    unit: str
    ours: float | None
    apache: float | None
    ratio: float | None
    goal: str
    reached: bool | None


def summary(ours: Callable[[str], float | None], apache: Callable[[str], float | None]) -> list[Line]:
    """Compare medians; figures that were not measured are empty."""
    lines = []
    for workload, title, unit, divisor, kind, goal in _WORKLOADS:
        left, right = ours(workload), apache(workload)
        ratio = left / right if left is not None and right else None
        reached = None
        if ratio is not None and goal is not None:
            reached = ratio >= goal if kind == AT_LEAST else ratio <= goal
        lines.append(
            Line(
                workload,
                title,
                unit,
                None if left is None else left / divisor,
                None if right is None else right / divisor,
                ratio,
                "" if goal is None else f"{kind} {goal:g}",
                reached,
            )
        )
    return lines


def markdown(lines: list[Line], title: str) -> str:
    """The table as Markdown."""
    rows = [
        title.strip(),
        "",
        "| workload | unit | fluss | Apache Fluss | ratio | goal | |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        mark = {None: "", True: "reached", False: "missed"}[line.reached]
        ratio = "-" if line.ratio is None else f"{line.ratio:.2f}"
        figures = f"{number(line.ours)} | {number(line.apache)} | {ratio}"
        rows.append(f"| {line.title} | {line.unit} | {figures} | {line.goal} | {mark} |")
    return "\n".join(rows)


def figures_of(lines: list[Line]) -> list[Figure]:
    """The rows of the table as figures."""
    figures = []
    for line in lines:
        if line.ours is not None:
            peers = {} if line.apache is None else {"Apache Fluss": line.apache}
            figures.append(Figure(line.workload, line.title, line.ours, line.unit, peers, line.ratio))
    return figures
