"""Removal of files, in chunks that a runner works on: threads here, or Spark tasks.

Callers have committed before, so that no snapshot refers to the files. After a failure or a crash at any point, the
removal of orphans finds the files that remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fluss.errors import FlussError
from fluss.lake.maintenance.task_runners import TaskRunner
from fluss.lake.tables.interface.format import LakeTable, LakeTarget

# An object store takes some seconds to remove this many: worth a task, and cheap to repeat if its worker dies.
FILES_PER_TASK = 200
# Spark sends the addresses of a whole job to each of its tasks: with this many tasks they take about 2 MiB.
TASKS_PER_JOB = 64

Item = TypeVar("Item")


@dataclass(frozen=True)
class _Removal:
    """The function that a task applies to a chunk of addresses. Can be pickled; sent once to each worker."""

    target: LakeTarget = field(repr=False)

    def __call__(self, paths: Sequence[str]) -> FlussError | None:
        """Return the first failure. Raising it would end the other tasks, and Spark would retry this one."""
        try:
            self.target.remove_files(paths)
        except FlussError as error:
            return error
        return None


def remove_files(table: LakeTable, files: Sequence[str], runner: TaskRunner) -> None:
    """Delete files permanently; missing files are ignored.

    Metadata files are deleted last: until then they show which other files belonged to the snapshots. After a failure
    the chunks in progress are finished, and no more are started.
    """
    removal = _Removal(table.target())
    ordered = sorted(files)
    for is_metadata in (False, True):
        chosen = [path for path in ordered if ("/metadata/" in path) == is_metadata]
        for job in _chunks(_chunks(chosen, FILES_PER_TASK), TASKS_PER_JOB):
            _run(table, removal, job, runner)


def _run(table: LakeTable, removal: _Removal, job: Sequence[Sequence[str]], runner: TaskRunner) -> None:
    try:
        failures = [failure for failure in runner.run(removal, job) if failure is not None]
    except FlussError as error:  # raised by the runner itself, such as a cancelled Spark job
        failures = [error]
    if failures:
        raise FlussError(
            f"not all files of lake table {table} could be removed: {failures[0].message}; no snapshot needs them, "
            "and `fluss lake clean` removes the rest",
            failures[0].error_code,
        ) from failures[0]


def _chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
