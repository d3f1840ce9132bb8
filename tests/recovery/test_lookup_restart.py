"""Lookups continue while the server is killed and started again: no call fails, and no answer is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import fluss
from fluss import DataTypes
from tools.servers.ports import free_ports
from tools.servers.server_process import ServerProcess
from tools.waiting import eventually

PATH = fluss.TablePath("fluss", "t")
DEVICES, MOMENTS = 8, 5


async def create_table(connection: fluss.FlussConnection) -> fluss.FlussTable:
    schema = (
        fluss.Schema.builder()
        .column("device", DataTypes.int())
        .column("at", DataTypes.int())
        .column("value", DataTypes.string())
        .primary_key(["device", "at"])
        .build()
    )
    descriptor = fluss.TableDescriptor(schema, bucket_count=4, bucket_keys=["device"])
    await connection.get_admin().create_table(PATH, descriptor)
    table = await connection.get_table(PATH)
    writer = table.new_upsert().create_writer()
    for device in range(DEVICES):
        for at in range(MOMENTS):
            writer.upsert([device, at, f"{device}/{at}"])
    await writer.flush()
    return table


class Lookers:
    """Tasks that do lookups, one of each kind; their results are checked at once."""

    def __init__(self, table: fluss.FlussTable) -> None:
        self._stopped = False
        self._single = table.new_lookup().create_lookuper()
        self._prefix = table.new_lookup().lookup_by(["device"]).create_lookuper()
        kinds = (self._look_up, self._look_up_many, self._look_up_prefix)
        self._rounds = [0] * len(kinds)
        self._tasks = [asyncio.create_task(self._loop(number, kind)) for number, kind in enumerate(kinds)]

    async def _loop(self, number: int, look: Callable[[int], Awaitable[None]]) -> None:
        while not self._stopped:
            await look(self._rounds[number] % DEVICES)
            self._rounds[number] += 1

    async def _look_up(self, device: int) -> None:
        row = await self._single.lookup([device, 1])
        assert row == {"device": device, "at": 1, "value": f"{device}/1"}

    async def _look_up_many(self, device: int) -> None:
        keys = [(other, device % MOMENTS) for other in range(DEVICES)]
        found = await self._single.lookup_many([*keys, (device, MOMENTS)])
        expected = [{"device": other, "at": at, "value": f"{other}/{at}"} for other, at in keys]
        assert found == [*expected, None]

    async def _look_up_prefix(self, device: int) -> None:
        rows = await self._prefix.lookup([device])
        assert [row["value"] for row in rows] == [f"{device}/{at}" for at in range(MOMENTS)]

    async def go_on(self) -> None:
        """Wait until each of them has found something after this call."""
        before = list(self._rounds)

        async def all_did() -> bool:
            self._raise_failures()
            # The first answer may have been on its way before.
            return all(now > known + 1 for now, known in zip(self._rounds, before, strict=True))

        await eventually(all_did, "all lookups go on")

    def _raise_failures(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        self._stopped = True
        await asyncio.gather(*self._tasks)


def test_lookups_over_kills_and_restarts(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"

    async def body(server: ServerProcess) -> None:
        config = fluss.Config({"bootstrap.servers": address})
        async with await fluss.FlussConnection.create(config) as connection:
            lookers = Lookers(await create_table(connection))
            await lookers.go_on()
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await lookers.go_on()
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            await lookers.go_on()
            await asyncio.to_thread(server.kill_child, 1)
            await lookers.go_on()
            await lookers.stop()

    with ServerProcess(tmp_path / "data", bind=address, tablets=2) as server:
        asyncio.run(body(server))
