"""Snapshots of primary-key buckets as a reader sees them: files under their local names, opened as a database."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from rocksdict import AccessType, Options, Rdict

from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.storage.kv_snapshot import CompletedSnapshot
from tests.support.harness.kv_tablet import KvTable
from tests.support.harness.tablet import TabletHarness

SNAPSHOTS_ON: dict[str, Any] = {"values": {"kv.snapshot.interval": "1h"}, "kv_snapshot_interval_ms": 3_600_000}
"""Overrides of a harness whose snapshots are taken by the test."""


def database_items(files: dict[str, str], directory: Path) -> dict[bytes, bytes]:
    """Everything in the database made of these files (local name -> path)."""
    _copy(files, directory)
    database = Rdict(str(directory), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        items: Any = list(database.items())
        return dict(items)
    finally:
        database.close()


def copy_files(snapshot: CompletedSnapshot, directory: Path) -> None:
    """The files of a snapshot under their local names."""
    _copy({file.local_name: file.path for file in snapshot.files}, directory)


def _copy(files: dict[str, str], directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name, path in files.items():
        shutil.copyfile(path, directory / name)


def snapshot_items(snapshot: CompletedSnapshot, directory: Path) -> dict[bytes, bytes]:
    """The rows of a registered snapshot."""
    return database_items({file.local_name: file.path for file in snapshot.files}, directory)


def registered(tablet: TabletHarness, table: KvTable, bucket_id: int = 0) -> list[CompletedSnapshot]:
    """The snapshots of a bucket, newest first."""
    bucket = TableBucket(table.table_id, None, bucket_id)
    return tablet.coordinator.catalog.store.kv_snapshots.of_bucket(bucket)


def remote_files(root: Path) -> set[Path]:
    """Every file below the directory of snapshots; others may be removing some meanwhile."""
    return {Path(folder) / name for folder, _, names in os.walk(root / "kv") for name in names}


def needed_files(snapshots: list[CompletedSnapshot]) -> set[Path]:
    """Every file that belongs to a snapshot."""
    paths = [file.path for snapshot in snapshots for file in snapshot.files]
    return set(map(Path, paths + [snapshot.metadata_path for snapshot in snapshots]))


def sizes_on_disk(paths: list[str]) -> list[int]:
    """The size of each file."""
    return [Path(path).stat().st_size for path in paths]


def read_metadata(path: str) -> Any:
    """The document beside the files."""
    return json.loads(Path(path).read_bytes())


def lease(tablet: TabletHarness, lease_id: str, table: KvTable, snapshot_id: int, duration_ms: int = 1000) -> Any:
    """Acquire a lease on a snapshot of bucket 0."""
    request = pb.AcquireKvSnapshotLeaseRequest(lease_id=lease_id, lease_duration_ms=duration_ms)
    wanted = request.snapshots_to_lease.add(table_id=table.table_id)
    wanted.bucket_snapshots.add(bucket_id=0, snapshot_id=snapshot_id)
    return tablet.coordinator.call(ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, request)
