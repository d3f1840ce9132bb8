"""list_offsets: earliest, latest, by timestamp; errors."""

from __future__ import annotations

import asyncio
import time

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, poll_records, raises

SCHEMA = pa.schema([("id", pa.int32())])


def now_ms() -> int:
    """The client's clock."""
    return int(time.time() * 1000)


@case(peer=True)
async def earliest_latest_timestamp(context: Context) -> None:
    """Of an empty table, and around the times of batches."""
    admin = await context.admin()
    path = await context.create(SCHEMA)
    spec = fluss.OffsetSpec
    assert await admin.list_offsets(path, [0], spec.earliest()) == {0: 0}
    assert await admin.list_offsets(path, [0], spec.latest()) == {0: 0}
    assert await admin.list_offsets(path, [0], spec.timestamp(now_ms() - 50)) == {0: 0}
    before = now_ms() - 1
    await context.append(path, [{"id": 1}, {"id": 2}, {"id": 3}])
    assert await admin.list_offsets(path, [0], spec.latest()) == {0: 3}
    assert await admin.list_offsets(path, [0], spec.earliest()) == {0: 0}
    assert await admin.list_offsets(path, [0], spec.timestamp(before)) == {0: 0}
    await asyncio.sleep(0.02)
    middle = now_ms()
    await asyncio.sleep(0.02)
    await context.append(path, [{"id": 4}])
    assert await admin.list_offsets(path, [0], spec.timestamp(middle)) == {0: 3}
    await asyncio.sleep(0.05)
    assert await admin.list_offsets(path, [0], spec.timestamp(now_ms() - 10)) == {0: 4}
    records = await poll_records(await context.scanner(path), 4)
    first, last = records[0].timestamp, records[-1].timestamp
    assert await admin.list_offsets(path, [0], spec.timestamp(first)) == {0: 0}
    assert await admin.list_offsets(path, [0], spec.timestamp(first + 1)) == {0: 3}
    assert await admin.list_offsets(path, [0], spec.timestamp(last)) == {0: 3}
    assert await admin.list_offsets(path, [0], spec.timestamp(last + 1)) == {0: 4}
    assert await admin.list_offsets(path, [0], spec.timestamp(0)) == {0: 0}


@case()
async def many_buckets_at_once(context: Context) -> None:
    """One call for all buckets, also in the wrong order, also for some of them."""
    admin = await context.admin()
    path = await context.create(SCHEMA, bucket_count=16, bucket_keys=["id"])
    await context.append(path, [{"id": number} for number in range(200)])
    latest = await admin.list_offsets(path, list(reversed(range(16))), fluss.OffsetSpec.latest())
    assert sorted(latest) == list(range(16))
    assert sum(latest.values()) == 200
    assert await admin.list_offsets(path, [3, 9], fluss.OffsetSpec.latest()) == {3: latest[3], 9: latest[9]}


@case(peer=True)
async def offset_errors(context: Context) -> None:
    """Code 38 for the future; the client's own checks."""
    admin = await context.admin()
    path = await context.create(SCHEMA)
    future = fluss.OffsetSpec.timestamp(now_ms() + 600_000)
    await raises(38, admin.list_offsets(path, [0], future), "timestamp")
    await raises(-2, admin.list_offsets(path, [5], fluss.OffsetSpec.latest()), "No leader found")
    await raises(-2, admin.list_offsets(path, [], fluss.OffsetSpec.latest()), "empty")


@case()
async def a_negative_timestamp(context: Context) -> None:
    """Before all time: -1 while the bucket is empty, as the peer has it."""
    admin = await context.admin()
    path = await context.create(SCHEMA)
    assert await admin.list_offsets(path, [0], fluss.OffsetSpec.timestamp(0)) == {0: 0}
    await raises(-1, admin.list_offsets(path, [0], fluss.OffsetSpec.timestamp(-5)), "-5")
