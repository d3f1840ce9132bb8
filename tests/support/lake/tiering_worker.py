"""Processes that tier tables and are gone in the middle, without a word.

They are forked from one that has everything imported (`forkserver`), which takes a tenth of the time of a new Python.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess

import fluss
from fluss.model.paths import TablePath
from tests.support.lake.tiered_tables import OPTIONS, Watching, tiering_service
from tools.waiting import patience, wait_until

WORKER_SECONDS = 120.0
EVERY_SECONDS = 0.1
# Buckets are small here: with the usual thresholds every round would rewrite them. With these, few changes hide old
# rows by position deletes, and many do not.
SERVICE_OPTIONS = replace(
    OPTIONS,
    maintenance=True,
    min_round_seconds=1.0,
    position_deletes_from_bytes=0,
    position_deletes_max_share=0.5,
    max_deleted_share=0.5,
)


def tier_and_die(bootstrap: str, tables: Sequence[TablePath], die_at: str) -> None:
    """Rounds of all these tables at once; when all have reached the step, the process kills itself."""
    reached = threading.Barrier(len(tables), action=lambda: os.kill(os.getpid(), signal.SIGKILL))
    watching = Watching({die_at: lambda path: reached.wait(patience(WORKER_SECONDS))})
    with fluss.connect(bootstrap) as db, tiering_service(db, watcher=watching, tables=list(tables)) as service:
        print(service.once())


def tier_for_ever(bootstrap: str, die_at: str | None, after: int) -> None:
    """A service; with `die_at` it kills itself when it reaches that step for the `after`-th time."""
    steps = itertools.count(1)

    def die(path: TablePath) -> None:
        if next(steps) >= after:
            os.kill(os.getpid(), signal.SIGKILL)

    watching = Watching({} if die_at is None else {die_at: die})
    with _connected(bootstrap) as db, tiering_service(db, SERVICE_OPTIONS, watching) as service:
        service.run_until(threading.Event(), EVERY_SECONDS)


def _connected(bootstrap: str) -> fluss.Database:
    """Servers come and go: waits for one."""
    errors: list[fluss.FlussError] = []

    def connected() -> fluss.Database | None:
        try:
            return fluss.connect(bootstrap)
        except fluss.FlussError as error:
            errors.append(error)
            return None

    db = wait_until(connected, "a server", WORKER_SECONDS, seen=lambda: errors[-1])
    assert db is not None
    return db


def start_service(bootstrap: str, die_at: str | None = None, after: int = 1) -> BaseProcess:
    """A service in a process of its own."""
    process = _context().Process(target=tier_for_ever, args=(bootstrap, die_at, after), daemon=True)
    process.start()
    return process


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def run_to_death(bootstrap: str, tables: Sequence[TablePath], die_at: str) -> None:
    """Run the above and see it die."""
    process = _context().Process(target=tier_and_die, args=(bootstrap, tuple(tables), die_at))
    process.start()
    process.join(patience(WORKER_SECONDS))
    assert process.exitcode == -signal.SIGKILL, f"it ended with {process.exitcode}"
