"""Measures our server and, if it is available, Apache Fluss, side by side.

Rounds are interleaved (ours, theirs, ours, ...), the first round is discarded, medians are compared. The page cache is
warmed before: fresh memory of a virtual machine is an order of magnitude slower than used memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bench.figures import Run, add_file_options, machine_text, settings_of, write_files
from bench.report import figures_of, markdown, summary
from bench.servers import CHECKOUT_CLIENT, PYFLUSS, ApacheServer, Driver, OurServer, Server, proportional_memory
from tools.peers.cache import PeerMissingError

WARM_MEGABYTES = 1024
WARM_CHUNK_BYTES = 1 << 20
MEMORY_SETTLE_SECONDS = 5.0


@dataclass(frozen=True)
class Options:
    """The options of the command line."""

    rounds: int
    arrow_rows: int
    dict_rows: int
    lone_rows: int
    starts: int
    buckets: int
    settle_seconds: float


@dataclass
class Figures:
    """The figures of one server: by workload, one for each round."""

    rounds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, workload: str, figure: float) -> None:
        """Add a figure of one round."""
        self.rounds.setdefault(workload, []).append(figure)

    def median(self, workload: str) -> float | None:
        """The figure to compare."""
        return statistics.median(self.rounds[workload]) if workload in self.rounds else None


LONE_SECONDS = 15.0


def rate(figures: dict[str, Any]) -> float:
    """Rows per second."""
    return float(figures["rows"] / figures["seconds"])


def one_round(driver: Driver, options: Options, note: Callable[[str, float], None]) -> None:
    """Run all workloads once. The Arrow tables are scanned after they are written, then dropped."""
    shape = {"buckets": options.buckets}
    two = ["i1", "s3"]
    for compression, name in (("ZSTD", "zstd"), ("NONE", "plain")):
        table = f"wide_{name}"
        written = driver.call("append_arrow", table=table, rows=options.arrow_rows, compression=compression, **shape)
        note(f"append_arrow_{name}", rate(written))
        rows = int(written["rows"])
        note(f"scan_all_{name}", rate(driver.call("scan", table=table, rows=rows, columns=None, **shape)))
        note(f"scan_two_{name}", rate(driver.call("scan", table=table, rows=rows, columns=two, **shape)))
        driver.call("drop", table=table)
    note("append_rows", rate(driver.call("append_rows", table="narrow", rows=options.dict_rows, **shape)))
    driver.call("drop", table="narrow")
    lone = driver.call("lone_rows", table="lone", times=options.lone_rows, seconds=LONE_SECONDS)
    note("lone_acknowledged", statistics.median(lone["acknowledged"]) * 1000)
    note("lone_polled", statistics.median(lone["polled"]) * 1000)
    note("echo", lone["echo"] * 1000)
    driver.call("drop", table="lone")


def measure_starts(make: list[Callable[[], Server]], options: Options, figures: dict[str, Figures]) -> None:
    """Start each server a few times on an empty directory, one at a time."""
    for number in range(options.starts):
        for factory in make:
            server = factory()
            try:
                seconds = server.start()
                if number == 0 and options.starts > 1:
                    continue  # the first start reads programs and libraries from the disk
                figures[server.name].add("start", seconds)
            finally:
                server.stop()


def measure_load(make: list[Callable[[], Server]], options: Options, figures: dict[str, Figures]) -> None:
    """Run all servers at once and interleave the rounds; measure memory before and after."""
    servers = [factory() for factory in make]
    try:
        for server in servers:
            server.start()
        time.sleep(options.settle_seconds)
        note_memory(servers, "idle", figures)
        for number in range(options.rounds + 1):
            for server in servers:
                assert server.driver is not None
                kept = figures[server.name] if number else Figures()
                one_round(server.driver, options, kept.add)
                print(f"  round {number} of {options.rounds}: {server.name}", file=sys.stderr, flush=True)
        note_memory(servers, "loaded", figures)
    finally:
        for server in servers:
            server.stop()


def note_memory(servers: list[Server], when: str, figures: dict[str, Figures]) -> None:
    """Add memory figures of all servers."""
    for server in servers:
        memory = proportional_memory(server.process_ids())
        figures[server.name].add(f"memory_{when}", memory["total"])
        figures[server.name].add(f"memory_{when}_anonymous", memory["anonymous"])


def warm_page_cache(directory: Path, megabytes: int) -> None:
    """Write a file and delete it, so that the guest owns the memory that the page cache will use."""
    path = directory / "warm"
    chunk = os.urandom(WARM_CHUNK_BYTES)
    with path.open("wb") as handle:
        for _ in range(megabytes):
            handle.write(chunk)
    path.unlink()


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; one more is discarded")
    parser.add_argument("--starts", type=int, default=4, help="starts; the first is discarded")
    parser.add_argument("--arrow-rows", type=int, default=400_000)
    parser.add_argument("--dict-rows", type=int, default=300_000)
    parser.add_argument("--lone-rows", type=int, default=10)
    parser.add_argument("--buckets", type=int, default=1)
    parser.add_argument("--tablets", type=int, default=1, help="tablet processes of our server")
    parser.add_argument("--flush", choices=("always", "interval", "os"), default="always", help="log.flush of ours")
    parser.add_argument("--without-apache", action="store_true")
    parser.add_argument("--only-ours", action="store_true", help="no Apache Fluss, and our client instead of pyfluss")
    parser.add_argument(
        "--settle-seconds", type=float, default=MEMORY_SETTLE_SECONDS, help="wait before memory is read"
    )
    parser.add_argument("--warm-megabytes", type=int, default=WARM_MEGABYTES, help="written and deleted first")
    add_file_options(parser)
    return parser.parse_args(arguments)


def contestants(options: argparse.Namespace, directory: Path, client: str) -> tuple[list[Callable[[], Server]], str]:
    """Factories of the servers, driven by `client`, and the reason if there is only one."""
    ours: list[Callable[[], Server]] = [lambda: OurServer(directory, options.tablets, options.flush, client)]
    if options.without_apache or options.only_ours:
        return ours, "Apache Fluss was not requested."
    try:
        ApacheServer(directory).stop()
    except PeerMissingError as missing:
        return ours, str(missing)
    return [*ours, lambda: ApacheServer(directory)], ""


def main(arguments: list[str]) -> Run:
    """Measure and print."""
    parsed = parse(arguments)
    directory = Path(tempfile.mkdtemp(prefix="fluss-bench-", dir=parsed.directory))
    options = Options(**{option.name: getattr(parsed, option.name) for option in fields(Options)})
    figures = {"fluss": Figures(), "apache": Figures()}
    try:
        make, remark = contestants(parsed, directory, CHECKOUT_CLIENT if parsed.only_ours else PYFLUSS)
        warm_page_cache(directory, parsed.warm_megabytes)
        measure_starts(make, options, figures)
        measure_load(make, options, figures)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    lines = summary(figures["fluss"].median, figures["apache"].median)
    title = f"{machine_text()}; {parsed.tablets} tablet(s), log.flush={parsed.flush}, {parsed.buckets} bucket(s), "
    title += f"medians of {parsed.rounds} interleaved rounds. {remark}"
    text = markdown(lines, title)
    print(text)
    write_files(parsed, text, title, {name: kept.rounds for name, kept in figures.items()})
    return Run("server", settings_of(parsed), figures_of(lines))
