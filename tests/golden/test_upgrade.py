"""A directory of an earlier version whose upgrade is killed is of the old version or of the new one, never between."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import fluss
from fluss.server.catalog import CatalogStore
from fluss.server.catalog.database_file import FORMAT_VERSION, LATER_TABLE_NAMES, stored_format_version
from fluss.server.catalog.safety_copies import list_copies
from fluss.server.data_directory import DataDirectory
from tests.golden.archives import restored
from tests.golden.contents import read_rows
from tests.support.lanes import rounds

VERSION_1 = "967b2f9"
# Statements of SQLite between two kills.
STRIDE = max(1, 8 // rounds(gate=1, all_lanes=8))


def upgrade(data: Path) -> None:
    """What a start does with the catalog."""
    directory = DataDirectory(data)
    CatalogStore(data / "catalog.sqlite").close()
    directory.close()


def is_killed_at(statement: int, data: Path) -> bool:
    """Whether the upgrade got to this statement, in a process that dies right before it."""
    process_id = os.fork()
    if process_id == 0:
        connect, seen = sqlite3.connect, 0

        def look(_: str) -> None:
            nonlocal seen
            seen += 1
            if seen > statement:
                os.kill(os.getpid(), signal.SIGKILL)

        def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*arguments, **options)
            connection.set_trace_callback(look)
            return connection

        sqlite3.connect = connected  # type: ignore[assignment]
        end_child(lambda: upgrade(data))
    _, status = os.waitpid(process_id, 0)
    assert os.WIFSIGNALED(status) or status == 0
    return os.WIFSIGNALED(status)


def end_child(work: Callable[[], None]) -> None:
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


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
