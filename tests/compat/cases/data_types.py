"""Every data type: in the table information, through rows, through Arrow, with nulls."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, raises
from tests.compat.cases.values import ALL, NESTED, SCALARS, rows_of, schema_of


def arrow_table(types: dict[str, tuple[pa.DataType, str, list[Any]]]) -> pa.Table:
    """The sample rows as an Arrow table."""
    return pa.Table.from_pylist(rows_of(types), schema=schema_of(types))


@case(peer=True)
async def types_in_table_info(context: Context) -> None:
    """Names, order, nullability and parameters of all types survive the server."""
    path = await context.create(schema_of(ALL))
    info = await (await context.admin()).get_table_info(path)
    expected = [("id", "int NOT NULL")] + [(name, text) for name, (_, text, _) in ALL.items()]
    assert info.get_schema().get_columns() == expected
    assert info.get_schema().get_primary_keys() == []
    table = await context.table(path)
    assert table.arrow_schema.equals(schema_of(ALL), check_metadata=False)


@case()
async def nested_nullability(context: Context) -> None:
    """NOT NULL inside arrays, maps and rows survives the server."""
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.string())])
    schema = pa.schema(
        [
            pa.field("items", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
            pa.field("row", inner, nullable=False),
            pa.field("rows", pa.list_(pa.field("item", inner, nullable=False))),
        ]
    )
    path = await context.create(schema)
    columns = (await (await context.admin()).get_table_info(path)).get_schema().get_columns()
    assert columns == fluss.Schema(schema).get_columns()
    assert "NOT NULL" in columns[0][1]


@case(peer=True)
async def scalars_through_rows(context: Context) -> None:
    """Rows in, rows and Arrow out."""
    path = await context.create(schema_of(SCALARS))
    rows = rows_of(SCALARS)
    await context.append(path, rows)
    assert await context.read_rows(path, len(rows)) == rows
    assert (await context.read_arrow(path)).equals(arrow_table(SCALARS))


@case()
async def nested_through_rows(context: Context) -> None:
    """The same for arrays, maps, rows and what they contain."""
    path = await context.create(schema_of(NESTED))
    rows = rows_of(NESTED)
    await context.append(path, rows)
    assert await context.read_rows(path, len(rows)) == rows
    assert (await context.read_arrow(path)).to_pylist() == arrow_table(NESTED).to_pylist()


@case(peer=True)
async def all_through_arrow(context: Context) -> None:
    """An Arrow table in, Arrow and rows out."""
    path = await context.create(schema_of(ALL))
    written = arrow_table(ALL)
    writer = (await context.table(path)).new_append().create_writer()
    writer.write_arrow(written)
    await writer.flush()
    read = await context.read_arrow(path)
    assert read.schema.equals(schema_of(ALL), check_metadata=False)
    assert read.to_pylist() == written.to_pylist()
    assert await context.read_rows(path, written.num_rows) == rows_of(ALL)


@case()
async def arrow_values_that_rows_cannot_have(context: Context) -> None:
    """Nanoseconds, times before 1970 with a fraction, NaN: bit for bit through Arrow."""
    schema = pa.schema(
        [("ns", pa.timestamp("ns")), ("old", pa.timestamp("us")), ("t9", pa.time64("ns")), ("nan", pa.float64())]
    )
    columns = [
        pa.array([1, -1, 1_700_000_000_123_456_789], pa.timestamp("ns")),
        pa.array([-1, -999_999, None], pa.timestamp("us")),
        pa.array([1, 999, 86_399_999_999_999], pa.time64("ns")),
        pa.array([float("nan"), -0.0, float("-inf")], pa.float64()),
    ]
    path = await context.create(schema)
    writer = (await context.table(path)).new_append().create_writer()
    writer.write_arrow_batch(pa.record_batch(columns, schema=schema))
    await writer.flush()
    read = (await context.read_arrow(path)).combine_chunks()
    for position in range(3):
        assert read.column(position).to_pylist() == columns[position].to_pylist()
    values = read.column("nan").to_pylist()
    assert math.isnan(values[0])
    assert math.copysign(1.0, values[1]) == -1.0
    assert values[2] == float("-inf")


@case()
async def other_zones_are_the_same_instant(context: Context) -> None:
    """An aware datetime of any zone is stored as its instant."""
    path = await context.create({"at": pa.timestamp("us", "UTC")})
    eastern = datetime.timezone(datetime.timedelta(hours=-5))
    await context.append(path, [{"at": datetime.datetime(2024, 1, 1, 22, 0, tzinfo=eastern)}])
    (row,) = await context.read_rows(path, 1)
    assert row["at"] == datetime.datetime(2024, 1, 2, 3, 0, tzinfo=datetime.UTC)


@case()
async def values_refused_by_the_client(context: Context) -> None:
    """Bad values never reach the server, and the writer goes on after them."""
    schema = pa.schema([pa.field("id", pa.int8(), nullable=False), pa.field("xs", pa.list_(pa.int32()))])
    path = await context.create(schema)
    writer = (await context.table(path)).new_append().create_writer()

    async def append(row: Any) -> None:
        writer.append(row)

    await raises(-2, append({"xs": []}), "id")
    await raises(-2, append({"id": 1, "xs": "text"}), "Expected sequence for Array column")
    await raises(-2, append([1]))
    writer.append({"id": 5})
    await writer.flush()
    assert await context.read_rows(path, 1) == [{"id": 5, "xs": None}]


@case()
async def log_formats(context: Context) -> None:
    """A table of the INDEXED log format can be made and described, in any spelling."""
    path = await context.create({"a": pa.int32()}, log_format="indexed")
    info = await (await context.admin()).get_table_info(path)
    assert info.get_properties()["table.log.format"] == "INDEXED"
