"""A catalog that is missing, empty, old or damaged costs nobody a row: nothing is deleted that it does not name."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa

import fluss
from tests.support.server_process import ServerProcess
from tests.support.waiting import wait_until

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


def test_what_a_catalog_does_not_name_is_put_aside(tmp_path: Path) -> None:
    """Somebody took the tables out of the catalog: their files stay, here and in remote storage."""
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
    """A drop is noted until nothing is left of it, however long the server was away meanwhile."""
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
