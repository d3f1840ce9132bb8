"""The awaited scanners of `fluss.aio`: same rows, and other tasks run while they wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pytest

import fluss.aio as fluss
from fluss.client.scan import ready_queue
from tests.support.servers.targets import Target
from tests.support.tables.scan_tables import ONE_BATCH_AT_A_TIME, ROWS, WAIT_MS, rows_of


@asynccontextmanager
async def opened(
    target: Target, name: str, buckets: int = 2, options: Mapping[str, str] | None = None
) -> AsyncIterator[fluss.FlussTable]:
    async with await fluss.FlussConnection.create(target.config(**(options or {}))) as connection:
        path = fluss.TablePath("fluss", name)
        descriptor = fluss.TableDescriptor(fluss.Schema(ROWS), bucket_count=buckets)
        await connection.get_admin().create_table(path, descriptor)
        yield await connection.get_table(path)


async def write(table: fluss.FlussTable, rows: pa.Table) -> None:
    writer = table.new_append().create_writer()
    writer.write_arrow(rows)
    await writer.flush()


def test_polls_and_bounded_reads(target: Target, table_name: str) -> None:
    async def body() -> None:
        async with opened(target, table_name) as table:
            await write(table, rows_of(range(50)))
            scanner = await table.new_scan().create_record_batch_log_scanner()
            scanner.subscribe_buckets({0: fluss.EARLIEST_OFFSET, 1: fluss.EARLIEST_OFFSET})
            assert (await scanner.to_arrow()).sort_by("id") == rows_of(range(50))
            assert (await scanner.to_arrow()).num_rows == 0
            assert (await scanner.poll_arrow(1)).num_rows == 0
            await write(table, rows_of(range(50, 60)))
            batches = await scanner.poll_record_batch(WAIT_MS)
            assert sum(batch.batch.num_rows for batch in batches) in range(1, 11)
            records = await table.new_scan().create_log_scanner()
            records.subscribe_buckets({0: fluss.EARLIEST_OFFSET, 1: fluss.EARLIEST_OFFSET})
            found = await records.poll(WAIT_MS)
            assert isinstance(found, fluss.ScanRecords)
            with pytest.raises(fluss.FlussError, match="record-based"):
                await scanner.poll(1)
            reader = scanner.to_arrow_batch_reader()
            assert sum(batch.num_rows for batch in reader) + sum(len(batch.batch) for batch in batches) == 10
            limited = table.new_scan().limit(3).create_bucket_batch_scanner(found.buckets()[0])
            assert (await limited.to_arrow()).num_rows == 3
            assert await limited.next_batch() is None

    asyncio.run(body())


def test_async_for(target: Target, table_name: str) -> None:
    async def body() -> list[int]:
        async with opened(target, table_name) as table:
            await write(table, rows_of(range(100)))
            found: list[int] = []
            async with await table.new_scan().create_log_scanner() as scanner:
                scanner.subscribe_all()
                async for record in scanner:
                    assert isinstance(record, fluss.ScanRecord)
                    found.append(record.row["id"])
                    if len(found) == 100:
                        break
            return sorted(found)

    assert asyncio.run(body()) == list(range(100))


def test_a_loop_that_stops_loses_nothing(target: Target, table_name: str) -> None:
    async def body() -> list[int]:
        async with opened(target, table_name, 1) as table:
            await write(table, rows_of(range(40)))
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe_all()
            found: list[int] = []
            for stop in (3, 4, 17):
                async for record in scanner:
                    assert isinstance(record, fluss.ScanRecord)
                    found.append(record.row["id"])
                    assert [position for _, position in scanner.get_subscribed_buckets()] == [len(found)]
                    if len(found) == stop:
                        break
            while len(found) < 40:
                found += [record.row["id"] for record in await scanner.poll(WAIT_MS)]
            return found

    assert asyncio.run(body()) == list(range(40))


def test_a_bounded_read_that_is_cancelled_loses_nothing(
    target: Target, table_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_queue, "MAX_READY_BYTES", 1)
    take_bounded = ready_queue.ReadyQueue.take_bounded

    async def body() -> list[int]:
        async with opened(target, table_name, 1, ONE_BATCH_AT_A_TIME) as table:
            for start in range(0, 300, 10):
                await write(table, rows_of(range(start, start + 10)))
            scanner = await table.new_scan().create_record_batch_log_scanner()
            scanner.subscribe_all()
            reading = asyncio.create_task(scanner.to_arrow())

            def take_and_cancel(queue: Any, waiter: Any = None) -> Any:
                taken = take_bounded(queue, waiter)
                if taken:
                    reading.cancel()
                return taken

            with monkeypatch.context() as patch:
                patch.setattr(ready_queue.ReadyQueue, "take_bounded", take_and_cancel)
                with pytest.raises(asyncio.CancelledError):
                    await reading
            assert scanner.get_subscribed_buckets()[0][1] == fluss.EARLIEST_OFFSET
            found = await scanner.to_arrow()
            await write(table, rows_of([300]))
            found = pa.concat_tables([found, await scanner.poll_arrow(WAIT_MS)])
            return found.column("id").to_pylist()

    assert asyncio.run(body()) == list(range(301))


def test_a_waiting_poll_does_not_block_the_loop(target: Target, table_name: str) -> None:
    async def body() -> int:
        async with opened(target, table_name) as table:
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe_all()
            waiting = asyncio.create_task(scanner.poll(WAIT_MS))
            turns = 0
            for _ in range(20):
                await asyncio.sleep(0.001)
                turns += 1
            assert not waiting.done()
            await write(table, rows_of([7]))
            assert [record.row["id"] for record in await waiting] == [7]
            cancelled = asyncio.create_task(scanner.poll(WAIT_MS))
            await asyncio.sleep(0.01)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            await write(table, rows_of([8]))
            assert [record.row["id"] for record in await scanner.poll(WAIT_MS)] == [8]
            return turns

    assert asyncio.run(body()) == 20


def test_rows_that_are_there_do_not_starve_other_tasks(target: Target, table_name: str) -> None:
    async def body() -> None:
        async with opened(target, table_name, 1) as table:
            await write(table, rows_of(range(5000)))
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe_all()
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counter = asyncio.create_task(count())
            polls = seen = 0
            while seen < 5000:
                seen += len(await scanner.poll(WAIT_MS))
                polls += 1
            counter.cancel()
            assert turns >= polls

    asyncio.run(body())
