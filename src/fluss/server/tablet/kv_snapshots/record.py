"""The local record of the objects that a bucket may have in remote storage.

One file, `kv-snapshots.json` in the bucket's directory, replaced atomically. It names every object that the bucket may
have in remote storage: a name is recorded *before* the object is created and stays until the object is deleted. Only
the catalog determines which of them are needed. So after a crash at any moment, an object is either part of a
registered snapshot, or a recorded name that is not, which the next round deletes; the store, which other servers may
share, never has to be listed. `registered_id` is the newest snapshot that is known to be registered. The newest one is
never retired, so a catalog without it is older than this record, and objects that this catalog does not name may still
be needed.

The record also has the files of the store that are already in remote storage (`uploaded`), so that the next snapshot
uploads only new ones. Two files are the same if store, name and size are the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fluss.model.formats import refuse_newer
from fluss.model.paths import TableBucket, TablePath
from fluss.server.storage.json_checksum import CHECKSUM_KEY, check_json, json_checksum

if TYPE_CHECKING:
    from fluss.model.json_types import JsonObject

DIRECTORY_NAME = "kv-snapshots"
RECORD_FILE_NAME = "kv-snapshots.json"
RECORD_VERSION = 1
NONE_REGISTERED = -1


class UploadedFile(NamedTuple):
    """A file of the store that is in remote storage."""

    object_name: str
    size_bytes: int
    checksum: int


@dataclass(frozen=True)
class SnapshotRecord:
    """The content of `kv-snapshots.json`. Object names are relative to `tablet_directory`."""

    path: TablePath
    bucket: TableBucket
    partition_name: str | None
    tablet_directory: str
    next_snapshot_id: int = 0
    objects: tuple[str, ...] = ()
    store_id: str = ""
    uploaded: Mapping[str, UploadedFile] = field(default_factory=dict)
    registered_id: int = NONE_REGISTERED


def record_to_json(record: SnapshotRecord) -> bytes:
    """Encode a record as the content of `kv-snapshots.json`."""
    node: JsonObject = {
        "version": RECORD_VERSION,
        "database": record.path.database_name,
        "table": record.path.table_name,
        "bucket": list(record.bucket),
        "partition_name": record.partition_name,
        "tablet_dir": record.tablet_directory,
        "next_snapshot_id": record.next_snapshot_id,
        "objects": list(record.objects),
        "store_id": record.store_id,
        "uploaded": {name: list(file) for name, file in record.uploaded.items()},
        "registered_id": record.registered_id,
    }
    node[CHECKSUM_KEY] = json_checksum(node)
    return json.dumps(node, indent=1).encode()


def record_from_json(document: bytes, name: str = RECORD_FILE_NAME) -> SnapshotRecord:
    """Decode a record; ValueError if it is invalid, FlussError if a later version wrote it."""
    try:
        node = json.loads(document)
        refuse_newer(f"kv snapshot record {name}", node["version"], RECORD_VERSION)
        if node["version"] != RECORD_VERSION:
            raise ValueError(
                f"unsupported version {node['version']!r} of a kv snapshot record, expected {RECORD_VERSION}"
            )
        check_json(node)
        return SnapshotRecord(
            TablePath(node["database"], node["table"]),
            TableBucket(*node["bucket"]),
            node["partition_name"],
            str(node["tablet_dir"]),
            int(node["next_snapshot_id"]),
            tuple(str(name) for name in node["objects"]),
            str(node["store_id"]),
            {name: UploadedFile(*file) for name, file in node["uploaded"].items()},
            # Earlier versions did not record it; they recorded uploaded files once a snapshot was registered.
            int(node.get("registered_id", 0 if node["uploaded"] else NONE_REGISTERED)),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"invalid kv snapshot record: {error!r}") from error


def read_record(bucket_directory: Path) -> SnapshotRecord | None:
    """The record in a bucket's directory; None if it never had a snapshot, ValueError if it is damaged."""
    path = bucket_directory / DIRECTORY_NAME / RECORD_FILE_NAME
    try:
        document = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return record_from_json(document, str(path))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
