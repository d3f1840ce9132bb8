"""Lookups by primary key and by prefix: the same rows and errors on every server."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import functools
from typing import Any

import pyarrow as pa
import pytest

import fluss
import fluss.aio
from fluss import ErrorCode, FlussConnection, FlussError
from tests.support.servers.targets import Target
from tests.support.tables.kv_tables import USERS, KvTable, user
from tools.waiting import eventually


@pytest.fixture
def table(connection: FlussConnection, table_name: str) -> KvTable:
    return KvTable(connection, table_name, bucket_count=3)


def test_rows_by_key_in_every_form(table: KvTable) -> None:
    table.write([user(number) for number in range(-5, 300)])
    assert table.look_up({"id": 1}, [2], (3,), 4, -5, 1000) == [user(1), user(2), user(3), user(4), user(-5), None]
    table.write([user(1, "again")], deleted=[{"id": 2}])
    assert table.look_up(1, 2) == [user(1, "again"), None]


def test_the_builder_is_a_lookuper(table: KvTable) -> None:
    table.write([user(7)])
    lookuper = table.table.new_lookup()
    assert table.run(lambda: lookuper.lookup({"id": 7})) == user(7)
    assert isinstance(lookuper.create_lookuper(), fluss.Lookuper)


def test_many_tasks_on_one_lookuper(table: KvTable) -> None:
    table.write([user(number) for number in range(500)])

    async def body() -> list[Any]:
        lookuper = table.table.new_lookup().create_lookuper()
        return list(await asyncio.gather(*[lookuper.lookup(number) for number in range(600)]))

    assert asyncio.run(body()) == [user(number) if number < 500 else None for number in range(600)]


def test_aio(target: Target, table_name: str) -> None:
    async def body() -> None:
        async with await fluss.aio.FlussConnection.create(target.config()) as connection:
            path = fluss.aio.TablePath("fluss", table_name)
            described = fluss.aio.TableDescriptor(fluss.aio.Schema(USERS, ["id"]))
            await connection.get_admin().create_table(path, described)
            table = await connection.get_table(path)
            writer = table.new_upsert().create_writer()
            await writer.upsert(user(1)).wait()
            lookuper = table.new_lookup().create_lookuper()
            assert isinstance(lookuper, fluss.aio.Lookuper)
            assert await lookuper.lookup({"id": 1}) == user(1)
            assert (await table.to_arrow()).to_pylist() == [user(1)]

    asyncio.run(body())


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ({"name": "x"}, "it lacks 'id'"),
        ({"id": 1, "name": "x"}, "not part of the key: 'name'"),
        ([1, 2], "must have 1 values, got 2"),
        (None, r"column 'id' \(INT NOT NULL\) must not be null: pass a value"),
        ({"id": None}, r"column 'id' \(INT NOT NULL\) must not be null: pass a value"),
        ("1", "'id' expects INT"),
        (2**31, "outside"),
        (1.5, "it is not a whole number"),
        (True, "it is not an int"),
    ],
)
def test_wrong_keys(table: KvTable, key: Any, text: str) -> None:
    with pytest.raises(FlussError, match=text) as caught:
        table.look_up(key)
    assert caught.value.error_code == ErrorCode.CLIENT_ERROR
    with pytest.raises(FlussError, match=f"key 1: .*{text}"):
        table.look_up_many([1, key])


def test_a_log_table_has_no_lookups(connection: FlussConnection, table_name: str) -> None:
    async def body() -> None:
        path = fluss.TablePath("fluss", table_name)
        await connection.get_admin().create_table(path, fluss.TableDescriptor(fluss.Schema(USERS)))
        (await connection.get_table(path)).new_lookup()

    with pytest.raises(FlussError, match="has no primary key"):
        asyncio.run(body())


def test_many_keys(table: KvTable) -> None:
    table.write([user(number) for number in range(3000)])
    wanted = [2999, 0, 5000, 17, 17, -1]
    expected = [user(2999), user(0), None, user(17), user(17), None]
    assert table.look_up_many(wanted) == expected
    found = table.look_up_many(pa.table({"id": pa.array(wanted, pa.int64())}))
    assert found.schema.names == USERS.names
    nothing = dict.fromkeys(USERS.names)
    assert found.to_pylist() == [row or nothing for row in expected]
    assert table.look_up_many(pa.record_batch({"id": pa.array(wanted, pa.int32())}), output="rows") == expected
    everything = table.look_up_many(range(3000), output="arrow")
    assert everything.to_pylist() == [user(number) for number in range(3000)]
    assert table.look_up_many([]) == []
    assert table.look_up_many(pa.table({"id": pa.array([], pa.int32())})).num_rows == 0


def test_many_keys_that_are_none(table: KvTable) -> None:
    for keys, text in (
        ("text", "iterable of keys"),
        (pa.table({"name": ["x"]}), "it lacks 'id'"),
        (pa.table({"id": [1], "name": ["x"]}), "not part of the key"),
        (pa.table({"id": ["x"]}), "expects INT"),
        (pa.table({"id": pa.array([None], pa.int32())}), "must not be null"),
    ):
        with pytest.raises(FlussError, match=text):
            table.look_up_many(keys)
    with pytest.raises(FlussError, match="'arrow' or 'rows'"):
        table.look_up_many([1], output="pandas")


SCORES = pa.schema([("user_id", pa.int32()), ("region", pa.string()), ("score", pa.int64())])


def test_partitions(connection: FlussConnection, table_name: str) -> None:
    table = KvTable(connection, table_name, SCORES, ("user_id", "region"), partition_keys=["region"], bucket_count=2)
    key = {"user_id": 1, "region": "US"}
    assert table.look_up(key, (1, "no such name!"), (1, "")) == [None, None, None]
    table.run(lambda: table.admin.create_partition(table.path, {"region": "US"}))
    table.run(lambda: table.admin.create_partition(table.path, {"region": "EU"}))
    rows = [{"user_id": n, "region": region, "score": n} for n in range(50) for region in ("US", "EU")]
    table.write(rows)
    found = table.look_up(key, (2, "EU"), [2, "ASIA"])
    assert found == [{**key, "score": 1}, {"user_id": 2, "region": "EU", "score": 2}, None]
    keys = [(row["user_id"], row["region"]) for row in rows]
    assert table.look_up_many([*keys, (1, "ASIA"), (1, "%")]) == [*rows, None, None]
    table.run(lambda: table.admin.drop_partition(table.path, {"region": "US"}))
    lookuper = table.table.new_lookup()

    async def is_gone() -> bool:
        return await lookuper.lookup(key) is None

    table.run(lambda: eventually(is_gone, "the partition is gone"))  # Apache Fluss takes its time
    assert table.look_up((2, "EU")) == [{"user_id": 2, "region": "EU", "score": 2}]
    assert sorted(table.rows(), key=str) == sorted((row for row in rows if row["region"] == "EU"), key=str)


EVENTS = pa.schema([("device", pa.string()), ("at", pa.int64()), ("value", pa.float64())])


def test_prefixes(connection: FlussConnection, table_name: str) -> None:
    table = KvTable(connection, table_name, EVENTS, ("device", "at"), bucket_keys=["device"], bucket_count=3)
    rows = [{"device": f"d{n % 5}", "at": n, "value": n / 4} for n in range(300)]
    table.write(rows)
    builder = table.table.new_lookup().lookup_by(["device"])
    assert isinstance(builder, fluss.TablePrefixLookup)
    lookuper = builder.create_lookuper()
    assert isinstance(lookuper, fluss.PrefixLookuper)
    for prefix in ({"device": "d3"}, ["d3"], "d3"):
        found = table.run(functools.partial(lookuper.lookup, prefix))
        assert sorted(found, key=lambda row: row["at"]) == [row for row in rows if row["device"] == "d3"]
    assert table.run(lambda: lookuper.lookup("d")) == []
    assert table.look_up(("d1", 6)) == [rows[6]]
    with pytest.raises(FlussError, match="looked up by the columns"):
        table.table.new_lookup().lookup_by(["at"])
    with pytest.raises(FlussError, match="list of column names"):
        table.table.new_lookup().lookup_by("device")


def test_prefixes_in_partitions(connection: FlussConnection, table_name: str) -> None:
    schema = pa.schema([("day", pa.string()), ("device", pa.string()), ("at", pa.int64())])
    keys = ("day", "device", "at")
    options: Any = {"partition_keys": ["day"], "bucket_keys": ["device"], "bucket_count": 2}
    table = KvTable(connection, table_name, schema, keys, **options)
    table.run(lambda: table.admin.create_partition(table.path, {"day": "mon"}))
    rows = [{"day": "mon", "device": f"d{n % 3}", "at": n} for n in range(60)]
    table.write(rows)
    lookuper = table.table.new_lookup().lookup_by(["day", "device"]).create_lookuper()
    found = table.run(lambda: lookuper.lookup({"device": "d1", "day": "mon"}))
    assert sorted(found, key=lambda row: row["at"]) == [row for row in rows if row["device"] == "d1"]
    assert table.run(lambda: lookuper.lookup(["tue", "d1"])) == []


def test_a_table_that_cannot_be_looked_up_by_prefix(table: KvTable) -> None:
    with pytest.raises(FlussError, match="cannot be looked up by prefix"):
        table.table.new_lookup().lookup_by(["id"])


def test_every_kind_of_key_and_value(connection: FlussConnection, table_name: str) -> None:
    schema = pa.schema(
        [
            ("a", pa.date32()),
            ("b", pa.decimal128(10, 2)),
            ("c", pa.timestamp("us")),
            ("d", pa.binary()),
            ("e", pa.time32("ms")),
            ("zoned", pa.timestamp("us", tz="UTC")),
            ("list", pa.list_(pa.int32())),
            ("row", pa.struct([("x", pa.int32()), ("y", pa.string())])),
            ("wide", pa.decimal128(38, 10)),
            ("second", pa.timestamp("s")),
            ("single", pa.float32()),
        ]
    )
    table = KvTable(connection, table_name, schema, ("a", "b", "c", "d", "e"), bucket_count=4)
    utc = datetime.UTC
    rows: list[dict[str, Any]] = []
    for number in range(60):
        full = number % 2
        rows.append(
            {
                "a": datetime.date(2024, 1, 1) + datetime.timedelta(days=number),
                "b": decimal.Decimal(number) / 4,
                "c": datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000 + number),
                "d": bytes([number]),
                "e": datetime.time(1, 2, number, 500_000),
                "zoned": datetime.datetime(2024, 1, 1, 12, number, tzinfo=utc) if full else None,
                "list": [number, None] if full else None,
                "row": {"x": number, "y": None} if full else None,
                "wide": decimal.Decimal("1234567890123456.0000000001") if full else None,
                "second": datetime.datetime(2024, 1, 1, 0, 0, number) if full else None,
                "single": 0.5 if full else None,
            }
        )
    table.write(rows)
    keys = [[row[name] for name in "abcde"] for row in rows]
    assert table.look_up(*keys) == rows
    assert table.look_up_many(keys) == rows
    arrow = table.look_up_many(pa.Table.from_pylist(rows, schema).select(list("abcde")))
    assert arrow.to_pylist() == rows
    assert table.rows() == rows


def test_columns_that_were_added_later(connection: FlussConnection, table: KvTable) -> None:
    table.write([user(1), user(2)])
    old = table.table
    table.run(lambda: table.admin.alter_table(table.path, add_columns={"extra": pa.string()}))
    table.reopen()
    table.write([{**user(2), "extra": "new"}, {**user(3), "extra": None}])
    expected = [{**user(1), "extra": None}, {**user(2), "extra": "new"}, {**user(3), "extra": None}]
    assert table.look_up(1, 2, 3) == expected
    assert table.look_up_many([1, 2, 3]) == expected
    assert table.rows() == expected

    async def with_the_old_columns() -> None:
        lookuper = old.new_lookup().create_lookuper()
        assert [await lookuper.lookup(number) for number in (1, 2, 3)] == [user(1), user(2), user(3)]
        assert sorted((await old.to_arrow()).to_pylist(), key=lambda row: row["id"]) == [user(1), user(2), user(3)]

    asyncio.run(with_the_old_columns())


def test_a_table_that_was_made_anew(connection: FlussConnection, table: KvTable) -> None:
    table.write([user(1)])
    lookuper = table.table.new_lookup()
    assert table.run(lambda: lookuper.lookup(1)) == user(1)
    table.run(lambda: table.admin.drop_table(table.path))
    with pytest.raises(FlussError) as caught:
        table.run(lambda: lookuper.lookup(1))
    assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST
    KvTable(connection, table.path.table_name)
    with pytest.raises(FlussError, match="created again") as caught:
        table.run(lambda: lookuper.lookup(1))
    assert caught.value.error_code == ErrorCode.TABLE_NOT_EXIST


def test_a_closed_connection(target: Target, table_name: str) -> None:
    connection = FlussConnection.open(target.config())
    table = KvTable(connection, table_name)
    lookuper = table.table.new_lookup()
    connection.close()
    with pytest.raises(FlussError, match="closed"):
        table.run(lambda: lookuper.lookup(1))
