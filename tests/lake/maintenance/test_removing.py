"""Files are removed in chunks, data before metadata; files that cannot be removed are reported and not lost."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.lake.maintenance import file_removal
from fluss.lake.maintenance.task_runners import LocalRunner
from fluss.lake.tables.iceberg.tables import IcebergFormat
from tests.lake.tables.test_readers import check_all_see
from tests.lake.tiering.test_rounds import FAR_FUTURE_MS
from tests.support.lake.maintenance import log_table, maintenance_of
from tests.support.lake.tables import LakeTableWriter, people

Task = TypeVar("Task")
Result = TypeVar("Result")


class PicklingRunner(LocalRunner):
    """Remembers its jobs; functions, tasks and results pass through pickle, as they do on the way to Spark."""

    def __init__(self) -> None:
        super().__init__(threads=2)
        self.jobs: list[list[object]] = []

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        self.jobs.append(list(tasks))
        for result in super().run(pickle.loads(pickle.dumps(function)), pickle.loads(pickle.dumps(tasks))):
            yield pickle.loads(pickle.dumps(result))


class BrokenRunner(LocalRunner):
    """A runner whose cluster has failed."""

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        raise FlussError("the Spark job of lake maintenance failed: cancelled")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_removal, "FILES_PER_TASK", 2)
    monkeypatch.setattr(file_removal, "TASKS_PER_JOB", 3)


def expirable(lake: IcebergFormat) -> tuple[LakeTableWriter, list[dict[str, object]], list[str]]:
    """A table whose small files only old snapshots need: its rows, and the addresses of those files."""
    table_writer, rows = log_table(lake)
    small = [file.path for file in table_writer.table.plan_files()]
    maintenance_of(table_writer).compact()
    table_writer.table = table_writer.table.refreshed()
    return table_writer, rows, small


def on_disk(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if os.path.exists(path.removeprefix("file://"))]


def block(path: str) -> Path:
    """Replace a file with something that cannot be removed like a file."""
    local = Path(path.removeprefix("file://"))
    local.unlink()
    local.mkdir()
    return local


@pytest.mark.usefixtures("small_chunks")
def test_expired_files_are_removed_in_chunks_data_before_metadata(lake: IcebergFormat) -> None:
    table_writer, rows, small = expirable(lake)
    runner = PicklingRunner()
    result = maintenance_of(table_writer, days_later=2, min_snapshots=1, runner=runner).expire()
    assert on_disk(small) == []
    chunks = [chunk for job in runner.jobs for chunk in job]
    assert all(len(job) <= 3 for job in runner.jobs)
    assert all(isinstance(chunk, list) and len(chunk) <= 2 for chunk in chunks)
    removed = [path for chunk in chunks if isinstance(chunk, list) for path in chunk]
    assert len(removed) == result.file_count
    are_metadata = ["/metadata/" in path for path in removed]
    assert are_metadata == sorted(are_metadata)
    assert set(are_metadata) == {False, True}
    for job in runner.jobs:
        kinds = {"/metadata/" in path for chunk in job if isinstance(chunk, list) for path in chunk}
        assert len(kinds) == 1, "metadata only when the job of the data has ended"
    table_writer.table = table_writer.table.refreshed()
    assert table_writer.table.unreferenced_files(FAR_FUTURE_MS) == []
    check_all_see(lake, table_writer, rows)


@pytest.mark.usefixtures("small_chunks")
def test_orphans_are_removed_in_chunks(lake: IcebergFormat) -> None:
    table_writer, rows = log_table(lake, rounds=1)
    lost = sorted(table_writer.write(people(900 + n, 1), start=10 + n).added[0].file_path for n in range(7))
    runner = PicklingRunner()
    jobs = maintenance_of(table_writer, days_later=2, runner=runner)
    plan = jobs.plan_orphans()
    assert list(plan.files) == lost
    assert (runner.jobs, on_disk(lost)) == ([], lost), "a plan changes nothing"
    assert jobs.remove_orphans(plan).file_count == 7
    assert runner.jobs == [[lost[0:2], lost[2:4], lost[4:6]], [lost[6:7]]]
    assert on_disk(lost) == []
    table_writer.table = table_writer.table.refreshed()
    check_all_see(lake, table_writer, rows)


@pytest.mark.usefixtures("small_chunks")
def test_a_file_that_cannot_be_removed_is_reported_and_the_next_clean_continues(lake: IcebergFormat) -> None:
    table_writer, rows, small = expirable(lake)
    ordered = sorted(small)
    first = ordered[0]
    blocked = block(first)
    with pytest.raises(FlussError, match=r"not all files of lake table db.*could be removed: removing file") as caught:
        maintenance_of(table_writer, days_later=2, min_snapshots=1, runner=PicklingRunner()).expire()
    assert caught.value.error_code == ErrorCode.STORAGE_EXCEPTION
    assert first in caught.value.message
    assert "`fluss lake clean` removes the rest" in caught.value.message
    assert on_disk(ordered) == [*ordered[:2], *ordered[6:]], "concurrent chunks are done, further ones are not started"
    blocked.rmdir()
    table_writer.table = table_writer.table.refreshed()
    assert len(table_writer.table.history()) == 1, "the snapshots were removed before any file"
    left = maintenance_of(table_writer, days_later=2).plan_orphans().files
    assert set(left) >= set(on_disk(ordered))
    assert any("/metadata/" in path for path in left), "metadata waits for the data"
    assert maintenance_of(table_writer, days_later=2).remove_orphans().file_count == len(left)
    table_writer.table = table_writer.table.refreshed()
    assert table_writer.table.unreferenced_files(FAR_FUTURE_MS) == []
    check_all_see(lake, table_writer, rows)


def test_a_runner_that_fails_leaves_all_files_for_the_next_clean(lake: IcebergFormat) -> None:
    table_writer, rows, small = expirable(lake)
    with pytest.raises(FlussError, match=r"could be removed: the Spark job .*cancelled; no snapshot needs them"):
        maintenance_of(table_writer, days_later=2, min_snapshots=1, runner=BrokenRunner()).expire()
    assert on_disk(small) == small
    assert set(maintenance_of(table_writer, days_later=2).plan_orphans().files) >= set(small)
    maintenance_of(table_writer, days_later=2).remove_orphans()
    assert on_disk(small) == []
    table_writer.table = table_writer.table.refreshed()
    check_all_see(lake, table_writer, rows)
