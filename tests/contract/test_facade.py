"""The blocking facade: `fluss.connect` for scripts and notebooks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pyarrow as pa
import pytest

import fluss
from fluss import ErrorCode, FlussError, col
from tests.support.apache_fluss import USERS
from tests.support.kv_reader import read_changes, replay
from tests.support.targets import Target

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
    with pytest.raises(FlussError, match="delete takes rows"):
        database.delete(table_name, "3")
    with pytest.raises(FlussError, match="'id'"):
        database.upsert(table_name, {"name": "x"})
    with pytest.raises(FlussError, match="missing: id"):
        database.upsert(table_name, [(1,)], columns=["age"])


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


def test_it_blocks_inside_an_event_loop_too(target: Target, table_name: str) -> None:
    async def notebook() -> None:
        database = fluss.connect(target.bootstrap_servers, request_timeout_ms=30_000)
        database.create_table(table_name, SCHEMA)
        database.append(table_name, {"id": 1})
        assert ids(database.scan(table_name)) == [1]
        database.close()
        assert repr(database) == f"Database('{target.bootstrap_servers}', 'fluss', closed)"

    asyncio.run(notebook())


def test_logins_and_mistakes(target: Target, database: fluss.Database, table_name: str) -> None:
    with fluss.connect(target.sasl_bootstrap_servers, username="alice", password=USERS["alice"]) as secured:
        assert "fluss" in secured.databases()
    database.create_table(table_name, SCHEMA)
    with pytest.raises(FlussError, match="append takes rows"):
        database.append(table_name, "text")
    with pytest.raises(FlussError) as caught:
        database.scan(table_name + "_missing")
    assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST
    with pytest.raises(FlussError, match="unknown configuration key"):
        fluss.connect(target.bootstrap_servers, speed="high")
