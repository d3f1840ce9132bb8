"""The cost of upserts, lookups and a start after `kill -9` while a primary-key table grows.

Our client fills one table on our server up to each of the sizes; the last quarter of the rows gives the cost of new
keys. Then random known keys are written again, as many at every size, and enough of them that RocksDB's compaction is
part of the cost at each. The server is killed and started again, which ends with the first row that is found, and
random keys are looked up together and alone. Besides the elapsed time, the table has the server's processor time per
row, from one idle moment to the next: RocksDB compacts after the writes are over. On a machine that does other things
too, it is the better figure. A thread watches the server's own memory.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.figures import Figure, Run, settings_of
from bench.memory import Watch
from bench.servers import OUR_CLIENT, Driver, OurServer

SIZES = (1_000_000, 4_000_000, 16_000_000)
GOAL_GROWTH = 2.0
# What all parts of the server together may use: see docs/benchmarks.md.
GOAL_MEGABYTES = 700
LONE_LOOKUPS = 300
FIRST_ROWS = 1_000
SETTLE_SECONDS = 0.5
IDLE_SHARE = 0.1


@dataclass
class Costs:
    """The figures at one size, by measure, in the unit of its title."""

    keys: int
    figures: dict[str, float]


TITLES = {
    "insert": "upsert of a new key (µs)",
    "insert_cpu": "- processor time of the server (µs)",
    "update": "upsert of a known key (µs)",
    "update_cpu": "- processor time of the server (µs)",
    "many": "lookup_many, per key (µs)",
    "many_cpu": "- processor time of the server (µs)",
    "lone": "one lookup at a time, p50 (ms)",
    "start": "kill -9, start, first row found (s)",
    "memory": "highest own memory of the server so far (MB)",
}


class GrowthRun:
    """A server with one table that grows."""

    def __init__(self, server: OurServer, options: argparse.Namespace) -> None:
        self._server = server
        self._updates: int = options.update_rows
        self._replayed: int = options.replayed_rows
        self._seconds: float = options.seconds
        self._buckets: int = options.buckets
        self._driver = Driver(server.bootstrap, OUR_CLIENT)
        self._keys = 0

    def close(self) -> None:
        """End the driver."""
        self._driver.close()

    def create(self) -> None:
        """Create the table with a few rows; a bucket that was never closed recognises new keys more easily."""
        self._driver.call("create_kv", table="growth", buckets=self._buckets)
        self._add(FIRST_ROWS)
        self._server.kill()
        self._server.restart()

    def at(self, keys: int, watch: Watch) -> Costs:
        """Grow to `keys` keys and measure."""
        figures: dict[str, float] = {}
        last_rows = min(keys // 4, keys - self._keys)
        self._add(keys - self._keys - last_rows)
        insert = self._timed("add_arrow", table="growth", first=self._keys, rows=last_rows)
        self._keys += last_rows
        figures["insert"], figures["insert_cpu"] = insert
        sample: dict[str, Any] = {"table": "growth", "keys": self._keys}
        figures["update"], figures["update_cpu"] = self._timed("update_random", rows=self._updates, **sample)
        figures["start"] = self._restart()
        self._driver.call("lookup_many", seconds=self._seconds, **sample)  # the caches are empty after the start
        figures["many"], figures["many_cpu"] = self._timed("lookup_many", seconds=self._seconds, **sample)
        times = self._driver.call("lookup_alone", times=LONE_LOOKUPS, seconds=self._seconds, **sample)["times"]
        figures["lone"] = statistics.median(times) * 1000
        figures["memory"] = watch.anonymous
        return Costs(self._keys, figures)

    def _add(self, rows: int) -> None:
        while rows > 0:
            part = min(rows, 1_000_000)
            self._driver.call("add_arrow", table="growth", first=self._keys, rows=part)
            self._keys += part
            rows -= part

    def _timed(self, workload: str, **arguments: Any) -> tuple[float, float]:
        """Microseconds per row: elapsed, and of the server's processors."""
        before = self._settled()
        answer = self._driver.call(workload, **arguments)
        spent = self._settled() - before
        return answer["seconds"] / answer["rows"] * 1e6, spent / answer["rows"] * 1e6

    def _settled(self) -> float:
        """The server's processor time once it is idle."""
        spent = self._processor_seconds()
        while True:
            time.sleep(SETTLE_SECONDS)
            before, spent = spent, self._processor_seconds()
            if spent - before < IDLE_SHARE * SETTLE_SECONDS:
                return spent

    def _processor_seconds(self) -> float:
        return sum(sum(psutil.Process(number).cpu_times()[:2]) for number in self._server.process_ids())

    def _restart(self) -> float:
        # Rows that are not in files yet, so that they have to be replayed.
        self._driver.call("update_random", table="growth", keys=self._keys, rows=self._replayed)
        self._server.kill()
        started = time.perf_counter()
        self._server.restart()
        self._driver.call("lookup_alone", table="growth", keys=self._keys, times=1, seconds=0)
        return time.perf_counter() - started


def measure(server: OurServer, sizes: Sequence[int], options: argparse.Namespace) -> list[Costs]:
    """Measure all sizes, on a server that is not started yet."""
    server.start()
    run = GrowthRun(server, options)
    costs = []
    try:
        run.create()
        with Watch(server.process_ids) as watch:
            for keys in sizes:
                costs.append(run.at(keys, watch))
                figures = ", ".join(f"{name} {figure:.3g}" for name, figure in costs[-1].figures.items())
                print(f"  {costs[-1].keys} keys: {figures}", file=sys.stderr, flush=True)
    finally:
        run.close()
    return costs


def markdown(costs: Sequence[Costs], title: str) -> str:
    """One line per measure, one column per size, and the ratio of the last to the first."""
    sizes = " | ".join(f"{cost.keys / 1e6:.3g} M keys" for cost in costs)
    lines = [title.strip(), "", f"| | {sizes} | growth | goal |", "|---" * (len(costs) + 3) + "|"]
    for name, text in TITLES.items():
        figures = [cost.figures[name] for cost in costs]
        growth = figures[-1] / figures[0] if figures[0] else math.inf  # CPU time comes in steps of 10 ms
        if name == "memory":
            goal = f"below {GOAL_MEGABYTES} MB, {'reached' if figures[-1] < GOAL_MEGABYTES else 'missed'}"
        elif name.endswith("_cpu"):
            goal = ""
        else:
            goal = f"below {GOAL_GROWTH:g}, {'reached' if growth < GOAL_GROWTH else 'missed'}"
        lines.append(f"| {text} | {' | '.join(f'{figure:.3g}' for figure in figures)} | {growth:.2f} | {goal} |")
    return "\n".join(lines)


def figures_of(costs: Sequence[Costs]) -> list[Figure]:
    """A figure for every measure and size."""
    figures = []
    for name, title in TITLES.items():
        unit = title.rpartition("(")[2].rstrip(")")
        for cost in costs:
            size = f"{cost.keys / 1e6:.3g} M keys"
            figures.append(Figure(f"{name}, {size}", f"{title}, {size}", cost.figures[name], unit))
    return figures


def main(arguments: list[str]) -> Run:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench --growth", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="numbers of keys, ascending")
    parser.add_argument("--update-rows", type=int, default=1_000_000, help="rows that are written again")
    parser.add_argument("--replayed-rows", type=int, default=150_000, help="rows written before the server is killed")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each kind of lookups")
    parser.add_argument("--buckets", type=int, default=1)
    parser.add_argument("--tablets", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="where the server keeps its data (default: a temporary one)")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="fluss-bench-", dir=options.directory))
    server = OurServer(directory, options.tablets, "always", OUR_CLIENT)
    began = time.monotonic()
    try:
        costs = measure(server, options.sizes, options)
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
    title = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {options.tablets} tablet(s), {options.buckets} "
    title += f"bucket(s), {options.update_rows} updates, {time.monotonic() - began:.0f} s in all."
    text = markdown(costs, title)
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(text + "\n")
    return Run("growth", settings_of(options), figures_of(costs))
