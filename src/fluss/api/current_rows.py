"""`to_arrow()` of a table: all its current rows.

A log table is read from its start to its latest offsets. A primary-key table is scanned bucket by bucket, each as of
one moment; if the server has no SCAN_KV, the changelog is read instead. Rows that the table has in a lake are read too
(`lake.reading.current_rows`). All coroutines here are awaited in the user's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from fluss.api.aio_scanner import AioLogScanner
from fluss.api.base_scanner import core_of, leave_lake_out
from fluss.client.calls.admin import AdminCalls
from fluss.client.decode.scan_plan import ScanPlan
from fluss.client.engine.engine import Engine
from fluss.client.engine.table import TableAccess
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.client.state.changelog_state import read_changelog
from fluss.client.state.kv_scan import KvTableScan
from fluss.client.state.row_selection import Selection
from fluss.errors import ErrorCode, FlussError
from fluss.lake.reading.current_rows import read_with_lake
from fluss.lake.reading.options import DEFAULT_LAKE_OPTIONS, LakeOptions
from fluss.model.properties import DATALAKE_ENABLED
from fluss.protocol.api_keys import ApiKey
from fluss.values.basic import TableBucket


async def read_current(
    session: Session, table: ClientTable, plan: ScanPlan, lake: LakeOptions = DEFAULT_LAKE_OPTIONS
) -> pa.Table:
    """A `pyarrow.Table` of the rows that the plan asks for."""
    session.check_open()

    async def read_live(plan: ScanPlan, buckets: Sequence[TableBucket]) -> pa.Table:
        return await _read_rows(session, table, plan, buckets)

    if table.has_lake and lake.union is not False:
        found = await read_with_lake(TableAccess(Engine(session), table), plan, lake, read_live)
        if found is not None:
            return found
    elif lake.is_lake_only:
        raise FlussError(
            f"table {table.path} has no Iceberg lake to read from: set its property {DATALAKE_ENABLED}=true and wait "
            "until it has been tiered; if you did that after opening the table, open it again",
            ErrorCode.LAKE_STORAGE_NOT_CONFIGURED_EXCEPTION,
        )
    if table.has_primary_key:
        return await read_live(plan, await session.awaitable(_buckets(session, table)))
    return await _read_log(session, table, plan)


async def _read_log(session: Session, table: ClientTable, plan: ScanPlan) -> pa.Table:
    scanner = AioLogScanner(session, table, replace(plan, limit=None), records=False)
    leave_lake_out(scanner)  # the caller reads the lake itself, or does not want its rows
    async with scanner:
        await asyncio.get_running_loop().run_in_executor(None, scanner.subscribe_all)
        core = core_of(scanner)
        if not core.positions():
            return scanner.arrow_schema.empty_table()  # partitioned, but without partitions
        if plan.limit is None:
            return await scanner.to_arrow()
        missing = plan.limit
        batches: list[pa.RecordBatch] = []
        subscriptions = await session.awaitable(core.begin_bounded())
        while missing and (taken := await core.next_bounded_async(subscriptions)) is not None:
            for rows in taken:
                batches.append(rows.rows.slice(0, missing))
                missing -= batches[-1].num_rows
        return pa.Table.from_batches(batches, scanner.arrow_schema)


async def _read_rows(session: Session, table: ClientTable, plan: ScanPlan, buckets: Sequence[TableBucket]) -> pa.Table:
    selection = Selection(table, plan)
    batches: list[pa.RecordBatch] = []
    serves_scans = bool(buckets) and await session.awaitable(_serves_scans(session, table, buckets[0]))
    if serves_scans:
        scan = KvTableScan(session, table, plan)
        batches = await session.awaitable(scan.read(buckets))
    elif buckets:
        batches = await read_changelog(session, table, selection, buckets)
    found = pa.Table.from_batches(batches, selection.schema)
    return found if plan.limit is None else found.slice(0, plan.limit)


async def _serves_scans(session: Session, table: ClientTable, bucket: TableBucket) -> bool:
    return (await session.cluster.leader(bucket, table.path)).supports(ApiKey.SCAN_KV)


async def _buckets(session: Session, table: ClientTable) -> list[TableBucket]:
    partition_ids: list[int | None] = [None]
    if table.is_partitioned:
        infos = await AdminCalls(session.cluster).list_partition_infos(table.path, None)
        partition_ids = [info.partition_id for info in infos]
    return [
        TableBucket.with_partition(table.table_id, partition_id, bucket_id)
        for partition_id in partition_ids
        for bucket_id in range(table.bucket_count)
    ]
