"""A directory of an earlier version whose upgrade is killed is of the old version or of the new one, never between."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import fluss
from fluss.server.catalog import CatalogStore
from fluss.server.catalog.database_file import FORMAT_VERSION, LATER_TABLE_NAMES, stored_format_version
from fluss.server.catalog.safety_copies import list_copies
from tests.golden.archives import restored
from tests.golden.contents import read_rows
from tests.support.runner.lanes import rounds
from tools.waiting import patience

ROOT = Path(__file__).parents[2]
VERSION_1 = "967b2f9"
# Statements of SQLite between two kills; all of them are tried in `--all`.
STRIDE = max(1, 16 // rounds(gate=1, all_lanes=16))


def is_killed_at(statement: int, data: Path) -> bool:
    """Whether the upgrade got to this statement, in a process that dies right before it."""
    command = [sys.executable, "-m", "tests.golden.killed_upgrade", str(data), str(statement)]
    code = subprocess.run(command, cwd=ROOT, timeout=patience(60.0)).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


def contents(path: Path) -> tuple[int, set[str], list[Any]]:
    """Version, tables of SQLite, and tables of ours."""
    with closing(sqlite3.connect(path)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return version, names, connection.execute("SELECT table_id, descriptor FROM tables").fetchall()


def test_killed_in_the_middle_of_the_upgrade(tmp_path: Path) -> None:
    with restored(VERSION_1) as archive:
        old_version, old_names, tables = contents(archive.data / "catalog.sqlite")
        assert old_version == 1 < FORMAT_VERSION
        statement, is_upgraded = 0, False
        while is_killed_at(statement, archive.data):
            copy = tmp_path / str(statement)
            copy.mkdir()
            for path in archive.data.glob("catalog.sqlite*"):
                shutil.copy(path, copy / path.name)
            version, names, now = contents(copy / "catalog.sqlite")
            assert now == tables
            if version == 1:
                assert names == old_names
                assert not is_upgraded, "there is no way back"
            else:
                assert version == FORMAT_VERSION
                assert names >= old_names | LATER_TABLE_NAMES
                assert [contents(path)[0] for path in list_copies(archive.data)][-1] == 1, "it was copied before"
                is_upgraded = True
            statement += STRIDE
        assert statement >= 3 * STRIDE
        assert stored_format_version(archive.data / "catalog.sqlite") == FORMAT_VERSION
        with fluss.embedded(archive.data) as cluster, fluss.connect(cluster.bootstrap_servers) as db:
            assert read_rows(db, "kv_plain") == archive.tables["kv_plain"]["rows"]


def test_the_older_version_would_refuse_it(tmp_path: Path) -> None:
    """Its rule, and its number: any other than 0 and 1 is refused."""
    CatalogStore(tmp_path / "catalog.sqlite").close()
    assert stored_format_version(tmp_path / "catalog.sqlite") not in (0, 1)
