"""Records that were stored while the clock was ahead do not outlive the longest time that a client may ask for."""

from __future__ import annotations

import logging

import pytest

from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.storage.kv_snapshot import CompletedSnapshot
from tests.support.harness.coordinator import CoordinatorHarness
from tools.servers.messages import int_column, table_document

DAY_MS = 86_400_000
LONGEST_MS = 30 * DAY_MS
YEARS_MS = 3650 * DAY_MS
BUCKET = TableBucket(0, None, 0)


def offer(coordinator: CoordinatorHarness, *snapshot_ids: int) -> list[int]:
    """Register snapshots and keep two besides leased ones; return all that are kept."""
    snapshots = coordinator.catalog.store.kv_snapshots
    for number in snapshot_ids:
        snapshot = CompletedSnapshot(BUCKET, number, "/s", (), (), 0, number * 10)
        assert snapshots.register(snapshot, 2, coordinator.now_ms)
    return [found.snapshot_id for found in snapshots.of_bucket(BUCKET)]


def store_both(coordinator: CoordinatorHarness, duration_ms: int) -> None:
    lease = pb.AcquireKvSnapshotLeaseRequest(lease_id="l", lease_duration_ms=duration_ms)
    lease.snapshots_to_lease.add(table_id=0).bucket_snapshots.add(bucket_id=0, snapshot_id=1)
    assert not coordinator.call(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, lease).unavailable_snapshots
    register = pb.RegisterProducerOffsetsRequest(producer_id="p", ttl_ms=duration_ms)
    register.table_offsets.add(table_id=0).bucket_offsets.add(bucket_id=0, log_end_offset=1)
    assert coordinator.call(ApiKey.REGISTER_PRODUCER_OFFSETS, register).result == 0


def clean(coordinator: CoordinatorHarness) -> None:
    coordinator.service.purge_expired()
    coordinator.service.purge_leases()


def expiration(coordinator: CoordinatorHarness) -> int:
    answer = coordinator.call(ApiKey.GET_PRODUCER_OFFSETS, pb.GetProducerOffsetsRequest(producer_id="p"))
    return int(answer.expiration_time)


@pytest.fixture
def tables(coordinator: CoordinatorHarness) -> CoordinatorHarness:
    document = table_document(columns=[int_column("id")], primary_key=["id"], bucket_count=1)
    coordinator.create_table("kv", document)
    assert offer(coordinator, 1) == [1]
    return coordinator


def test_a_clock_that_was_ahead_keeps_nothing_for_years(
    tables: CoordinatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    tables.now_ms += YEARS_MS
    store_both(tables, DAY_MS)
    tables.now_ms -= YEARS_MS
    with caplog.at_level(logging.WARNING):
        clean(tables)
        clean(tables)
    assert len([each for each in caplog.records if "the clock was ahead" in each.getMessage()]) == 2
    assert expiration(tables) == tables.now_ms + LONGEST_MS
    assert offer(tables, 2, 3, 4) == [4, 3, 1], "the lease still holds for a while"
    tables.now_ms += LONGEST_MS
    clean(tables)
    assert offer(tables, 5) == [5, 4]
    assert expiration(tables) == 0


def test_a_clock_that_is_not_set_ends_nothing(tables: CoordinatorHarness) -> None:
    store_both(tables, DAY_MS)
    today_ms = tables.now_ms
    tables.now_ms = 1_000
    clean(tables)
    tables.now_ms = today_ms
    clean(tables)
    assert expiration(tables) == today_ms + DAY_MS
    assert offer(tables, 2, 3, 4) == [4, 3, 1]


def test_no_client_asks_for_more(tables: CoordinatorHarness, caplog: pytest.LogCaptureFixture) -> None:
    store_both(tables, YEARS_MS)
    assert expiration(tables) == tables.now_ms + LONGEST_MS
    with caplog.at_level(logging.WARNING):
        clean(tables)
    assert not caplog.records
