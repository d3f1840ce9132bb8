"""ACLs on primary-key tables, for every call: each refusal is the result of a bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.model.permissions import Operation, Permission, ResourceType
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol import kv_range_api_pb2 as range_pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.catalog.records import Acl
from tests.support.harness.event_loop import in_event_loop
from tests.support.harness.kv_tablet import COLUMNS, KvTable
from tests.support.harness.tablet import TabletHarness

ANN: dict[str, Any] = {"principal_name": "ann", "api_version": 1}
ROOT: dict[str, Any] = {"is_internal": True, "api_version": 1}


def allow(tablet: TabletHarness, operation: Operation) -> None:
    acl = Acl(ResourceType.TABLE, "fluss.t", "User", "ann", "*", operation, Permission.ALLOW)
    tablet.coordinator.catalog.store.acls.add([acl])


async def codes(tablet: TabletHarness, table: int) -> list[int]:
    """The codes that ann gets for looking up, by prefix, scanning, scanning with a limit, and inserting lookups."""
    look = pb.LookupRequest(table_id=table)
    look.buckets_req.add(bucket_id=0, keys=[b"\x01"])
    prefix = pb.PrefixLookupRequest(table_id=table)
    prefix.buckets_req.add(bucket_id=0, keys=[b"\x01"])
    scan = pb.ScanKvRequest(call_seq_id=0, batch_size_bytes=1000)
    scan.bucket_scan_req.table_id, scan.bucket_scan_req.bucket_id = table, 0
    limited = pb.LimitScanRequest(table_id=table, bucket_id=0, limit=1)
    inserting = pb.LookupRequest(table_id=table, insert_if_not_exists=True, acks=-1, timeout_ms=10_000)
    inserting.buckets_req.add(bucket_id=0, keys=[b"\x07"])
    return [
        (await tablet.call(ApiKey.LOOKUP, look, **ANN)).buckets_resp[0].error_code,
        (await tablet.call(ApiKey.PREFIX_LOOKUP, prefix, **ANN)).buckets_resp[0].error_code,
        (await tablet.call(ApiKey.SCAN_KV, scan, **ANN)).error_code,
        (await tablet.call(ApiKey.LIMIT_SCAN, limited, **ANN)).error_code,
        (await tablet.call(ApiKey.LOOKUP, inserting, **ANN)).buckets_resp[0].error_code,
    ]


@in_event_loop
async def test_reading_and_inserting_need_their_permissions(tmp_path: Path) -> None:
    denied = int(ErrorCode.AUTHORIZATION_EXCEPTION)
    async with TabletHarness(tmp_path, authorizer_enabled=True) as tablet:
        call = tablet.coordinator.call
        tablet.coordinator.call = lambda key, message, **more: call(  # type: ignore[method-assign]
            key, message, **{"is_internal": True, **more}
        )
        table = KvTable(tablet, tablet.create_table("t", columns=COLUMNS, primary_key=["id"]))
        assert await codes(tablet, table.table_id) == [denied] * 5
        allow(tablet, Operation.READ)
        assert await codes(tablet, table.table_id) == [0, 0, 0, 0, denied]
        allow(tablet, Operation.WRITE)
        assert await codes(tablet, table.table_id) == [0] * 5
        scan = pb.ScanKvRequest(call_seq_id=0, batch_size_bytes=1000)
        scan.bucket_scan_req.table_id, scan.bucket_scan_req.bucket_id = table.table_id, 0
        assert (await tablet.call(ApiKey.SCAN_KV, scan, **ROOT)).log_offset == 1


async def opened(table: KvTable, user: str) -> pb.ScanKvResponse:
    scan = pb.ScanKvRequest(call_seq_id=0, batch_size_bytes=1)
    scan.bucket_scan_req.table_id, scan.bucket_scan_req.bucket_id = table.table_id, 0
    answer: pb.ScanKvResponse = await table.tablet.call(ApiKey.SCAN_KV, scan, principal_name=user)
    return answer


@in_event_loop
async def test_a_scan_belongs_to_its_user(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path) as tablet:
        table = KvTable.create(tablet)
        await table.upsert((1, "a", 1), (2, "b", 2))
        scanner_id = (await opened(table, "ann")).scanner_id
        going_on = pb.ScanKvRequest(scanner_id=scanner_id, call_seq_id=1, batch_size_bytes=1)
        answer = await tablet.call(ApiKey.SCAN_KV, going_on, principal_name="bob")
        assert answer.error_code == ErrorCode.UNKNOWN_SCANNER_ID
        close = pb.ScanKvRequest(scanner_id=scanner_id, close_scanner=True)
        assert not (await tablet.call(ApiKey.SCAN_KV, close, principal_name="bob")).HasField("error_code")
        answer = await tablet.call(ApiKey.SCAN_KV, going_on, principal_name="ann")
        assert not answer.HasField("error_code"), "no other user could close it"


@in_event_loop
async def test_one_user_cannot_hold_all_scans_of_a_bucket(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path, kv_scanner_max_per_bucket=4) as tablet:
        table = KvTable.create(tablet)
        await table.upsert((1, "a", 1), (2, "b", 2))
        answers = [await opened(table, "ann") for _ in range(4)]
        assert [answer.error_code for answer in answers] == [0, 0, 0, ErrorCode.TOO_MANY_SCANNERS]
        assert "User:ann has 3 on the bucket" in answers[-1].error_message
        assert (await opened(table, "bob")).error_code == 0
        assert (await opened(table, "bob")).error_code == ErrorCode.TOO_MANY_SCANNERS


@in_event_loop
async def test_users_without_login_share_all_scans(tmp_path: Path) -> None:
    async with TabletHarness(tmp_path, kv_scanner_max_per_bucket=2) as tablet:
        table = KvTable.create(tablet)
        await table.upsert((1, "a", 1), (2, "b", 2))
        codes = [(await opened(table, "ANONYMOUS")).error_code for _ in range(3)]
        assert codes == [0, 0, ErrorCode.TOO_MANY_SCANNERS]


@in_event_loop
async def test_permissions_are_checked_before_buckets(tmp_path: Path) -> None:
    """For a request without permission no bucket is looked up, however many it names."""
    async with TabletHarness(tmp_path, authorizer_enabled=True) as tablet:
        call = tablet.coordinator.call
        tablet.coordinator.call = lambda key, message, **more: call(  # type: ignore[method-assign]
            key, message, **{"is_internal": True, **more}
        )
        table = tablet.create_table("t", columns=COLUMNS, primary_key=["id"])
        looked: list[object] = []
        tablet.service.registry.find = looked.append  # type: ignore[method-assign, assignment]
        await codes(tablet, table)
        offsets = pb.ListOffsetsRequest(follower_server_id=-1, offset_type=1, table_id=table, bucket_id=[0, 1, 2])
        stats = pb.GetTableStatsRequest(table_id=table)
        stats.buckets_req.add(bucket_id=0)
        split = range_pb.SplitKvRequest(table_id=table, piece_bytes=1000)
        split.buckets_req.add(bucket_id=0)
        for key, request in ((ApiKey.LIST_OFFSETS, offsets), (ApiKey.SPLIT_KV, split)):
            with pytest.raises(FlussError) as caught:
                await tablet.call(key, request, **ANN)
            assert caught.value.error_code == ErrorCode.AUTHORIZATION_EXCEPTION
        answer = await tablet.call(ApiKey.GET_TABLE_STATS, stats, **ANN)
        assert answer.buckets_resp[0].error_code == ErrorCode.AUTHORIZATION_EXCEPTION
        assert looked == []
