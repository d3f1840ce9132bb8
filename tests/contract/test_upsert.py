"""Upserts, deletes and partial updates of primary-key tables: the same on every server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import fluss
from fluss import ErrorCode, FlussConnection, FlussError, FlussTable, TablePath
from fluss.codec.keys.bucketing import fluss_bucket
from fluss.codec.keys.encoding import KeyEncoding, encode_key
from fluss.model.types import IntType
from tests.support.tables.kv_reader import look_up, read_changes, replay
from tools.waiting import patience

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("age", pa.int64()), ("score", pa.float64())])
WAIT_SECONDS = patience(60.0)


async def create(
    connection: FlussConnection, name: str, schema: Any = SCHEMA, keys: Sequence[str] = ("id",), **options: Any
) -> FlussTable:
    path = TablePath("fluss", name)
    fields = schema if isinstance(schema, fluss.Schema) else fluss.Schema(schema, primary_keys=list(keys))
    await connection.get_admin().create_table(path, fluss.TableDescriptor(fields, **options))
    return await connection.get_table(path)


def new_table(
    connection: FlussConnection, name: str, schema: Any = SCHEMA, keys: Sequence[str] = ("id",), **options: Any
) -> FlussTable:
    return asyncio.run(create(connection, name, schema, keys, **options))


def kinds(connection: FlussConnection, table: FlussTable) -> list[tuple[str, tuple[Any, ...]]]:
    return [(change.kind, tuple(change.row.values())) for change in read_changes(connection, table.table_path)]


def test_the_writing_of_the_documents(connection: FlussConnection, table_name: str) -> None:
    async def body() -> FlussTable:
        table = await create(connection, table_name, SCHEMA.remove(3), bucket_count=3)
        writer = table.new_upsert()
        writer.upsert({"id": 1, "name": "Alice", "age": 25})
        writer.upsert({"id": 2, "name": "Bob", "age": 30})
        await writer.flush()
        handle = writer.upsert({"id": 3, "name": "Charlie", "age": 35})
        await handle.wait()
        handle = writer.delete({"id": 2})
        await handle.wait()
        partial_writer = table.new_upsert(columns=["id", "age"])
        partial_writer.upsert({"id": 1, "age": 27})  # only updates age
        await partial_writer.flush()
        return table

    path = asyncio.run(body()).table_path
    assert look_up(connection, path, (1,)) == {"id": 1, "name": "Alice", "age": 27}
    assert look_up(connection, path, (2,)) is None
    assert look_up(connection, path, (3,)) == {"id": 3, "name": "Charlie", "age": 35}


def test_a_scan_shows_every_change(connection: FlussConnection, table_name: str) -> None:
    async def body() -> list[tuple[str, dict[str, Any]]]:
        table = await create(connection, table_name, SCHEMA.remove(3).remove(2), bucket_count=1)
        async with table.new_upsert().create_writer() as writer:
            writer.upsert((1, "a"))
            writer.upsert({"id": 1, "name": "b"})
            writer.delete([1])
            writer.delete({"id": 1})  # not there any more: no change
            writer.upsert({"id": 1})
        scanner = await table.new_scan().create_log_scanner()
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        records: list[tuple[str, dict[str, Any]]] = []
        while len(records) < 5:
            polled = scanner.poll(int(WAIT_SECONDS * 1000))
            assert polled, f"no more records after {records}"
            records += [(record.change_type.short_string(), record.row) for record in polled]
        return records

    assert asyncio.run(body()) == [
        ("+I", {"id": 1, "name": "a"}),
        ("-U", {"id": 1, "name": "a"}),
        ("+U", {"id": 1, "name": "b"}),
        ("-D", {"id": 1, "name": "b"}),
        ("+I", {"id": 1, "name": None}),
    ]


@pytest.mark.parametrize("spelling", ["by name", "by index", "columns"])
def test_partial_updates_leave_other_columns(connection: FlussConnection, table_name: str, spelling: str) -> None:
    table = new_table(connection, table_name, bucket_count=2)
    path = table.table_path
    with table.new_upsert().create_writer() as writer:
        writer.upsert((1, "one", 10, 1.5))
    builder = {
        "by name": lambda: table.new_upsert().partial_update_by_name(["age", "id"]),
        "by index": lambda: table.new_upsert().partial_update_by_index([2, 0]),
        "columns": lambda: table.new_upsert(columns=["age", "id"]),
    }[spelling]()
    with builder.create_writer() as partial:
        partial.upsert({"id": 1, "age": 11})
        partial.upsert((22, 2))  # in the order of its columns
    assert look_up(connection, path, (1,)) == {"id": 1, "name": "one", "age": 11, "score": 1.5}
    assert look_up(connection, path, (2,)) == {"id": 2, "name": None, "age": 22, "score": None}
    partial.delete({"id": 1}).wait().result(WAIT_SECONDS)
    partial.delete((2,)).wait().result(WAIT_SECONDS)
    assert look_up(connection, path, (1,)) == {"id": 1, "name": "one", "age": None, "score": 1.5}
    assert look_up(connection, path, (2,)) is None
    everything = table.new_upsert().partial_update_by_name(["score", "age", "name", "id"])
    everything.upsert((2.5, 1, "uno", 1)).wait().result(WAIT_SECONDS)
    assert look_up(connection, path, (1,)) == {"id": 1, "name": "uno", "age": 1, "score": 2.5}


def test_writers_of_different_columns_share_a_bucket(connection: FlussConnection, table_name: str) -> None:
    table = new_table(connection, table_name, bucket_count=1)
    whole = table.new_upsert()
    ages, names = table.new_upsert(columns=["id", "age"]), table.new_upsert(columns=["id", "name"])
    for number in range(20):
        for writer, row in ((whole, (1, "x", 0, 0.0)), (ages, (1, number)), (names, (1, str(number)))):
            writer.upsert(row).wait().result(WAIT_SECONDS)
    rows = [change.row for change in read_changes(connection, table.table_path) if change.kind != "-U"]
    expected = []
    for number in range(20):
        expected += [("x", 0), ("x", number), (str(number), number)]
    assert [(row["name"], row["age"]) for row in rows] == expected


def test_random_writes_against_a_model(connection: FlussConnection, table_name: str) -> None:
    table = new_table(connection, table_name, bucket_count=3)
    choose = random.Random(5)
    model: dict[tuple[Any, ...], dict[str, Any]] = {}
    with table.new_upsert().create_writer() as writer:
        for number in range(5_000):
            key = choose.randrange(200)
            if choose.random() < 0.3:
                writer.delete((key,))
                model.pop((key,), None)
            else:
                row = {
                    "id": key,
                    "name": choose.choice(["a", None]),
                    "age": number,
                    "score": choose.choice([0.5, None]),
                }
                writer.upsert(row)
                model[key,] = row
            if number % 1_000 == 0:
                writer.flush().result(WAIT_SECONDS)
            elif number % 300 == 0:
                keys = [choose.randrange(200) for _ in range(40)]
                batch = pa.table({"id": keys, "age": [number] * 40})
                writer.upsert_arrow(batch) if number % 600 else writer.delete_arrow(batch.select(["id"]))
                for key in keys:
                    if number % 600:
                        model[key,] = {"id": key, "name": None, "age": number, "score": None}
                    else:
                        model.pop((key,), None)
    assert replay(read_changes(connection, table.table_path), ["id"]) == model
    for key in (0, 1, 199):
        assert look_up(connection, table.table_path, (key,)) == model.get((key,))


def test_arrow_and_data_frames(connection: FlussConnection, table_name: str) -> None:
    pandas = pytest.importorskip("pandas")
    count = 20_000
    table = new_table(connection, table_name, bucket_count=4)
    with table.new_upsert().create_writer() as writer:
        numbers = list(range(count))
        rows = pa.table({"age": numbers, "id": pa.array(numbers, pa.int64()), "name": [f"n{n}" for n in numbers]})
        handle = writer.upsert_arrow(rows)
        handle.wait().result(WAIT_SECONDS)
        # The last row of a key counts, also within one batch.
        writer.upsert_arrow(pa.RecordBatch.from_pydict({"id": [5, 5, 5], "name": ["x", "y", "z"]}))
        writer.upsert_pandas(pandas.DataFrame({"id": [6, 7], "name": ["p", None], "score": [1.5, 2.5]}))
        writer.delete_arrow(pa.table({"id": list(range(10, count, 2))}))
        writer.delete_pandas(pandas.DataFrame({"id": [8]}))
        writer.write_arrow(pa.table({"id": [1], "name": ["again"]}))
        writer.write_pandas(pandas.DataFrame({"id": [2], "name": ["again"]}))
        mixed = pa.RecordBatch.from_pydict({"id": [3, 4, 3], "name": [None, "four", "three"]})
        writer.change_arrow(mixed, pa.array([True, False, False]))
        writer.change_arrow(mixed.slice(1, 1), pa.array([True]))
    table_rows = replay(read_changes(connection, table.table_path), ["id"])
    assert len(table_rows) == 10 - 2 + (count - 10) // 2
    assert table_rows[3,]["name"] == "three"
    assert (4,) not in table_rows
    assert table_rows[5,] == {"id": 5, "name": "z", "age": None, "score": None}
    assert table_rows[6,] == {"id": 6, "name": "p", "age": None, "score": 1.5}
    assert table_rows[7,] == {"id": 7, "name": None, "age": None, "score": 2.5}
    assert table_rows[9,] == {"id": 9, "name": "n9", "age": 9, "score": None}
    assert table_rows[1,]["name"] == table_rows[2,]["name"] == "again"
    assert (8,) not in table_rows
    buckets = {change.row["id"]: change.bucket_id for change in read_changes(connection, table.table_path)}
    for key in (0, 9, 12_345):
        assert buckets[key] == fluss_bucket(encode_key((key,), [IntType(nullable=False)], KeyEncoding.COMPACTED), 4)


def test_many_waiters(connection: FlussConnection, table_name: str) -> None:
    async def body() -> FlussTable:
        table = await create(connection, table_name, bucket_count=2)
        writer = table.new_upsert().create_writer()

        async def one(key: int) -> None:
            for number in range(5):
                await writer.upsert((key, "x", number, None)).wait()
            if key % 2:
                await writer.delete((key,)).wait()

        await asyncio.gather(*(one(key) for key in range(100)))
        return table

    table = asyncio.run(body())
    rows = replay(read_changes(connection, table.table_path), ["id"])
    assert {key: row["age"] for (key,), row in rows.items()} == dict.fromkeys(range(0, 100, 2), 4)


def test_what_does_not_fit_is_refused_at_the_call(connection: FlussConnection, table_name: str) -> None:
    table = new_table(connection, table_name, bucket_count=1)
    writer = table.new_upsert().create_writer()
    partial = table.new_upsert(columns=["id", "age"])
    bad: list[tuple[Callable[..., object], object, str]] = [
        (writer.upsert, {"name": "x"}, "'id'"),
        (writer.upsert, {"id": None}, "'id'"),
        (writer.upsert, {"id": "1"}, "expects INT"),
        (writer.upsert, {"id": 1, "nothing": 2}, "no column 'nothing'"),
        (writer.upsert, (1, "x"), "2 values, but there are 4 columns"),
        (writer.delete, {"name": "x"}, "delete by primary key"),
        (writer.delete, {"id": 1, "name": "x"}, "delete by primary key"),
        (writer.delete, (None,), "'id'"),
        (writer.delete, (2**31,), "outside"),
        (partial.upsert, {"id": 1, "name": "x"}, "partial update"),
        (writer.upsert_arrow, pa.table({"id": pa.array([None], pa.int32())}), "must not be null"),
        (writer.upsert_arrow, pa.table({"name": ["x"]}), "must not be null"),
        (writer.upsert_arrow, [1], "upsert_arrow takes a pyarrow.Table"),
        (writer.delete_arrow, pa.table({"id": [1], "name": ["x"]}), "no column 'name'"),
        (writer.delete_pandas, {"id": 1}, "delete_pandas takes a pandas.DataFrame"),
    ]
    for call, argument, text in bad:
        with pytest.raises(FlussError, match=text):
            call(argument)
    for columns in (["age"], ["id", "none"], ["id", "id"]):
        with pytest.raises(FlussError, match="partial update"):
            table.new_upsert(columns=columns)
        with pytest.raises(FlussError, match="partial update") as caught:
            table.new_upsert().partial_update_by_name(columns).create_writer()
        assert caught.value.error_code == ErrorCode.CLIENT_ERROR
    with pytest.raises(FlussError, match="partial update"):
        table.new_upsert().partial_update_by_name(["age"]).upsert((1,))
    with pytest.raises(FlussError, match="are 0 to 3"):
        table.new_upsert().partial_update_by_index([0, 4])
    with pytest.raises(FlussError, match="only one of them"):
        table.new_upsert().partial_update_by_index(indices=[0], column_indices=[0])
    with pytest.raises(FlussError, match="use new_upsert"):
        table.new_append()
    writer.flush().result(WAIT_SECONDS)
    assert read_changes(connection, table.table_path) == []
    writer.close()
    with pytest.raises(FlussError, match="is closed"):
        writer.upsert((1, "x", 1, 1.0))


def test_a_log_table_takes_no_upserts(connection: FlussConnection, table_name: str) -> None:
    async def body() -> FlussTable:
        path = TablePath("fluss", table_name)
        await connection.get_admin().create_table(path, fluss.TableDescriptor(fluss.Schema(SCHEMA)))
        return await connection.get_table(path)

    table = asyncio.run(body())
    with pytest.raises(FlussError, match="no primary key"):
        table.new_upsert()


def test_closing_the_connection_writes_everything(connection: FlussConnection, target: Any, table_name: str) -> None:
    path = new_table(connection, table_name, bucket_count=2).table_path
    with fluss.FlussConnection.open(target.config()) as other:
        writer = asyncio.run(other.get_table(path)).new_upsert()
        for number in range(1_000):
            writer.upsert((number, "x", None, None))
    assert len(read_changes(connection, path)) == 1_000
