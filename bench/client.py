"""Our client and pyfluss, each on our server and on Apache Fluss: four pairs in one run.

Both servers and all four drivers run at the same time. Every step of a round (append, scan, ...) is done by all pairs
before the next step begins, and the order of the pairs changes from round to round, so that disturbances of the machine
affect all of them. The first round is discarded. Without Apache Fluss the two remaining pairs are shown.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.client_report import (
    MEASURES,
    OURS_ON_APACHE,
    OURS_ON_OURS,
    PYFLUSS_ON_APACHE,
    PYFLUSS_ON_OURS,
    Measure,
    figures_of,
    markdown,
)
from bench.figures import Run, add_file_options, machine_text, settings_of, write_files
from bench.run import WARM_MEGABYTES, Figures, contestants, rate, warm_page_cache
from bench.servers import OUR_CLIENT, PYFLUSS, Driver, Server

TWO_COLUMNS = ["i1", "s3"]
NAMES = {"fluss": (OURS_ON_OURS, PYFLUSS_ON_OURS), "apache": (OURS_ON_APACHE, PYFLUSS_ON_APACHE)}

Note = Callable[[str, float], None]
Step = Callable[[Driver, str, Note], None]
"""One step of a driver. The string is unique per driver: two drivers share a server."""


# The suffix of figures by the table's compression. A table without a level gets the level of its writer.
COMPRESSIONS = {"ZSTD": "", "ZSTD:3": "_level", "NONE": "_plain"}


class Rounds:
    """The steps of a round, with the sizes that the command line gives."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._arrow_rows: int = options.arrow_rows
        self._dict_rows: int = options.dict_rows
        self._lone_rows: int = options.lone_rows
        self._lone_seconds: float = options.lone_seconds
        self._shape = {"buckets": options.buckets}
        self._read = {"seconds": options.scan_seconds, **self._shape}
        self.steps: list[Step] = []
        for compression, suffix in COMPRESSIONS.items():
            if compression in options.compression:
                self.steps += self._arrow_steps(compression, suffix)
        self.steps += [self._append_rows, self._poll_records, self._lone]

    def _arrow_steps(self, compression: str, suffix: str) -> list[Step]:
        def append(driver: Driver, name: str, note: Note) -> None:
            sizes = {"rows": self._arrow_rows, "compression": compression, **self._shape}
            note(f"append_arrow{suffix}", rate(driver.call("append_arrow", table=f"wide_{name}", **sizes)))

        def scan(what: str, columns: list[str] | None, driver: Driver, name: str, note: Note) -> None:
            sizes = {"rows": self._arrow_rows, "columns": columns, **self._read}
            note(f"{what}{suffix}", rate(driver.call("scan", table=f"wide_{name}", **sizes)))

        return [
            append,
            lambda *arguments: scan("scan_all", None, *arguments),
            lambda *arguments: scan("scan_two", TWO_COLUMNS, *arguments),
            lambda driver, name, note: driver.call("drop", table=f"wide_{name}") and None,
        ]

    def _append_rows(self, driver: Driver, name: str, note: Note) -> None:
        note("append_rows", rate(driver.call("append_rows", table=f"rows_{name}", rows=self._dict_rows, **self._shape)))

    def _poll_records(self, driver: Driver, name: str, note: Note) -> None:
        table = f"rows_{name}"
        note("poll_records", rate(driver.call("poll_records", table=table, rows=self._dict_rows, **self._read)))
        driver.call("drop", table=table)

    def _lone(self, driver: Driver, name: str, note: Note) -> None:
        sizes = {"times": self._lone_rows, "seconds": self._lone_seconds}
        lone = driver.call("lone_rows", table=f"lone_{name}", **sizes)
        for what in ("acknowledged", "polled"):
            for seconds in lone[what]:
                note(what, seconds * 1000)
        note("echo", lone["echo"] * 1000)
        driver.call("drop", table=f"lone_{name}")


def measure(servers: list[Server], rounds: int, steps: list[Step], figures: dict[str, Figures]) -> None:
    """Run the rounds, after one that is discarded, on servers that are not started yet."""
    own_drivers: list[Driver] = []
    try:
        pairs: list[tuple[str, str, Driver]] = []
        for server in servers:
            server.start()
            assert server.driver is not None
            ours, theirs = NAMES[server.name]
            if server.driver.is_ours:
                pairs.append((ours, "ours", server.driver))
                continue
            own_drivers.append(Driver(server.bootstrap, OUR_CLIENT))
            pairs += [(ours, "ours", own_drivers[-1]), (theirs, "theirs", server.driver)]
        for number in range(rounds + 1):
            for step in steps:
                for name, table_suffix, driver in pairs:
                    step(driver, table_suffix, figures[name].add if number else Figures().add)
            pairs = [*pairs[1:], pairs[0]]
            print(f"  round {number} of {rounds}", file=sys.stderr, flush=True)
    finally:
        for driver in own_drivers:
            driver.close()
        for server in servers:
            server.stop()


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench --client", description=__doc__)
    parser.add_argument("--arrow-rows", type=int, default=400_000)
    parser.add_argument("--dict-rows", type=int, default=300_000)
    parser.add_argument("--scan-seconds", type=float, default=1.0, help="scans are repeated for this long")
    parser.add_argument("--lone-rows", type=int, default=60, help="single rows per round and kind")
    parser.add_argument("--lone-seconds", type=float, default=3.0, help="limit of their time, per round and kind")
    parser.add_argument("--compression", nargs="+", choices=COMPRESSIONS, default=[*COMPRESSIONS])
    add_common_options(parser)
    return parser.parse_args(arguments)


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all comparisons of the four pairs have."""
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; one more is discarded")
    parser.add_argument("--buckets", type=int, default=1)
    parser.add_argument("--tablets", type=int, default=1, help="tablet processes of our server")
    parser.add_argument("--flush", choices=("always", "interval", "os"), default="always", help="log.flush of ours")
    parser.add_argument("--without-apache", action="store_true")
    parser.add_argument("--only-ours", action="store_true", help="without Apache Fluss and pyfluss")
    parser.add_argument("--warm-megabytes", type=int, default=WARM_MEGABYTES, help="written and deleted first")
    add_file_options(parser)


def main(arguments: list[str]) -> Run:
    """Measure and print."""
    options = parse(arguments)
    return compare("client", options, Rounds(options).steps, MEASURES)


def compare(part: str, options: argparse.Namespace, steps: list[Step], measures: Sequence[Measure]) -> Run:
    """Run the rounds and print the table, according to the common options."""
    directory = Path(tempfile.mkdtemp(prefix="fluss-bench-", dir=options.directory))
    figures = {name: Figures() for names in NAMES.values() for name in names}
    began = time.monotonic()
    try:
        make, remark = contestants(options, directory, OUR_CLIENT if options.only_ours else PYFLUSS)
        warm_page_cache(directory, options.warm_megabytes)
        measure([factory() for factory in make], options.rounds, steps, figures)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    title = f"{machine_text()}; log.flush={options.flush}, {options.tablets} tablet(s), "
    title += f"{options.buckets} bucket(s), medians of {options.rounds} interleaved rounds, "
    title += f"{time.monotonic() - began:.0f} s in all. {remark}"
    rounds = {name: kept.rounds for name, kept in figures.items()}
    text = markdown(rounds, title, measures)
    print(text)
    write_files(options, text, title, rounds)
    return Run(part, settings_of(options), figures_of(rounds, measures))
