"""The one-shot scanner of a bucket with a limit: the newest rows of a log table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, raises

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("score", pa.float64())])


async def limited(context: Context, path: Any, limit: int, bucket: int = 0, **scan: Any) -> Any:
    """A limited scanner of one bucket."""
    table = await context.table(path)
    builder = table.new_scan().limit(limit)
    for call, argument in scan.items():
        builder = getattr(builder, call)(argument)
    return builder.create_bucket_batch_scanner(fluss.TableBucket(table.get_table_info().table_id, bucket))


@case(peer=True)
async def the_newest_rows_once(context: Context) -> None:
    """At most `limit` rows, the newest; then nothing."""
    path = await context.create(SCHEMA)
    for number in range(5):
        await context.append(path, [{"id": number * 2}, {"id": number * 2 + 1}])
    scanner = await limited(context, path, 3)
    batch = await scanner.next_batch()
    assert batch.batch.column("id").to_pylist() == [7, 8, 9]
    assert (batch.base_offset, batch.last_offset) == (7, 9)
    assert batch.bucket.bucket_id == 0
    assert scanner.bucket == batch.bucket
    assert await scanner.next_batch() is None


@case(peer=True)
async def all_forms_of_the_result(context: Context) -> None:
    """to_arrow, to_pandas and collect_all_batches; a limit above the row count; projection."""
    path = await context.create(SCHEMA)
    await context.append(path, [{"id": 1, "name": "a", "score": 0.5}, {"id": 2, "name": "b"}])
    rows = [{"id": 1, "name": "a", "score": 0.5}, {"id": 2, "name": "b", "score": None}]
    assert (await (await limited(context, path, 10)).to_arrow()).to_pylist() == rows
    assert list((await (await limited(context, path, 10)).to_pandas())["name"]) == ["a", "b"]
    (only,) = await (await limited(context, path, 10)).collect_all_batches()
    assert only.batch.num_rows == 2
    projected = await (await limited(context, path, 10, project_by_name=["score", "id"])).to_arrow()
    assert projected.to_pylist() == [{"score": 0.5, "id": 1}, {"score": None, "id": 2}]


@case()
async def buckets_and_partitions(context: Context) -> None:
    """Each bucket on its own, also inside a partition; empty ones give an empty table."""
    path = await context.create(SCHEMA, bucket_count=3, bucket_keys=["id"])
    await context.append(path, [{"id": number} for number in range(30)])
    total = 0
    for bucket in range(3):
        total += (await (await limited(context, path, 100, bucket)).to_arrow()).num_rows
    assert total == 30
    empty = await context.create(SCHEMA, "empty")
    nothing = await (await limited(context, empty, 5)).to_arrow()
    assert nothing.num_rows == 0
    assert nothing.schema.names == SCHEMA.names
    parts = await context.create(SCHEMA, "parts", partition_keys=["name"])
    partition = await context.create_partition(parts, name="x")
    await context.append(parts, [{"id": 5, "name": "x"}])
    table = await context.table(parts)
    place = fluss.TableBucket.with_partition(table.get_table_info().table_id, partition, 0)
    batch = await table.new_scan().limit(5).create_bucket_batch_scanner(place).next_batch()
    assert batch.batch.column("id").to_pylist() == [5]
    assert batch.bucket.partition_id == partition


@case()
async def a_limit_over_many_batches(context: Context) -> None:
    """More rows than one batch holds, compressed."""
    path = await context.create(SCHEMA)
    writer = (await context.table(path)).new_append().create_writer()
    for start in range(0, 50_000, 5_000):
        ids = pa.array(range(start, start + 5_000), pa.int32())
        names = pa.array([f"name {number}" for number in range(start, start + 5_000)])
        writer.write_arrow_batch(pa.record_batch([ids, names, pa.nulls(5_000, pa.float64())], schema=SCHEMA))
    await writer.flush()
    table = await (await limited(context, path, 12_345)).to_arrow()
    assert table.column("id").to_pylist() == list(range(50_000 - 12_345, 50_000))


@case()
async def refused_limits(context: Context) -> None:
    """The client wants a positive limit, a bucket of this table, and no limit on log scanners."""
    path = await context.create(SCHEMA)
    table = await context.table(path)
    table_id = table.get_table_info().table_id

    async def make(limit: int | None, bucket: Any) -> Any:
        builder = table.new_scan()
        return (builder if limit is None else builder.limit(limit)).create_bucket_batch_scanner(bucket)

    await raises(-2, make(0, fluss.TableBucket(table_id, 0)))
    await raises(-2, make(None, fluss.TableBucket(table_id, 0)), "limit")
    await raises(-2, make(5, fluss.TableBucket(table_id + 1000, 0)))
    await raises(-2, make(5, fluss.TableBucket(table_id, 7)))

    async def log_scanner() -> Any:
        return await table.new_scan().limit(5).create_log_scanner()

    await raises(-2, log_scanner(), "limit")


@case()
async def fixed_schema_without_evolution(context: Context) -> None:
    """with_fixed_schema changes nothing while there is one schema."""
    path = await context.create(SCHEMA)
    await context.append(path, [{"id": 1}])
    for fixed in (True, False):
        assert (await context.read_arrow(path, with_fixed_schema=fixed)).num_rows == 1
        assert (await context.read_rows(path, 1, with_fixed_schema=fixed))[0]["id"] == 1
