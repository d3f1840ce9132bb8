"""Primary-key tables: our client and pyfluss, each on our server and on Apache Fluss, as in `bench.client`.

A round fills a table row by row, writes all its keys again, looks them up alone and together, reads the changelog and
the whole table. Upserts of Arrow data and `lookup_many`, which pyfluss does not have, are compared with what it has
instead.
"""

from __future__ import annotations

import argparse
from typing import Any

from bench.client import Note, Step, add_common_options, compare
from bench.client_report import Measure
from bench.figures import Run
from bench.run import rate
from bench.servers import Driver

FEW_TASKS, MANY_TASKS = 16, 128
# A lookuper of pyfluss does one lookup after another and waits 100 ms for more each time; several are fastest.
MANY_LOOKUPERS = 128

KV_MEASURES = (
    Measure("upsert_rows", "upsert rows, dicts of 5 columns, new keys (k rows/s)", None, 1.0),
    Measure("update_rows", "upsert rows, known keys (k rows/s)", None, 1.0),
    Measure("upsert_arrow", "upsert Arrow, new keys (k rows/s), against upsert rows", None, 5.0, "upsert_rows"),
    Measure("update_arrow", "upsert Arrow, known keys (k rows/s), against upsert rows", None, None, "update_rows"),
    Measure("lookup", "one lookup at a time, p50 (ms)", 0.5, None, limit=0.5),
    Measure("lookup", "one lookup at a time, p99 (ms)", 0.99, None),
    Measure("few_tasks", f"{FEW_TASKS} tasks on one lookuper (k lookups/s)", None, None),
    Measure(
        "many_tasks",
        f"{MANY_TASKS} tasks on one lookuper (k lookups/s), against {MANY_LOOKUPERS} lookupers",
        None,
        3.0,
        "many_lookupers",
    ),
    Measure("many_lookupers", f"{MANY_TASKS} tasks, {MANY_LOOKUPERS} lookupers (k lookups/s)", None, None),
    Measure("lookup_many", "lookup_many, Arrow in and out (k keys/s)", None, None, "many_lookupers", limit=100.0),
    Measure("poll_changelog", "poll the changelog (k records/s)", None, 1.0),
    Measure("scan_table", "all current rows (k rows/s)", None, 1.0),
    Measure("echo", "bare echo on loopback at that time (ms)", 0.5, None),
)


class KvRounds:
    """The steps of a round, with the sizes that the command line gives."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._rows: int = options.rows
        self._arrow_rows: int = options.kv_arrow_rows
        self._lookups: int = options.lookups
        self._seconds: float = options.seconds
        self._shape = {"buckets": options.buckets}
        self.steps: list[Step] = [
            self._upsert_rows,
            self._update_rows,
            self._lookup_alone,
            self._tasks("few_tasks", options.tasks[0], 1),
            self._tasks("many_tasks", options.tasks[1], 1),
            self._tasks("many_lookupers", options.tasks[1], options.lookupers),
            self._lookup_many,
            self._poll_changelog,
            self._scan_table,
            self._drop,
            self._upsert_arrow,
            self._update_arrow,
        ]

    def _upsert_rows(self, driver: Driver, name: str, note: Note) -> None:
        note("upsert_rows", rate(driver.call("upsert_rows", table=f"kv_{name}", rows=self._rows, **self._shape)))

    def _update_rows(self, driver: Driver, name: str, note: Note) -> None:
        note("update_rows", rate(driver.call("update_rows", table=f"kv_{name}", rows=self._rows)))

    def _lookup_alone(self, driver: Driver, name: str, note: Note) -> None:
        sizes = {"keys": self._rows, "times": self._lookups, "seconds": self._seconds}
        answer = driver.call("lookup_alone", table=f"kv_{name}", **sizes)
        for seconds in answer["times"]:
            note("lookup", seconds * 1000)
        note("echo", answer["echo"] * 1000)

    def _tasks(self, what: str, tasks: int, lookupers: int) -> Step:
        def step(driver: Driver, name: str, note: Note) -> None:
            sizes: dict[str, Any] = {"keys": self._rows, "tasks": tasks, "lookupers": lookupers}
            note(what, rate(driver.call("lookup_tasks", table=f"kv_{name}", seconds=self._seconds, **sizes)))

        return step

    def _lookup_many(self, driver: Driver, name: str, note: Note) -> None:
        if driver.is_ours:
            sizes = {"keys": self._rows, "seconds": self._seconds}
            note("lookup_many", rate(driver.call("lookup_many", table=f"kv_{name}", **sizes)))

    def _poll_changelog(self, driver: Driver, name: str, note: Note) -> None:
        # Every key was inserted, and updated once with its old row.
        records = 3 * self._rows
        note("poll_changelog", rate(driver.call("poll_changelog", table=f"kv_{name}", rows=records, **self._shape)))

    def _scan_table(self, driver: Driver, name: str, note: Note) -> None:
        sizes = {"rows": self._rows, "seconds": self._seconds, **self._shape}
        note("scan_table", rate(driver.call("scan_table", table=f"kv_{name}", **sizes)))

    def _drop(self, driver: Driver, name: str, note: Note) -> None:
        driver.call("drop", table=f"kv_{name}")

    def _upsert_arrow(self, driver: Driver, name: str, note: Note) -> None:
        if driver.is_ours:
            sizes = {"rows": self._arrow_rows, **self._shape}
            note("upsert_arrow", rate(driver.call("upsert_arrow", table=f"kv_{name}", **sizes)))

    def _update_arrow(self, driver: Driver, name: str, note: Note) -> None:
        if driver.is_ours:
            note("update_arrow", rate(driver.call("update_arrow", table=f"kv_{name}", rows=self._arrow_rows)))
            driver.call("drop", table=f"kv_{name}")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench --kv", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="keys of the table that is written row by row")
    parser.add_argument("--kv-arrow-rows", type=int, default=1_000_000, help="keys of the table of Arrow upserts")
    parser.add_argument("--lookups", type=int, default=1_000, help="lookups alone, per round")
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of each kind of lookups, and of scans")
    parser.add_argument("--tasks", type=int, nargs=2, default=[FEW_TASKS, MANY_TASKS], help="few and many")
    parser.add_argument("--lookupers", type=int, default=MANY_LOOKUPERS, help="lookupers of many tasks")
    add_common_options(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> Run:
    """Measure and print."""
    options = parse(arguments)
    return compare("kv", options, KvRounds(options).steps, KV_MEASURES)
