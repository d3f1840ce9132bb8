"""Upserts into all kinds of primary-key tables: types, keys, partitions, row formats, auto-increment, `fluss.aio`."""

from __future__ import annotations

import asyncio
import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

import fluss
import fluss.aio
from fluss import DataTypes, ErrorCode, FlussConnection, FlussError, TablePath
from tests.contract.test_upsert import WAIT_SECONDS, create, new_table
from tests.support.servers.targets import Target
from tests.support.tables.kv_reader import look_up, read_changes, replay

UTC = datetime.UTC
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
VALUES: dict[str, tuple[Any, Any]] = {
    "bool": (DataTypes.boolean(), True),
    "i8": (DataTypes.tinyint(), -128),
    "i16": (DataTypes.smallint(), 32767),
    "i32": (DataTypes.int(), -(2**31)),
    "i64": (DataTypes.bigint(), 2**63 - 1),
    "f32": (DataTypes.float(), 1.5),
    "f64": (DataTypes.double(), 0.1),
    "text": (DataTypes.string(), "é€𝄞"),
    "char": (DataTypes.char(4), "four"),
    "bytes": (DataTypes.bytes(), b"\x00\xff"),
    "fixed": (DataTypes.binary(3), b"\x01\x02\x03"),
    "small": (DataTypes.decimal(10, 2), decimal.Decimal("-12345678.90")),
    "large": (DataTypes.decimal(38, 10), decimal.Decimal("1234567890123456789012345678.0123456789")),
    "date": (DataTypes.date(), MOMENT.date()),
    "time": (DataTypes.time(3), datetime.time(1, 2, 3, 456000)),
    "ntz": (DataTypes.timestamp(6), MOMENT),
    "ltz": (DataTypes.timestamp_ltz(6), MOMENT.replace(tzinfo=UTC)),
}
NESTED: dict[str, tuple[Any, Any]] = {
    "array": (DataTypes.array(DataTypes.int()), [1, None, 3]),
    "map": (DataTypes.map(DataTypes.string(), DataTypes.bigint()), [("a", 1), ("b", None)]),
    "row": (
        DataTypes.row([DataTypes.field("x", DataTypes.int()), DataTypes.field("y", DataTypes.string())]),
        {"x": 1, "y": "z"},
    ),
    "deep": (DataTypes.array(DataTypes.array(DataTypes.string())), [["a"], [], None]),
}
KEY_TYPES = ("i8", "i16", "i32", "i64", "text", "bytes", "small", "date", "time", "ntz", "bool", "f64", "char")


def typed_schema(values: dict[str, tuple[Any, Any]]) -> fluss.Schema:
    builder = fluss.Schema.builder().column("id", DataTypes.int())
    for name, (data_type, _) in values.items():
        builder = builder.column(name, data_type)
    return builder.primary_key(["id"]).build()


@pytest.mark.parametrize("kv_format", ["COMPACTED", "INDEXED"])
@pytest.mark.parametrize("values", [VALUES, NESTED], ids=["plain", "nested"])
def test_every_type_comes_back(
    connection: FlussConnection, table_name: str, values: dict[str, tuple[Any, Any]], kv_format: str
) -> None:
    table = new_table(connection, table_name, typed_schema(values), bucket_count=1, kv_format=kv_format)
    row = {name: value for name, (_, value) in values.items()}
    many = 60  # enough for the column-wise way
    with table.new_upsert().create_writer() as writer:
        writer.upsert({"id": 1, **row}).wait().result(WAIT_SECONDS)
        writer.upsert({"id": 2}).wait().result(WAIT_SECONDS)
        for number in range(3, 3 + many):
            writer.upsert({"id": number, **(row if number % 3 else {})})
    nothing = dict.fromkeys(values)
    assert look_up(connection, table.table_path, (1,)) == {"id": 1, **row}
    assert look_up(connection, table.table_path, (2,)) == {"id": 2, **nothing}
    found = replay(read_changes(connection, table.table_path), ["id"])
    for number in range(3, 3 + many):
        assert found[number,] == {"id": number, **(row if number % 3 else nothing)}


@pytest.mark.parametrize("count", [3, 100], ids=["few rows", "many rows"])
def test_keys_of_several_columns(connection: FlussConnection, table_name: str, count: int) -> None:
    """The key has another order than the columns, and the buckets another key."""
    schema = pa.schema([("value", pa.int64()), ("b", pa.string()), ("a", pa.int32()), ("c", pa.int64())])
    table = new_table(connection, table_name, schema, keys=["a", "c", "b"], bucket_count=3, bucket_keys=["a"])
    with table.new_upsert().create_writer() as writer:
        for number in range(count):
            writer.upsert((number, f"b{number}", number % 7, -number))
        writer.delete((1 % 7, -1, "b1"))
        writer.delete({"b": "b2", "a": 2 % 7, "c": -2})
    rows = replay(read_changes(connection, table.table_path), ["a", "c", "b"])
    assert {key: row["value"] for key, row in rows.items()} == {
        (number % 7, -number, f"b{number}"): number for number in range(count) if number not in (1, 2)
    }
    assert look_up(connection, table.table_path, (0, 0, "b0")) == {"value": 0, "b": "b0", "a": 0, "c": 0}
    buckets = {change.row["a"]: set[int]() for change in read_changes(connection, table.table_path)}
    for change in read_changes(connection, table.table_path):
        buckets[change.row["a"]].add(change.bucket_id)
    assert all(len(found) == 1 for found in buckets.values())


def test_keys_of_every_type(connection: FlussConnection, table_name: str) -> None:
    builder = fluss.Schema.builder()
    for name in KEY_TYPES:
        builder = builder.column(name, VALUES[name][0])
    schema = builder.column("value", DataTypes.int()).primary_key(list(KEY_TYPES)).build()
    table = new_table(connection, table_name, schema, bucket_count=2)
    key = {name: VALUES[name][1] for name in KEY_TYPES}
    with table.new_upsert() as writer:
        for number in range(100):
            writer.upsert({**key, "i32": number, "value": number})
        writer.upsert({**key, "i32": 5, "value": -5})
        writer.delete({**key, "i32": 6})
    rows = replay(read_changes(connection, table.table_path), KEY_TYPES)
    assert {row["i32"]: row["value"] for row in rows.values()} == {
        number: -5 if number == 5 else number for number in range(100) if number != 6
    }


def test_partitions(connection: FlussConnection, table_name: str) -> None:
    schema = pa.schema([("user_id", pa.int32()), ("region", pa.string()), ("score", pa.int64())])

    async def body() -> TablePath:
        table = await create(
            connection, table_name, schema, ["user_id", "region"], partition_keys=["region"], bucket_count=2
        )
        path = table.table_path
        for region in ("US", "EU"):
            await connection.get_admin().create_partition(path, {"region": region})
        writer = table.new_upsert()
        for number in range(50):
            writer.upsert({"user_id": number, "region": "US" if number % 2 else "EU", "score": number})
        writer.upsert({"user_id": 1, "region": "EU", "score": -1})  # another key than (1, US)
        writer.delete((3, "US"))
        await writer.flush()
        await writer.upsert_arrow(pa.table({"user_id": [5, 4], "region": ["US", "EU"], "score": [55, 44]})).wait()
        await writer.delete_arrow(pa.table({"region": ["EU"], "user_id": [6]})).wait()
        return path

    path = asyncio.run(body())
    rows = replay(read_changes(connection, path, ["US", "EU"]), ["user_id", "region"])
    expected = {(number, "US" if number % 2 else "EU"): number for number in range(50)}
    expected |= {(1, "EU"): -1, (5, "US"): 55, (4, "EU"): 44}
    del expected[3, "US"], expected[6, "EU"]
    assert {key: row["score"] for key, row in rows.items()} == expected
    assert look_up(connection, path, (1,), "US") == {"user_id": 1, "region": "US", "score": 1}
    assert look_up(connection, path, (1,), "EU") == {"user_id": 1, "region": "EU", "score": -1}


def test_a_partition_that_does_not_exist(target: Target, table_name: str) -> None:
    schema = pa.schema([("id", pa.int32()), ("region", pa.string())])
    config = target.config(**{"writer.dynamic-create-partition.enabled": "false"})
    with FlussConnection.open(config) as connection:
        table = new_table(connection, table_name, schema, ["id", "region"], partition_keys=["region"], bucket_count=1)
        writer = table.new_upsert()
        with pytest.raises(FlussError) as caught:
            writer.upsert((1, "nowhere")).wait().result(WAIT_SECONDS)
        assert caught.value.error_code == ErrorCode.PARTITION_NOT_EXISTS
        with pytest.raises(FlussError, match="'region'"):
            writer.upsert((1, None))


def test_not_null_columns(connection: FlussConnection, table_name: str) -> None:
    schema = pa.schema([("id", pa.int32()), pa.field("must", pa.int32(), nullable=False)])
    table = new_table(connection, table_name, schema, bucket_count=1)
    with table.new_upsert().create_writer() as writer:
        with pytest.raises(FlussError, match="'must'"):
            writer.upsert({"id": 1})
        for number in range(100):
            writer.upsert((number, number))
            if number % 3 == 0:
                writer.delete((number,))  # although a delete has no value for it
    rows = replay(read_changes(connection, table.table_path), ["id"])
    assert set(rows) == {(number,) for number in range(100) if number % 3}


def test_auto_increment_columns_are_left_to_the_server(connection: FlussConnection, table_name: str) -> None:
    schema = (
        fluss.Schema.builder()
        .column("name", DataTypes.string())
        .column("number", DataTypes.bigint())
        .column("age", DataTypes.int())
        .primary_key(["name"])
        .enable_auto_increment("number")
        .build()
    )
    table = new_table(connection, table_name, schema, bucket_count=1)
    with table.new_upsert() as writer:
        writer.upsert({"name": "a", "age": 1})
        writer.upsert(("b", 2))
        writer.upsert({"name": "a", "age": 3})
        with pytest.raises(FlussError, match="number"):
            writer.upsert({"name": "c", "number": 1})
    with pytest.raises(FlussError, match="auto-increment"):
        table.new_upsert(columns=["name", "number"])
    with pytest.raises(FlussError, match="auto-increment column 'number', so whole rows cannot be written"):
        table.new_upsert().create_writer()
    with table.new_upsert(columns=["name", "age"]).create_writer() as partial:
        partial.upsert(("b", 4))
    rows = replay(read_changes(connection, table.table_path), ["name"])
    assert rows["a",] == {"name": "a", "number": 1, "age": 3}
    assert rows["b",] == {"name": "b", "number": 2, "age": 4}


def test_the_same_in_aio(connection: FlussConnection, target: Target, table_name: str) -> None:
    path = new_table(connection, table_name, bucket_count=1).table_path

    async def body() -> None:
        async with await fluss.aio.FlussConnection.create(target.config()) as other:
            table = await other.get_table(path)
            builder: fluss.aio.TableUpsert = table.new_upsert()
            writer: fluss.aio.UpsertWriter = builder.create_writer()
            async with writer:
                writer.upsert({"id": 1, "name": "a", "age": 1, "score": 1.0})
                writer.upsert([2, "b", 2, 2.0])
            handle = table.new_upsert().partial_update_by_name(["id", "name"]).create_writer().upsert((1, "c"))
            await handle.wait()
            await writer.delete((2,)).wait()
            await writer.close()

    asyncio.run(body())
    assert look_up(connection, path, (1,)) == {"id": 1, "name": "c", "age": 1, "score": 1.0}
    assert look_up(connection, path, (2,)) is None


def test_an_empty_text_as_key_of_an_iceberg_table(connection: FlussConnection, table_name: str) -> None:
    """Its key has no bytes: no lookup would find it on any server, so it does not leave."""

    async def body() -> None:
        properties = {"table.datalake.format": "iceberg"}
        table = await create(
            connection, table_name, pa.schema([("id", pa.string()), ("v", pa.int32())]), properties=properties
        )
        writer = table.new_upsert().create_writer()
        with pytest.raises(FlussError, match="must not be an empty string"):
            await writer.upsert({"id": "", "v": 1}).wait()
        await writer.upsert({"id": "a", "v": 1}).wait()

    asyncio.run(body())
