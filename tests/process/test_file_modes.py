"""Other users of the machine cannot read what a server stores."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from tools.servers.server_process import ServerProcess
from tools.waiting import wait_until

CONFIG = {"log.segment.file-size": "1kb", "remote.log.task-interval-duration": "100 ms"}


def open_to_others(directory: Path) -> list[str]:
    """Return everything below a directory that users other than its owner may read, write or enter."""
    modes = {directory: directory.lstat().st_mode}
    for folder, folders, files in os.walk(directory):
        for path in (Path(folder, name) for name in [*folders, *files]):
            with suppress(FileNotFoundError):  # a running server renames and removes files
                modes[path] = path.lstat().st_mode
    assert len(modes) > len(["data", "LOCK", "catalog.sqlite"])
    return [f"{stat.filemode(mode)} {path}" for path, mode in modes.items() if mode & 0o077]


def write(address: str) -> None:
    with fluss.connect(address) as db:
        db.create_table("log", pa.schema([("id", pa.int32())]))
        db.create_table("kv", pa.schema([("id", pa.int32()), ("v", pa.string())]), primary_keys=["id"])
        db.upsert("kv", [{"id": 1, "v": "x"}])
        for number in range(5):
            db.append("log", [{"id": row} for row in range(number * 500, number * 500 + 500)])


def test_a_new_data_directory_and_its_files_are_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, config=CONFIG) as server:
        write(server.address)
        wait_until(lambda: list(data.glob("remote/**/*.log")), "a segment was copied")
        assert open_to_others(data) == []
    assert open_to_others(data) == []


@pytest.mark.all
def test_files_for_other_users_keep_the_mode_that_the_operator_wants(tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    with ServerProcess(tmp_path / "data", config={**CONFIG, "remote.data.dir": str(remote)}) as server:
        write(server.address)
        wait_until(lambda: list(remote.rglob("*.log")), "a segment was copied")
        segment = next(iter(remote.rglob("*.log")))
        assert segment.stat().st_mode & 0o044, "clients of other users read it"
        assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


@pytest.mark.all
def test_a_readable_directory_is_logged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    with ServerProcess(data) as server:
        assert f"can read data directory {data}; chmod 700" in server.log_text()
        assert stat.S_IMODE(data.stat().st_mode) == 0o755, "it is not ours to change"
        for name in ("LOCK", "catalog.sqlite"):
            assert stat.S_IMODE((data / name).stat().st_mode) == 0o600
