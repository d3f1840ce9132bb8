"""What is in golden data: read through the public client, in a form that JSON can hold.

The program that writes an archive reads with its own version, the tests read with today's, and both must find the same:
the rows of every table, and the records of every bucket with their offsets.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

import fluss
from tools.waiting import patience

DATABASE = "golden"
POLL_MS = int(patience(60_000))
QUIET_MS = 300

Shown = Any
"""A value as JSON has it."""


def shown(value: Any) -> Shown:
    """The value for JSON: equal values look equal, and different ones of the same column do not."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Decimal):
        return repr(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [shown(each) for each in value]
    raise TypeError(f"no form for {value!r}")


def shown_rows(table: pa.Table) -> list[Shown]:
    """The rows of a table as a multiset: sorted, each a list of its values."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":  # Python has no such values
            column = column.cast(pa.int64())
        columns.append([shown(value) for value in column.to_pylist()])
    return sorted((list(row) for row in zip(*columns, strict=True)), key=repr)


def read_rows(db: fluss.Database, table: str) -> list[Shown]:
    """All rows that the table has now, lake and log together."""
    return shown_rows(db.to_arrow(f"{DATABASE}.{table}"))


def read_records(db: fluss.Database, table: str, count: int | None = None) -> list[Shown]:
    """What is in the log: partition id, bucket, offset, kind of change, and the values of each record, in order.

    Of `count` records it is waited for all; if it is not known, until no more come. That there are not more is said by
    `read_ends`: a batch without rows has an offset too, so that ends alone do not say how many there are.
    """
    if count == 0:
        return []
    found: list[Shown] = []
    opened = open_table(db, table)
    with asyncio.run(opened.new_scan().create_log_scanner()) as scanner:
        scanner.subscribe_all()
        while count is None or len(found) < count:
            records = scanner.poll(QUIET_MS if count is None else POLL_MS)
            if records.is_empty():
                assert count is None, f"{table}: {len(found)} of {count} records, then nothing for {POLL_MS} ms"
                break
            for bucket, items in records.items():
                for item in items:
                    place = [bucket.partition_id, bucket.bucket_id, item.offset, str(item.change_type)]
                    found.append([*place, *[shown(value) for value in item.row.values()]])
    return sorted(found, key=lambda record: (record[0] or 0, record[1], record[2]))


def read_ends(db: fluss.Database, table: str) -> list[Shown]:
    """First and next offset of every bucket: partition name, bucket, first, next."""
    return asyncio.run(_ends(db, f"{DATABASE}.{table}"))


async def _ends(db: fluss.Database, path: str) -> list[Shown]:
    admin = db.connection.get_admin()
    info = await admin.get_table_info(path)
    buckets = list(range(info.num_buckets))
    specs = fluss.OffsetSpec.earliest(), fluss.OffsetSpec.latest()
    if not info.is_partitioned():
        first, after = [await admin.list_offsets(path, buckets, spec) for spec in specs]
        return [[None, bucket, first[bucket], after[bucket]] for bucket in buckets]
    found: list[Shown] = []
    for partition in await admin.list_partition_infos(path):
        name = partition.partition_name
        first, after = [await admin.list_partition_offsets(path, name, buckets, spec) for spec in specs]
        found += [[name, bucket, first[bucket], after[bucket]] for bucket in buckets]
    return sorted(found)


def open_table(db: fluss.Database, table: str) -> fluss.FlussTable:
    """A table of the archive."""

    async def opened() -> fluss.FlussTable:
        return await db.connection.get_table(fluss.TablePath(DATABASE, table))

    return asyncio.run(opened())
