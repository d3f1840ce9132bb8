"""Maintenance of a lake table is killed at every step; the rows stay, and the next run finishes the job."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fluss.lake.tables.iceberg.tables import IcebergFormat
from tests.lake.maintenance.test_expiry import files_on_disk, snapshot_ids
from tests.lake.tables.test_readers import check_all_see
from tests.lake.tiering.test_rounds import FAR_FUTURE_MS
from tests.support.lake.maintenance import keyed_table, log_table, maintenance_of
from tests.support.lake.tables import TABLE_ID, LakeTableWriter, local_lake, people
from tools.waiting import patience

ROUNDS = 3

# Imports once, then forks one child per step; the children die, the parent reports how.
PARENT = """
import os, pickle, sys
from fluss.lake.tables.iceberg import table as table_module, target
from tests.support.lake.tables import LakeTableWriter, local_lake
from tests.support.lake.maintenance import Registry, maintenance_of


def die(*_, **__):
    os.kill(os.getpid(), 9)


def one_then_die(self, paths):
    real_remove(self, list(paths)[:1])
    die()


def one_file_then_die(self, split, files):
    real_rewrite(self, split, files[:1])
    die()


def work(directory, spec, step):
    jobs = maintenance_of(
        LakeTableWriter(local_lake(directory), spec), days_later=2, min_snapshots=2, compaction_max_delete_files=1,
        compaction_min_files=2, registry=Registry(),
    )
    if step == "in a rewrite":
        target.IcebergTarget.rewrite_files = one_file_then_die
        jobs.compact()
    elif step == "after the rewrites":
        table_module.IcebergTable.commit = die
        jobs.compact()
    elif step == "after the commit":
        Registry.register = die
        jobs.compact()
    elif step == "after the expiry":
        target.IcebergTarget.remove_files = die
        jobs.expire()
    elif step == "removing files":
        target.IcebergTarget.remove_files = one_then_die
        jobs.expire()
    elif step == "removing orphans":
        target.IcebergTarget.remove_files = one_then_die
        jobs.remove_orphans()


real_remove, real_rewrite = target.IcebergTarget.remove_files, target.IcebergTarget.rewrite_files
directory, specs = pickle.loads(bytes.fromhex(sys.argv[1]))
for step, spec in specs.items():
    child = os.fork()
    if not child:
        work(directory, spec, step)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(step, os.waitstatus_to_exitcode(status), sep=": ")
"""
STEPS = (
    "in a rewrite", "after the rewrites", "after the commit", "after the expiry", "removing files", "removing orphans"
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def lake(data: Path) -> Iterator[IcebergFormat]:
    lake = local_lake(data)
    yield lake
    lake.close()


def test_killed_at_every_step(lake: IcebergFormat, data: Path) -> None:
    tables = {}
    for number, step in enumerate(STEPS):
        table_writer, rows = (log_table, keyed_table)[number % 2](lake, rounds=ROUNDS)
        table_writer.write(people(900, 1), start=10**6)  # a dead round's file
        tables[step] = table_writer, rows, snapshot_ids(table_writer)
    specs = {step: table_writer.spec for step, (table_writer, _, _) in tables.items()}
    command = [sys.executable, "-c", PARENT, pickle.dumps((data, specs)).hex()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(120))
    assert done.stdout.splitlines() == [f"{step}: -9" for step in STEPS], done.stderr
    for step, (table_writer, rows, ids) in tables.items():
        check_finished_by_the_next_run(lake, LakeTableWriter(lake, table_writer.spec), rows, ids, step)


def check_finished_by_the_next_run(
    lake: IcebergFormat, table_writer: LakeTableWriter, rows: list[dict[str, object]], ids: list[int], step: str
) -> None:
    check_all_see(lake, table_writer, rows)
    offsets = dict(table_writer.table.committed_offsets(TABLE_ID))
    is_committed = snapshot_ids(table_writer)[0] != ids[0]
    assert is_committed == (step == "after the commit"), step
    jobs = maintenance_of(
        table_writer, days_later=2, min_snapshots=2, compaction_max_delete_files=1, compaction_min_files=2
    )
    assert bool(jobs.compact().snapshot_id) != is_committed, step
    jobs.expire()
    jobs.remove_orphans()
    table_writer.table = table_writer.table.refreshed()
    check_all_see(lake, table_writer, rows)
    assert table_writer.table.committed_offsets(TABLE_ID) == offsets
    assert len(snapshot_ids(table_writer)) == 2
    assert table_writer.table.unreferenced_files(FAR_FUTURE_MS) == []
    assert 0 < len([path for path in files_on_disk(table_writer, lake) if "/data/" in path]) <= 2 + 2 * (ROUNDS + 1)
