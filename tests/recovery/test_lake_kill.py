"""`kill -9` of the whole server in the middle of its work for the lake.

The test holds a lock on the catalog, so that the server is exactly between its two steps (lake table created, Fluss
table not yet; offsets file written, snapshot not yet registered) when it is killed. Repeating the call must then finish
the work. The last test kills at random moments while snapshots are registered. `FLUSS_KILL_ROUNDS` sets the number of
rounds of all kill tests; that one does a fifteenth of them. Each test has a table of its own on one server.
"""

from __future__ import annotations

import itertools
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pytest

import fluss
from fluss.errors import FlussError
from fluss.lake.coordinator_calls import KEEP_ALL_SNAPSHOTS, TieringCalls, TieringTable
from fluss.model.paths import TableBucket, TablePath
from tests.support.runner.lanes import rounds
from tools.servers.server_process import ServerProcess
from tools.waiting import patience, wait_until

ROUNDS = rounds(gate=3, all_lanes=3, share_of_soak=1 / 15)
LAKE = {"table.datalake.enabled": "true"}
SCHEMA = pa.schema([("id", pa.int64())])
ROWS = 100_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("lake") / "data") as server:
        yield server


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A table that no other test uses."""
    return f"fluss.{request.node.name}"


@contextmanager
def locked_catalog(server: ServerProcess) -> Iterator[None]:
    """Lock the catalog, so that the metadata cannot be changed meanwhile."""
    connection = sqlite3.connect(server.data / "catalog.sqlite", timeout=patience(120), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def lake_columns(server: ServerProcess, name: str) -> list[str]:
    """The columns of the lake table, read with only the lake's address; none if there is no table."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError
    from sqlalchemy.exc import OperationalError

    file = server.data / "lake" / "catalog.sqlite"
    if not file.exists():
        return []
    # Only the server makes the tables of the catalog; until it has done so, there is no lake table.
    options = {"type": "sql", "uri": f"sqlite:///{file}?timeout=30", "init_catalog_tables": "false"}
    catalog = load_catalog("fluss", **options)
    try:
        return [field.name for field in catalog.load_table(tuple(name.split("."))).schema().fields]
    except (NoSuchTableError, OperationalError):
        return []
    finally:
        catalog.close()


def killed_between(
    server: ServerProcess, call: Callable[[fluss.Database], object], lake_is_done: Callable[[], bool]
) -> None:
    """Begin a call, wait until its first half is done, kill the server and start it again."""
    with fluss.connect(server.address) as db:

        def begin() -> None:
            with pytest.raises(FlussError):
                call(db)

        with locked_catalog(server):
            caller = threading.Thread(target=begin)
            caller.start()
            wait_until(lake_is_done, "the lake is changed")
            server.kill()
        caller.join(patience(60))
        assert not caller.is_alive()
    server.start()


def test_between_the_lake_table_and_the_table(server: ServerProcess, name: str) -> None:
    def create(db: fluss.Database) -> None:
        db.create_table(name, SCHEMA, properties=LAKE)

    killed_between(server, create, lambda: lake_columns(server, name) != [])
    with fluss.connect(server.address) as db:
        assert name.partition(".")[2] not in db.tables("fluss")
        create(db)
        db.append(name, [{"id": 1}])
        assert db.to_arrow(name).to_pylist() == [{"id": 1}]


def test_between_the_lake_table_and_the_enabled_property(server: ServerProcess, name: str) -> None:
    def enable(db: fluss.Database) -> None:
        db.alter_table(name, set_properties=LAKE)

    with fluss.connect(server.address) as db:
        db.create_table(name, SCHEMA)
    killed_between(server, enable, lambda: lake_columns(server, name) != [])
    with fluss.connect(server.address) as db:
        assert "table.datalake.enabled" not in db.info(name).properties
        enable(db)
        assert db.info(name).properties["table.datalake.format"] == "iceberg"


def test_between_the_columns_of_the_lake_table_and_of_the_table(server: ServerProcess, name: str) -> None:
    def add(db: fluss.Database) -> None:
        db.alter_table(name, add_columns={"more": pa.string()})

    with fluss.connect(server.address) as db:
        db.create_table(name, SCHEMA, properties=LAKE)
    killed_between(server, add, lambda: "more" in lake_columns(server, name))
    with fluss.connect(server.address) as db:
        assert db.info(name).get_column_names() == ["id"]
        add(db)
        assert db.info(name).get_column_names() == ["id", "more"]
    assert lake_columns(server, name) == ["id", "more", "__bucket", "__offset", "__timestamp"]


def test_between_columns_that_were_added_without_the_lake_and_the_enabled_property(
    server: ServerProcess, name: str
) -> None:
    def enable(db: fluss.Database) -> None:
        db.alter_table(name, set_properties=LAKE)

    with fluss.connect(server.address) as db:
        db.create_table(name, SCHEMA, properties=LAKE)
        db.alter_table(name, set_properties={"table.datalake.enabled": "false"})
        db.alter_table(name, add_columns={"more": pa.string()})
    killed_between(server, enable, lambda: "more" in lake_columns(server, name))
    with fluss.connect(server.address) as db:
        assert db.info(name).properties["table.datalake.enabled"] == "false"
        enable(db)
    assert lake_columns(server, name) == ["id", "more", "__bucket", "__offset", "__timestamp"]


@contextmanager
def tiering(server: ServerProcess) -> Iterator[TieringCalls]:
    config = fluss.Config({"bootstrap.servers": server.address})
    with fluss.FlussConnection.open(config) as connection:
        yield TieringCalls.of(connection)


def path_of(name: str) -> TablePath:
    return TablePath(*name.split("."))


def end_of(calls: TieringCalls, name: str) -> tuple[int, int]:
    """The id of the newest snapshot and the end of bucket 0 in it; zeros if there is none."""
    found = calls.snapshot(path_of(name))
    if found is None:
        return 0, 0
    return found[1].snapshot_id, found[1].get_bucket_offset(fluss.TableBucket(found[0], 0)) or 0


def table_with_rows(server: ServerProcess, name: str) -> int:
    """Create a table with rows, of which snapshots can be registered; returns the id of the table."""
    with fluss.connect(server.address) as db:
        db.create_table(name, SCHEMA, bucket_count=1, properties=LAKE)
        db.append(name, pa.table({"id": range(ROWS)}, SCHEMA))
        return db.info(name).table_id


def test_a_commit_that_was_never_answered_can_be_repeated(server: ServerProcess, name: str) -> None:
    table_id = table_with_rows(server, name)
    bucket = TableBucket(table_id, None, 0)
    with tiering(server) as calls:
        calls.commit(table_id, 1, calls.prepare(table_id, path_of(name), {bucket: 5}))
        path = calls.prepare(table_id, path_of(name), {bucket: 9})
        with locked_catalog(server):
            caller = threading.Thread(target=lambda: _fails(lambda: calls.commit(table_id, 2, path)))
            caller.start()
            time.sleep(0.3)  # the coordinator waits for the catalog now, or will
            server.kill()
        caller.join(patience(60))
        assert not caller.is_alive()
    server.start()
    with tiering(server) as calls:
        assert end_of(calls, name) == (1, 5)
        calls.commit(table_id, 2, path)
        assert end_of(calls, name) == (2, 9)


def _fails(call: Callable[[], object]) -> None:
    with pytest.raises(FlussError):
        call()


def test_epochs_from_before_a_crash_are_never_used_again(server: ServerProcess, name: str) -> None:
    with fluss.connect(server.address) as db:
        db.create_table(name, SCHEMA, properties={**LAKE, "table.datalake.freshness": "1 ms"})
    seen: list[TieringTable] = []
    for _ in range(2):
        with tiering(server) as calls:
            table = taken(calls)
            for old in seen:
                assert calls.heartbeat(tiering=[old]).errors[old].error_code == 23
            seen.append(table)
        server.kill()
        server.start()
    first, second = seen
    assert first.table_id == second.table_id
    assert first.tiering_epoch < second.tiering_epoch
    assert first.coordinator_epoch < second.coordinator_epoch


def taken(calls: TieringCalls) -> TieringTable:
    """Request a table until one is due."""
    found: list[TieringTable] = []

    def is_due() -> bool:
        table = calls.heartbeat(request_table=True).table
        if table is not None:
            found.append(table)
        return bool(found)

    wait_until(is_due, "a table is due")
    return found[0]


class Registering(threading.Thread):
    """Registers snapshot n with offset n, one after the other, and continues after the server's newest one."""

    def __init__(self, server: ServerProcess, name: str, table_id: int) -> None:
        super().__init__(daemon=True)
        self._address = server.address
        self._table = name
        self._bucket = TableBucket(table_id, None, 0)
        self.sent = self.acknowledged = 0
        self.error: BaseException | None = None

    def is_beyond(self, number: int) -> bool:
        """True if it has made progress or has ended."""
        return self.acknowledged > number or not self.is_alive()

    def run(self) -> None:
        config = fluss.Config({"bootstrap.servers": self._address})
        try:
            with fluss.FlussConnection.open(config) as connection:
                calls = TieringCalls.of(connection)
                start, _ = end_of(calls, self._table)
                for number in itertools.count(start + 1):
                    path = calls.prepare(self._bucket.table_id, path_of(self._table), {self._bucket: number})
                    self.sent = number
                    keep = KEEP_ALL_SNAPSHOTS if number % 5 else None
                    calls.commit(self._bucket.table_id, number, path, earliest_snapshot_id=keep)
                    self.acknowledged = number
        except FlussError:
            return  # the server was killed
        except BaseException as error:
            self.error = error
            raise


def test_kills_while_snapshots_are_registered(server: ServerProcess, name: str) -> None:
    generator = random.Random(11)
    table_id = table_with_rows(server, name)
    known = 0
    for _ in range(ROUNDS):
        service = Registering(server, name, table_id)
        service.start()
        wait_until(partial(service.is_beyond, known), "progress")
        time.sleep(generator.uniform(0.0, 0.2))  # the crash comes at a random moment; nothing waits for it
        server.kill()
        service.join(patience(60))
        assert service.error is None
        assert service.acknowledged > known
        server.start()
        with tiering(server) as calls:
            snapshot_id, known = end_of(calls, name)
        assert snapshot_id == known, "a snapshot with the offsets of another one"
        assert service.acknowledged <= known <= service.sent
