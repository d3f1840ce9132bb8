"""Writing goes on over killed and restarted servers: no row is lost, none is there twice, order is kept.

Our processes are killed; Apache Fluss and the embedded server are stopped and started.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import fluss
from fluss.client.net import cluster
from fluss.client.write import row_buffer
from tests.support.servers.restartable import ALL_LOCAL, Disturbance, RestartableServer
from tests.support.tables.log_reader import read_rows, read_table
from tools.waiting import patience, wait_until

BUCKETS = 3
ROWS = 30_000


def connect(server: RestartableServer, **options: str) -> fluss.FlussConnection:
    return fluss.FlussConnection.open(server.config(**options))


def create(connection: fluss.FlussConnection, name: str, **options: object) -> fluss.FlussTable:
    path = fluss.TablePath("fluss", name)
    schema = fluss.Schema(pa.schema([("writer", pa.int32()), ("number", pa.int64())]))
    descriptor = fluss.TableDescriptor(schema, bucket_count=BUCKETS, properties=ALL_LOCAL, **options)  # type: ignore[arg-type]

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


def test_rows_survive_kills_in_the_middle(disturbance: Disturbance, table_name: str) -> None:
    kills = disturbance.count
    with connect(disturbance.server) as connection:
        table = create(connection, table_name, bucket_keys=["number"])
        path = table.get_table_path()
        writer = table.new_append().create_writer()
        reached = [threading.Event() for _ in range(kills)]
        resumed = [threading.Event() for _ in range(kills)]

        def write() -> None:
            for number in range(ROWS):
                handle = writer.append((0, number))
                step, left = divmod(number, ROWS // (kills + 1))
                if left == 0 and 0 < step <= kills:
                    reached[step - 1].set()  # the kill comes while rows go on being written
                    if step == 2:
                        handle.wait().result(patience(60))
                        resumed[step - 1].wait(patience(60))

        writing = ThreadPoolExecutor(1).submit(write)
        for kill in range(kills):
            assert reached[kill].wait(patience(60))
            disturbance.happens(kill)
            resumed[kill].set()
        writing.result(patience(60))
        writer.flush().result(patience(60))
        check_complete(connection, path, {0: ROWS})


def test_many_small_acknowledged_writes_over_a_restart(server: RestartableServer, table_name: str) -> None:
    with connect(server) as connection:
        table = create(connection, table_name)
        path = table.get_table_path()
        acknowledged = 300

        async def body() -> None:
            writer = table.new_append().create_writer()

            async def one_writer(name: int) -> None:
                for number in range(acknowledged):
                    await writer.append({"writer": name, "number": number}).wait()

            async def restart() -> None:
                await asyncio.to_thread(server.goes_away)
                await asyncio.to_thread(server.comes_back)

            tasks = [asyncio.create_task(one_writer(name)) for name in range(4)]
            await writer.append({"writer": 4, "number": 0}).wait()
            await restart()
            await asyncio.gather(*tasks)

        asyncio.run(body())
        check_complete(connection, path, {**dict.fromkeys(range(4), acknowledged), 4: 1})


def test_a_stopped_server_is_reported_when_retries_end(
    server: RestartableServer, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(server, **{"writer.retries": "1", "writer.enable-idempotence": "false"}) as connection:
        table = create(connection, table_name)
        writer = table.new_append().create_writer()
        wait_until(lambda: is_acknowledged(writer, 0), "the first row is written")
        server.goes_away()
        with monkeypatch.context() as impatience:
            impatience.setattr(cluster, "LEADER_WAIT_SECONDS", 0.1)
            with pytest.raises(fluss.FlussError) as caught:
                writer.append((0, 1)).wait().result(patience(60))
        assert caught.value.error_code == fluss.ErrorCode.NETWORK_EXCEPTION
        server.comes_back()
        wait_until(lambda: is_acknowledged(writer, 2), "rows are written again", 90)
        rows = read_table(connection, table.get_table_path(), BUCKETS)
        assert sorted({row["number"] for row in rows}) == [0, 2]


def is_acknowledged(writer: fluss.AppendWriter, number: int) -> bool:
    """Write a row. Apache Fluss may be without a leader for longer than a writer with one retry bears."""
    try:
        writer.append((0, number)).wait().result(patience(60))
    except fluss.FlussError:
        return False
    return True


def test_a_server_that_does_not_come_back_is_said_once(
    server: RestartableServer,
    table_name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def said() -> list[str]:
        texts = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        return [text for text in texts if table_name in text]

    with connect(server) as connection:
        table = create(connection, table_name)
        writer = table.new_append().create_writer()
        writer.append((0, 0))
        writer.flush().result()
        monkeypatch.setattr(row_buffer, "SILENT_SECONDS", 0.2)
        server.goes_away()
        for number in range(1, 200):
            writer.append((0, number))
        wait_until(said, "the user hears of it")
        monkeypatch.setattr(row_buffer, "SILENT_SECONDS", 600.0)  # from the next acknowledgement on
        server.comes_back()
        writer.flush().result(patience(60))
        assert len(said()) == 1, said()
        assert "not been acknowledged" in said()[0]
        check_complete(connection, table.table_path, {0: 200})
