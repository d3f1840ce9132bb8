"""Reads back what was written to a primary-key table, straight from the wire: its changelog, and rows by key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

import fluss
from fluss.client.net.cluster import Cluster
from fluss.client.net.metadata import ClientTable
from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.arrow_batch import decode_arrow_batch
from fluss.codec.batches.kv_values import ValueReader
from fluss.codec.keys.encoding import encode_key, key_plan
from fluss.codec.rows.columns import RowFormat
from fluss.model.paths import ChangeType, TableBucket, TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from tests.support.tables.log_reader import NOT_YET_LEADING, READ_DEADLINE_SECONDS, stored_batches

Row = dict[str, Any]


class Change(NamedTuple):
    """One record of a changelog; `kind` is +I, -U, +U or -D."""

    kind: str
    row: Row
    bucket_id: int
    writer_id: int
    sequence: int


def read_changes(
    connection: fluss.FlussConnection, path: TablePath, partitions: Iterable[str | None] = (None,)
) -> list[Change]:
    """The changelog of a table up to its high watermarks, bucket after bucket."""
    session = connection._session

    async def read() -> list[Change]:
        table = await session.cluster.table(path)
        changes = []
        for partition in partitions:
            partition_id = None if partition is None else await session.cluster.partition_id(path, partition)
            for bucket_id in range(table.bucket_count):
                changes += await _read_bucket(
                    session.cluster, table, TableBucket(table.table_id, partition_id, bucket_id)
                )
        return changes

    return session.run(read(), READ_DEADLINE_SECONDS)


def replay(changes: Iterable[Change], key_columns: Sequence[str]) -> dict[tuple[Any, ...], Row]:
    """The rows by key after all changes; every change must fit the row that it changes."""
    rows: dict[tuple[Any, ...], Row] = {}
    for kind, row, *_ in changes:
        key = tuple(row[name] for name in key_columns)
        if kind == "+I":
            assert key not in rows, f"{row} was inserted, but {rows[key]} was there"
            rows[key] = row
        elif kind == "+U":
            assert key not in rows, f"{row} was updated without the row before"
            rows[key] = row
        else:
            assert rows.pop(key, None) == row, f"{kind} of {row}, which was not there"
    return rows


def look_up(
    connection: fluss.FlussConnection, path: TablePath, key: Sequence[Any], partition: str | None = None
) -> Row | None:
    """The row of a key, given as logical values without partition columns; it must be in one bucket at most."""
    session = connection._session

    async def find() -> Row | None:
        cluster = session.cluster
        table = await cluster.table(path)
        partition_id = None if partition is None else await cluster.partition_id(path, partition)
        found = []
        for bucket_id in range(table.bucket_count):
            bucket = TableBucket(table.table_id, partition_id, bucket_id)
            value = await _look_up(cluster, table, bucket, _key_bytes(table, key))
            if value is not None:
                found.append(value)
        assert len(found) <= 1, f"{key} is in several buckets: {found}"
        return _row(table, found[0]) if found else None

    return session.run(find(), READ_DEADLINE_SECONDS)


def _key_bytes(table: ClientTable, key: Sequence[Any]) -> bytes:
    schema, descriptor = table.schema, table.descriptor
    plan = key_plan(
        schema.primary_key,
        descriptor.partition_keys,
        descriptor.bucket_keys,
        table.property("table.datalake.format"),
        int(table.property("table.kv.format-version") or 1),
    )
    types = [schema.data_types[schema.position(name)] for name in plan.primary_columns]
    return encode_key(key, types, plan.primary_encoding)


def _row(table: ClientTable, value: bytes) -> Row:
    row_format = RowFormat((table.property("table.kv.format") or "COMPACTED").upper())
    reader = ValueReader({table.schema_id: table.schema}, table.schema_id, row_format)
    columns = reader.columns(pa.array([value], pa.binary()))
    batch = pa.RecordBatch.from_arrays(columns, schema=to_arrow_schema(table.schema))
    row: Row = batch.to_pylist()[0]
    return row


async def _look_up(cluster: Cluster, table: ClientTable, bucket: TableBucket, key: bytes) -> bytes | None:
    server = await cluster.leader(bucket, table.path)
    request = pb.LookupRequest(table_id=table.table_id)
    request.buckets_req.add(partition_id=bucket.partition_id, bucket_id=bucket.bucket_id, keys=[key])
    while True:
        answer = (await server.call(ApiKey.LOOKUP, request)).buckets_resp[0]
        if answer.error_code not in NOT_YET_LEADING:
            break
        await asyncio.sleep(0.05)
    assert not answer.error_code, answer.error_message
    value = answer.values[0]
    return bytes(value.values) if value.HasField("values") else None


async def _read_bucket(cluster: Cluster, table: ClientTable, bucket: TableBucket) -> list[Change]:
    arrow_schema = to_arrow_schema(table.schema)
    changes: list[Change] = []
    async for records, position, header in stored_batches(cluster, table, bucket):
        rows, kinds = decode_arrow_batch(records, arrow_schema, position)
        if rows is None:
            continue
        assert kinds is not None
        origin = (bucket.bucket_id, header.writer_id, header.batch_sequence)
        for kind, row in zip(kinds, rows.to_pylist(), strict=True):
            changes.append(Change(ChangeType(kind).short_string(), row, *origin))
    return changes
