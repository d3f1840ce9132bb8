"""Upserts go on over killed and restarted servers: tables are what a dict would be, and no change is there twice.

Our processes are killed; Apache Fluss and the embedded server are stopped and started.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

import fluss
from fluss import DataTypes
from fluss.server.tablet.kv.merge.auto_increment import NUMBERS_PER_RESERVATION
from tests.support.servers.restartable import ALL_LOCAL, Disturbance, RestartableServer
from tests.support.tables.kv_reader import look_up, read_changes, replay
from tools.waiting import patience

BUCKETS = 3
WRITES = 24_000
KEYS = 2_000
WAIT_SECONDS = patience(60.0)
Model = dict[tuple[Any, ...], dict[str, Any]]


def connect(server: RestartableServer) -> fluss.FlussConnection:
    return fluss.FlussConnection.open(server.config())


def create(connection: fluss.FlussConnection, name: str) -> fluss.FlussTable:
    path = fluss.TablePath("fluss", name)
    fields = pa.schema([("key", pa.int32()), ("number", pa.int64()), ("note", pa.string())])
    descriptor = fluss.TableDescriptor(
        fluss.Schema(fields, primary_keys=["key"]), bucket_count=BUCKETS, properties=ALL_LOCAL
    )

    async def body() -> fluss.FlussTable:
        await connection.get_admin().create_table(path, descriptor)
        return await connection.get_table(path)

    return asyncio.run(body())


def test_a_table_is_its_model_after_kills_in_the_middle(disturbance: Disturbance, table_name: str) -> None:
    kills = disturbance.count
    with connect(disturbance.server) as connection:
        table = create(connection, table_name)
        writer = table.new_upsert().create_writer()
        numbers = table.new_upsert(columns=["key", "number"])
        model: Model = {}
        upserts: Counter[int] = Counter()
        reached = [threading.Event() for _ in range(kills)]

        def write() -> None:
            choose = random.Random(7)
            for number in range(WRITES):
                key = choose.randrange(KEYS)
                if choose.random() < 0.2:
                    writer.delete((key,))
                    model.pop((key,), None)
                else:
                    writer.upsert((key, number, "x"))
                    model[key,] = {"key": key, "number": number, "note": "x"}
                    upserts[key] += 1
                step, left = divmod(number, WRITES // (kills + 1))
                if left == 0 and 0 < step <= kills:
                    reached[step - 1].set()  # the kill comes while rows go on being written
                    writer.flush().result(WAIT_SECONDS)
                    key = choose.randrange(KEYS)
                    numbers.upsert((key, -number)).wait().result(WAIT_SECONDS)
                    model[key,] = {"note": None, **model.get((key,), {}), "key": key, "number": -number}
                    upserts[key] += 1

        writing = ThreadPoolExecutor(1).submit(write)
        for kill in range(kills):
            assert reached[kill].wait(WAIT_SECONDS)
            disturbance.happens(kill)
        writing.result(WAIT_SECONDS)
        writer.flush().result(WAIT_SECONDS)
        changes = read_changes(connection, table.table_path)
        assert replay(changes, ["key"]) == model
        # Each upsert made one change: none was lost, none was applied twice.
        assert Counter(change.row["key"] for change in changes if change.kind in ("+I", "+U")) == upserts
        for key in random.Random(8).sample(range(KEYS), 20):
            assert look_up(connection, table.table_path, (key,)) == model.get((key,))


def test_many_small_acknowledged_writes_over_a_restart(server: RestartableServer, table_name: str) -> None:
    with connect(server) as connection:
        table = create(connection, table_name)
        rounds, keys = 100, 8

        async def body() -> None:
            writer = table.new_upsert()

            async def one_key(key: int) -> None:
                for number in range(rounds):
                    await writer.upsert({"key": key, "number": number}).wait()
                    if number % 10 == 9:
                        await writer.delete((key,)).wait()

            tasks = [asyncio.create_task(one_key(key)) for key in range(keys)]
            await writer.upsert({"key": keys, "number": 0}).wait()
            await asyncio.to_thread(server.goes_away)
            await asyncio.to_thread(server.comes_back)
            await asyncio.gather(*tasks)

        asyncio.run(body())
        changes = read_changes(connection, table.table_path)
        assert list(replay(changes, ["key"])) == [(keys,)]
        written = Counter(change.row["key"] for change in changes if change.kind in ("+I", "+U"))
        assert written == {**dict.fromkeys(range(keys), rounds), keys: 1}


def test_numbers_go_on_after_a_restart(server: RestartableServer, table_name: str) -> None:
    """A stop loses none, a kill a few of a bucket, and none is given twice, also when its row is gone."""
    path, rows = fluss.TablePath("fluss", table_name), 10
    schema = fluss.Schema.builder().column("key", DataTypes.int()).column("number", DataTypes.int())
    numbered = schema.primary_key(["key"]).enable_auto_increment("number").build()

    async def insert(first: int) -> None:
        table = await connection.get_table(path)
        writer = table.new_upsert(columns=["key"]).create_writer()
        for key in range(first, first + rows):
            writer.upsert({"key": key})
        await writer.flush()
        writer.delete([first + rows - 1])
        await writer.flush()

    with connect(server) as connection:
        descriptor = fluss.TableDescriptor(numbered, bucket_count=1, properties=ALL_LOCAL)
        asyncio.run(connection.get_admin().create_table(path, descriptor))
        asyncio.run(insert(0))
        server.goes_away()
        server.comes_back()
        asyncio.run(insert(rows))
        given = [change.row["number"] for change in read_changes(connection, path) if change.kind == "+I"]
    assert given[:rows] == list(range(1, rows + 1))
    after = given[rows:]
    assert after == list(range(after[0], after[0] + rows))
    assert after[0] > rows
    if server.target.name == "embedded":
        assert after[0] == rows + 1
    elif server.target.name == "standalone":
        assert after[0] == NUMBERS_PER_RESERVATION + 1
