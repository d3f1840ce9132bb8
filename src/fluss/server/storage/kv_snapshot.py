"""A finished snapshot of a primary-key bucket, and the documents that describe it.

A snapshot is a RocksDB database as files in remote storage. Copied under their local names into one directory, they can
be opened and have the rows as they were when the changelog ended before `log_offset`. The document is the one that all
Fluss servers write as `_METADATA` beside the files. The catalog keeps the same document with one more entry, the
checksums of the files, so that a restore detects damaged copies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fluss.model.formats import refuse_newer
from fluss.model.paths import TableBucket

if TYPE_CHECKING:
    from fluss.model.json_types import JsonObject

DOCUMENT_VERSION = 1
METADATA_NAME = "_METADATA"


@dataclass(frozen=True)
class SnapshotFile:
    """One file: its name in the database, its path, its size and its CRC-32C (None if unknown)."""

    local_name: str
    path: str
    size_bytes: int
    checksum: int | None = None


@dataclass(frozen=True)
class CompletedSnapshot:
    """A finished snapshot. `shared` files may belong to several snapshots, `private` ones only to this one."""

    bucket: TableBucket
    snapshot_id: int
    location: str
    shared: tuple[SnapshotFile, ...]
    private: tuple[SnapshotFile, ...]
    uploaded_bytes: int
    log_offset: int
    row_count: int | None = None

    @property
    def files(self) -> tuple[SnapshotFile, ...]:
        """All files of the snapshot, shared and private."""
        return self.shared + self.private

    @property
    def metadata_path(self) -> str:
        """The path of the snapshot's document, `_METADATA`, in remote storage."""
        return f"{self.location}/{METADATA_NAME}"


def snapshot_to_json(snapshot: CompletedSnapshot, *, with_checksums: bool = False) -> bytes:
    """Encode the document of a snapshot; `with_checksums` is only for the catalog."""
    node: JsonObject = {"version": DOCUMENT_VERSION, "table_id": snapshot.bucket.table_id}
    if snapshot.bucket.partition_id is not None:
        node["partition_id"] = snapshot.bucket.partition_id
    node |= {
        "bucket_id": snapshot.bucket.bucket_id,
        "snapshot_id": snapshot.snapshot_id,
        "snapshot_location": snapshot.location,
        "kv_snapshot_handle": {
            "shared_file_handles": [_file_to_json(file) for file in snapshot.shared],
            "private_file_handles": [_file_to_json(file) for file in snapshot.private],
            "snapshot_incremental_size": snapshot.uploaded_bytes,
        },
        "log_offset": snapshot.log_offset,
    }
    if snapshot.row_count is not None:
        node["row_count"] = snapshot.row_count
    if with_checksums:
        node["checksums"] = {file.local_name: file.checksum for file in snapshot.files if file.checksum is not None}
    return json.dumps(node, separators=(",", ":")).encode()


def snapshot_from_json(document: bytes | str) -> CompletedSnapshot:
    """Decode the document of a snapshot; ValueError if it is invalid, FlussError if a later version wrote it."""
    try:
        node = json.loads(document)
        refuse_newer("description of a kv snapshot", node["version"], DOCUMENT_VERSION)
        if node["version"] != DOCUMENT_VERSION:
            raise ValueError(
                f"unsupported version {node['version']!r} of a kv snapshot document, expected {DOCUMENT_VERSION}"
            )
        handle = node["kv_snapshot_handle"]
        checksums = node.get("checksums", {})
        return CompletedSnapshot(
            TableBucket(int(node["table_id"]), node.get("partition_id"), int(node["bucket_id"])),
            int(node["snapshot_id"]),
            str(node["snapshot_location"]),
            tuple(_file_from_json(item, checksums) for item in handle["shared_file_handles"]),
            tuple(_file_from_json(item, checksums) for item in handle["private_file_handles"]),
            int(handle["snapshot_incremental_size"]),
            int(node["log_offset"]),
            node.get("row_count"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"invalid kv snapshot document: {error!r}") from error


def lease_to_json(leased: dict[TableBucket, int]) -> str:
    """Encode the content of a lease: a snapshot id for each bucket."""
    rows = [[*bucket, snapshot_id] for bucket, snapshot_id in leased.items()]
    return json.dumps(rows, separators=(",", ":"))


def lease_from_json(document: str) -> dict[TableBucket, int]:
    """Decode the content of a lease: a snapshot id for each bucket."""
    return {TableBucket(*row[:3]): row[3] for row in json.loads(document)}


def _file_to_json(file: SnapshotFile) -> JsonObject:
    return {"kv_file_handle": {"path": file.path, "size": file.size_bytes}, "local_path": file.local_name}


def _file_from_json(node: JsonObject, checksums: dict[str, int]) -> SnapshotFile:
    handle = node["kv_file_handle"]
    name = str(node["local_path"])
    return SnapshotFile(name, str(handle["path"]), int(handle["size"]), checksums.get(name))
