"""Partitions: made and dropped by hand, listed by partial spec, written, scanned and asked for offsets."""

from __future__ import annotations

import asyncio
import datetime
import time
from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, poll_batches, poll_records, raises
from tools.waiting import eventually, patience

ONE_KEY = pa.schema([("id", pa.int32()), ("region", pa.string()), ("value", pa.float64())])
TWO_KEYS = pa.schema([("id", pa.int32()), ("dt", pa.string()), ("region", pa.string())])


async def names(context: Context, path: Any, spec: dict[str, str] | None = None) -> list[str]:
    """Names of the table's partitions, sorted."""
    infos = await (await context.admin()).list_partition_infos(path, spec)
    return sorted(info.partition_name for info in infos)


@case(peer=True)
async def life_of_a_partition(context: Context) -> None:
    """Create, list, filter by a part of the keys, drop."""
    admin = await context.admin()
    path = await context.create(TWO_KEYS, partition_keys=["dt", "region"])
    assert await admin.list_partition_infos(path) == []
    assert await admin.list_partition_infos(path, {"no_key": "1"}) == []
    for day, region in (("2024-01-15", "EMEA"), ("2024-01-15", "US"), ("2024-01-16", "US")):
        await admin.create_partition(path, {"region": region, "dt": day})
    assert await names(context, path) == ["2024-01-15$EMEA", "2024-01-15$US", "2024-01-16$US"]
    assert await names(context, path, {"dt": "2024-01-15"}) == ["2024-01-15$EMEA", "2024-01-15$US"]
    assert await names(context, path, {"region": "US"}) == ["2024-01-15$US", "2024-01-16$US"]
    assert await names(context, path, {"region": "US", "dt": "2024-01-16"}) == ["2024-01-16$US"]
    assert await names(context, path, {"dt": "2031-01-01"}) == []
    await raises(-1, admin.list_partition_infos(path, {"no_key": "1"}), "no_key")
    ids = [info.partition_id for info in await admin.list_partition_infos(path)]
    assert len(set(ids)) == 3
    await admin.drop_partition(path, {"dt": "2024-01-15", "region": "US"})
    assert await names(context, path) == ["2024-01-15$EMEA", "2024-01-16$US"]
    await admin.create_partition(path, {"dt": "2024-01-15", "region": "US"})
    (again,) = await admin.list_partition_infos(path, {"dt": "2024-01-15", "region": "US"})
    assert again.partition_id not in ids


@case(peer=True)
async def partition_errors(context: Context) -> None:
    """Codes 36, 37, 42 and 43."""
    admin = await context.admin()
    path = await context.create(TWO_KEYS, partition_keys=["dt", "region"])
    spec = {"dt": "1", "region": "x"}
    await admin.create_partition(path, spec)
    await raises(42, admin.create_partition(path, spec), "1", "x")
    await admin.create_partition(path, spec, ignore_if_exists=True)
    await raises(43, admin.create_partition(path, {"dt": "1"}))
    await raises(43, admin.create_partition(path, {"dt": "1", "other": "x"}), "region")
    for value in ("1 2", "a.b", "__x", "x" * 201):
        await raises(43, admin.create_partition(path, {"dt": value, "region": "x"}), value[:100])
    await raises(43, admin.create_partition(path, {"dt": "", "region": "x"}), "empty")
    await raises(36, admin.drop_partition(path, {"dt": "7", "region": "x"}), "7", "exist")
    await raises(36, admin.drop_partition(path, {"dt": "__7", "region": "x"}))
    await admin.drop_partition(path, {"dt": "7", "region": "x"}, ignore_if_not_exists=True)
    await raises(43, admin.drop_partition(path, {"dt": "1"}))
    plain = await context.create(TWO_KEYS, "plain")
    await raises(37, admin.create_partition(plain, {"dt": "1"}))
    await raises(37, admin.drop_partition(plain, {"dt": "1"}))
    await raises(37, admin.list_partition_infos(plain), f"{context.database}.plain")


@case()
async def too_many_partitions(context: Context) -> None:
    """Code 45 at `max.partition.num`, which the test servers have at 8."""
    admin = await context.admin()
    path = await context.create(ONE_KEY, partition_keys=["region"])
    for number in range(8):
        await admin.create_partition(path, {"region": f"r{number}"})
    await raises(45, admin.create_partition(path, {"region": "r8"}), f"{context.database}.t", "8")
    await admin.drop_partition(path, {"region": "r0"})
    await admin.create_partition(path, {"region": "r8"})


@case(peer=True)
async def write_and_scan_partitions(context: Context) -> None:
    """Rows and Arrow batches into two partitions; scans by partition id; offsets by partition name."""
    admin = await context.admin()
    path = await context.create(ONE_KEY, partition_keys=["region"], bucket_count=2, bucket_keys=["id"])
    ids = {name: await context.create_partition(path, 2, region=name) for name in ("US", "EU")}
    table = await context.table(path)
    writer = table.new_append().create_writer()
    for number in range(6):
        writer.append({"id": number, "region": "US", "value": 0.5})
    batch = pa.record_batch({"id": pa.array([6, 7, 8], pa.int32()), "region": ["EU"] * 3, "value": [1.0, None, 3.0]})
    writer.write_arrow_batch(batch)
    await writer.flush()
    latest = fluss.OffsetSpec.latest()
    assert sum((await admin.list_partition_offsets(path, "US", [0, 1], latest)).values()) == 6
    assert sum((await admin.list_partition_offsets(path, "EU", [0, 1], latest)).values()) == 3
    assert await admin.list_partition_offsets(path, "EU", [0, 1], fluss.OffsetSpec.earliest()) == {0: 0, 1: 0}
    past = fluss.OffsetSpec.timestamp(int(time.time() * 1000) - 600_000)
    assert await admin.list_partition_offsets(path, "EU", [0, 1], past) == {0: 0, 1: 0}
    scanner = await table.new_scan().create_log_scanner()
    scanner.subscribe_partition(ids["US"], 0, fluss.EARLIEST_OFFSET)
    scanner.subscribe_partition_buckets({(ids["US"], 1): 0, (ids["EU"], 0): 0, (ids["EU"], 1): 0})
    rows = [record.row for record in await poll_records(scanner, 9)]
    assert sorted(row["id"] for row in rows) == list(range(9))
    assert {row["region"] for row in rows if row["id"] >= 6} == {"EU"}
    batches = await table.new_scan().create_record_batch_log_scanner()
    batches.subscribe_partition_buckets({(ids["EU"], 0): 0, (ids["EU"], 1): 0})
    for part in await poll_batches(batches, 3):
        assert part.bucket.partition_id == ids["EU"]
        assert part.bucket.table_id == table.get_table_info().table_id


@case()
async def partitioned_to_arrow(context: Context) -> None:
    """Bounded reads over partitions end at their latest offsets."""
    path = await context.create(TWO_KEYS, partition_keys=["dt", "region"])
    ids = [await context.create_partition(path, dt=day, region="US") for day in ("1", "2", "3")]
    await context.append(path, [{"id": n, "dt": day, "region": "US"} for n, day in enumerate("122")])
    table = await context.table(path)
    for call in ("to_arrow", "to_pandas"):
        scanner = await table.new_scan().project_by_name(["dt", "id"]).create_record_batch_log_scanner()
        scanner.subscribe_partition_buckets({(partition, 0): fluss.EARLIEST_OFFSET for partition in ids})
        result = await getattr(scanner, call)()
        rows = result.to_pylist() if call == "to_arrow" else result.to_dict("records")
        assert sorted((row["id"], row["dt"]) for row in rows) == [(0, "1"), (1, "2"), (2, "2")]


@case()
async def typed_partition_keys(context: Context) -> None:
    """The client routes rows of a non-text key by its printed value."""
    schema = pa.schema([("id", pa.int32()), ("day", pa.date32()), ("number", pa.int64()), ("flag", pa.bool_())])
    path = await context.create(schema, partition_keys=["day", "number", "flag"])
    await context.create_partition(path, day="2024-01-15", number="-7", flag="true")
    await context.append(path, [{"id": 1, "day": datetime.date(2024, 1, 15), "number": -7, "flag": True}])
    admin = await context.admin()
    latest = fluss.OffsetSpec.latest()
    assert await admin.list_partition_offsets(path, "2024-01-15$-7$true", [0], latest) == {0: 1}


@case()
async def unknown_partitions(context: Context) -> None:
    """Code 36 where a partition is named or numbered that is not there."""
    admin = await context.admin()
    path = await context.create(ONE_KEY, partition_keys=["region"])
    latest = fluss.OffsetSpec.latest()
    shown = f"Table partition '{context.database}.t(p=NOT Exists)' does not exist."
    await raises(36, admin.list_partition_offsets(path, "NOT Exists", [0], latest), shown)
    known = await context.create_partition(path, region="US")
    table = await context.table(path)
    scanner = await table.new_scan().create_log_scanner()

    async def subscribe(*partitions: int) -> None:
        scanner.subscribe_partition_buckets({(partition, 0): 0 for partition in partitions})

    await raises(36, subscribe(2**63 - 1), str(2**63 - 1))
    await raises(36, subscribe(known, 2**63 - 1), str(2**63 - 1))


@case()
async def unsubscribe_a_partition(context: Context) -> None:
    """After it only the other partition delivers."""
    path = await context.create(ONE_KEY, partition_keys=["region"])
    ids = {name: await context.create_partition(path, region=name) for name in ("US", "EU")}
    await context.append(path, [{"id": 1, "region": "US"}, {"id": 2, "region": "EU"}])
    scanner = await (await context.table(path)).new_scan().create_log_scanner()
    scanner.subscribe_partition_buckets({(partition, 0): 0 for partition in ids.values()})
    await poll_records(scanner, 2)
    scanner.unsubscribe_partition(ids["US"], 0)
    await context.append(path, [{"id": 3, "region": "US"}, {"id": 4, "region": "EU"}])
    assert [record.row["id"] for record in await poll_records(scanner, 1)] == [4]
    assert len(await scanner.poll(300)) == 0


@case()
async def scan_goes_on_after_a_partition_is_dropped(context: Context) -> None:
    """Only the dropped partition falls silent."""
    admin = await context.admin()
    path = await context.create(ONE_KEY, partition_keys=["region"])
    ids = {name: await context.create_partition(path, region=name) for name in ("US", "EU")}
    await context.append(path, [{"id": 1, "region": "US"}, {"id": 2, "region": "EU"}])
    scanner = await (await context.table(path)).new_scan().create_log_scanner()
    scanner.subscribe_partition_buckets({(partition, 0): 0 for partition in ids.values()})
    await poll_records(scanner, 2)
    await admin.drop_partition(path, {"region": "US"})
    await context.append(path, [{"id": number, "region": "EU"} for number in (3, 4)])
    assert [record.row["id"] for record in await poll_records(scanner, 2)] == [3, 4]


@case()
async def rows_wait_for_their_partition(context: Context) -> None:
    """pyfluss holds rows of a missing partition until it is created; the server must let it in then."""
    admin = await context.admin()
    path = await context.create(ONE_KEY, partition_keys=["region"])
    writer = (await context.table(path)).new_append().create_writer()
    writer.append({"id": 1, "region": "LATE", "value": 1.0})
    flushed = asyncio.ensure_future(writer.flush())
    done, _ = await asyncio.wait([flushed], timeout=0.5)
    assert not done
    partition = await context.create_partition(path, region="LATE")
    await asyncio.wait_for(flushed, patience(60))
    assert await admin.list_partition_offsets(path, "LATE", [0], fluss.OffsetSpec.latest()) == {0: 1}
    scanner = await (await context.table(path)).new_scan().create_log_scanner()
    scanner.subscribe_partition(partition, 0, fluss.EARLIEST_OFFSET)
    assert [record.row["id"] for record in await poll_records(scanner, 1)] == [1]


@case(peer=True)
async def automatic_partitions(context: Context) -> None:
    """Partitions of this year and the next are there soon after the table; theirs are names like any other."""
    properties = {
        "table.auto-partition.enabled": "true",
        "table.auto-partition.time-unit": "year",
        "table.auto-partition.time-zone": "UTC",
        "table.auto-partition.num-precreate": "2",
    }
    path = await context.create(ONE_KEY, partition_keys=["region"], properties=properties)
    year = datetime.datetime.now(datetime.UTC).year

    async def are_there() -> bool:
        return await names(context, path) == [str(year), str(year + 1)]

    await eventually(are_there, "the partitions of this year and the next")
    await context.wait_for_leaders(path, 1, str(year))
    await context.append(path, [{"id": 1, "region": str(year)}])
    latest = fluss.OffsetSpec.latest()
    assert await (await context.admin()).list_partition_offsets(path, str(year), [0], latest) == {0: 1}
    info = await (await context.admin()).get_table_info(path)
    assert info.get_properties() == {**properties, "table.replication.factor": "1"}


@case()
async def automatic_partitions_need_their_key(context: Context) -> None:
    """Code 15 with several partition keys and no `table.auto-partition.key`."""
    properties = {"table.auto-partition.enabled": "true"}
    table = fluss.TableDescriptor(fluss.Schema(TWO_KEYS), partition_keys=["dt", "region"], properties=properties)
    await raises(15, (await context.admin()).create_table(context.path(), table), "table.auto-partition.key")
