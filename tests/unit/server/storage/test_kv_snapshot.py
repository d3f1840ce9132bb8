"""The documents of snapshots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fluss.model.paths import TableBucket, TablePath
from fluss.server.storage.kv_snapshot import (
    CompletedSnapshot,
    SnapshotFile,
    lease_from_json,
    lease_to_json,
    snapshot_from_json,
    snapshot_to_json,
)
from fluss.server.storage.remote_store import RemoteStore
from fluss.server.tablet.kv_snapshots.bucket_snapshots import BucketSnapshots
from fluss.server.tablet.kv_snapshots.record import (
    DIRECTORY_NAME,
    RECORD_FILE_NAME,
    SnapshotRecord,
    UploadedFile,
    read_record,
    record_from_json,
    record_to_json,
)
from tests.support.storage.faulty_files import NoSyncFiles

# The example of the specification, with a name for its <uuid>.
EXAMPLE = (
    b'{"version":1,"table_id":7,"bucket_id":0,"snapshot_id":3,"snapshot_location":"s3://b/kv/db/t-7/0/snap-3",'
    b'"kv_snapshot_handle":{"shared_file_handles":[{"kv_file_handle":{"path":"s3://b/kv/db/t-7/0/shared/x","size":100},'
    b'"local_path":"000012.sst"}],"private_file_handles":[{"kv_file_handle":{"path":"s3://b/kv/db/t-7/0/snap-3/y",'
    b'"size":16},"local_path":"CURRENT"}],"snapshot_incremental_size":116},"log_offset":42,"row_count":9}'
)
SNAPSHOT = CompletedSnapshot(
    TableBucket(7, None, 0),
    3,
    "s3://b/kv/db/t-7/0/snap-3",
    (SnapshotFile("000012.sst", "s3://b/kv/db/t-7/0/shared/x", 100),),
    (SnapshotFile("CURRENT", "s3://b/kv/db/t-7/0/snap-3/y", 16),),
    116,
    42,
    9,
)


def test_the_example_of_the_specification() -> None:
    assert snapshot_to_json(SNAPSHOT) == EXAMPLE
    assert snapshot_from_json(EXAMPLE) == SNAPSHOT
    assert SNAPSHOT.metadata_path == "s3://b/kv/db/t-7/0/snap-3/_METADATA"


def test_partitions_checksums_and_unknown_row_counts() -> None:
    files = (replace(SNAPSHOT.shared[0], checksum=5),)
    snapshot = replace(SNAPSHOT, bucket=TableBucket(7, 8, 1), shared=files, row_count=None)
    assert b'"partition_id":8,"bucket_id":1' in snapshot_to_json(snapshot)
    assert b"row_count" not in snapshot_to_json(snapshot)
    assert b"checksums" not in snapshot_to_json(snapshot)
    assert snapshot_from_json(snapshot_to_json(snapshot, with_checksums=True)) == snapshot


@pytest.mark.parametrize("document", [b"{}", b"[]", EXAMPLE.replace(b'"version":1', b'"version":0'), b"nonsense"])
def test_other_documents_are_refused(document: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        snapshot_from_json(document)
    with pytest.raises(ValueError):  # noqa: PT011
        record_from_json(document)


def test_leases() -> None:
    leased = {TableBucket(1, None, 0): 5, TableBucket(2, 3, 1): 6}
    assert lease_from_json(lease_to_json(leased)) == leased


RECORD = SnapshotRecord(
    TablePath("db", "t"), TableBucket(7, 8, 0), "p", "/r/kv/db/t-7/p-p8/0", 4, ("shared/x",), "store",
    {"000012.sst": UploadedFile("shared/x", 100, 5)},
)  # fmt: skip


def test_the_record() -> None:
    assert record_from_json(record_to_json(RECORD)) == RECORD


@pytest.mark.parametrize("content", [None, b"damaged"])
def test_a_lost_record_is_rebuilt_from_the_catalog(tmp_path: Path, content: bytes | None) -> None:
    directory = tmp_path / DIRECTORY_NAME
    directory.mkdir()
    if content is not None:
        (directory / RECORD_FILE_NAME).write_bytes(content)
    snapshots = BucketSnapshots.open(
        tmp_path, RemoteStore("s3://b"), TablePath("db", "t"), TableBucket(7, None, 0), None, NoSyncFiles(), [SNAPSHOT]
    )
    assert snapshots.record.next_snapshot_id == 4
    assert set(snapshots.record.objects) == {"shared/x", "snap-3/y", "snap-3/_METADATA"}


def test_another_remote_directory_is_left_alone(tmp_path: Path) -> None:
    """A copied data directory must neither use nor delete the original's objects in remote storage."""
    directory = tmp_path / DIRECTORY_NAME
    directory.mkdir()
    (directory / RECORD_FILE_NAME).write_bytes(record_to_json(RECORD))
    store = RemoteStore(str(tmp_path / "remote"))
    snapshots = BucketSnapshots.open(
        tmp_path, store, RECORD.path, RECORD.bucket, RECORD.partition_name, NoSyncFiles(), [SNAPSHOT]
    )
    assert snapshots.record.objects == ()
    assert snapshots.record.uploaded == {}
    assert snapshots.record.next_snapshot_id == 4
    assert snapshots.record.tablet_directory == f"{tmp_path}/remote/kv/db/t-7/p-p8/0"
    assert read_record(tmp_path) == RECORD, "nothing was written yet"
