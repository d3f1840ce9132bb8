"""A catalog that is missing, empty, old or damaged loses no rows: nothing is deleted because it does not name it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from tools.servers.server_process import ServerFailedError, ServerProcess
from tools.waiting import wait_until

OPTIONS = {
    "log.segment.file-size": "4kb",
    "remote.log.task-interval-duration": "20ms",
    "kv.snapshot.interval": "50ms",
}
COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.string())])
ROWS = 600


def connect(server: ServerProcess) -> fluss.Database:
    return fluss.connect(server.address, request_timeout=30_000)


def fill(db: fluss.Database) -> None:
    """A log table with remote segments, a primary-key table with snapshots, a partitioned table."""
    db.create_table("log", COLUMNS, bucket_count=1)
    db.create_table("keys", COLUMNS, primary_keys=["id"], bucket_count=1)
    db.create_table("days", COLUMNS, partition_keys=["day"], bucket_count=1)
    db.create_partition("days", {"day": "monday"})
    for first in range(0, ROWS, 100):
        rows = [{"id": number, "day": "monday"} for number in range(first, first + 100)]
        db.append("log", rows)
        db.append("days", rows)
        db.upsert("keys", rows)


def remote_files(data: Path) -> set[str]:
    return {str(path.relative_to(data)) for path in (data / "remote-data").rglob("*") if path.is_file()}


def everything(data: Path) -> dict[str, bytes]:
    """Every file except those that SQLite and the lock change at every access."""
    skipped = {"LOCK", "catalog.sqlite-shm"}
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in data.rglob("*")
        if path.is_file() and path.name not in skipped
    }


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


class Killed:
    """The directory of a server that was killed with everything in its write-ahead log, and an older catalog of it."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.older = directory / "older.sqlite"
        remote = {"remote.data.dir": str(self.data / "remote-data")}
        self.server = ServerProcess(self.data, config={**OPTIONS, **remote})
        with connect(self.server) as db:
            db.create_table("first", COLUMNS)
            with closing(sqlite3.connect(self.catalog)) as connection, closing(sqlite3.connect(self.older)) as copy:
                connection.backup(copy)
            fill(db)
            wait_until(lambda: any("kv/" in name for name in remote_files(self.data)), "a snapshot was taken")
            wait_until(lambda: any(name.endswith(".log") for name in remote_files(self.data)), "a segment is remote")
        self.server.kill()
        self._saved = {path: path.read_bytes() for path in (self.catalog, self.wal)}

    @property
    def catalog(self) -> Path:
        return self.data / "catalog.sqlite"

    @property
    def wal(self) -> Path:
        return self.data / "catalog.sqlite-wal"

    def put_back(self) -> None:
        """The catalog as the server left it."""
        self.wal.with_name("catalog.sqlite-shm").unlink(missing_ok=True)
        for path, content in self._saved.items():
            path.write_bytes(content)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return Killed(tmp_path_factory.mktemp("killed"))


def missing(killed: Killed) -> None:
    killed.catalog.unlink()
    killed.wal.unlink()


def main_file_missing(killed: Killed) -> None:
    killed.catalog.unlink()


def empty(killed: Killed) -> None:
    killed.catalog.write_bytes(b"")


def without_its_log(killed: Killed) -> None:
    killed.wal.unlink()


def older(killed: Killed) -> None:
    killed.wal.unlink()
    shutil.copy(killed.older, killed.catalog)


def of_another_server(killed: Killed) -> None:
    killed.wal.unlink()
    with fluss.embedded(killed.data.parent / "another"):
        pass
    shutil.copy(killed.data.parent / "another" / "catalog.sqlite", killed.catalog)


def one_bit_of_the_log(killed: Killed) -> None:
    flip(killed.wal, killed.wal.stat().st_size // 3)


def torn_page(killed: Killed) -> None:
    """Everything in the main file, as after a clean stop, and one of its pages overwritten."""
    with closing(sqlite3.connect(killed.catalog)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    killed.wal.unlink(missing_ok=True)
    content = bytearray(killed.catalog.read_bytes())
    content[4096:8192] = b"\x17" * 4096
    killed.catalog.write_bytes(content)


DAMAGES: dict[Callable[[Killed], None], str] = {
    missing: "catalog.sqlite is missing, but there are directories of 4 tables",
    main_file_missing: "catalog.sqlite is missing",
    empty: "catalog.sqlite is empty",
    without_its_log: "catalog.sqlite",
    older: "is older than the tables in this directory: its",
    of_another_server: "belongs to other tables than those in this directory",
    one_bit_of_the_log: "catalog.sqlite-wal is damaged: frame",
    torn_page: "catalog.sqlite is damaged",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_server_does_not_start_and_changes_nothing(killed: Killed, damage: Callable[[Killed], None]) -> None:
    killed.put_back()
    damage(killed)
    before = everything(killed.data)
    with pytest.raises(ServerFailedError) as caught:
        killed.server.start()
    assert everything(killed.data) == before
    assert DAMAGES[damage] in str(caught.value).rpartition("fluss server:")[2]
    assert f"fluss repair catalog --data {killed.data}" in str(caught.value)


def test_with_its_catalog_everything_is_there_again(killed: Killed) -> None:
    killed.put_back()
    killed.server.start()
    with killed.server, connect(killed.server) as db:
        assert [db.to_arrow(name).num_rows for name in ("log", "keys", "days")] == [ROWS] * 3


def test_directories_that_a_catalog_does_not_name_are_moved_aside(tmp_path: Path) -> None:
    """The tables were deleted from the catalog file: their files stay, locally and in remote storage."""
    server = ServerProcess(tmp_path / "data", config={**OPTIONS, "remote.data.dir": str(tmp_path / "data/remote-data")})
    with server:
        with connect(server) as db:
            fill(db)
            wait_until(lambda: any("kv/" in name for name in remote_files(server.data)), "a snapshot was taken")
            wait_until(lambda: any(name.endswith(".log") for name in remote_files(server.data)), "a segment is remote")
        server.stop()
        before = remote_files(server.data)
        _forget_tables(server.data / "catalog.sqlite")
        server.start()
        with connect(server) as db:
            assert db.tables() == []
            db.create_table("new", COLUMNS)
            assert db.info("new").table_id > 2
        assert "fluss repair orphans" in server.log_text()
        server.stop()
        assert before <= remote_files(server.data)
        assert len(list((server.data / "orphans").glob("fluss/*/**/log-0"))) == 3


def _forget_tables(catalog: Path) -> None:
    with closing(sqlite3.connect(catalog, isolation_level=None)) as connection:
        for table in ("partitions", "schemas", "tables", "kv_snapshots", "row_numbers"):
            connection.execute(f"DELETE FROM {table}")


def test_a_dropped_table_is_removed_by_the_server_that_starts_after_a_kill(tmp_path: Path) -> None:
    """A drop is recorded until none of its files are left, however long the server was down meanwhile."""
    with ServerProcess(tmp_path / "data") as server:
        with connect(server) as db:
            fill(db)
            server.kill_role("tablet-0")
            db.drop_table("log")
            db.drop_table("keys")
        server.kill()
        server.start()
        directory = server.data / "data" / "fluss"
        wait_until(
            lambda: [path.name.partition("-")[0] for path in directory.iterdir()] == ["days"], "dropped tables are gone"
        )
        assert not (server.data / "orphans").exists()
        with connect(server) as db:
            assert db.to_arrow("days").num_rows == ROWS
