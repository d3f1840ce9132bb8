"""Runners of the tasks of a job: threads here, Spark in `fluss.spark`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class TaskRunner(Protocol):
    """Runs a module-level function on many values in parallel. Function, values and results can be pickled."""

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Return results in the order of the tasks. The first error ends the run."""


class LocalRunner:
    """Runs tasks in threads of this process: reading and writing Parquet releases the interpreter's lock."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Return results in the order of the tasks."""
        if tasks:
            with ThreadPoolExecutor(min(self._threads, len(tasks)), "lake-maintenance") as pool:
                yield from pool.map(function, tasks)
