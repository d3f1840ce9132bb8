"""Lookups by primary key and by its prefix, limited scans, partitions."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, raises
from tests.compat.cases.kv_kit import create_keyed, delete, lookup, upsert

ORDERS = {"customer": pa.int64(), "region": pa.string(), "number": pa.int64(), "note": pa.string()}


async def prefix(context: Context, path: Any, columns: list[str], key: Any) -> list[dict[str, Any]]:
    """All rows with this prefix of the key."""
    table = await context.table(path)
    rows: list[dict[str, Any]] = await table.new_lookup().lookup_by(columns).create_lookuper().lookup(key)
    return rows


@case(peer=True)
async def keys_of_several_columns(context: Context) -> None:
    """The key has its own order of columns, which is not that of the table."""
    path = await create_keyed(context, ORDERS, ("number", "region"), bucket_count=2)
    await upsert(context, path, [[1, "north", number, f"note {number}"] for number in range(-3, 200)])
    for key in (-3, 0, 127, 128, 199):
        row = {"customer": 1, "region": "north", "number": key, "note": f"note {key}"}
        assert await lookup(context, path, {"number": key, "region": "north"}) == row
        assert await lookup(context, path, [key, "north"]) == row
        assert await lookup(context, path, [key, "south"]) is None


@case(peer=True)
async def rows_by_prefix(context: Context) -> None:
    """All rows of a bucket key, in key order; keys that share bytes but not the prefix are not among them."""
    path = await create_keyed(
        context, ORDERS, ("customer", "region", "number"), bucket_count=3, bucket_keys=["customer", "region"]
    )
    rows = [
        [customer, region, number, f"{customer}{region}{number}"]
        for customer in (1, 128, -1)
        for region in ("n", "no", "")
        for number in (3, 1, 2)
    ]
    await upsert(context, path, rows)
    for customer in (1, 128, -1):
        for region in ("n", "no", ""):
            found = await prefix(context, path, ["customer", "region"], {"customer": customer, "region": region})
            assert [row["number"] for row in found] == [1, 2, 3]
            assert {row["note"] for row in found} == {f"{customer}{region}{number}" for number in (1, 2, 3)}
    assert await prefix(context, path, ["customer", "region"], [2, "n"]) == []
    await delete(context, path, [[1, "n", 2]])
    assert [row["number"] for row in await prefix(context, path, ["customer", "region"], (1, "n"))] == [1, 3]


@case()
async def a_long_list_of_rows(context: Context) -> None:
    """A prefix with 12,000 rows: the server gives them in one answer."""
    path = await create_keyed(context, ORDERS, ("customer", "number"), bucket_keys=["customer"])
    await upsert(context, path, [[5, "r", number, "x" * 50] for number in range(12_000)])
    found = await prefix(context, path, ["customer"], [5])
    assert sorted(row["number"] for row in found) == list(range(12_000))


@case(peer=True)
async def partitions(context: Context) -> None:
    """Each partition has its own rows; a partition that does not exist has none."""
    path = await create_keyed(
        context,
        ORDERS,
        ("region", "customer", "number"),
        partition_keys=["region"],
        bucket_keys=["customer"],
        bucket_count=2,
    )
    for region in ("east", "west"):
        await context.create_partition(path, 2, region=region)
    await upsert(context, path, [[1, "east", 1, "e"], [1, "west", 1, "w"], [1, "west", 2, "w2"]])
    assert (await lookup(context, path, ["east", 1, 1]))["note"] == "e"
    assert (await lookup(context, path, ["west", 1, 1]))["note"] == "w"
    assert await lookup(context, path, ["east", 1, 2]) is None
    assert await lookup(context, path, ["nowhere", 1, 1]) is None
    found = await prefix(context, path, ["region", "customer"], ["west", 1])
    assert [row["note"] for row in found] == ["w", "w2"]
    assert await prefix(context, path, ["region", "customer"], ["nowhere", 1]) == []
    await delete(context, path, [["west", 1, 1]])
    assert await lookup(context, path, ["west", 1, 1]) is None
    assert (await lookup(context, path, ["east", 1, 1]))["note"] == "e"


@case(peer=True)
async def the_first_rows_of_a_bucket(context: Context) -> None:
    """A limited scan of a primary-key table gives current rows, none twice."""
    path = await create_keyed(context)
    table = await context.table(path)
    bucket = fluss.TableBucket(table.get_table_info().table_id, 0)
    empty = await table.new_scan().limit(5).create_bucket_batch_scanner(bucket).to_arrow()
    assert empty.num_rows == 0
    await upsert(context, path, [[key, "first", key] for key in range(20)])
    await upsert(context, path, [[key, "second", key] for key in range(0, 20, 2)])
    await delete(context, path, [[3]])
    few = await table.new_scan().limit(5).create_bucket_batch_scanner(bucket).to_arrow()
    assert few.column("id").to_pylist() == [0, 1, 2, 4, 5]
    assert few.column("name").to_pylist() == ["second", "first", "second", "second", "first"]
    everything = await table.new_scan().limit(100).create_bucket_batch_scanner(bucket).to_arrow()
    assert sorted(everything.column("id").to_pylist()) == [key for key in range(20) if key != 3]
    projected = table.new_scan().project_by_name(["amount"]).limit(2).create_bucket_batch_scanner(bucket)
    assert (await projected.to_arrow()).to_pylist() == [{"amount": 0}, {"amount": 1}]


@case(peer=True)
async def the_whole_table(context: Context) -> None:
    """Every bucket of every partition, batch by batch: all current rows, each once, with a limit far above them."""
    path = await create_keyed(
        context, ORDERS, ("region", "number"), partition_keys=["region"], bucket_keys=["number"], bucket_count=3
    )
    for region in ("east", "west"):
        await context.create_partition(path, 3, region=region)
    expected = {(region, number): number * 2 for region in ("east", "west") for number in range(500)}
    await upsert(context, path, [[1, region, number, "old"] for region, number in expected])
    await upsert(context, path, [[value, region, number, "new"] for (region, number), value in expected.items()])
    gone = [("east", number) for number in range(0, 500, 7)]
    await delete(context, path, gone)
    for key in gone:
        del expected[key]
    table = await context.table(path)
    table_id = table.get_table_info().table_id
    found: dict[tuple[str, int], int] = {}
    for info in await (await context.admin()).list_partition_infos(path):
        for bucket_id in range(3):
            bucket = fluss.TableBucket.with_partition(table_id, info.partition_id, bucket_id)
            scanner = table.new_scan().limit(1_000_000).create_bucket_batch_scanner(bucket)
            while (batch := await scanner.next_batch()) is not None:
                assert batch.bucket == bucket
                for row in batch.batch.to_pylist():
                    key = (row["region"], row["number"])
                    assert key not in found, f"{key} came twice"
                    assert row["note"] == "new"
                    found[key] = row["customer"]
    assert found == expected


@case(peer=True)
async def changes_of_partitions(context: Context) -> None:
    """Each partition has a changelog of its own."""
    path = await create_keyed(context, ORDERS, ("region", "number"), partition_keys=["region"], bucket_count=1)
    for region in ("east", "west"):
        await context.create_partition(path, 1, region=region)
    await upsert(context, path, [[1, "east", 1, "a"], [2, "west", 1, "b"]])
    await upsert(context, path, [[3, "east", 1, "c"]])
    await delete(context, path, [["west", 1]])
    table = await context.table(path)
    scanner = await table.new_scan().create_log_scanner()
    infos = await (await context.admin()).list_partition_infos(path)
    names = {info.partition_id: info.partition_name for info in infos}
    scanner.subscribe_partition_buckets({(partition_id, 0): fluss.EARLIEST_OFFSET for partition_id in names})
    seen: dict[str, list[tuple[str, str]]] = {"east": [], "west": []}
    while sum(map(len, seen.values())) < 5:
        for bucket, records in (await scanner.poll(5000)).items():
            seen[names[bucket.partition_id]] += [(r.change_type.short_string(), r.row["note"]) for r in records]
    assert seen == {"east": [("+I", "a"), ("-U", "a"), ("+U", "c")], "west": [("+I", "b"), ("-D", "b")]}


@case()
async def many_lookups_at_once(context: Context) -> None:
    """Hundreds of lookups under way on several lookupers, half of them without a row."""
    path = await create_keyed(context, bucket_count=4)
    await upsert(context, path, [[key * 2, str(key), key] for key in range(500)])
    table = await context.table(path)
    lookupers = [table.new_lookup().create_lookuper() for _ in range(32)]
    found = await asyncio.gather(*(lookupers[key % 32].lookup([key]) for key in range(1000)))
    assert [row["amount"] if row else None for row in found] == [None if key % 2 else key // 2 for key in range(1000)]


@case()
async def refused_lookups(context: Context) -> None:
    """Log tables have no keys; a prefix is the bucket key and nothing else."""
    log_path = await context.create({"id": pa.int32()}, "log")

    async def make(path: Any, columns: list[str] | None) -> Any:
        builder = (await context.table(path)).new_lookup()
        return (builder if columns is None else builder.lookup_by(columns)).create_lookuper()

    await raises(-2, make(log_path, None))
    path = await create_keyed(context, ORDERS, ("customer", "number"), bucket_keys=["customer"])
    await raises(-2, make(path, ["number"]))
    await raises(-2, make(path, ["customer", "number"]))
