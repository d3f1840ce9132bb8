"""The table of the Spark benchmark: every line with its baseline of the same run and its goals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.figures import Figure, number

FASTER_THAN_SCALA = 5.0


@dataclass(frozen=True)
class Measure:
    """A line: our figure, its baseline, and its goals.

    Rates (k rows/s) must be at least, times (ms) at most, `goal` times the floor; and `FASTER_THAN_SCALA` times better
    than `scala`, the figure of Apache Fluss's connector for Spark 3.5 on two cores (issue 6), in the unit of the line.
    """

    name: str
    title: str
    unit: str
    floor: str | None = None
    floor_title: str = ""
    goal: float | None = None
    scala: float | None = None

    @property
    def is_rate(self) -> bool:
        return self.unit == "k rows/s"


PARQUET, COUNTING = "native Parquet", "a writer that only counts"
MEASURES = (
    Measure("read_all", "batch read, all 16 columns", "k rows/s", "parquet_all", PARQUET, 0.6, 150),
    Measure("read_two", "batch read, 2 of 16 columns", "k rows/s", "parquet_two", PARQUET, None, 200),
    Measure("write", "batch write, 16 columns", "k rows/s", "counting", COUNTING, 0.7, 70),
    Measure("write_plain", "the same, at-least-once", "k rows/s", "counting", COUNTING),
    Measure("parquet_write", "Spark writes the same as Parquet", "k rows/s", "counting", COUNTING),
    Measure("key_write", "primary-key write, 5 columns", "k rows/s", "counting_keys", COUNTING, None, 100),
    Measure("key_read", "primary-key read, 5 columns", "k rows/s", "parquet_keys", PARQUET, None, 100),
    Measure("wide_key_write", "primary-key write, 16 columns", "k rows/s", "counting", COUNTING),
    Measure("wide_key_read", "primary-key read, 16 columns", "k rows/s", "parquet_all", PARQUET),
    Measure("stream_noop", "stream, 16 columns, to a sink that does nothing", "k rows/s", "parquet_stream", PARQUET),
    Measure("stream_sink", "stream, 16 columns, to a log table", "k rows/s", "stream_counting", COUNTING),
    Measure("one_row", "query of a table with one row", "ms", "parquet_one_row", PARQUET, None, 6300),
    Measure("one_key", "query for one key of a primary-key table", "ms", None, "", None, 6300),
    Measure("seen", "one row until foreachBatch sees it", "ms", None, "", None, 2200),
    Measure("tiny", "micro-batch of 10 rows", "ms", "idle", "a Python source without rows", 1.3),
)

Rounds = Mapping[str, Sequence[float]]


def median(rounds: Rounds, name: str | None) -> float | None:
    """The figure to compare, if there is one."""
    return statistics.median(rounds[name]) if name is not None and rounds.get(name) else None


def verdict(is_rate: bool, figure: float, goal: float) -> str:
    """The word for a reached or missed goal."""
    return "reached" if (figure >= goal if is_rate else figure <= goal) else "missed"


def line(measure: Measure, rounds: Rounds) -> str | None:
    """A row of the table, or None if it was not measured."""
    ours = median(rounds, measure.name)
    if ours is None:
        return None
    floor = median(rounds, measure.floor)
    ratio = ours / floor if floor else None
    word = "at least" if measure.is_rate else "at most"
    goals = []
    if measure.goal is not None and ratio is not None:
        goals.append(f"{word} {measure.goal:g} of it: {verdict(measure.is_rate, ratio, measure.goal)}")
    if measure.scala is not None:
        wanted = measure.scala * FASTER_THAN_SCALA if measure.is_rate else measure.scala / FASTER_THAN_SCALA
        times = ours / measure.scala if measure.is_rate else measure.scala / ours
        goals.append(f"{word} {number(wanted)}: {verdict(measure.is_rate, ours, wanted)} ({times:.1f} times Scala)")
    against = "" if floor is None else f"{measure.floor_title}: {number(floor)}"
    figures = f"{number(ours)} | {against} | {'-' if ratio is None else f'{ratio:.2f}'}"
    return f"| {measure.title} | {measure.unit} | {figures} | {'; '.join(goals)} |"


def markdown(rounds: Rounds, title: str, measures: Sequence[Measure] = MEASURES) -> str:
    """The table as Markdown."""
    head = [title.strip(), "", "| | unit | fluss | compared with | ratio | goal |", "|---|---|---|---|---|---|"]
    return "\n".join(head + [text for measure in measures if (text := line(measure, rounds)) is not None])


def figures_of(rounds: Rounds, measures: Sequence[Measure] = MEASURES) -> list[Figure]:
    """The rows of the table as figures."""
    figures = []
    for measure in measures:
        ours, floor = median(rounds, measure.name), median(rounds, measure.floor)
        if ours is not None:
            peers = {} if floor is None else {measure.floor_title: floor}
            figures.append(
                Figure(measure.name, measure.title, ours, measure.unit, peers, ours / floor if floor else None)
            )
    return figures
