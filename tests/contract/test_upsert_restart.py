"""Upserts go on over killed and restarted servers: tables are what a dict would be, and no change is there twice."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluss
from tests.support.kv_reader import look_up, read_changes, replay
from tests.support.server_process import ServerProcess

BUCKETS = 3
WRITES = 24_000
KEYS = 2_000
KILLS = 3
WAIT_SECONDS = 60.0
Model = dict[tuple[Any, ...], dict[str, Any]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", tablets=2) as server:
        # The same port after a restart: clients know the server by it.
        server._command[server._command.index("--bind") + 1] = server.address
        yield server


def connect(server: ServerProcess, **options: str) -> fluss.FlussConnection:
    return fluss.FlussConnection.open(fluss.Config({"bootstrap.servers": server.address, **options}))


def create(connection: fluss.FlussConnection) -> fluss.FlussTable:
    path = fluss.TablePath("fluss", "restarts")
    fields = pa.schema([("key", pa.int32()), ("number", pa.int64()), ("note", pa.string())])
    descriptor = fluss.TableDescriptor(fluss.Schema(fields, primary_keys=["key"]), bucket_count=BUCKETS)

    async def body() -> fluss.FlussTable:
        await connection.get_admin().create_table(path, descriptor)
        return await connection.get_table(path)

    return asyncio.run(body())


@pytest.mark.parametrize("what", ["whole server", "tablets"])
def test_a_table_is_its_model_after_kills_in_the_middle(server: ServerProcess, what: str) -> None:
    with connect(server) as connection:
        table = create(connection)
        writer = table.new_upsert().create_writer()
        numbers = table.new_upsert(columns=["key", "number"])
        model: Model = {}
        upserts: Counter[int] = Counter()
        reached = [threading.Event() for _ in range(KILLS)]

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
                step, left = divmod(number, WRITES // (KILLS + 1))
                if left == 0 and 0 < step <= KILLS:
                    reached[step - 1].set()  # the kill comes while rows go on being written
                    writer.flush().result(WAIT_SECONDS)
                    key = choose.randrange(KEYS)
                    numbers.upsert((key, -number)).wait().result(WAIT_SECONDS)
                    model[key,] = {"note": None, **model.get((key,), {}), "key": key, "number": -number}
                    upserts[key] += 1

        thread = threading.Thread(target=write)
        thread.start()
        for kill in range(KILLS):
            assert reached[kill].wait(WAIT_SECONDS)
            if what == "tablets":
                server.kill_role(f"tablet-{kill % 2}")
            else:
                server.kill()
                server.start()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
        writer.flush().result(WAIT_SECONDS)
        changes = read_changes(connection, table.table_path)
        assert replay(changes, ["key"]) == model
        # Each upsert made one change: none was lost, none was applied twice.
        assert Counter(change.row["key"] for change in changes if change.kind in ("+I", "+U")) == upserts
        for key in random.Random(8).sample(range(KEYS), 20):
            assert look_up(connection, table.table_path, (key,)) == model.get((key,))


def test_many_small_acknowledged_writes_over_a_restart(server: ServerProcess) -> None:
    with connect(server) as connection:
        table = create(connection)
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
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await asyncio.gather(*tasks)

        asyncio.run(body())
        changes = read_changes(connection, table.table_path)
        assert list(replay(changes, ["key"])) == [(keys,)]
        written = Counter(change.row["key"] for change in changes if change.kind in ("+I", "+U"))
        assert written == {**dict.fromkeys(range(keys), rounds), keys: 1}
