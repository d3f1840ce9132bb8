"""What the cases about primary-key tables share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, fluss, poll_records

COLUMNS = {"id": pa.int32(), "name": pa.string(), "amount": pa.int64()}


async def create_keyed(
    context: Context,
    fields: Mapping[str, pa.DataType] | pa.Schema = COLUMNS,
    keys: Iterable[str] = ("id",),
    name: str = "t",
    auto_increment: str | None = None,
    **descriptor: Any,
) -> Any:
    """Create a table with a primary key and wait until its buckets have leaders; returns its path."""
    admin = await context.admin()
    schema = fields if isinstance(fields, pa.Schema) else pa.schema(list(fields.items()))
    path = context.path(name)
    keyed = fluss.Schema(schema, primary_keys=list(keys), auto_increment_column=auto_increment)
    await admin.create_table(path, fluss.TableDescriptor(keyed, **descriptor))
    if not descriptor.get("partition_keys"):
        await context.wait_for_leaders(path, descriptor.get("bucket_count", 1))
    return path


async def upsert(context: Context, path: Any, rows: Iterable[Any], columns: list[str] | None = None) -> None:
    """Upsert rows, all columns or these, and wait for the acknowledgement."""
    builder = (await context.table(path)).new_upsert()
    if columns is not None:
        builder = builder.partial_update_by_name(columns)
    writer = builder.create_writer()
    for row in rows:
        writer.upsert(row)
    await writer.flush()


async def delete(context: Context, path: Any, keys: Iterable[Any], columns: list[str] | None = None) -> None:
    """Delete rows by key and wait for the acknowledgement."""
    builder = (await context.table(path)).new_upsert()
    if columns is not None:
        builder = builder.partial_update_by_name(columns)
    writer = builder.create_writer()
    for key in keys:
        writer.delete(key)
    await writer.flush()


async def lookup(context: Context, path: Any, key: Any) -> Any:
    """The row of one key, or None."""
    return await (await context.table(path)).new_lookup().create_lookuper().lookup(key)


async def changes(context: Context, path: Any, count: int, bucket: int = 0) -> list[tuple[str, dict[str, Any]]]:
    """The first `count` changes of a bucket: short names of their types, and rows. Their offsets have no gaps."""
    scanner = await context.scanner(path, [bucket])
    records = await poll_records(scanner, count)
    return [(record.change_type.short_string(), record.row) for record in records]
