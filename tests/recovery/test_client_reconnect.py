"""A client's connection outlives its servers: killed roles, a restart, a server that starts late."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import fluss
from fluss import FlussError, OffsetSpec, TablePath
from tools.servers.ports import free_ports
from tools.servers.server_process import ServerProcess
from tools.waiting import eventually

PATH = TablePath("fluss", "t")
DESCRIPTOR = fluss.TableDescriptor(fluss.Schema(pa.schema([("id", pa.int32())])), bucket_count=4)


def config(address: str, **options: str) -> fluss.Config:
    return fluss.Config({"bootstrap.servers": address, "request-timeout": "20000", **options})


async def runs_anew(server: ServerProcess, killed: int) -> bool:
    """True if the tablet has a new process."""
    process = server.process_of("tablet-0")
    return process is not None and process.pid != killed


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


def test_killed_roles_are_found_again(tmp_path: Path, address: str) -> None:
    async def body(server: ServerProcess) -> None:
        async with await fluss.FlussConnection.create(config(address)) as connection:
            admin = connection.get_admin()
            await admin.create_table(PATH, DESCRIPTOR)
            for child in (0, 1, 2):
                server.kill_child(child)
                assert await admin.list_tables("fluss") == ["t"]
                assert await admin.list_offsets(PATH, [0, 1, 2, 3], OffsetSpec.latest()) == {0: 0, 1: 0, 2: 0, 3: 0}
                assert (await connection.get_table(PATH)).get_table_info().num_buckets == 4

    with ServerProcess(tmp_path / "data", bind=address, tablets=2) as server:
        asyncio.run(body(server))


def test_a_restarted_server_is_found_again(tmp_path: Path, address: str) -> None:
    async def body(server: ServerProcess) -> None:
        async with await fluss.FlussConnection.create(config(address)) as connection:
            admin = connection.get_admin()
            await admin.create_table(PATH, DESCRIPTOR)
            server.kill()
            with pytest.raises(FlussError) as caught:
                await admin.list_tables("fluss")
            assert caught.value.error_code == fluss.ErrorCode.NETWORK_EXCEPTION
            restart = threading.Thread(target=server.start)
            restart.start()

            async def answers() -> bool:
                try:
                    return await admin.list_tables("fluss") == ["t"]
                except FlussError as error:
                    if not error.is_retriable:
                        raise
                    return False

            await eventually(answers, "the restarted server answers")
            restart.join()
            assert await admin.list_offsets(PATH, [0, 3], OffsetSpec.earliest()) == {0: 0, 3: 0}
            await admin.drop_table(PATH)

    with ServerProcess(tmp_path / "data", bind=address, tablets=2) as server:
        asyncio.run(body(server))


def test_a_call_that_needs_a_leader_waits_while_the_tablet_restarts(tmp_path: Path, address: str) -> None:
    async def body(server: ServerProcess) -> None:
        async with await fluss.FlussConnection.create(config(address)) as connection:
            admin = connection.get_admin()
            await admin.create_table(PATH, DESCRIPTOR)
            calls = []
            for _ in range(3):
                killed = server.kill_child(1)
                calls.append(asyncio.ensure_future(admin.list_offsets(PATH, [0, 1, 2, 3], OffsetSpec.latest())))
                await eventually(partial(runs_anew, server, killed), "the tablet runs again")
            assert await asyncio.gather(*calls) == [{0: 0, 1: 0, 2: 0, 3: 0}] * 3

    with ServerProcess(tmp_path / "data", bind=address) as server:
        asyncio.run(body(server))
