"""Producer offsets, kv snapshots and their leases, lake snapshots, the file-system token."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.coordinator import producer_offsets
from fluss.server.storage.kv_snapshot import CompletedSnapshot
from tests.support.harness.coordinator import NOON_2024_09_19_MS, CoordinatorHarness
from tools.servers.messages import create_partition, int_column, path, table_document, text_column

Make = Callable[..., CoordinatorHarness]
DAY_MS = 86_400_000


def offsets(table_id: int, *triples: tuple[int | None, int, int | None]) -> pb.PbProducerTableOffsets:
    return pb.PbProducerTableOffsets(
        table_id=table_id,
        bucket_offsets=[
            pb.PbBucketOffset(partition_id=partition, bucket_id=bucket, log_end_offset=offset)
            for partition, bucket, offset in triples
        ],
    )


def register(producer: str, *tables: pb.PbProducerTableOffsets, ttl_ms: int | None = None) -> object:
    return pb.RegisterProducerOffsetsRequest(producer_id=producer, table_offsets=tables, ttl_ms=ttl_ms)


def test_producer_offsets(coordinator: CoordinatorHarness) -> None:
    first = [offsets(0, (None, 0, 5), (None, 1, 0)), offsets(1, (7, 0, 9), (8, 0, None))]
    get = pb.GetProducerOffsetsRequest(producer_id="job-1")
    assert not coordinator.call(ApiKey.GET_PRODUCER_OFFSETS, get).HasField("producer_id")
    assert coordinator.call(ApiKey.REGISTER_PRODUCER_OFFSETS, register("job-1", *first)).result == 0
    assert coordinator.call(ApiKey.REGISTER_PRODUCER_OFFSETS, register("job-1")).result == 1
    answer = coordinator.call(ApiKey.GET_PRODUCER_OFFSETS, get)
    assert (answer.producer_id, answer.expiration_time) == ("job-1", NOON_2024_09_19_MS + DAY_MS)
    assert list(answer.table_offsets) == first
    coordinator.call(ApiKey.DELETE_PRODUCER_OFFSETS, pb.DeleteProducerOffsetsRequest(producer_id="job-1"))
    coordinator.call(ApiKey.DELETE_PRODUCER_OFFSETS, pb.DeleteProducerOffsetsRequest(producer_id="job-1"))
    assert not coordinator.call(ApiKey.GET_PRODUCER_OFFSETS, get).HasField("producer_id")


def test_expired_offsets_are_replaced(coordinator: CoordinatorHarness) -> None:
    coordinator.call(ApiKey.REGISTER_PRODUCER_OFFSETS, register("p", offsets(0, (None, 0, 1)), ttl_ms=10))
    coordinator.now_ms += 10
    request = register("p", offsets(0, (None, 0, 2)), ttl_ms=10)
    assert coordinator.call(ApiKey.REGISTER_PRODUCER_OFFSETS, request).result == 0
    answer = coordinator.call(ApiKey.GET_PRODUCER_OFFSETS, pb.GetProducerOffsetsRequest(producer_id="p"))
    assert answer.table_offsets[0].bucket_offsets[0].log_end_offset == 2


@pytest.mark.parametrize("producer", ["", "a b", "..", "x" * 201])
def test_bad_producer_ids(coordinator: CoordinatorHarness, producer: str) -> None:
    coordinator.refuses(63, ApiKey.REGISTER_PRODUCER_OFFSETS, register(producer))
    coordinator.refuses(63, ApiKey.GET_PRODUCER_OFFSETS, pb.GetProducerOffsetsRequest(producer_id=producer))
    coordinator.refuses(63, ApiKey.DELETE_PRODUCER_OFFSETS, pb.DeleteProducerOffsetsRequest(producer_id=producer))


# Kv snapshots


@pytest.fixture
def tables(coordinator: CoordinatorHarness) -> CoordinatorHarness:
    """`log` (id 0), `kv` with 2 buckets (1), `parts` partitioned by r with partition A (2)."""
    coordinator.create_table("log")
    coordinator.create_table("kv", table_document(primary_key=["a"], bucket_count=2))
    columns = [int_column("a"), text_column("r")]
    coordinator.create_table("parts", table_document(columns, primary_key=["a", "r"], partition_key=["r"]))
    coordinator.call(ApiKey.CREATE_PARTITION, create_partition("parts", r="A"))
    return coordinator


def latest(table: str, partition: str | None = None) -> pb.GetLatestKvSnapshotsRequest:
    return pb.GetLatestKvSnapshotsRequest(table_path=path(table), partition_name=partition)


def test_latest_snapshots(tables: CoordinatorHarness) -> None:
    answer = tables.call(ApiKey.GET_LATEST_KV_SNAPSHOTS, latest("kv"), tablet=True)
    assert (answer.table_id, answer.HasField("partition_id")) == (1, False)
    assert [(found.bucket_id, found.HasField("snapshot_id")) for found in answer.latest_snapshots] == [
        (0, False),
        (1, False),
    ]
    answer = tables.call(ApiKey.GET_LATEST_KV_SNAPSHOTS, latest("parts", "A"))
    assert (answer.table_id, answer.partition_id, len(answer.latest_snapshots)) == (2, 0, 1)


@pytest.mark.parametrize(
    ("table", "partition", "code"),
    [("x", None, 7), ("log", None, 20), ("kv", "A", 37), ("parts", None, 36), ("parts", "B", 36)],
)
def test_latest_snapshots_refused(tables: CoordinatorHarness, table: str, partition: str | None, code: int) -> None:
    tables.refuses(code, ApiKey.GET_LATEST_KV_SNAPSHOTS, latest(table, partition))


def test_no_snapshot_is_known(tables: CoordinatorHarness) -> None:
    request = pb.GetKvSnapshotMetadataRequest(table_id=1, bucket_id=0, snapshot_id=3)
    tables.refuses(41, ApiKey.GET_KV_SNAPSHOT_METADATA, request, tablet=True)


def acquire(lease: str, table_id: int, **snapshots: int) -> pb.AcquireKvSnapshotLeaseRequest:
    buckets = [
        pb.PbKvSnapshotLeaseForBucket(bucket_id=int(bucket[1:]), snapshot_id=snapshot)
        for bucket, snapshot in snapshots.items()
    ]
    table = pb.PbKvSnapshotLeaseForTable(table_id=table_id, bucket_snapshots=buckets)
    return pb.AcquireKvSnapshotLeaseRequest(lease_id=lease, lease_duration_ms=1000, snapshots_to_lease=[table])


def release(lease: str, *bucket_ids: int) -> pb.ReleaseKvSnapshotLeaseRequest:
    buckets = [pb.PbTableBucket(table_id=1, bucket_id=bucket_id) for bucket_id in bucket_ids]
    return pb.ReleaseKvSnapshotLeaseRequest(lease_id=lease, buckets_to_release=buckets)


def leased(coordinator: CoordinatorHarness) -> list[tuple[int, int]]:
    answer = coordinator.call(ApiKey.LIST_KV_SNAPSHOTS, pb.ListKvSnapshotsRequest(table_id=1))
    return [(found.bucket_id, found.snapshot_id) for found in answer.active_snapshots]


def offer(coordinator: CoordinatorHarness, bucket_id: int, *snapshot_ids: int) -> None:
    """Register snapshots of `kv`, oldest first, keeping two besides leased ones."""
    for snapshot_id in snapshot_ids:
        snapshot = CompletedSnapshot(TableBucket(1, None, bucket_id), snapshot_id, "/s", (), (), 0, snapshot_id * 10)
        assert coordinator.catalog.store.kv_snapshots.register(snapshot, 2, coordinator.now_ms)


def test_leases(tables: CoordinatorHarness) -> None:
    offer(tables, 0, 3)
    offer(tables, 1, 4)
    answer = tables.call(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, acquire("l", 1, b0=3, b1=4))
    assert not answer.unavailable_snapshots
    offer(tables, 0, 5, 6, 7)
    offer(tables, 1, 5, 6)
    assert leased(tables) == [(0, 3), (0, 6), (0, 7), (1, 4), (1, 5), (1, 6)]
    tables.now_ms += 999
    tables.call(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, acquire("l", 1, b0=6))
    tables.now_ms += 999
    assert leased(tables) == [(0, 6), (0, 7), (1, 4), (1, 5), (1, 6)], "the other bucket's is renewed"
    offer(tables, 0, 8, 9)
    tables.call(ApiKey.RELEASE_KV_SNAPSHOT_LEASE, release("l", 1))
    assert leased(tables) == [(0, 6), (0, 8), (0, 9), (1, 5), (1, 6)]
    tables.now_ms += 1
    assert leased(tables) == [(0, 8), (0, 9), (1, 5), (1, 6)]
    (missing,) = tables.call(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, acquire("l", 1, b0=7, b1=6)).unavailable_snapshots
    assert [(found.bucket_id, found.snapshot_id) for found in missing.bucket_snapshots] == [(0, 7)]
    tables.call(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, acquire("l", 1, b0=9))
    tables.call(ApiKey.RELEASE_KV_SNAPSHOT_LEASE, release("l", 0, 1))
    assert tables.catalog.store.kv_snapshot_leases.all(0) == {}
    tables.call(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, acquire("l", 1, b0=9))
    for _ in range(2):
        tables.call(ApiKey.DROP_KV_SNAPSHOT_LEASE, pb.DropKvSnapshotLeaseRequest(lease_id="l"))
    tables.call(ApiKey.RELEASE_KV_SNAPSHOT_LEASE, release("unknown", 0))
    offer(tables, 0, 10, 11)
    assert leased(tables) == [(0, 10), (0, 11), (1, 5), (1, 6)]


def test_leases_refused(tables: CoordinatorHarness) -> None:
    tables.refuses(20, ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, acquire("l", 0, b0=1))
    tables.refuses(21, ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, acquire("l", 99, b0=1))


@pytest.mark.parametrize(("table_id", "partition_id", "code"), [(99, None, 7), (2, None, 36), (2, 9, 36), (1, 0, 36)])
def test_lists_by_id(tables: CoordinatorHarness, table_id: int, partition_id: int | None, code: int) -> None:
    request = pb.ListKvSnapshotsRequest(table_id=table_id, partition_id=partition_id)
    tables.refuses(code, ApiKey.LIST_KV_SNAPSHOTS, request)
    manifests = pb.ListRemoteLogManifestsRequest(table_id=table_id, partition_id=partition_id)
    tables.refuses(code, ApiKey.LIST_REMOTE_LOG_MANIFESTS, manifests)


def test_empty_lists(tables: CoordinatorHarness) -> None:
    manifests = pb.ListRemoteLogManifestsRequest(table_id=2, partition_id=0)
    assert not tables.call(ApiKey.LIST_REMOTE_LOG_MANIFESTS, manifests).manifests
    answer = tables.call(ApiKey.LIST_KV_SNAPSHOTS, pb.ListKvSnapshotsRequest(table_id=2, partition_id=0))
    assert (answer.table_id, answer.partition_id, len(answer.active_snapshots)) == (2, 0, 0)


# Lake snapshots and the token


def test_no_lake_snapshot(tables: CoordinatorHarness) -> None:
    for request, code in (
        (pb.GetLakeSnapshotRequest(table_path=path("log")), 53),
        (pb.GetLakeSnapshotRequest(table_path=path("log"), snapshot_id=3), 53),
        (pb.GetLakeSnapshotRequest(table_path=path("log"), readable=True), 53),
        (pb.GetLakeSnapshotRequest(table_path=path("log"), readable=True, snapshot_id=3), -1),
        (pb.GetLakeSnapshotRequest(table_path=path("x")), 7),
    ):
        tables.refuses(code, ApiKey.GET_LAKE_SNAPSHOT, request, tablet=True)


@pytest.mark.parametrize("directory", ["/data/remote", "file:///data/remote"])
def test_token_for_local_files(make_coordinator: Make, directory: str) -> None:
    coordinator = make_coordinator(remote_data_dir=directory)
    request = pb.GetFileSystemSecurityTokenRequest()
    answer = coordinator.call(ApiKey.GET_FILESYSTEM_SECURITY_TOKEN, request, tablet=True)
    assert (answer.schema, answer.token, answer.HasField("expiration_time")) == ("file", b"", False)
    assert not answer.addition_info


def test_token_for_object_stores(make_coordinator: Make) -> None:
    values = {"s3.endpoint": "http://e:1", "s3.access-key": "server", "s3.secret-key": "geheim"}
    request = pb.GetFileSystemSecurityTokenRequest()
    coordinator = make_coordinator(remote_data_dir="s3://bucket/x", values=values)
    answer = coordinator.call(ApiKey.GET_FILESYSTEM_SECURITY_TOKEN, request)
    assert (answer.schema, answer.token) == ("s3", b"")  # the server's own keys stay here
    assert [(pair.key, pair.value) for pair in answer.addition_info] == [("fs.s3a.endpoint", "http://e:1")]
    values |= {"s3.client.access-key": "reader", "s3.client.secret-key": "weniger geheim"}
    coordinator = make_coordinator(remote_data_dir="s3://bucket/x", values=values)
    token = json.loads(coordinator.call(ApiKey.GET_FILESYSTEM_SECURITY_TOKEN, request).token)
    assert (token["access_key_id"], token["access_key_secret"]) == ("reader", "weniger geheim")


def test_leases_belong_to_their_user(tables: CoordinatorHarness) -> None:
    """A user cannot end the lease of another by guessing its id, or take over the id."""
    offer(tables, 0, 1)
    assert not tables.call(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, acquire("job", 1, b0=1), principal_name="ann").ByteSize()
    offer(tables, 0, 2, 3, 4)
    for request in (release("job", 0), pb.DropKvSnapshotLeaseRequest(lease_id="job")):
        key = ApiKey.DROP_KV_SNAPSHOT_LEASE
        if isinstance(request, pb.ReleaseKvSnapshotLeaseRequest):
            key = ApiKey.RELEASE_KV_SNAPSHOT_LEASE
        tables.call(key, request, principal_name="bob")
        tables.call(key, request)
    offer(tables, 0, 5)
    assert (0, 1) in leased(tables), "ann's lease is still there"
    tables.call(ApiKey.DROP_KV_SNAPSHOT_LEASE, pb.DropKvSnapshotLeaseRequest(lease_id="job"), principal_name="ann")
    offer(tables, 0, 6)
    assert (0, 1) not in leased(tables)


def test_a_lease_without_snapshots_is_not_kept(tables: CoordinatorHarness) -> None:
    tables.call(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, acquire("nothing", 1))
    assert tables.catalog.store.kv_snapshot_leases.all(tables.now_ms) == {}


def test_producer_offsets_have_a_limit(coordinator: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    many = offsets(0, *((None, 0, 10**18) for _ in range(50_000)))
    text = coordinator.refuses(13, ApiKey.REGISTER_PRODUCER_OFFSETS, register("large", many))
    assert "register fewer buckets" in text
    monkeypatch.setattr(producer_offsets, "MAX_TOTAL_BYTES", 100)
    assert coordinator.call(ApiKey.REGISTER_PRODUCER_OFFSETS, register("p", offsets(0, (None, 0, 5)))).result == 0
    text = coordinator.refuses(
        26, ApiKey.REGISTER_PRODUCER_OFFSETS, register("one-more", *[offsets(0, (None, 0, 5))] * 9)
    )
    assert "of at most 100" in text


def test_callers_without_write_permission_register_nothing(make_coordinator: Make) -> None:
    """A request without tables has no table to check, so any user could fill the catalog."""
    coordinator = make_coordinator(authorizer_enabled=True)
    coordinator.refuses(48, ApiKey.REGISTER_PRODUCER_OFFSETS, register("p"), principal_name="nobody")
    coordinator.call(ApiKey.REGISTER_PRODUCER_OFFSETS, register("p"), is_internal=True)
