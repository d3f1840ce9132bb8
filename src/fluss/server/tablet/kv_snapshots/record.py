"""What a bucket may have in remote storage: the record kept next to the local files.

One file, `kv-snapshots.json` in the bucket's directory, replaced atomically. It names every object that the bucket may
have in remote storage: a name is noted *before* the object is made and stays noted until it is deleted. Which of them
are needed is said by the catalog alone, so whatever the moment of a crash, an object is either part of a registered
snapshot or a noted name that is not, which the next round deletes. Nothing has to be found by listing a store that
others may share. `registered_id` is the newest snapshot that is known to be registered: the newest one is never
retired, so a catalog that does not have it is older than this record, and its silence about objects means nothing.

It also remembers which files of the store lie in remote storage already (`uploaded`), so that the next snapshot only
uploads new ones. A file is the same one if store, name and size are the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fluss.model.formats import refuse_newer
from fluss.model.paths import TableBucket, TablePath
from fluss.server.storage.json_checksum import CHECKSUM_KEY, check_json, json_checksum

DIRECTORY_NAME = "kv-snapshots"
RECORD_FILE_NAME = "kv-snapshots.json"
RECORD_VERSION = 1
NONE_REGISTERED = -1


class UploadedFile(NamedTuple):
    """A file of the store that is in remote storage: its object's name there."""

    object_name: str
    size_bytes: int
    checksum: int


@dataclass(frozen=True)
class SnapshotRecord:
    """See the module's text. Object names are relative to `tablet_directory`."""

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
    """The file's content."""
    node: dict[str, Any] = {
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
    """Read a record; ValueError names what is wrong, FlussError is for a later version."""
    try:
        node = json.loads(document)
        refuse_newer(f"kv snapshot record {name}", node["version"], RECORD_VERSION)
        if node["version"] != RECORD_VERSION:
            raise ValueError(f"kv snapshot record of version {node['version']!r}")
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
            # Earlier versions did not note it; they noted uploaded files when some snapshot was registered.
            int(node.get("registered_id", 0 if node["uploaded"] else NONE_REGISTERED)),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a kv snapshot record: {error!r}") from error


def read_record(bucket_directory: Path) -> SnapshotRecord | None:
    """The record in a bucket's directory, None when it never had a snapshot; ValueError when it cannot be read."""
    path = bucket_directory / DIRECTORY_NAME / RECORD_FILE_NAME
    try:
        document = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return record_from_json(document, str(path))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
