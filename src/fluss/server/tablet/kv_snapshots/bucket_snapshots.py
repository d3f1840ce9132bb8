"""The snapshots of one bucket in remote storage: upload, garbage, removal.

Theory. The steps of a snapshot, and where each takes place:

    1. link the store's files, turn them into a database   local (storage.kv.checkpoint)
    2. record the names of the new objects                 local record, atomic
    3. upload new files, then the `_METADATA` document     remote
    4. register it, retire older ones                      catalog, one transaction: it exists from here on
    5. record what is uploaded, delete what is not needed  local record, remote

A crash after 1 leaves a local directory, which the next round for the bucket removes. A crash after 2 or 3 leaves
recorded names that no registered snapshot has: they are garbage for the next round. After 4 everything is in place; at
worst the next snapshot uploads files again. If the record itself is lost, it is rebuilt from the catalog.

The layout of the bucket's remote directory is that of other Fluss servers: `shared/` for the files with rows, which
several snapshots use, and `snap-{id}/` for the rest. Data files have random names.

Threads: methods block and run in worker threads, one at a time per bucket (`lock`); the loop calls `close`.
"""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fluss.codec.crc import crc32c_of_pieces
from fluss.model.paths import TableBucket, TablePath
from fluss.server.storage.files import FileSystem, make_directories, write_file_atomically
from fluss.server.storage.kv.checkpoint import CheckpointFile, StoreCheckpoint
from fluss.server.storage.kv.store import UNKNOWN_ROW_COUNT
from fluss.server.storage.kv_snapshot import METADATA_NAME, CompletedSnapshot, SnapshotFile, snapshot_to_json
from fluss.server.storage.remote_store import RemoteStore
from fluss.server.tablet.kv_snapshots.record import (
    DIRECTORY_NAME,
    NONE_REGISTERED,
    RECORD_FILE_NAME,
    SnapshotRecord,
    UploadedFile,
    read_record,
    record_to_json,
)

logger = logging.getLogger(__name__)

REMOTE_KIND = "kv"
_CHUNK_BYTES = 4 * 1024 * 1024


class SnapshotStopped(Exception):  # noqa: N818 - nothing is wrong
    """The bucket was closed or dropped while its snapshot was in progress."""


class _Planned(NamedTuple):
    """A file of a checkpoint and its object; `known` if it is already uploaded."""

    source: CheckpointFile
    object_name: str
    known: UploadedFile | None


class BucketSnapshots:
    """The snapshots of one bucket and the local record of their objects."""

    def __init__(self, directory: Path, store: RemoteStore, record: SnapshotRecord, files: FileSystem) -> None:
        self.record = record
        self.lock = threading.Lock()
        self.closed = False
        self._directory = directory
        self._store = store
        self._files = files

    @staticmethod
    def open(
        bucket_directory: Path,
        store: RemoteStore,
        path: TablePath,
        bucket: TableBucket,
        partition_name: str | None,
        files: FileSystem,
        registered: Iterable[CompletedSnapshot],
    ) -> BucketSnapshots:
        """Load the record of the bucket. A damaged record is rebuilt from the catalog."""
        directory = bucket_directory / DIRECTORY_NAME
        expected = SnapshotRecord(
            path, bucket, partition_name, store.tablet_directory(path, bucket, partition_name, REMOTE_KIND)
        )
        try:
            record = read_record(bucket_directory)
        except ValueError as error:
            logger.warning("%s: %s; rebuilding it from the catalog", bucket_directory, error)
            record = None
        if record is not None and record.tablet_directory != expected.tablet_directory:
            # Another store, or a copied data directory: objects there must be neither reused nor deleted.
            logger.warning(
                "bucket %s: snapshots were written to %s and will be written to %s from now on",
                bucket, record.tablet_directory, expected.tablet_directory, extra={"is_counted": True},
            )  # fmt: skip
            record = replace(expected, next_snapshot_id=record.next_snapshot_id)
        snapshots = BucketSnapshots(directory, store, record or expected, files)
        snapshots._take_in(registered)
        return snapshots

    @property
    def was_used(self) -> bool:
        """True if the bucket has ever uploaded anything."""
        return self._directory.is_dir()

    def _take_in(self, registered: Iterable[CompletedSnapshot]) -> None:
        found = list(registered)
        next_id = max([self.record.next_snapshot_id, *[snapshot.snapshot_id + 1 for snapshot in found]])
        objects = dict.fromkeys([*self.record.objects, *sorted(self._needed(found))])
        self.record = replace(self.record, next_snapshot_id=next_id, objects=tuple(objects))

    def upload(self, checkpoint: StoreCheckpoint, registered: Iterable[CompletedSnapshot]) -> CompletedSnapshot:
        """Upload the new files of a checkpoint. `registered` are the earlier snapshots; the new one is not yet."""
        with self.lock:
            self._check_open()
            record = self.record
            snapshot_id = record.next_snapshot_id
            needed = self._needed(registered)
            reusable = record.uploaded if record.store_id == checkpoint.store_id else {}
            planned = [_plan(file, snapshot_id, reusable, needed) for file in checkpoint.files]
            metadata_name = f"{_location(snapshot_id)}/{METADATA_NAME}"
            new_names = [item.object_name for item in planned if item.known is None]
            self._commit(
                replace(
                    record,
                    next_snapshot_id=snapshot_id + 1,
                    objects=(*record.objects, *new_names, metadata_name),
                )
            )
            handles: dict[str, SnapshotFile] = {}
            uploaded_bytes = 0
            for source, object_name, known in planned:
                self._check_open()
                checksum = known.checksum if known is not None else self._upload(source, object_name)
                uploaded_bytes += 0 if known is not None else source.size_bytes
                name = source.path.name
                handles[name] = SnapshotFile(name, self._object(object_name), source.size_bytes, checksum)
            applied = checkpoint.applied
            snapshot = CompletedSnapshot(
                record.bucket,
                snapshot_id,
                self._object(_location(snapshot_id)),
                tuple(handles[item.source.path.name] for item in planned if item.source.has_rows),
                tuple(handles[item.source.path.name] for item in planned if not item.source.has_rows),
                uploaded_bytes,
                applied.log_offset,
                None if applied.row_count == UNKNOWN_ROW_COUNT else applied.row_count,
            )
            self._store.write(snapshot.metadata_path, snapshot_to_json(snapshot))
            return snapshot

    def note_registered(self, snapshot: CompletedSnapshot, checkpoint: StoreCheckpoint) -> None:
        """Record that a snapshot is registered, so that the next one can reuse its files."""
        own = {file.path.name for file in checkpoint.files if file.from_store}
        uploaded = {
            file.local_name: UploadedFile(self._relative(file.path), file.size_bytes, file.checksum or 0)
            for file in snapshot.shared
            if file.local_name in own
        }
        with self.lock:
            self._check_open()
            self._commit(
                replace(
                    self.record,
                    store_id=checkpoint.store_id,
                    uploaded=uploaded,
                    registered_id=snapshot.snapshot_id,
                )
            )

    def note_none_registered(self) -> None:
        """Record that no snapshot is registered, before snapshots are removed from the catalog on purpose."""
        with self.lock:
            self._commit(replace(self.record, registered_id=NONE_REGISTERED))

    def collect_garbage(self, registered: Iterable[CompletedSnapshot]) -> None:
        """Delete objects that no registered snapshot has. After a failure they stay recorded for the next round.

        If the catalog is older than the record, it has no information about these objects: then they are never deleted.
        """
        with self.lock:
            found = list(registered)
            needed = self._needed(found)
            garbage = [name for name in self.record.objects if name not in needed]
            if self.closed or not garbage:
                return
            newest = max((snapshot.snapshot_id for snapshot in found), default=NONE_REGISTERED)
            if newest < self.record.registered_id:
                self._keep_unknown(garbage, needed, newest)
                return
            for name in garbage:
                self._store.delete(self._object(name))
                self._store.remove_empty_parents(self._object(name))
            self._commit(replace(self.record, objects=tuple(name for name in self.record.objects if name in needed)))

    def _keep_unknown(self, unknown: list[str], needed: set[str], newest: int) -> None:
        logger.warning(
            "bucket %s: snapshot %d was registered, but the catalog does not have it, so it is older than the bucket; "
            "keeping %d objects in %s",
            self.record.bucket, self.record.registered_id, len(unknown), self.record.tablet_directory,
        )  # fmt: skip
        objects = tuple(name for name in self.record.objects if name in needed)
        self._commit(replace(self.record, objects=objects, uploaded={}, registered_id=newest))

    def close(self) -> None:
        """Start nothing more; an upload in progress stops after its current file."""
        self.closed = True

    def destroy(self) -> None:
        """Delete everything of this bucket in the remote store, then the local record."""
        self.closed = True
        with self.lock:
            destroy_remote(self._store, self.record)
            if self.was_used:
                shutil.rmtree(self._directory)

    def _upload(self, source: CheckpointFile, object_name: str) -> int:
        with source.path.open("rb") as file:
            checksum = crc32c_of_pieces(iter(lambda: file.read(_CHUNK_BYTES), b""))
        self._store.upload(source.path, self._object(object_name), source.size_bytes)
        return checksum

    def _check_open(self) -> None:
        if self.closed:
            raise SnapshotStopped(f"bucket {self.record.bucket} is closed")

    def _commit(self, record: SnapshotRecord) -> None:
        """Make `record` durable, then visible."""
        make_directories(self._files, str(self._directory))
        write_file_atomically(self._files, str(self._directory / RECORD_FILE_NAME), record_to_json(record))
        self.record = record

    def _object(self, name: str) -> str:
        return f"{self.record.tablet_directory}/{name}"

    def _relative(self, path: str) -> str:
        return path.removeprefix(self.record.tablet_directory + "/")

    def _needed(self, registered: Iterable[CompletedSnapshot]) -> set[str]:
        """The names of the objects of registered snapshots that are in the current remote directory."""
        found, prefix = list(registered), self.record.tablet_directory + "/"
        paths = [file.path for snapshot in found for file in snapshot.files]
        paths += [snapshot.metadata_path for snapshot in found]
        return {path.removeprefix(prefix) for path in paths if path.startswith(prefix)}


def destroy_remote(store: RemoteStore, record: SnapshotRecord) -> None:
    """Delete all snapshots of a bucket in the current store.

    Objects in another store that the record names are kept: they may belong to the original of a copied data directory.
    """
    # The directory is deleted even if no object is left: an object store may keep markers of directories.
    if record.next_snapshot_id > 0:
        directory = store.tablet_directory(record.path, record.bucket, record.partition_name, REMOTE_KIND)
        store.delete_directory(directory)
        store.remove_empty_parents(directory)


def _location(snapshot_id: int) -> str:
    return f"snap-{snapshot_id}"


def _plan(file: CheckpointFile, snapshot_id: int, reusable: Mapping[str, UploadedFile], needed: set[str]) -> _Planned:
    known = reusable.get(file.path.name) if file.from_store else None
    if known is not None and known.size_bytes == file.size_bytes and known.object_name in needed:
        return _Planned(file, known.object_name, known)
    directory = "shared" if file.has_rows else _location(snapshot_id)
    return _Planned(file, f"{directory}/{uuid.uuid4()}", None)
