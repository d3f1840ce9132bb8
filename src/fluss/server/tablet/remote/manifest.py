"""The remote segments of a bucket: the manifest, its JSON form, and the record kept next to the local files.

Two documents, both JSON:

- The *manifest* has the layout that every Fluss server writes to `{tablet dir}/metadata/{uuid}.manifest`: which
  segments exist remotely and which offsets they hold. It is immutable; a change writes a new file.
- The *record* exists only in this server: one file `remote-log.json` in the bucket's local directory, replaced
  atomically. It holds the current manifest and the names of remote objects that are not referred to (`garbage`). It has
  the role of the coordinator's database in a cluster: a manifest is valid from the moment the record has it.

The record lists garbage because an object's name is recorded as garbage *before* the object is created, and stays until
the object is deleted. So after a crash at any moment, every remote object is either in the manifest or in the garbage
list: no object is lost, and the store, which other servers may share, never has to be listed.

Invariant of a manifest: segments are in offset order and each starts where the previous one ends.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from fluss.model.formats import refuse_newer
from fluss.model.paths import TableBucket, TablePath
from fluss.server.storage.json_checksum import CHECKSUM_KEY, check_json, json_checksum

if TYPE_CHECKING:
    from fluss.model.json_types import JsonObject

RECORD_FILE_NAME = "remote-log.json"
RECORD_VERSION = 1
MANIFEST_VERSION = 1


@dataclass(frozen=True)
class RemoteSegment:
    """One segment file in remote storage; `end_offset` is exclusive.

    `written_ms` is the time at which its newest row was written, if `max_timestamp` is later because a clock was ahead.
    The field only affects the age. Servers that do not know it keep rows longer, so it needs no new version.
    """

    segment_id: str
    start_offset: int
    end_offset: int
    max_timestamp: int
    size_in_bytes: int
    written_ms: int | None = None


@dataclass(frozen=True)
class RemoteManifest:
    """The content of a manifest: the segments of one bucket's log in remote storage."""

    path: TablePath
    bucket: TableBucket
    partition_name: str | None = None
    segments: tuple[RemoteSegment, ...] = ()
    highest_copied_end_offset: int = -1

    @property
    def start_offset(self) -> int | None:
        """The first offset in remote storage; None if there are no segments."""
        return self.segments[0].start_offset if self.segments else None

    @property
    def end_offset(self) -> int:
        """The offset up to which everything was uploaded, including expired segments; -1 if nothing ever was."""
        return max(self.highest_copied_end_offset, self.segments[-1].end_offset if self.segments else -1)

    def with_segment(self, segment: RemoteSegment) -> RemoteManifest:
        """This manifest plus the next segment; ValueError if there is a gap."""
        if self.segments and segment.start_offset != self.end_offset:
            raise ValueError(f"next segment must start at offset {self.end_offset}, got {segment.start_offset}")
        return replace(
            self, segments=(*self.segments, segment), highest_copied_end_offset=max(self.end_offset, segment.end_offset)
        )

    def without(self, expired: int) -> RemoteManifest:
        """This manifest without its `expired` oldest segments; the uploaded end stays known."""
        return replace(self, segments=self.segments[expired:], highest_copied_end_offset=self.end_offset)


@dataclass(frozen=True)
class RemoteRecord:
    """The local record of a bucket's remote log: its manifest, and the remote objects that are to be deleted."""

    tablet_directory: str
    manifest: RemoteManifest
    manifest_id: str | None = None
    garbage_segments: tuple[RemoteSegment, ...] = ()
    garbage_manifests: tuple[str, ...] = ()

    @property
    def has_garbage(self) -> bool:
        return bool(self.garbage_segments or self.garbage_manifests)


def new_object_id() -> str:
    """A new name for a segment or manifest."""
    return str(uuid.uuid4())


def segment_object(tablet_directory: str, segment: RemoteSegment) -> str:
    """Return the name of the object that holds the data of a segment, which clients derive in the same way."""
    return f"{tablet_directory}/{segment.segment_id}/{segment.start_offset:020d}.log"


def manifest_object(tablet_directory: str, manifest_id: str) -> str:
    """Return the name of the object that holds a manifest."""
    return f"{tablet_directory}/metadata/{manifest_id}.manifest"


def manifest_to_json(manifest: RemoteManifest) -> bytes:
    """Encode a manifest as all Fluss servers do."""
    node: JsonObject = {
        "version": MANIFEST_VERSION,
        "database": manifest.path.database_name,
        "table": manifest.path.table_name,
    }
    if manifest.partition_name is not None:
        node["partition_name"] = manifest.partition_name
    node["table_id"] = manifest.bucket.table_id
    if manifest.bucket.partition_id is not None:
        node["partition_id"] = manifest.bucket.partition_id
    node["bucket_id"] = manifest.bucket.bucket_id
    last_end = manifest.segments[-1].end_offset if manifest.segments else -1
    if manifest.end_offset != last_end:
        node["highest_copied_end_offset"] = manifest.end_offset
    node["remote_log_segments"] = [_segment_to_json(segment) for segment in manifest.segments]
    return json.dumps(node, separators=(",", ":")).encode()


def manifest_from_json(document: bytes) -> RemoteManifest:
    """Decode a manifest; ValueError if it is invalid, FlussError if a later version wrote it."""
    try:
        node = json.loads(document)
        refuse_newer("remote log manifest", node["version"], MANIFEST_VERSION)
        if node["version"] != MANIFEST_VERSION:
            raise ValueError(
                f"unsupported version {node['version']!r} of a remote log manifest, expected {MANIFEST_VERSION}"
            )
        segments = tuple(_segment_from_json(item) for item in node["remote_log_segments"])
        bucket = TableBucket(int(node["table_id"]), node.get("partition_id"), int(node["bucket_id"]))
        manifest = RemoteManifest(
            TablePath(node["database"], node["table"]),
            bucket,
            node.get("partition_name"),
            segments,
            int(node.get("highest_copied_end_offset", segments[-1].end_offset if segments else -1)),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"invalid remote log manifest: {error!r}") from error
    for earlier, later in pairwise(segments):
        if earlier.end_offset != later.start_offset:
            raise ValueError(
                f"the manifest lacks a segment between offsets {earlier.end_offset} and {later.start_offset}"
            )
    return manifest


def record_to_json(record: RemoteRecord) -> bytes:
    """Encode a record as the content of `remote-log.json`."""
    node: JsonObject = {
        "version": RECORD_VERSION,
        "remote_log_tablet_dir": record.tablet_directory,
        "manifest_id": record.manifest_id,
        "manifest": json.loads(manifest_to_json(record.manifest)),
        "garbage_segments": [_segment_to_json(segment) for segment in record.garbage_segments],
        "garbage_manifests": list(record.garbage_manifests),
    }
    node[CHECKSUM_KEY] = json_checksum(node)
    return json.dumps(node, indent=1).encode()


def record_from_json(document: bytes, name: str = RECORD_FILE_NAME) -> RemoteRecord:
    """Decode a record; ValueError if it is invalid, FlussError if a later version wrote it."""
    try:
        node = json.loads(document)
        refuse_newer(f"remote log record {name}", node["version"], RECORD_VERSION)
        if node["version"] != RECORD_VERSION:
            raise ValueError(
                f"unsupported version {node['version']!r} of a remote log record, expected {RECORD_VERSION}"
            )
        check_json(node)
        return RemoteRecord(
            str(node["remote_log_tablet_dir"]),
            manifest_from_json(json.dumps(node["manifest"]).encode()),
            node["manifest_id"],
            tuple(_segment_from_json(item) for item in node["garbage_segments"]),
            tuple(str(item) for item in node["garbage_manifests"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"invalid remote log record: {error!r}") from error


def _segment_to_json(segment: RemoteSegment) -> JsonObject:
    node: JsonObject = {
        "segment_id": segment.segment_id,
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "max_timestamp": segment.max_timestamp,
        "size_in_bytes": segment.size_in_bytes,
    }
    if segment.written_ms is not None:
        node["written_ms"] = segment.written_ms
    return node


def _segment_from_json(node: JsonObject) -> RemoteSegment:
    return RemoteSegment(
        str(node["segment_id"]),
        int(node["start_offset"]),
        int(node["end_offset"]),
        int(node["max_timestamp"]),
        int(node["size_in_bytes"]),
        None if node.get("written_ms") is None else int(node["written_ms"]),
    )
