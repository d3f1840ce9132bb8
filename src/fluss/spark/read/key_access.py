"""Filters that fix keys become lookups, which read a few rows of a primary-key table without the rest.

Filters that fix the whole primary key become lookups. Filters that fix the bucket columns and the partition columns
become prefix lookups, if the table supports them. The result of a lookup is filtered like any other, so a lookup only
has to find at least the rows that match.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pyarrow as pa

from fluss.api.table import FlussTable, access_of
from fluss.client.engine.keys import KeyReader
from fluss.errors import FlussError
from fluss.spark.read.pushdown import Pushed
from fluss.spark.read.splits import LookupSplit

MAX_PREFIXES = 1_000
PREFIXES_AT_ONCE = 64


def lookup_split(table: FlussTable, pushed: Pushed) -> LookupSplit | None:
    """Return the split that looks the rows up; None if the filters do not fix the keys or a key is invalid."""
    info = table.get_table_info()
    names = info.get_primary_keys()
    keys = pushed.keys(names)
    if keys is not None:
        return _checked(access_of(table).key_reader(), names, keys, by_prefix=False)
    prefix = [*info.get_partition_keys(), *info.get_bucket_keys()]
    keys = pushed.keys(prefix)
    if keys is None or len(keys) > MAX_PREFIXES:
        return None
    try:
        reader = access_of(table).prefix_reader(prefix)
    except FlussError:
        return None  # the table cannot be looked up by prefix
    return _checked(reader, prefix, keys, by_prefix=True)


def places_of_keys(table: FlussTable, pushed: Pushed) -> set[tuple[str | None, int]] | None:
    """The (partition name, bucket) pairs that can have the keys of the filters; None if the filters fix no keys."""
    keys = pushed.keys(table.get_table_info().get_primary_keys())
    if keys is None:
        return None
    reader = access_of(table).key_reader()
    try:
        groups = reader.groups(reader.batch_of_rows(keys))
    except FlussError:
        return None  # a value that cannot be a key
    return {(group.place.partition_name, group.place.bucket_id) for group in groups}


def _checked(
    reader: KeyReader, names: Sequence[str], keys: list[tuple[object, ...]], *, by_prefix: bool
) -> LookupSplit | None:
    try:
        reader.batch_of_rows(keys)
    except FlussError:
        return None  # a value that cannot be a key: a scan finds that nothing matches
    return LookupSplit(tuple(names), tuple(keys), by_prefix)


def looked_up(table: FlussTable, split: LookupSplit) -> Iterator[pa.RecordBatch]:
    """Return the rows of a lookup split, as record batches with all columns of the table."""
    schema = table.arrow_schema
    if not split.by_prefix:
        found = asyncio.run(_rows_by_key(table, split))
        yield from pa.Table.from_arrays(found.columns, schema=schema).to_batches()
        return
    for start in range(0, len(split.keys), PREFIXES_AT_ONCE):
        found = asyncio.run(_rows_by_prefix(table, split, split.keys[start : start + PREFIXES_AT_ONCE]))
        yield from found.to_batches()


async def _rows_by_key(table: FlussTable, split: LookupSplit) -> pa.Table:
    """Rows by key. A missing key gives a row of nulls, even in the key columns, which no stored row can have."""
    lookuper = table.new_lookup().create_lookuper()
    keys = access_of(table).key_reader().batch_of_rows(split.keys)
    found: pa.Table = await lookuper.lookup_many(keys)
    return found.filter(found.column(split.names[0]).is_valid())


async def _rows_by_prefix(table: FlussTable, split: LookupSplit, prefixes: Sequence[tuple[object, ...]]) -> pa.Table:
    lookuper = table.new_lookup().lookup_by(split.names).create_lookuper()
    return await lookuper.lookup_arrow([list(prefix) for prefix in prefixes])
