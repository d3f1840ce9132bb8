"""Files that were decided to go are removed, in chunks that a runner works on: threads here, or Spark tasks.

Whoever calls this has committed before: no snapshot knows the files any more. So a failure, or a crash at any point,
leaves files that the cleaning of orphans finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fluss.errors import FlussError
from fluss.lake.maintenance.running import TaskRunner
from fluss.lake.tables.interface.format import LakeTable, LakeTarget

# An object store takes some seconds for as many: worth a task, and soon done again if its worker dies.
FILES_PER_TASK = 200
# Spark sends the addresses of a whole job to each of its tasks: this many tasks have about 2 MiB of them.
TASKS_PER_JOB = 64

Item = TypeVar("Item")


@dataclass(frozen=True)
class _Removal:
    """What a task does with a chunk of addresses; pickles, and goes once to each worker."""

    target: LakeTarget = field(repr=False)

    def __call__(self, paths: Sequence[str]) -> FlussError | None:
        """The first failure, as a value: raised, it would end the other tasks, and Spark would try it again."""
        try:
            self.target.remove_files(paths)
        except FlussError as error:
            return error
        return None


def remove_files(table: LakeTable, files: Sequence[str], runner: TaskRunner) -> None:
    """Remove files for good; one that is gone already is fine.

    Metadata last: as long as it is there, one can see by it what the other files were. After a failure the chunks that
    run beside it are finished, and nothing further is begun.
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
    except FlussError as error:  # the runner's own, such as a Spark job that was cancelled
        failures = [error]
    if failures:
        raise FlussError(
            f"not all files of lake table {table} could be removed: {failures[0].message}; no snapshot needs them, "
            "`fluss lake clean` removes those that are left",
            failures[0].error_code,
        ) from failures[0]


def _chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
