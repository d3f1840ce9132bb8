"""Neither `kill -9` nor a copy of a running server's directory makes a catalog look old."""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from tests.support.runner.lanes import rounds
from tools.servers.server_process import ServerProcess
from tools.waiting import patience, wait_until

COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.string())])
ROUNDS = rounds(gate=2, all_lanes=20)


class Changes(threading.Thread):
    """Creates, alters, fills and drops tables until it is stopped or its server is gone."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._end = threading.Event()
        self.count = 0

    def run(self) -> None:
        try:
            with fluss.connect(self._address, request_timeout=10_000, writer_retries=1) as db:
                while not self._end.is_set():
                    self._change(db, f"t{self.count}_{id(self)}")
                    self.count += 1
        except fluss.FlussError:
            return  # the server was killed

    def _change(self, db: fluss.Database, name: str) -> None:
        db.create_table(name, COLUMNS, partition_keys=["day"], bucket_count=1)
        db.create_partition(name, {"day": "monday"})
        db.append(name, [{"id": 1, "day": "monday"}])
        db.alter_table(name, add_columns=pa.schema([("more", pa.int32())]))
        db.alter_table("steady", set_properties={"table.log.ttl": f"{7 + self.count % 5}d"})
        if self.count % 3 == 2:
            db.drop_table(name)

    def stop(self) -> None:
        self._end.set()
        self.join(patience(60.0))
        assert not self.is_alive()


@contextmanager
def changing(server: ServerProcess) -> Iterator[Changes]:
    changes = Changes(server.address)
    changes.start()
    wait_until(lambda: changes.count > 2, "tables are being changed")
    yield changes
    changes.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", tablets=2) as server:
        with fluss.connect(server.address) as db:
            db.create_table("steady", COLUMNS, bucket_count=1)
            db.append("steady", [{"id": number, "day": "x"} for number in range(50)])
        yield server


def check(address: str) -> None:
    """Check that every table in the catalog can be read."""
    with fluss.connect(address, request_timeout=30_000) as db:
        assert db.to_arrow("steady").num_rows == 50
        for name in db.tables():
            db.to_arrow(name)


def test_killed_while_tables_change(server: ServerProcess) -> None:
    for _ in range(ROUNDS):
        with changing(server):
            server.kill()
        server.start()
        check(server.address)
        assert not (server.data / "orphans").exists()


def test_copied_while_tables_change(server: ServerProcess, tmp_path: Path) -> None:
    """In the worst order: the catalog first, the directories of tables after others were created and altered."""
    with changing(server) as changes:
        for number in range(ROUNDS):
            copy = tmp_path / f"copy{number}"
            copy.mkdir()
            _copy(server.data, copy, "catalog.sqlite", "catalog.sqlite-wal")
            seen = changes.count
            wait_until(lambda seen=seen: changes.count > seen + 3, "tables were changed meanwhile")  # type: ignore[misc]
            _copy(server.data, copy, "data", "catalog.mark")
    for number in range(ROUNDS):
        with fluss.embedded(tmp_path / f"copy{number}") as cluster:
            check(cluster.bootstrap_servers)
        assert list((tmp_path / f"copy{number}" / "orphans" / "fluss").iterdir()), "later tables are put aside"


def test_copied_in_one_go(server: ServerProcess, tmp_path: Path) -> None:
    with changing(server):
        for number in itertools.count():
            copy = tmp_path / f"copy{number}"
            _copy(tmp_path, copy, "data")
            if number + 1 >= ROUNDS:
                break
    for number in range(ROUNDS):
        with fluss.embedded(tmp_path / f"copy{number}" / "data") as cluster:
            check(cluster.bootstrap_servers)


def _copy(source: Path, target: Path, *names: str) -> None:
    """Files may come and go meanwhile, for which `cp` has an exit code."""
    target.mkdir(exist_ok=True)
    for name in names:
        subprocess.run(["cp", "-r", str(source / name), str(target)], stderr=subprocess.DEVNULL, check=False)
