"""Segments that live only in the remote directory: the client downloads them itself.

The server of these cases rolls a segment for every batch and uploads every second.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, poll_batches, poll_records
from tools.waiting import eventually

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("score", pa.float64())])
LOCAL_SEGMENTS = 2


def segments(directory: str, table: str, table_id: int) -> list[Path]:
    """The segment files of a table below a directory; both servers name its folder `table-id`."""
    found = []
    for folder, _, names in os.walk(directory):  # unlike rglob it does not mind folders that vanish meanwhile
        if f"{table}-{table_id}" in Path(folder).parts:
            found += [Path(folder, name) for name in names if name.endswith(".log")]
    return found


async def tiered_table(context: Context, batches: int, **descriptor: Any) -> Any:
    """A table of `batches` batches with two rows each, of which only the newest few are still local."""
    path = await context.create(SCHEMA, **descriptor)
    for number in range(batches):
        await context.append(path, [{"id": number * 2, "name": f"n{number}", "score": 0.5}, {"id": number * 2 + 1}])
    table_id = (await context.table(path)).get_table_info().table_id

    def counts() -> tuple[int, int]:
        folders = (context.settings["data_directory"], context.settings["remote_directory"])
        local, remote = (len(segments(folder, "t", table_id)) for folder in folders)
        return local, remote

    def is_tiered() -> bool:
        local, remote = counts()
        return local <= LOCAL_SEGMENTS + 1 and remote >= batches - LOCAL_SEGMENTS

    await eventually(is_tiered, f"all but the newest of {batches} segments are remote only", seen=counts)
    return path


@case(server="remote", peer=True)
async def scan_over_remote_and_local(context: Context) -> None:
    """Everything from the start, in order, once: records, batches, bounded reads."""
    path = await tiered_table(context, 10)
    records = await poll_records(await context.scanner(path), 20)
    assert [record.row["id"] for record in records] == list(range(20))
    assert [record.offset for record in records] == list(range(20))
    assert records[0].row == {"id": 0, "name": "n0", "score": 0.5}
    assert (await context.read_arrow(path)).column("id").to_pylist() == list(range(20))
    scanner = await context.scanner(path, [], batches=True)
    scanner.subscribe(0, 5)
    batches = await poll_batches(scanner, 15)
    assert [n for batch in batches for n in batch.batch.column("id").to_pylist()] == list(range(5, 20))
    await context.append(path, [{"id": 20}])
    assert [batch.batch.column("id").to_pylist() for batch in await poll_batches(scanner, 1)] == [[20]]


@case(server="remote", peer=True)
async def projection_over_remote(context: Context) -> None:
    """The client projects what it downloads itself; the order is the user's."""
    path = await tiered_table(context, 6, properties={"table.log.arrow.compression.type": "LZ4_FRAME"})
    table = await context.read_arrow(path, project=[1, 0])
    assert table.schema.names == ["name", "id"]
    assert table.column("id").to_pylist() == list(range(12))
    assert table.column("name").to_pylist()[::2] == [f"n{number}" for number in range(6)]
    rows = await context.read_rows(path, 12, project_by_name=["score"])
    assert [row["score"] for row in rows[::2]] == [0.5] * 6


@case(server="remote")
async def offsets_over_remote(context: Context) -> None:
    """Earliest stays 0; timestamps are found in remote segments."""
    path = await tiered_table(context, 6)
    admin = await context.admin()
    records = await poll_records(await context.scanner(path), 12)
    assert await admin.list_offsets(path, [0], fluss.OffsetSpec.earliest()) == {0: 0}
    assert await admin.list_offsets(path, [0], fluss.OffsetSpec.latest()) == {0: 12}
    for record in records[::4]:
        found = await admin.list_offsets(path, [0], fluss.OffsetSpec.timestamp(record.timestamp))
        assert found == {0: record.offset}


@case(server="remote")
async def filter_over_remote(context: Context) -> None:
    """A filter never hides matching rows of remote segments."""
    path = await tiered_table(context, 6)
    table = await context.read_arrow(path, filter=fluss.col("id") >= 3)
    assert set(table.column("id").to_pylist()) >= set(range(3, 12))


@case(server="remote")
async def partitions_over_remote(context: Context) -> None:
    """Remote segments of a partition."""
    path = await context.create(SCHEMA, partition_keys=["name"])
    partition = await context.create_partition(path, name="p")
    for number in range(6):
        await context.append(path, [{"id": number, "name": "p"}])
    table = await context.table(path)
    table_id = table.get_table_info().table_id
    await eventually(
        lambda: len(segments(context.settings["data_directory"], "t", table_id)) <= LOCAL_SEGMENTS + 1,
        "the segments of the partition are uploaded",
    )
    scanner = await table.new_scan().create_log_scanner()
    scanner.subscribe_partition(partition, 0, fluss.EARLIEST_OFFSET)
    assert [record.row["id"] for record in await poll_records(scanner, 6)] == list(range(6))


@case(server="remote")
async def dropping_removes_remote_segments(context: Context) -> None:
    """After a drop the remote files go too."""
    path = await tiered_table(context, 5)
    table_id = (await context.table(path)).get_table_info().table_id
    await (await context.admin()).drop_table(path)
    await eventually(
        lambda: not segments(context.settings["remote_directory"], "t", table_id),
        "the remote segments of the dropped table are gone",
    )
