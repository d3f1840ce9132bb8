"""Requests that ACLs allow at a tablet, and the form of refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.model.permissions import Operation, Permission, ResourceType
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.catalog.records import Acl
from tests.support.harness.tablet import TabletHarness
from tests.support.servers.log_cluster import arrow_batch, ids_of

ANN: dict[str, Any] = {"principal_name": "ann"}
DENIED = ErrorCode.AUTHORIZATION_EXCEPTION


def allow(tablet: TabletHarness, operation: Operation, table: str) -> None:
    acl = Acl(ResourceType.TABLE, f"fluss.{table}", "User", "ann", "*", operation, Permission.ALLOW)
    tablet.coordinator.catalog.store.acls.add([acl])


def list_offsets(table: int) -> pb.ListOffsetsRequest:
    return pb.ListOffsetsRequest(follower_server_id=-1, offset_type=1, table_id=table, bucket_id=[0])


def init_writer(*tables: str) -> pb.InitWriterRequest:
    request = pb.InitWriterRequest()
    for table in tables:
        request.table_path.add(database_name="fluss", table_name=table)
    return request


async def refused(tablet: TabletHarness, key: ApiKey, message: Any) -> int:
    with pytest.raises(FlussError) as caught:
        await tablet.call(key, message, **ANN)
    return caught.value.error_code


def test_nothing_is_allowed_without_an_acl_and_each_acl_allows_its_operation(tmp_path: Path) -> None:
    async def scenario() -> None:
        root = {"is_internal": True}
        async with TabletHarness(tmp_path, authorizer_enabled=True) as tablet:
            tablet.coordinator.call = _internal(tablet.coordinator.call)  # type: ignore[method-assign]
            table = tablet.create_table("t")
            await tablet.produce(table, arrow_batch([1]), **root)

            answer = await tablet.produce(table, arrow_batch([2]), **ANN)
            assert answer.buckets_resp[0].error_code == DENIED
            assert "ann" in answer.buckets_resp[0].error_message
            assert (await tablet.fetch(table, context=ANN, min_bytes=1, max_wait_ms=5000)).error_code == DENIED
            assert await refused(tablet, ApiKey.LIST_OFFSETS, list_offsets(table)) == DENIED
            assert await refused(tablet, ApiKey.INIT_WRITER, init_writer("t")) == DENIED
            scan = pb.LimitScanRequest(table_id=table, bucket_id=0, limit=1)
            assert (await tablet.call(ApiKey.LIMIT_SCAN, scan, **ANN)).error_code == DENIED
            stats = pb.GetTableStatsRequest(table_id=table)
            stats.buckets_req.add(bucket_id=0)
            assert (await tablet.call(ApiKey.GET_TABLE_STATS, stats, **ANN)).buckets_resp[0].error_code == DENIED

            allow(tablet, Operation.READ, "t")
            assert ids_of((await tablet.fetch(table, context=ANN)).records) == [1]
            assert (await tablet.call(ApiKey.LIST_OFFSETS, list_offsets(table), **ANN)).buckets_resp[0].offset == 1
            assert ids_of((await tablet.call(ApiKey.LIMIT_SCAN, scan, **ANN)).records) == [1]
            assert (await tablet.produce(table, arrow_batch([2]), **ANN)).buckets_resp[0].error_code == DENIED

            allow(tablet, Operation.WRITE, "t")
            assert (await tablet.produce(table, arrow_batch([2]), **ANN)).buckets_resp[0].base_offset == 1
            assert (await tablet.call(ApiKey.INIT_WRITER, init_writer("missing", "t"), **ANN)).writer_id >= 0
            assert await refused(tablet, ApiKey.INIT_WRITER, init_writer()) == DENIED

    asyncio.run(scenario())


def _internal(call: Any) -> Any:
    return lambda key, message, **context: call(key, message, **{"is_internal": True, **context})
