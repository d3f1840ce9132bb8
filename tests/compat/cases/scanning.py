"""Ways to scan: start positions, subscriptions, polling by records and batches, bounded reads, iteration."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, poll_batches, poll_records, raises
from tools.waiting import eventually, patience

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string())])


def rows(start: int, end: int) -> list[dict[str, Any]]:
    """Rows with ids from start to end."""
    return [{"id": number, "name": f"n{number}"} for number in range(start, end)]


async def three_batches(context: Context, buckets: int = 1) -> Any:
    """A table with the ids 0 to 5 in three batches."""
    path = await context.create(SCHEMA, bucket_count=buckets)
    for start in (0, 2, 4):
        await context.append(path, rows(start, start + 2))
    return path


@case(peer=True)
async def records_carry_their_place(context: Context) -> None:
    """Offsets, timestamps and change types of records; the mapping and sequence faces of a poll's result."""
    before = int(time.time() * 1000)
    path = await three_batches(context)
    scanner = await context.scanner(path)
    records = await poll_records(scanner, 6)
    assert [record.offset for record in records] == list(range(6))
    assert all(record.change_type == fluss.ChangeType.AppendOnly for record in records)
    assert {record.change_type.short_string() for record in records} == {"+A"}
    times = [record.timestamp for record in records]
    assert times == sorted(times)
    assert before - 1000 <= times[0] <= int(time.time() * 1000) + 1000
    writer = (await context.table(path)).new_append().create_writer()
    writer.write_arrow_batch(pa.RecordBatch.from_pylist(rows(6, 9), SCHEMA))
    await writer.flush()
    result = await scanner.poll(5000)
    while result.is_empty():
        result = await scanner.poll(5000)
    (bucket,) = result.buckets()
    assert bucket == fluss.TableBucket((await context.table(path)).get_table_info().table_id, 0)
    assert bucket.partition_id is None
    assert result.count() == len(result) == 3
    assert [record.row["id"] for record in result.records(bucket)] == [6, 7, 8]
    assert result[0].offset == 6
    assert [record.offset for record in result[1:]] == [7, 8]
    assert bucket in result


@case(peer=True)
async def start_positions(context: Context) -> None:
    """From an offset (also inside a batch), the earliest, a resolved timestamp, the resolved latest."""
    path = await three_batches(context)
    admin = await context.admin()
    table = await context.table(path)

    async def ids_from(offset: int, count: int) -> list[int]:
        scanner = await table.new_scan().create_log_scanner()
        scanner.subscribe(0, offset)
        return [record.row["id"] for record in await poll_records(scanner, count)]

    assert await ids_from(fluss.EARLIEST_OFFSET, 6) == [0, 1, 2, 3, 4, 5]
    assert await ids_from(0, 6) == [0, 1, 2, 3, 4, 5]
    assert await ids_from(3, 3) == [3, 4, 5]
    assert await ids_from(5, 1) == [5]
    scanner = await context.scanner(path)
    third = (await poll_records(scanner, 6))[4]
    (by_time,) = (await admin.list_offsets(path, [0], fluss.OffsetSpec.timestamp(third.timestamp))).values()
    assert by_time == 4
    assert await ids_from(by_time, 2) == [4, 5]
    (latest,) = (await admin.list_offsets(path, [0], fluss.OffsetSpec.latest())).values()
    tail = await table.new_scan().create_log_scanner()
    tail.subscribe(0, latest)
    assert len(await tail.poll(200)) == 0
    await context.append(path, rows(6, 8))
    assert [record.row["id"] for record in await poll_records(tail, 2)] == [6, 7]


@case(peer=True)
async def offset_out_of_range(context: Context) -> None:
    """Beyond the end and before the start are errors; the end itself is not."""
    path = await three_batches(context)
    table = await context.table(path)

    async def poll_from(offset: int) -> Any:
        scanner = await table.new_scan().create_log_scanner()
        scanner.subscribe(0, offset)
        return await scanner.poll(wait_ms)

    wait_ms = 15_000  # an error comes earlier
    for offset in (7, 50, -7):
        await raises(-2, poll_from(offset), f"The fetching offset {offset} is out of range")
    wait_ms = 1_000
    assert len(await poll_from(6)) == 0


@case()
async def several_buckets(context: Context) -> None:
    """Order holds inside each bucket; a bucket can be left and taken again."""
    path = await context.create(SCHEMA, bucket_count=3, bucket_keys=["id"])
    await context.append(path, rows(0, 60))
    scanner = await context.scanner(path, [0, 1, 2])
    records = await poll_records(scanner, 60)
    assert sorted(record.row["id"] for record in records) == list(range(60))
    per_bucket = {}
    for bucket in range(3):
        single = await context.scanner(path, [bucket])
        end = (await (await context.admin()).list_offsets(path, [bucket], fluss.OffsetSpec.latest()))[bucket]
        per_bucket[bucket] = await poll_records(single, end)
        assert [record.offset for record in per_bucket[bucket]] == list(range(end))
    scanner.unsubscribe(0)
    scanner.unsubscribe(1)
    await context.append(path, rows(60, 120))
    ends = await (await context.admin()).list_offsets(path, [2], fluss.OffsetSpec.latest())
    fresh = await poll_records(scanner, ends[2] - len(per_bucket[2]))
    assert [record.offset for record in fresh] == list(range(len(per_bucket[2]), ends[2]))
    scanner.subscribe(0, len(per_bucket[0]))
    back = await poll_records(scanner, 1)
    assert back[0].offset == len(per_bucket[0])


@case(peer=True)
async def batches_carry_their_place(context: Context) -> None:
    """poll_record_batch: empty first, then whole batches with base and last offset; no row comes twice."""
    path = await context.create(SCHEMA)
    scanner = await context.scanner(path, batches=True)
    assert await scanner.poll_record_batch(300) == []
    writer = (await context.table(path)).new_append().create_writer()
    for start in (0, 2, 4):
        writer.write_arrow_batch(pa.RecordBatch.from_pylist(rows(start, start + 2), SCHEMA))
        await writer.flush()
    batches = await poll_batches(scanner, 6)
    assert [number for batch in batches for number in batch.batch.column("id").to_pylist()] == list(range(6))
    assert [(batch.base_offset, batch.last_offset) for batch in batches] == [(0, 1), (2, 3), (4, 5)]
    assert await scanner.poll_record_batch(300) == []
    middle = await context.scanner(path, [], batches=True)
    middle.subscribe(0, 3)
    batches = await poll_batches(middle, 3)
    assert [number for batch in batches for number in batch.batch.column("id").to_pylist()] == [3, 4, 5]
    assert batches[0].base_offset == 3


@case()
async def poll_arrow(context: Context) -> None:
    """An empty table with the right columns when there is nothing; merged batches otherwise."""
    path = await context.create(SCHEMA)
    scanner = await context.scanner(path, batches=True)
    nothing = await scanner.poll_arrow(200)
    assert nothing.num_rows == 0
    assert nothing.schema.names == ["id", "name"]
    await context.append(path, rows(0, 5))
    ids: list[int] = []

    async def has_all() -> bool:
        ids.extend((await scanner.poll_arrow(1000)).column("id").to_pylist())
        return len(ids) >= 5

    await eventually(has_all, "five rows", seen=lambda: ids)
    assert ids == [0, 1, 2, 3, 4]


@case(peer=True)
async def bounded_reads(context: Context) -> None:
    """to_arrow, to_pandas and the batch reader end at the latest offset; empty buckets do not hold them up."""
    path = await three_batches(context, buckets=3)
    expected = list(range(6))
    table = await context.read_arrow(path, [0, 1, 2])
    assert sorted(table.column("id").to_pylist()) == expected
    frame = await (await context.scanner(path, [0, 1, 2], batches=True)).to_pandas()
    assert sorted(frame["id"]) == expected
    reader_scanner = await context.scanner(path, [0, 1, 2], batches=True)

    def read_all() -> list[int]:
        return [n for batch in reader_scanner.to_arrow_batch_reader() for n in batch.column("id").to_pylist()]

    assert sorted(await asyncio.to_thread(read_all)) == expected
    empty = await context.create(SCHEMA, "empty")
    assert (await context.read_arrow(empty)).num_rows == 0


@case()
async def bounded_read_from_the_middle(context: Context) -> None:
    """A bounded read honours its start offset, and needs a subscription."""
    path = await three_batches(context)
    scanner = await context.scanner(path, [], batches=True)
    await raises(-2, scanner.to_arrow(), "No buckets subscribed")
    scanner.subscribe(0, 3)
    assert (await scanner.to_arrow()).column("id").to_pylist() == [3, 4, 5]


@case()
async def async_iteration(context: Context) -> None:
    """`async for` over records and over batches, left with break and taken up again."""
    path = await context.create(SCHEMA, bucket_count=3)
    for start in range(0, 60, 20):
        await context.append(path, rows(start, start + 20))
    seen: list[int] = []
    scanner = await context.scanner(path, [0, 1, 2])
    async for record in scanner:
        seen.append(record.row["id"])
        if len(seen) == 60:
            break
    assert sorted(seen) == list(range(60))
    batches = await context.scanner(path, [0, 1, 2], batches=True)
    ids: list[int] = []
    async for batch in batches:
        ids += batch.batch.column("id").to_pylist()
        if len(ids) == 60:
            break
    assert sorted(ids) == list(range(60))
    await context.append(path, rows(60, 61))
    async for batch in batches:
        assert batch.batch.column("id").to_pylist() == [60]
        break


@case()
async def a_waiting_poll_is_woken(context: Context) -> None:
    """A poll that waits at the end returns with the row, long before its own time is up."""
    path = await context.create(SCHEMA)
    scanner = await context.scanner(path)
    assert len(await scanner.poll(100)) == 0
    waiting = asyncio.ensure_future(poll_records(scanner, 1))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await context.append(path, rows(7, 8))
    records = await asyncio.wait_for(waiting, patience(60))
    assert records[0].row["id"] == 7


@case()
async def poll_sizes(context: Context) -> None:
    """max-poll-records bounds a poll; nothing is lost between polls."""
    path = await context.create(SCHEMA)
    await context.append(path, rows(0, 100))
    connection = await context.connect(scanner_log_max_poll_records=7)
    scanner = await (await connection.get_table(path)).new_scan().create_log_scanner()
    scanner.subscribe(0, 0)
    ids: list[int] = []
    while len(ids) < 100:
        polled = await scanner.poll(2000)
        assert len(polled) <= 7
        ids += [record.row["id"] for record in polled]
    assert ids == list(range(100))


@case()
async def small_fetch_limits(context: Context) -> None:
    """With tiny byte limits every batch still comes, one by one, whole."""
    path = await context.create(SCHEMA, bucket_count=2, bucket_keys=["id"])
    for start in range(0, 40, 10):
        await context.append(path, rows(start, start + 10))
    connection = await context.connect(
        scanner_log_fetch_max_bytes=64, scanner_log_fetch_max_bytes_for_bucket=64, scanner_log_fetch_wait_max_time_ms=50
    )
    scanner = await (await connection.get_table(path)).new_scan().create_log_scanner()
    scanner.subscribe_buckets({0: 0, 1: 0})
    records = await poll_records(scanner, 40)
    assert sorted(record.row["id"] for record in records) == list(range(40))


@case()
async def two_scanners_of_one_table(context: Context) -> None:
    """Scanners are independent of each other."""
    path = await three_batches(context)
    first, second = await context.scanner(path), await context.scanner(path)
    assert len(await poll_records(first, 6)) == 6
    await context.append(path, rows(6, 8))
    assert [record.offset for record in await poll_records(second, 8)] == list(range(8))
    assert [record.offset for record in await poll_records(first, 2)] == [6, 7]


@case()
async def a_reader_holds_its_scanner(context: Context) -> None:
    """While a batch reader is open its scanner takes no new subscription."""
    path = await context.create(SCHEMA)
    for start in range(0, 1_000, 200):
        await context.append(path, rows(start, start + 200))
    scanner = await context.scanner(path, batches=True)
    reader = scanner.to_arrow_batch_reader()
    first = await asyncio.to_thread(reader.read_next_batch)
    assert first.num_rows > 0

    async def subscribe() -> None:
        scanner.subscribe(0, 0)

    await raises(-2, subscribe(), "RecordBatchLogReader is active")
    await asyncio.to_thread(reader.read_all)
    again = await context.scanner(path, batches=True)
    assert (await again.to_arrow()).num_rows == 1_000


@case()
async def scanner_kinds_do_not_mix(context: Context) -> None:
    """Record calls on batch scanners and batch calls on record scanners are refused by the client."""
    path = await three_batches(context)
    records, batches = await context.scanner(path), await context.scanner(path, batches=True)
    await raises(-2, batches.poll(100))
    await raises(-2, records.poll_arrow(100))
    await raises(-2, records.poll_record_batch(100))
    await raises(-2, records.to_arrow())
