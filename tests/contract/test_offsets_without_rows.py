"""Puts that change nothing take offsets without rows: a read up to the latest offset ends."""

from __future__ import annotations

import asyncio

import pyarrow as pa

import fluss
from fluss import FlussConnection, OffsetSpec
from tests.support.servers.targets import Target
from tools.waiting import wait_until

SCHEMA = fluss.Schema(
    pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())]), primary_keys=["id"]
)


def test_reads_up_to_latest_end(connection: FlussConnection, table_name: str) -> None:
    async def body() -> None:
        admin = connection.get_admin()
        path = f"fluss.{table_name}"
        descriptor = fluss.TableDescriptor(
            SCHEMA, bucket_count=1, properties={"table.merge-engine": "first_row", "table.replication.factor": "1"}
        )
        await admin.create_table(path, descriptor)
        table = await connection.get_table(path)
        writer = table.new_upsert().create_writer()
        for _ in range(3):  # the first one is a row, the others change nothing
            await writer.upsert({"id": 1, "name": "a"}).wait()
        latest = (await admin.list_offsets(path, [0], OffsetSpec.latest()))[0]
        for start in range(latest + 1):
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe(0, start)
            assert polled_up_to(scanner, latest) == ([1] if start == 0 else [])
        await writer.upsert({"id": 2, "name": "b"}).wait()
        assert polled_up_to(scanner, latest + 1) == [2]
        assert sorted(fluss.Database(connection).to_arrow(path).column("id").to_pylist()) == [1, 2]

    asyncio.run(body())


def polled_up_to(scanner: fluss.LogScanner, latest: int) -> list[int]:
    """The ids of all rows below an offset, as docs/reading.md says."""
    found: list[int] = []
    while any(offset < latest for _, offset in scanner.get_subscribed_buckets()):
        found += [record.row["id"] for record in scanner.poll(100)]
    return found


def test_acks_all_is_seen_at_once_and_acks_1_soon(target: Target, connection: FlussConnection, table_name: str) -> None:
    path = f"fluss.{table_name}"
    with (
        fluss.connect(target.config()) as patient,
        fluss.connect(target.config(**{"writer.acks": "1", "writer.enable-idempotence": "false"})) as hasty,
    ):
        patient.create_table(path, SCHEMA, bucket_count=1)
        for number in range(20):
            patient.upsert(path, [{"id": number, "name": "all"}])
            assert patient.lookup(path, number) == {"id": number, "name": "all"}
        hasty.upsert(path, [{"id": 100, "name": "one"}])
        wait_until(lambda: patient.lookup(path, 100) is not None, "a lookup finds what was written with acks=1")
