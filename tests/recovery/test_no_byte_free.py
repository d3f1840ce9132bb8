"""A disk without a byte left, filled by another program: tables can be opened, read and dropped, which makes room.

Needs the right to mount (Linux, root), like the other tests with disks that are really full.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.directory.disk_reserve import (
    DROPPING_FILE_NAME,
    OPENING_FILE_NAME,
    RESERVE_BYTES,
    keep_reserves,
    make_room_for_dropping,
    make_room_for_opening,
)
from tests.recovery import test_full_disk
from tests.recovery.test_full_disk import fill, table_names
from tools.servers.server_process import ServerProcess
from tools.waiting import wait_until

disk = test_full_disk.disk
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
ROWS = [{"id": number, "text": "x" * 1000} for number in range(500)]


def free_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def make_tables(db: fluss.Database) -> None:
    db.create_table("keys", fluss.Schema(SCHEMA, primary_keys=["id"]), bucket_count=1)
    db.upsert("keys", ROWS)
    for name in ("log", "large"):
        db.create_table(name, SCHEMA, bucket_count=1)
        db.append(name, ROWS)


def is_appended(db: fluss.Database, table: str) -> bool:
    try:
        db.append(table, [{"id": 1, "text": "there is room again"}])
    except FlussError as error:
        if error.error_code != ErrorCode.DISK_WRITE_LOCKED:
            raise
        return False
    return True


@pytest.fixture
def filled(disk: Path) -> Iterator[ServerProcess]:
    """A server that runs on a disk with three tables."""
    keep_reserves(disk)
    with ServerProcess(disk, tablets=1) as server:
        with fluss.connect(server.address) as db:
            make_tables(db)
        yield server


def test_a_table_can_be_dropped(filled: ServerProcess, disk: Path) -> None:
    fill(disk / "filler")
    assert free_bytes(disk) == 0
    with fluss.connect(filled.address) as db:
        for name in ("large", "keys"):
            db.drop_table(name)
        assert table_names(filled.address) == {"log"}
        wait_until(lambda: not list((disk / "data" / "fluss").glob("large-*")), "its files are gone")
        assert db.to_arrow("log").num_rows == len(ROWS)
        (disk / "filler").unlink()
        wait_until(lambda: is_appended(db, "log"), "there is room")
    assert "Traceback" not in filled.log_text()


@pytest.mark.parametrize("ending", ["stopped", pytest.param("killed", marks=pytest.mark.all)])
def test_a_start_opens_and_drops_tables(filled: ServerProcess, disk: Path, ending: str) -> None:
    if ending == "stopped":
        assert filled.stop() == 0
    else:
        filled.kill()
    fill(disk / "filler")
    assert free_bytes(disk) == 0
    filled.start()
    with fluss.connect(filled.address) as db:
        assert db.to_arrow("keys").num_rows == len(ROWS)
        assert db.lookup("keys", {"id": 7}) == ROWS[7]
        assert db.to_arrow("log").num_rows == len(ROWS)
        fill(disk / "more")
        db.drop_table("large")
        assert table_names(filled.address) == {"keys", "log"}
    assert "Traceback" not in filled.log_text()


def test_reserves_are_created_again_when_there_is_room(disk: Path) -> None:
    files = disk / OPENING_FILE_NAME, disk / DROPPING_FILE_NAME

    def taken() -> list[bool]:
        return [file.exists() and file.stat().st_blocks * 512 >= RESERVE_BYTES for file in files]

    keep_reserves(disk)
    assert taken() == [True, True]
    make_room_for_dropping(disk)
    assert taken() == [True, True], "there is room without them"
    fill(disk / "filler")
    make_room_for_opening(disk)
    assert (free_bytes(disk), taken()) == (RESERVE_BYTES, [False, True])
    fill(disk / "more")
    make_room_for_opening(disk)
    assert taken() == [False, True], "openings leave drops their room"
    make_room_for_dropping(disk)
    assert (free_bytes(disk), taken()) == (RESERVE_BYTES, [False, False])
    keep_reserves(disk)
    assert taken() == [False, False], "a full disk is not filled again"
    (disk / "filler").unlink()
    files[0].touch()  # as a copy has it that leaves out what was never written
    keep_reserves(disk)
    assert taken() == [True, True]
