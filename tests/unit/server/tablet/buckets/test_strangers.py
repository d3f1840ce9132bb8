"""Users without a permission on a table get error 48 before anything about the table is checked or told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fluss.errors import ErrorCode
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.runtime.handlers import ProduceRequest
from fluss.server.tablet.buckets.requested_buckets import MAX_BUCKETS_OF_UNKNOWN_TABLE
from tests.support.harness.tablet import TabletHarness

STRANGER = {"principal_name": "stranger"}
TOO_MANY = range(2 + MAX_BUCKETS_OF_UNKNOWN_TABLE + 1)


def write(kind: Any, table: int, buckets: Iterable[int]) -> ProduceRequest:
    message = kind(acks=-1, table_id=table, timeout_ms=10_000)
    for bucket in buckets:
        message.buckets_req.add(bucket_id=bucket, records=b"")
    return ProduceRequest(message, [memoryview(bytearray())] * len(message.buckets_req), lambda: None)


def requests(table: int, buckets: Iterable[int]) -> dict[ApiKey, Any]:
    named = list(buckets)
    items = [{"bucket_id": bucket} for bucket in named]
    return {
        ApiKey.PRODUCE_LOG: write(pb.ProduceLogRequest, table, named),
        ApiKey.PUT_KV: write(pb.PutKvRequest, table, named),
        ApiKey.GET_TABLE_STATS: pb.GetTableStatsRequest(table_id=table, buckets_req=items),
        ApiKey.LOOKUP: pb.LookupRequest(table_id=table, buckets_req=items),
        ApiKey.PREFIX_LOOKUP: pb.PrefixLookupRequest(table_id=table, buckets_req=items),
    }


@pytest.mark.parametrize("key", requests(0, ()))
@pytest.mark.parametrize("buckets", [[0], TOO_MANY, [0, 1, 0]], ids=["one", "too many", "repeated"])
def test_a_stranger_learns_nothing(tmp_path: Path, key: ApiKey, buckets: Iterable[int]) -> None:
    async def scenario() -> None:
        async with TabletHarness(tmp_path, authorizer_enabled=True) as tablet:
            call = tablet.coordinator.call
            tablet.coordinator.call = partial(call, is_internal=True)  # type: ignore[method-assign]
            table = tablet.create_table("secret", bucket_count=2)
            tablet.service.registry.follow_catalog()
            answer = await tablet.call(key, requests(table, buckets)[key], **STRANGER)
            assert len(answer.buckets_resp) >= len(set(buckets))
            assert {entry.error_code for entry in answer.buckets_resp} == {int(ErrorCode.AUTHORIZATION_EXCEPTION)}
            assert not any("secret" in entry.error_message for entry in answer.buckets_resp)

    asyncio.run(scenario())
