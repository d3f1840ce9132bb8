"""What ACLs allow on primary-key tables: every call, each refusal as the result of a bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fluss.errors import ErrorCode
from fluss.model.permissions import Operation, Permission, ResourceType
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.catalog.records import Acl
from tests.support.event_loop import in_event_loop
from tests.support.kv_tablet import COLUMNS, KvTable
from tests.support.tablet import TabletHarness

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
