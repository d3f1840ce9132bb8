"""Who runs the tasks of a job: threads here, Spark elsewhere (`fluss.spark`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class TaskRunner(Protocol):
    """Runs a function of a module on values that pickle, many at once, and gives back results that pickle."""

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Results in the order of the tasks. The first error ends it."""


class LocalRunner:
    """Threads of this process: reading and writing Parquet runs outside of the interpreter's lock."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Results in the order of the tasks."""
        if tasks:
            with ThreadPoolExecutor(min(self._threads, len(tasks)), "lake-maintenance") as pool:
                yield from pool.map(function, tasks)
