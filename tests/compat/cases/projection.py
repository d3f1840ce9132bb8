"""Column projection: by index and by name, in the user's order, over every type and compression."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, case, poll_batches, raises
from tests.compat.cases.values import ALL, rows_of, schema_of

SCHEMA = pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.float64()), ("d", pa.bool_()), ("e", pa.binary())])


def sample(number: int) -> dict[str, Any]:
    """One row."""
    return {"a": number, "b": f"b{number}" if number % 3 else None, "c": number / 2, "d": None, "e": bytes([number])}


@case(peer=True)
async def by_index_and_by_name(context: Context) -> None:
    """Any subset in any order, for records and for batches."""
    path = await context.create(SCHEMA)
    rows = [sample(number) for number in range(10)]
    await context.append(path, rows[:5])
    await context.append(path, rows[5:])
    for names in (["a"], ["b", "c"], ["c", "a"], ["e", "d", "c", "b", "a"], ["a", "b", "c", "d", "e"]):
        indexes = [SCHEMA.names.index(name) for name in names]
        expected = [{name: row[name] for name in names} for row in rows]
        by_name = await context.read_arrow(path, project_by_name=names)
        assert by_name.schema.names == names
        assert by_name.to_pylist() == expected
        by_index = await context.read_arrow(path, project=indexes)
        assert by_index.schema.names == names
        assert by_index.to_pylist() == expected
        records = await context.read_rows(path, 10, project_by_name=names)
        assert records == expected
        assert [list(row) for row in records] == [names] * 10


@case(peer=True)
async def every_type_alone(context: Context) -> None:
    """Each column of a table with all types, cut out on its own and in pairs across the table."""
    path = await context.create(schema_of(ALL))
    rows = rows_of(ALL)
    writer = (await context.table(path)).new_append().create_writer()
    writer.write_arrow(pa.Table.from_pylist(rows, schema=schema_of(ALL)))
    await writer.flush()
    whole = pa.Table.from_pylist(rows, schema=schema_of(ALL))
    columns = list(ALL)
    for position, name in enumerate(columns):
        names = [name] if position % 2 else list(dict.fromkeys([columns[-1 - position], name]))
        assert (await context.read_arrow(path, project_by_name=names)).to_pylist() == whole.select(names).to_pylist()


@case()
async def from_the_middle_of_a_batch(context: Context) -> None:
    """Projection and a start offset inside a batch together."""
    path = await context.create(SCHEMA)
    await context.append(path, [sample(number) for number in range(10)])
    scanner = await context.scanner(path, [], batches=True, project_by_name=["c"])
    scanner.subscribe(0, 7)
    batches = await poll_batches(scanner, 3)
    assert [value for batch in batches for value in batch.batch.column("c").to_pylist()] == [3.5, 4.0, 4.5]
    assert batches[0].base_offset == 7


@case()
async def many_columns_many_batches(context: Context) -> None:
    """Projection over more data than one fetch carries, LZ4 and ZSTD."""
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(16)])
    for kind in ("LZ4_FRAME", "ZSTD"):
        path = await context.create(schema, kind, properties={"table.log.arrow.compression.type": kind})
        writer = (await context.table(path)).new_append().create_writer()
        for start in range(0, 200_000, 20_000):
            values = pa.array(range(start, start + 20_000), pa.int64())
            writer.write_arrow_batch(pa.record_batch([values] * 16, schema=schema))
        await writer.flush()
        read = await context.read_arrow(path, project_by_name=["c9", "c2"])
        assert read.column("c9").to_pylist() == list(range(200_000))
        assert read.column("c2").equals(read.column("c9"))


@case()
async def refused_projections(context: Context) -> None:
    """The client refuses empty, unknown and out of range columns."""
    path = await context.create(SCHEMA)

    async def scan(**how: Any) -> None:
        await context.scanner(path, **how)

    await raises(-2, scan(project=[]), "empty")
    await raises(-2, scan(project=[9]), "out of range")
    await raises(-2, scan(project_by_name=["zz"]), "zz")
