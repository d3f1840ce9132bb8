"""A column is added while pyfluss reads and writes: old rows read as null, each batch keeps its schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, poll_batches, poll_records

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string())])


async def evolved_table(context: Context) -> tuple[Any, Any]:
    """A table with two old and two new rows, and a connection that knows the new schema."""
    path = await context.create(SCHEMA)
    await context.append(path, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    await context.ask(f"add_column {context.database} t extra")
    connection = await context.connect()
    writer = (await connection.get_table(path)).new_append().create_writer()
    writer.append({"id": 3, "name": "c", "extra": "new"})
    writer.append({"id": 4, "name": "d"})
    await writer.flush()
    return path, connection


@case(peer=True)
async def the_new_schema_is_seen_at_once(context: Context) -> None:
    """Table information has the column and the next schema id."""
    path = await context.create(SCHEMA)
    admin = await context.admin()
    before = await admin.get_table_info(path)
    await context.ask(f"add_column {context.database} t extra")
    after = await admin.get_table_info(path)
    assert after.get_column_names() == ["id", "name", "extra"]
    assert after.get_schema().get_columns()[2] == ("extra", "string")
    assert (before.schema_id, after.schema_id) == (1, 2)
    assert after.table_id == before.table_id
    assert after.modified_time == before.modified_time


@case(peer=True)
async def old_rows_read_as_null(context: Context) -> None:
    """A reader with the new schema gets null for rows of the old one."""
    path, connection = await evolved_table(context)
    table = await connection.get_table(path)
    scanner = await table.new_scan().with_fixed_schema(True).create_record_batch_log_scanner()
    scanner.subscribe(0, fluss.EARLIEST_OFFSET)
    assert (await scanner.to_arrow()).to_pylist() == [
        {"id": 1, "name": "a", "extra": None},
        {"id": 2, "name": "b", "extra": None},
        {"id": 3, "name": "c", "extra": "new"},
        {"id": 4, "name": "d", "extra": None},
    ]


@case()
async def batches_keep_their_schema(context: Context) -> None:
    """Without a fixed schema each batch has the columns that it was written with."""
    path, connection = await evolved_table(context)
    table = await connection.get_table(path)
    scanner = await table.new_scan().with_fixed_schema(False).create_record_batch_log_scanner()
    scanner.subscribe(0, fluss.EARLIEST_OFFSET)
    batches = await poll_batches(scanner, 4)
    schemas = [tuple(batch.batch.schema.names) for batch in batches for _ in range(batch.batch.num_rows)]
    assert schemas == [("id", "name")] * 2 + [("id", "name", "extra")] * 2


@case()
async def a_scanner_runs_through_the_change(context: Context) -> None:
    """A scanner made before goes on with batches of the new schema."""
    path = await context.create(SCHEMA)
    scanner = await context.scanner(path)
    await context.append(path, [{"id": 1, "name": "a"}])
    assert (await poll_records(scanner, 1))[0].row["id"] == 1
    await context.ask(f"add_column {context.database} t extra")
    connection = await context.connect()
    writer = (await connection.get_table(path)).new_append().create_writer()
    writer.append({"id": 2, "name": "b", "extra": "x"})
    await writer.flush()
    record = (await poll_records(scanner, 1))[0]
    assert (record.row["id"], record.row["name"]) == (2, "b")


@case()
async def a_writer_of_the_old_schema_goes_on(context: Context) -> None:
    """A writer made before keeps writing old-schema rows."""
    path = await context.create(SCHEMA)
    writer = (await context.table(path)).new_append().create_writer()
    writer.append({"id": 1, "name": "a"})
    await writer.flush()
    await context.ask(f"add_column {context.database} t extra")
    writer.append({"id": 2, "name": "b"})
    await writer.flush()
    table = await (await context.connect()).get_table(path)
    scanner = await table.new_scan().with_fixed_schema(True).create_record_batch_log_scanner()
    scanner.subscribe(0, fluss.EARLIEST_OFFSET)
    assert (await scanner.to_arrow()).column("extra").to_pylist() == [None, None]


@case()
async def projection_over_two_schemas(context: Context) -> None:
    """Columns that both schemas have, and the new one, cut out of old and new batches."""
    path, connection = await evolved_table(context)
    table = await connection.get_table(path)
    scanner = await table.new_scan().project_by_name(["name"]).create_record_batch_log_scanner()
    scanner.subscribe(0, fluss.EARLIEST_OFFSET)
    assert (await scanner.to_arrow()).column("name").to_pylist() == ["a", "b", "c", "d"]


@case()
async def limit_scan_over_two_schemas(context: Context) -> None:
    """The limited scan pads old rows too."""
    path, connection = await evolved_table(context)
    table = await connection.get_table(path)
    bucket = fluss.TableBucket(table.get_table_info().table_id, 0)
    rows = (await table.new_scan().limit(10).create_bucket_batch_scanner(bucket).to_arrow()).to_pylist()
    assert [(row["id"], row["extra"]) for row in rows] == [(1, None), (2, None), (3, "new"), (4, None)]
