"""Ways to write: rows in each form, Arrow, pandas, acknowledgement levels, compression, closing."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, raises, together

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("score", pa.float64())])


async def latest(context: Context, path: Any, buckets: int = 1) -> int:
    """Rows of the table by its latest offsets."""
    admin = await context.admin()
    return sum((await admin.list_offsets(path, list(range(buckets)), fluss.OffsetSpec.latest())).values())


@case(peer=True)
async def rows_in_each_form(context: Context) -> None:
    """Dict, dict with a column left out, list, tuple."""
    path = await context.create(SCHEMA)
    await context.append(path, [{"id": 1, "name": "a", "score": 0.5}, {"id": 2}, [3, None, 1.5], (4, "d", None)])
    assert await context.read_rows(path, 4) == [
        {"id": 1, "name": "a", "score": 0.5},
        {"id": 2, "name": None, "score": None},
        {"id": 3, "name": None, "score": 1.5},
        {"id": 4, "name": "d", "score": None},
    ]


@case()
async def wait_for_each_row(context: Context) -> None:
    """The handle of a row waits for exactly its acknowledgement."""
    path = await context.create(SCHEMA)
    writer = (await context.table(path)).new_append().create_writer()
    for number in range(3):
        await writer.append({"id": number}).wait()
        assert await latest(context, path) == number + 1


@case(peer=True)
async def arrow_and_pandas(context: Context) -> None:
    """A table of several chunks, single batches, a data frame; order is kept."""
    path = await context.create(SCHEMA)
    writer = (await context.table(path)).new_append().create_writer()
    chunks = [pa.table({"id": pa.array([n], pa.int32()), "name": [f"n{n}"], "score": [n / 2]}) for n in range(3)]
    writer.write_arrow(pa.concat_tables(chunks))
    batch = pa.record_batch({"id": pa.array([3, 4], pa.int32()), "name": [None, "n4"], "score": [1.5, None]})
    await writer.write_arrow_batch(batch).wait()
    writer.write_arrow_batch(batch.slice(0, 0))
    writer.write_pandas(
        pa.table({"id": pa.array([5, 6], pa.int32()), "name": ["n5", "n6"], "score": [2.5, 3.0]}).to_pandas()
    )
    await writer.flush()
    read = await context.read_arrow(path)
    assert read.column("id").to_pylist() == list(range(7))
    assert read.column("name").to_pylist() == ["n0", "n1", "n2", None, "n4", "n5", "n6"]
    assert read.column("score").to_pylist() == [0.0, 0.5, 1.0, 1.5, None, 2.5, 3.0]


@case()
async def sliced_arrow_batches(context: Context) -> None:
    """Only the rows of the slice are written, validity bits included."""
    path = await context.create(SCHEMA)
    whole = pa.record_batch(
        [
            pa.array(range(100), pa.int32()),
            pa.array([None if n % 3 == 0 else f"n{n}" for n in range(100)]),
            pa.array([None if n % 7 == 0 else float(n) for n in range(100)], pa.float64()),
        ],
        schema=SCHEMA,
    )
    writer = (await context.table(path)).new_append().create_writer()
    writer.write_arrow_batch(whole.slice(11, 20))
    writer.write_arrow_batch(whole.slice(97))
    await writer.flush()
    expected = whole.slice(11, 20).to_pylist() + whole.slice(97).to_pylist()
    assert (await context.read_arrow(path)).to_pylist() == expected


@case()
async def bucket_keys_spread_rows(context: Context) -> None:
    """Equal keys share a bucket, rows and Arrow alike; the offsets add up."""
    path = await context.create(SCHEMA, bucket_count=4, bucket_keys=["name"])
    await context.append(path, [{"id": number, "name": f"k{number % 10}"} for number in range(100)])
    writer = (await context.table(path)).new_append().create_writer()
    names = [f"k{number % 10}" for number in range(100, 200)]
    batch = pa.record_batch([pa.array(range(100, 200), pa.int32()), names, pa.nulls(100, pa.float64())], schema=SCHEMA)
    await writer.write_arrow_batch(batch).wait()
    assert await latest(context, path, 4) == 200
    homes: dict[str, set[int]] = {}
    for bucket in range(4):
        for row in (await context.read_arrow(path, [bucket])).to_pylist():
            homes.setdefault(row["name"], set()).add(bucket)
    assert len(homes) == 10
    assert all(len(buckets) == 1 for buckets in homes.values())


@case()
async def acknowledgement_levels(context: Context) -> None:
    """acks 0, 1 and all: the rows are there after the flush (0 may be a moment late)."""
    path = await context.create(SCHEMA)
    for number, acks in enumerate(("0", "1", "all")):
        connection = await context.connect(writer_acks=acks, writer_enable_idempotence=False)
        writer = (await connection.get_table(path)).new_append().create_writer()
        writer.append({"id": number, "name": acks})
        await writer.flush()
    rows = await context.read_rows(path, 3)
    assert [row["name"] for row in rows] == ["0", "1", "all"]


@case(peer=True)
async def compression_kinds(context: Context) -> None:
    """NONE, LZ4 and ZSTD give the same rows back, also projected (pyfluss writes ZSTD at level 3 only)."""
    rows = [{"id": number, "name": f"name {number % 5}", "score": number / 4} for number in range(500)]
    for number, kind in enumerate(("NONE", "LZ4_FRAME", "ZSTD")):
        properties = {"table.log.arrow.compression.type": kind}
        path = await context.create(SCHEMA, f"t{number}", properties=properties)
        await context.append(path, rows)
        assert (await context.read_arrow(path)).to_pylist() == rows
        names = await context.read_arrow(path, project_by_name=["name"])
        assert names.to_pylist() == [{"name": row["name"]} for row in rows]


@case(peer=True)
async def closing_delivers_what_is_not_flushed(context: Context) -> None:
    """Leaving the writer or the connection sends what is still in the buffers."""
    path = await context.create(SCHEMA)
    async with await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": context.bootstrap})) as connection:
        async with (await connection.get_table(path)).new_append().create_writer() as writer:
            writer.append({"id": 1})
        assert await latest(context, path) == 1
        writer = (await connection.get_table(path)).new_append().create_writer()
        for number in range(2, 100):
            writer.append({"id": number})
    assert await latest(context, path) == 99
    assert [row["id"] for row in await context.read_rows(path, 99)] == list(range(1, 100))


@case()
async def a_writer_outlives_an_idle_time(context: Context) -> None:
    """Idempotent sequences go on after a pause."""
    path = await context.create(SCHEMA)
    writer = (await context.table(path)).new_append().create_writer()
    for number in range(8):
        writer.append({"id": number})
        await writer.flush()
        await asyncio.sleep(0.15)
    assert [row["id"] for row in await context.read_rows(path, 8)] == list(range(8))


@case()
async def two_writers_on_one_connection(context: Context) -> None:
    """Writers of two tables share one connection and its writer id."""
    paths = [await context.create(SCHEMA, name) for name in ("one", "two")]
    writers = [(await context.table(path)).new_append().create_writer() for path in paths]
    for number in range(50):
        for writer in writers:
            writer.append({"id": number})
    await together(*(writer.flush() for writer in writers))
    for path in paths:
        assert [row["id"] for row in await context.read_rows(path, 50)] == list(range(50))


@case()
async def round_robin_buckets(context: Context) -> None:
    """The other way of pyfluss to choose buckets for rows without a key."""
    path = await context.create(SCHEMA, bucket_count=4)
    connection = await context.connect(writer_bucket_no_key_assigner="round_robin")
    writer = (await connection.get_table(path)).new_append().create_writer()
    for number in range(40):
        writer.append({"id": number})
    await writer.flush()
    offsets = await (await context.admin()).list_offsets(path, [0, 1, 2, 3], fluss.OffsetSpec.latest())
    assert sum(offsets.values()) == 40
    assert min(offsets.values()) > 0


@case(apache=False)  # the peer fails the whole request, which pyfluss repeats without end
async def an_unknown_acknowledgement_level(context: Context) -> None:
    """Code 18, and the writer of another connection goes on."""
    path = await context.create(SCHEMA)
    connection = await fluss.FlussConnection.create(odd_config(context))
    writer = (await connection.get_table(path)).new_append().create_writer()
    await raises(18, writer.append({"id": 1}).wait())
    await connection.close()
    await context.append(path, [{"id": 2}])
    assert await context.read_rows(path, 1) == [{"id": 2, "name": None, "score": None}]


def odd_config(context: Context) -> Any:
    """acks that do not exist; pyfluss lets them through without idempotence."""
    config = fluss.Config({"bootstrap.servers": context.bootstrap})
    config.writer_acks = "7"
    config.writer_enable_idempotence = False
    return config


@case()
async def names_of_all_kinds(context: Context) -> None:
    """Upper case, digits, dashes; columns have no rule for their characters."""
    schema = pa.schema([("Größe in m²", pa.float64()), ("a b", pa.int32()), ("$", pa.string())])
    path = await context.create(schema, "T-1_x")
    row = {"Größe in m²": 1.5, "a b": 2, "$": "x"}
    await context.append(path, [row])
    assert await context.read_rows(path, 1) == [row]
    assert await context.read_rows(path, 1, project_by_name=["$", "Größe in m²"]) == [{"$": "x", "Größe in m²": 1.5}]
    assert await (await context.admin()).list_tables(context.database) == ["T-1_x"]
