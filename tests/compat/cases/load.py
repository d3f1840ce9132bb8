"""Much at once: large batches, many small ones, many buckets, several tasks and tables."""

from __future__ import annotations

import asyncio

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, poll_records, together
from tools.waiting import eventually

SCHEMA = pa.schema([("task", pa.int32()), ("number", pa.int64()), ("payload", pa.string())])


@case()
async def large_batches(context: Context) -> None:
    """Batches of several megabytes that do not compress, more than a fetch carries."""
    schema = pa.schema([("number", pa.int64()), ("blob", pa.binary())])
    path = await context.create(schema, properties={"table.log.arrow.compression.type": "NONE"})
    writer = (await context.table(path)).new_append().create_writer()
    blob = bytes(range(256)) * 16
    for start in range(0, 6_000, 1_000):
        numbers = pa.array(range(start, start + 1_000), pa.int64())
        writer.write_arrow_batch(pa.record_batch([numbers, pa.array([blob] * 1_000)], schema=schema))
    await writer.flush()
    table = await context.read_arrow(path)
    assert table.column("number").to_pylist() == list(range(6_000))
    assert set(table.column("blob").to_pylist()) == {blob}
    numbers_only = await context.read_arrow(path, project_by_name=["number"])
    assert numbers_only.column("number").to_pylist() == list(range(6_000))


@case()
async def one_row_larger_than_a_batch(context: Context) -> None:
    """A row of 5 MB is above the batch size and above the fetch size of a bucket; both let it through."""
    path = await context.create({"text": pa.string()}, properties={"table.log.arrow.compression.type": "NONE"})
    text = "0123456789" * 500_000
    await context.append(path, [{"text": text}, {"text": "small"}])
    rows = await context.read_rows(path, 2)
    assert rows[0]["text"] == text
    assert rows[1]["text"] == "small"


@case()
async def many_small_batches(context: Context) -> None:
    """A batch size of 1 KB: hundreds of batches, five in flight, in order and without doubles."""
    path = await context.create(SCHEMA)
    connection = await context.connect(
        writer_dynamic_batch_size_min=1024, writer_batch_size=1024, writer_batch_timeout_ms=1
    )
    writer = (await connection.get_table(path)).new_append().create_writer()
    for number in range(3_000):
        writer.append((0, number, f"payload {number}"))
    await writer.flush()
    assert (await context.read_arrow(path)).column("number").to_pylist() == list(range(3_000))


@case()
async def several_tasks_at_once(context: Context) -> None:
    """Six tasks write rows and Arrow to one table of four buckets while two scanners poll."""
    path = await context.create(SCHEMA, bucket_count=4)
    tasks, each = 6, 500

    async def write(task: int) -> None:
        connection = await context.connect()
        writer = (await connection.get_table(path)).new_append().create_writer()
        for start in range(0, each, 100):
            if task % 2:
                for number in range(start, start + 100):
                    writer.append((task, number, "row"))
            else:
                numbers = pa.array(range(start, start + 100), pa.int64())
                columns = [pa.array([task] * 100, pa.int32()), numbers, pa.array(["arrow"] * 100)]
                writer.write_arrow_batch(pa.record_batch(columns, schema=SCHEMA))
            await asyncio.sleep(0)
        await writer.flush()

    async def read() -> list[tuple[int, int]]:
        scanner = await context.scanner(path, [0, 1, 2, 3])
        records = await poll_records(scanner, tasks * each)
        return [(record.row["task"], record.row["number"]) for record in records]

    readers = [asyncio.ensure_future(read()) for _ in range(2)]
    await together(*readers, *(write(task) for task in range(tasks)))
    for reader in readers:
        seen = await reader
        assert len(seen) == len(set(seen)) == tasks * each


@case()
async def many_buckets(context: Context) -> None:
    """32 buckets by key: everything arrives, each bucket in order, one scanner reads all."""
    path = await context.create(SCHEMA, bucket_count=32, bucket_keys=["number"])
    await context.append(path, [(0, number, "x") for number in range(2_000)])
    scanner = await context.scanner(path, list(range(32)))
    records = await poll_records(scanner, 2_000)
    assert sorted(record.row["number"] for record in records) == list(range(2_000))
    admin = await context.admin()
    latest = await admin.list_offsets(path, list(range(32)), fluss.OffsetSpec.latest())
    assert sum(latest.values()) == 2_000
    assert min(latest.values()) > 0


@case()
async def many_tables(context: Context) -> None:
    """Twelve tables made, written, read and dropped at once.

    Each over a connection of its own: tables that are opened at the same time on one connection of pyfluss can push
    each other out of its metadata cache.
    """

    async def life(number: int) -> None:
        own = Context(context.settings, context.ask)
        path = await own.create(SCHEMA, f"t{number}")
        await own.append(path, [(number, row, "x") for row in range(20)])
        assert len(await own.read_rows(path, 20)) == 20
        await (await own.admin()).drop_table(path)
        assert await (await own.admin()).list_tables(own.database) == []
        await own.close()

    await together(*(life(number) for number in range(12)))


@case()
async def drop_while_scanning_and_writing(context: Context) -> None:
    """A dropped table ends its scanners with an error, not with silence; others go on."""
    admin = await context.admin()
    path = await context.create(SCHEMA, "goes")
    stays = await context.create(SCHEMA, "stays")
    await context.append(path, [(0, 0, "x")])
    connection = await context.connect()
    scanner = await (await connection.get_table(path)).new_scan().create_log_scanner()
    scanner.subscribe(0, 0)
    await poll_records(scanner, 1)
    await admin.drop_table(path)
    codes: list[int] = []

    async def has_failed() -> bool:
        try:
            await scanner.poll(500)
        except fluss.FlussError as error:
            codes.append(error.error_code)
        return bool(codes)

    await eventually(has_failed, "the scanner of the dropped table fails")
    assert codes == [-1 if context.is_apache else 7]
    await context.append(stays, [(0, 1, "y")])
    assert len(await context.read_rows(stays, 1)) == 1
