"""The blocking facade: `fluss.connect` for scripts and notebooks."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import DataTypes, ErrorCode, FlussError, col
from fluss.api import blocking, blocking_parts
from tests.support.servers.targets import Target
from tests.support.tables.kv_reader import read_changes, replay
from tools.servers.logins import USERS
from tools.waiting import patience

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string())])


@pytest.fixture
def database(target: Target) -> Iterator[fluss.Database]:
    with fluss.connect(target.bootstrap_servers) as database:
        yield database


def ids(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


def test_tables_rows_and_scans(database: fluss.Database, table_name: str) -> None:
    database.create_table(table_name, SCHEMA, bucket_count=2)
    database.create_table(table_name, fluss.Schema(SCHEMA), ignore_if_exists=True)
    assert table_name in database.tables()
    assert "fluss" in database.databases()
    assert database.info(table_name).num_buckets == 2
    assert database.scan(table_name).num_rows == 0
    database.append(table_name, {"id": 1, "name": "one"})
    database.append(table_name, [{"id": 2, "name": "two"}, (3, "three"), [4, None]])
    database.append(table_name, ({"id": number} for number in (5, 6)))
    database.append(table_name, pa.table({"id": [7], "name": ["seven"]}))
    database.append(table_name, pa.record_batch({"name": ["eight"], "id": [8]}))
    assert ids(database.scan(table_name)) == list(range(1, 9))
    assert database.scan(table_name, ["name"]).column_names == ["name"]
    assert ids(database.scan(table_name, where=(col("id") >= 3) & (col("id") < 5))) == [3, 4]
    assert ids(database.scan(table_name, since=1)) == list(range(1, 9))
    assert database.head(table_name, 1, ["name"]).num_rows == 1
    followed = 0
    for batch in database.follow(table_name):
        followed += batch.num_rows
        if followed == 8:
            break
    database.drop_table(table_name)
    assert table_name not in database.tables()


def test_upserts_and_deletes(database: fluss.Database, table_name: str) -> None:
    database.create_table(table_name, SCHEMA.append(pa.field("age", pa.int64())), primary_keys=["id"], bucket_count=2)
    database.upsert(table_name, {"id": 1, "name": "one", "age": 1})
    database.upsert(table_name, [(2, "two", 2), {"id": 3, "name": "three"}])
    database.upsert(table_name, pa.table({"id": [4, 5, 1], "name": ["four", "five", "uno"]}))
    database.upsert(table_name, [(1, 11), (2, 22)], columns=["id", "age"])
    database.delete(table_name, [(3,), {"id": 9}])
    database.delete(table_name, pa.table({"id": [5]}))
    path = fluss.TablePath("fluss", table_name)
    rows = replay(read_changes(database.connection, path), ["id"])
    assert {key: (row["name"], row["age"]) for (key,), row in rows.items()} == {
        1: ("uno", 11),
        2: ("two", 22),
        4: ("four", None),
    }
    with pytest.raises(FlussError, match="delete accepts rows"):
        database.delete(table_name, "3")
    with pytest.raises(FlussError, match="'id'"):
        database.upsert(table_name, {"name": "x"})
    with pytest.raises(FlussError, match="missing: id"):
        database.upsert(table_name, [(1,)], columns=["age"])


def test_lookups_and_whole_tables(database: fluss.Database, table_name: str) -> None:
    schema = pa.schema([("device", pa.string()), ("at", pa.int32()), ("value", pa.float64())])
    options: dict[str, Any] = {"primary_keys": ["device", "at"], "bucket_keys": ["device"], "bucket_count": 2}
    database.create_table(table_name, schema, **options)
    rows = [{"device": f"d{number % 3}", "at": number, "value": number / 2} for number in range(9)]
    database.upsert(table_name, rows)
    assert database.lookup(table_name, ("d1", 4)) == rows[4]
    assert database.lookup(table_name, {"at": 4, "device": "d2"}) is None
    assert database.lookup(table_name, "d1", by=["device"]) == [rows[1], rows[4], rows[7]]
    assert database.lookup(table_name, ["d9"], by=["device"]) == []
    assert database.lookup_many(table_name, [("d0", 3), ("d0", 4)]) == [rows[3], None]
    found = database.lookup_many(table_name, pa.table({"device": ["d2", "d2"], "at": pa.array([5, 6], pa.int32())}))
    assert found.column("value").to_pylist() == [2.5, None]
    database.delete(table_name, [("d0", 3)])
    assert database.lookup(table_name, ("d0", 3)) is None
    now = database.to_arrow(table_name)
    assert sorted(now.column("at").to_pylist()) == [0, 1, 2, 4, 5, 6, 7, 8]
    some = database.to_arrow(table_name, ["at"], where=col("at") > 6)
    assert (some.column_names, sorted(some.column("at").to_pylist())) == (["at"], [7, 8])
    assert database.to_arrow(table_name, limit=3).num_rows == 3
    with pytest.raises(FlussError, match="'at'"):
        database.lookup(table_name, {"device": "d1"})
    database.drop_table(table_name)
    database.create_table(table_name, schema, **options)  # created again: kept lookupers are of no use
    assert database.lookup(table_name, ("d1", 4)) is None


def test_whole_log_tables(database: fluss.Database, table_name: str) -> None:
    database.create_table(table_name, SCHEMA)
    database.append(table_name, [(1, "one"), (2, "two")])
    assert ids(database.to_arrow(table_name)) == [1, 2]
    assert database.to_arrow(table_name, ["name"], limit=1).num_rows == 1
    with pytest.raises(FlussError, match="no primary key"):
        database.lookup(table_name, 1)


def test_a_table_that_was_made_anew_is_written_again(database: fluss.Database, table_name: str) -> None:
    database.create_table(table_name, SCHEMA)
    database.append(table_name, {"id": 1})
    database.drop_table(table_name)
    database.create_table(table_name, SCHEMA)
    database.append(table_name, {"id": 2})
    assert ids(database.scan(table_name)) == [2]
    database.alter_table(table_name, add_columns={"note": pa.string()})
    database.append(table_name, {"id": 3, "note": "new"})
    assert database.scan(table_name).sort_by("id").column("note").to_pylist() == [None, "new"]


def test_partitions(database: fluss.Database, table_name: str) -> None:
    database.create_table(table_name, SCHEMA, partition_keys=["name"])
    database.create_partition(table_name, {"name": "a"})
    database.append(table_name, {"id": 1, "name": "a"})
    assert [partition.partition_name for partition in database.partitions(table_name)] == ["a"]
    assert ids(database.scan(table_name)) == [1]
    assert database.head(table_name).num_rows == 1
    with pytest.raises(FlussError) as caught:
        database.append(table_name, {"id": 2, "name": "b"})
    assert caught.value.error_code == ErrorCode.PARTITION_NOT_EXISTS


def test_a_table_without_partitions_is_empty(database: fluss.Database, table_name: str) -> None:
    database.create_table(table_name, SCHEMA, partition_keys=["name"])
    assert database.scan(table_name) == SCHEMA.empty_table()
    assert database.scan(table_name, ["id"], since=1).column_names == ["id"]
    assert database.scan(table_name, start_offset=fluss.LATEST_OFFSET).num_rows == 0
    assert database.head(table_name, columns=["id"]) == SCHEMA.empty_table().select(["id"])


@pytest.mark.parametrize("partitions", [[], ["a"]], ids=["none", "one"])
def test_following_finds_new_partitions(
    database: fluss.Database, table_name: str, partitions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_parts, "PARTITION_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(blocking, "FOLLOW_POLL_MS", 10)
    database.create_table(table_name, SCHEMA, partition_keys=["name"])
    for name in partitions:
        database.create_partition(table_name, {"name": name})
    followed = database.follow(table_name, ["id"])
    waiting = ThreadPoolExecutor(1)
    for number, name in enumerate(["b", "c"]):
        first = waiting.submit(next, followed)
        database.create_partition(table_name, {"name": name})
        database.append(table_name, {"id": number, "name": name})
        assert first.result(patience(60)).batch.to_pylist() == [{"id": number}]
    waiting.submit(followed.close).result(patience(60))  # type: ignore[attr-defined]


def test_a_column_that_another_program_added(target: Target, database: fluss.Database, table_name: str) -> None:
    keyed = f"{table_name}_keyed"
    database.create_table(table_name, SCHEMA)
    database.create_table(keyed, SCHEMA, primary_keys=["id"])
    with fluss.connect(target.bootstrap_servers) as other:
        other.append(table_name, {"id": 1})
        other.upsert(keyed, {"id": 1})
        for name in (table_name, keyed):
            database.alter_table(name, add_columns={"note": pa.string()})
        other.append(table_name, [{"id": 2}, {"id": 3, "note": "new"}, (4, "x", "newer")])
        other.append(table_name, pa.table({"id": [5], "note": ["newest"]}))
        other.upsert(keyed, [(1, "one", "new")])
        assert other.lookup_many(keyed, [1])[0]["note"] == "new"
        with pytest.raises(FlussError, match="nothing"):
            other.append(table_name, {"id": 6, "nothing": 1})
    notes = database.scan(table_name).sort_by("id").column("note").to_pylist()
    assert notes == [None, None, "new", "newer", "newest"]


def test_opening_a_table_does_not_hold_up_others(
    database: fluss.Database, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.create_table(table_name, SCHEMA)
    database.create_table(f"{table_name}_slow", SCHEMA)
    opened, begun, may_go_on = database._open, threading.Event(), threading.Event()

    def slow(table: Any) -> Any:
        if str(table).endswith("_slow"):
            begun.set()
            assert may_go_on.wait(patience(60))
        return opened(table)

    monkeypatch.setattr(database, "_open", slow)
    with ThreadPoolExecutor(1) as other:
        writing = other.submit(database.append, f"{table_name}_slow", {"id": 1})
        assert begun.wait(patience(60))
        database.append(table_name, {"id": 2})
        may_go_on.set()
        writing.result(patience(60))


def test_pickles_point_to_the_address(database: fluss.Database) -> None:
    for what in (database, database.connection, database.connection.get_admin()):
        with pytest.raises(FlussError, match="pass the address"):
            pickle.dumps(what)
    assert pickle.loads(pickle.dumps(database.connection.config)) == database.connection.config


def test_it_blocks_inside_an_event_loop_too(target: Target, table_name: str) -> None:
    async def notebook() -> None:
        database = fluss.connect(target.bootstrap_servers, request_timeout_ms=30_000)
        database.create_table(table_name, SCHEMA)
        database.append(table_name, {"id": 1})
        assert ids(database.scan(table_name)) == [1]
        assert ids(database.to_arrow(table_name)) == [1]
        database.create_table(f"{table_name}_keyed", SCHEMA, primary_keys=["id"])
        database.upsert(f"{table_name}_keyed", {"id": 1})
        assert database.lookup(f"{table_name}_keyed", 1) == {"id": 1, "name": None}
        database.close()
        assert repr(database) == f"Database('{target.bootstrap_servers}', 'fluss', closed)"

    asyncio.run(notebook())


def test_logins_and_mistakes(target: Target, database: fluss.Database, table_name: str) -> None:
    with fluss.connect(target.sasl_bootstrap_servers, username="alice", password=USERS["alice"]) as secured:
        assert "fluss" in secured.databases()
    database.create_table(table_name, SCHEMA)
    with pytest.raises(FlussError, match="append accepts rows"):
        database.append(table_name, "text")
    with pytest.raises(FlussError) as caught:
        database.scan(table_name + "_missing")
    assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST
    with pytest.raises(FlussError, match="unknown configuration key"):
        fluss.connect(target.bootstrap_servers, speed="high")


def test_a_delete_that_would_leave_the_row_is_refused(database: fluss.Database, table_name: str) -> None:
    """A server takes only deletes of the other columns, which leave a row with its key and its number."""
    columns = fluss.Schema.builder().column("name", DataTypes.string()).column("number", DataTypes.bigint())
    schema = columns.column("age", DataTypes.int()).primary_key(["name"]).enable_auto_increment("number").build()
    database.create_table(table_name, schema)
    database.upsert(table_name, {"name": "ada", "age": 36})
    for _ in range(2):
        with pytest.raises(FlussError, match="auto-increment column 'number' cannot be deleted"):
            database.delete(table_name, [("ada",)])
    assert database.lookup(table_name, "ada") == {"name": "ada", "number": 1, "age": 36}
