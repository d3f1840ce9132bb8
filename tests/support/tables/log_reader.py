"""Reads back what a writer wrote: every batch of a bucket, straight from FETCH_LOG answers, without the scanner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pyarrow as pa

import fluss
from fluss.client.net.cluster import Cluster
from fluss.client.net.metadata import ClientTable
from fluss.codec.arrow.types import to_arrow_schema
from fluss.codec.batches.arrow_batch import decode_arrow_batch
from fluss.codec.batches.log_batch import BatchHeader, check_crc, iter_batches
from fluss.codec.batches.row_log_batch import decode_row_batch
from fluss.codec.rows.columns import RowFormat
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket, TablePath
from fluss.protocol import fluss_api_pb2 as pb
from tools.waiting import patience

READ_DEADLINE_SECONDS = patience(120.0)
MAX_FETCH_BYTES = 8 * 1024 * 1024
# Apache Fluss tells a tablet server what it leads a moment after it has told everybody else.
NOT_YET_LEADING = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION})


class StoredBatch(NamedTuple):
    """One batch of a bucket."""

    header: BatchHeader
    rows: Any


def read_batches(
    connection: fluss.FlussConnection, path: TablePath, bucket_id: int = 0, partition: str | None = None
) -> list[StoredBatch]:
    """All batches of a bucket up to its high watermark, checksums verified."""
    session = connection._session
    return session.run(_read(session.cluster, path, bucket_id, partition), READ_DEADLINE_SECONDS)


def read_rows(
    connection: fluss.FlussConnection, path: TablePath, bucket_id: int = 0, partition: str | None = None
) -> list[dict[str, Any]]:
    """All rows of a bucket in their order."""
    batches = [batch.rows for batch in read_batches(connection, path, bucket_id, partition)]
    return [row for batch in batches for row in batch.to_pylist()]


def read_table(connection: fluss.FlussConnection, path: TablePath, bucket_count: int) -> list[dict[str, Any]]:
    """All rows of a table that is not partitioned, bucket after bucket."""
    return [row for bucket_id in range(bucket_count) for row in read_rows(connection, path, bucket_id)]


async def _read(cluster: Cluster, path: TablePath, bucket_id: int, partition: str | None) -> list[StoredBatch]:
    table = await cluster.table(path)
    partition_id = None if partition is None else await cluster.partition_id(path, partition)
    log_format = table.property("table.log.format", "ARROW")
    batches: list[StoredBatch] = []
    async for records, position, header in stored_batches(
        cluster, table, TableBucket(table.table_id, partition_id, bucket_id)
    ):
        if log_format == "ARROW":
            rows, _ = decode_arrow_batch(records, to_arrow_schema(table.schema), position)
        else:
            rows, _ = decode_row_batch(records, table.schema, RowFormat(log_format), position)
        assert isinstance(rows, pa.RecordBatch)
        batches.append(StoredBatch(header, rows))
    return batches


async def stored_batches(
    cluster: Cluster, table: ClientTable, bucket: TableBucket
) -> AsyncIterator[tuple[bytes, int, BatchHeader]]:
    """Every batch of a bucket up to its end: the bytes fetched, where it begins in them, its header. No gaps."""
    server = await cluster.leader(bucket, table.path)
    offset = 0
    while True:
        request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=MAX_FETCH_BYTES, max_wait_ms=0, min_bytes=1)
        entry = request.tables_req.add(table_id=table.table_id, projection_pushdown_enabled=False)
        entry.buckets_req.add(
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket_id,
            fetch_offset=offset,
            max_fetch_bytes=MAX_FETCH_BYTES,
        )
        try:
            answer = await server.fetch(request)
        except FlussError as error:
            if error.error_code != ErrorCode.NETWORK_EXCEPTION:
                raise
            server = await cluster.leader(bucket, table.path)  # it was killed, and this connection had not heard of it
            continue
        result = answer.message.tables_resp[0].buckets_resp[0]
        if result.error_code in NOT_YET_LEADING:
            await asyncio.sleep(0.05)  # bounded by the deadline of the whole reading
            continue
        assert not result.error_code, result.error_message
        records = bytes(answer.records[0] or b"")
        before = offset
        for position, header in iter_batches(records):
            assert check_crc(records, position, header), "a stored batch has a wrong checksum"
            if header.base_offset < offset:
                continue
            assert header.base_offset == offset, "offsets have a gap"
            yield records, position, header
            offset = header.next_offset
        if offset == before:
            assert offset == result.high_watermark
            return
