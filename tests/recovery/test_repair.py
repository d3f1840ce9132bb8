"""`fluss repair`: a lost catalog is rebuilt, after a dry run; orphans are only deleted by an explicit command."""

from __future__ import annotations

import asyncio
import contextlib
import io
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from fluss.cli.main import main
from fluss.server.catalog.safety_copies import list_copies, make_copy
from fluss.server.storage.staged_files import staging_directory
from tools.servers.server_process import ServerFailedError, ServerProcess

COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.string())])
ROWS = 50


class Broken:
    """The directory of a server that was killed, with every kind of table."""

    def __init__(self, directory: Path, *, with_copy: bool) -> None:
        self.data = directory / "data"
        self.server = ServerProcess(self.data)
        with fluss.connect(self.server.address, request_timeout=30_000) as db:
            self._fill(db)
            if with_copy:
                make_copy(self.data)
            self._change(db)
        self.server.kill()

    def _fill(self, db: fluss.Database) -> None:
        db.create_database("shop")
        db.create_table("shop.log", COLUMNS, bucket_count=2)
        db.create_table("days", COLUMNS, partition_keys=["day"], bucket_count=1)
        db.create_table("dropped", COLUMNS)
        db.create_table("numbered", fluss.TableDescriptor(_numbered()))
        db.append("shop.log", _rows(0))
        db.append("dropped", _rows(0))

    def _change(self, db: fluss.Database) -> None:
        """Make changes that an earlier safety copy does not have."""
        db.create_partition("days", {"day": "x"})
        db.append("days", _rows(0))
        db.alter_table("shop.log", add_columns=pa.schema([("more", pa.int32())]))
        db.append("shop.log", [{**row, "more": 7} for row in _rows(ROWS)])
        db.upsert("numbered", [{"id": number} for number in range(ROWS)], columns=["id"])
        db.create_table("late", COLUMNS, bucket_count=1)
        db.append("late", _rows(0))
        self.table_id = db.info("late").table_id
        # Its tablet is away, so that the files are still there when the catalog is lost.
        self.server.kill_role("tablet-0")
        db.drop_table("dropped")

    def check(self) -> None:
        """Check that everything is there and can be written to."""
        self.server.start()
        with self.server, fluss.connect(self.server.address, request_timeout=30_000) as db:
            assert sorted(db.tables()) == ["days", "late", "numbered"]
            assert db.tables("shop") == ["log"]
            assert [db.to_arrow(name).num_rows for name in ("days", "late", "shop.log")] == [ROWS, ROWS, 2 * ROWS]
            assert sorted(db.to_arrow("shop.log").column("more").to_pylist(), key=str) == [7] * ROWS + [None] * ROWS
            db.append("days", _rows(ROWS))
            assert db.to_arrow("days").num_rows == 2 * ROWS
            db.upsert("numbered", [{"id": number} for number in range(ROWS, 2 * ROWS)], columns=["id"])
            numbers = db.to_arrow("numbered").column("number").to_pylist()
            assert len(set(numbers)) == 2 * ROWS
            db.create_table("new", COLUMNS)
            assert db.info("new").table_id > self.table_id


def _rows(first: int) -> list[dict[str, object]]:
    return [{"id": number, "day": "x"} for number in range(first, first + ROWS)]


def _numbered() -> fluss.Schema:
    schema = pa.schema([("id", pa.int64()), ("number", pa.int64())])
    return fluss.Schema(schema, primary_keys=["id"], auto_increment_column="number")


def call(*arguments: str) -> tuple[int, str, str]:
    """Run the command in this process; returns exit code, output and errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["repair", *arguments])
    return code, out.getvalue(), err.getvalue()


def repair(job: str, data: Path, *flags: str) -> str:
    """Run the command, which must succeed; returns its output."""
    code, said, complaint = call(job, "--data", str(data), *flags)
    assert code == 0, complaint
    return said


def everything(data: Path) -> dict[str, bytes]:
    skipped = {"LOCK", "catalog.sqlite-shm"}
    return {str(path): path.read_bytes() for path in data.rglob("*") if path.is_file() and path.name not in skipped}


def test_from_the_directories_of_the_tables(tmp_path: Path) -> None:
    broken = Broken(tmp_path, with_copy=False)
    for name in ("catalog.sqlite", "catalog.sqlite-wal"):
        (broken.data / name).unlink()
    with pytest.raises(ServerFailedError, match="fluss repair catalog"):
        broken.server.start()
    before = everything(broken.data)
    shown = repair("catalog", broken.data, "--from-tables")
    assert everything(broken.data) == before, "a dry run changes nothing"
    assert "shop.log: table id 0, 2 schemas, 0 partitions, from its directory" in shown
    assert "fluss.days: table id 1, 1 schemas, 1 partitions" in shown
    assert "lost: permissions" in shown
    assert "dropped" not in shown
    assert "column number of fluss.numbered continues above 50" in repair(
        "catalog", broken.data, "--from-tables", "--apply"
    )
    broken.check()


def test_from_a_safety_copy_and_what_came_after_it(tmp_path: Path) -> None:
    broken = Broken(tmp_path, with_copy=True)
    (broken.data / "catalog.sqlite").write_bytes(b"no catalog " * 1000)
    (broken.data / "catalog.sqlite-wal").unlink()
    with pytest.raises(ServerFailedError, match="fluss repair catalog"):
        broken.server.start()
    copy = list_copies(broken.data)[0]
    shown = repair("catalog", broken.data, "--apply")
    assert f"from the safety copy {copy}" in shown
    assert "4 tables and 0 partitions are in the copy" in shown
    assert "fluss.late: table id 4" in shown
    assert "1 tables of the copy were dropped later" in shown
    (kept,) = broken.data.glob("catalog.replaced-*.sqlite")
    assert kept.read_bytes() == b"no catalog " * 1000
    broken.check()


@pytest.mark.parametrize("with_copy", [False, pytest.param(True, marks=pytest.mark.all)])
def test_databases_without_tables_are_known_from_the_mark(tmp_path: Path, with_copy: bool) -> None:
    data = tmp_path / "data"
    with fluss.embedded(data) as cluster, fluss.connect(cluster.bootstrap_servers) as db:
        admin = db.connection.get_admin()
        asyncio.run(admin.create_database("empty", fluss.DatabaseDescriptor(comment="for later")))
        asyncio.run(admin.create_database("shop", fluss.DatabaseDescriptor(comment="before")))
        db.create_table("shop.t", COLUMNS, bucket_count=1)
        if with_copy:
            make_copy(data)
        asyncio.run(admin.alter_database("shop", comment="after"))
        db.create_database("late")
    for path in data.glob("catalog.sqlite*"):
        path.unlink()
    shown = repair("catalog", data, *([] if with_copy else ["--from-tables"]))
    assert "database late, from catalog.mark" in shown
    assert ("database empty, from catalog.mark" in shown) == (not with_copy)
    assert "database shop" not in shown
    repair("catalog", data, "--apply", *([] if with_copy else ["--from-tables"]))
    with fluss.embedded(data) as cluster, fluss.connect(cluster.bootstrap_servers) as db:
        admin = db.connection.get_admin()
        assert sorted(db.databases()) == ["empty", "fluss", "late", "shop"]
        found = [asyncio.run(admin.get_database_info(name)).database_descriptor for name in ("empty", "shop")]
        assert [each.comment for each in found] == ["for later", "after"]


def test_staged_files_prevent_a_repair(tmp_path: Path) -> None:
    with fluss.embedded(tmp_path / "data") as cluster, fluss.connect(cluster.bootstrap_servers) as db:
        db.create_table("t", COLUMNS, bucket_count=1)
        db.append("t", _rows(0))
    data = tmp_path / "data"
    staged = Path(staging_directory(str(data / "data" / "fluss" / "t-0" / "log-0"))) / "5.staged"
    staged.parent.mkdir()
    staged.write_bytes(b"rows")
    (data / "catalog.sqlite").unlink()
    code, _, complaint = call("catalog", "--data", str(data), "--apply")
    assert code == 1
    assert "1 staged files" in complaint
    assert "--forget-staged" in complaint
    assert not (data / "catalog.sqlite").exists()
    repair("catalog", data, "--apply", "--forget-staged")
    with fluss.embedded(data) as cluster, fluss.connect(cluster.bootstrap_servers) as db:
        assert db.to_arrow("t").num_rows == ROWS
        assert "is in use by another server" in call("catalog", "--data", str(data))[2]


def test_orphans_are_listed_and_only_deleted_on_request(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert "no orphans" in repair_after_start(data)
    orphan = data / "orphans" / "shop" / "old-7"
    (orphan / "log-0").mkdir(parents=True)
    (orphan / "log-0" / "rows.log").write_bytes(b"12345")
    shown = repair("orphans", data)
    assert f"{orphan}: old-7, 5 bytes" in shown
    assert orphan.exists()
    assert "1 deleted" in repair("orphans", data, "--delete")
    assert not (data / "orphans").exists()
    code, _, complaint = call("orphans", "--data", str(tmp_path / "nowhere"))
    assert (code, "there is no data directory" in complaint) == (1, True)


def repair_after_start(data: Path) -> str:
    with fluss.embedded(data):
        pass
    return repair("orphans", data)
