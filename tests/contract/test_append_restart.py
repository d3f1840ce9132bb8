"""Writing goes on over killed and restarted servers: no row is lost, none is there twice, order is kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from tests.support.log_reader import read_rows
from tests.support.server_process import ServerProcess

BUCKETS = 3
ROWS = 30_000
KILLS = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", tablets=2) as server:
        # The same port after a restart: clients know the server by it.
        server._command[server._command.index("--bind") + 1] = server.address
        yield server


def connect(server: ServerProcess, **options: str) -> fluss.FlussConnection:
    return fluss.FlussConnection.open(fluss.Config({"bootstrap.servers": server.address, **options}))


def create(connection: fluss.FlussConnection, **options: object) -> fluss.FlussTable:
    path = fluss.TablePath("fluss", "restarts")
    schema = fluss.Schema(pa.schema([("writer", pa.int32()), ("number", pa.int64())]))
    descriptor = fluss.TableDescriptor(schema, bucket_count=BUCKETS, **options)  # type: ignore[arg-type]

    async def body() -> fluss.FlussTable:
        await connection.get_admin().create_table(path, descriptor)
        return await connection.get_table(path)

    return asyncio.run(body())


def check_complete(connection: fluss.FlussConnection, path: fluss.TablePath, rows: dict[int, int]) -> None:
    """Every writer's numbers are there once, and in order within a bucket."""
    seen: dict[int, list[int]] = {writer: [] for writer in rows}
    for bucket in range(BUCKETS):
        last: dict[int, int] = {}
        for row in read_rows(connection, path, bucket):
            assert row["number"] > last.get(row["writer"], -1), f"bucket {bucket}: {row} came after {last}"
            last[row["writer"]] = row["number"]
            seen[row["writer"]].append(row["number"])
    for writer, count in rows.items():
        assert sorted(seen[writer]) == list(range(count))


@pytest.mark.parametrize("what", ["whole server", "tablets"])
def test_rows_survive_kills_in_the_middle(server: ServerProcess, what: str) -> None:
    with connect(server) as connection:
        table = create(connection, bucket_keys=["number"])
        path = table.get_table_path()
        writer = table.new_append().create_writer()
        reached = [threading.Event() for _ in range(KILLS)]
        resumed = [threading.Event() for _ in range(KILLS)]

        def write() -> None:
            for number in range(ROWS):
                handle = writer.append((0, number))
                step, left = divmod(number, ROWS // (KILLS + 1))
                if left == 0 and 0 < step <= KILLS:
                    reached[step - 1].set()  # the kill comes while rows go on being written
                    if step == 2:
                        handle.wait().result(60)
                        resumed[step - 1].wait(60)

        thread = threading.Thread(target=write)
        thread.start()
        for kill in range(KILLS):
            assert reached[kill].wait(60)
            if what == "tablets":
                server.kill_role(f"tablet-{kill % 2}")
            else:
                server.kill()
                server.start()
            resumed[kill].set()
        thread.join(60)
        assert not thread.is_alive()
        writer.flush().result(60)
        check_complete(connection, path, {0: ROWS})


def test_many_small_acknowledged_writes_over_a_restart(server: ServerProcess) -> None:
    with connect(server) as connection:
        table = create(connection)
        path = table.get_table_path()
        acknowledged = 300

        async def body() -> None:
            writer = table.new_append().create_writer()

            async def one_writer(name: int) -> None:
                for number in range(acknowledged):
                    await writer.append({"writer": name, "number": number}).wait()

            async def restart() -> None:
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)

            tasks = [asyncio.create_task(one_writer(name)) for name in range(4)]
            await writer.append({"writer": 4, "number": 0}).wait()
            await restart()
            await asyncio.gather(*tasks)

        asyncio.run(body())
        check_complete(connection, path, {**dict.fromkeys(range(4), acknowledged), 4: 1})


def test_a_stopped_server_is_reported_when_retries_end(server: ServerProcess) -> None:
    with connect(server, **{"writer.retries": "2", "writer.enable-idempotence": "false"}) as connection:
        table = create(connection)
        writer = table.new_append().create_writer()
        writer.append((0, 0)).wait().result(60)
        server.kill()
        with pytest.raises(fluss.FlussError) as caught:
            writer.append((0, 1)).wait().result(60)
        assert caught.value.error_code == fluss.ErrorCode.NETWORK_EXCEPTION
        server.start()
        writer.append((0, 2)).wait().result(60)
        rows = [
            row["number"] for bucket in range(BUCKETS) for row in read_rows(connection, table.get_table_path(), bucket)
        ]
        assert sorted(rows) == [0, 2]
