"""The remote part of one bucket's log: upload, expiry, garbage, and lookups for readers.

Theory. `record` (see `manifest`) is an immutable value. It is replaced only after its new version is durable in the
bucket's local directory, so what readers see always survives a crash. The steps of an upload:

    1. record the names of the new objects as garbage     local record, atomic
    2. copy the segments, then write the new manifest     remote
    3. add them to the manifest; the old manifest file becomes garbage        local record, atomic; visible now
    4. (caller) delete local copies
    5. next round: delete garbage and remove it from the record

Expiry is steps 3 and 5 with segments removed from the manifest. A crash after 1 or 2 leaves garbage that step 5
removes; after 3 everything is in place. Garbage is kept for one round, so a reader that was just sent to a segment can
finish it.

Threads: methods that change something block; they run in worker threads, one at a time per bucket (`lock`). Readers in
the event loop only use `record` and call `start_position` / `offset_for_timestamp`, which search local copies of
indexes.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fluss.codec.buffers import ReadableBuffer
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket, TablePath
from fluss.server.storage.files import FileSystem, file_time_ms, make_directories, write_file_atomically
from fluss.server.storage.log.checkpoint import CHECKPOINT_NAME
from fluss.server.storage.log.index import (
    offset_before_time,
    offset_entries_are_sound,
    position_before,
    time_entries_are_sound,
)
from fluss.server.storage.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, SegmentInfo
from fluss.server.storage.remote_store import RemoteStore
from fluss.server.tablet.remote.manifest import (
    RECORD_FILE_NAME,
    RemoteManifest,
    RemoteRecord,
    RemoteSegment,
    manifest_object,
    manifest_to_json,
    new_object_id,
    record_from_json,
    record_to_json,
    segment_object,
)
from fluss.server.tablet.remote.retention_plan import written_ms
from fluss.server.tablet.remote.segment_selection import first_segment_with_timestamp

logger = logging.getLogger(__name__)

DIRECTORY_NAME = "remote-log"


class RemoteLog:
    """The remote segments of one bucket and the local record of them."""

    def __init__(self, directory: Path, store: RemoteStore, record: RemoteRecord, files: FileSystem) -> None:
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
    ) -> RemoteLog:
        """Load the record of the bucket; ValueError if it is damaged."""
        directory = bucket_directory / DIRECTORY_NAME
        tablet_directory = store.tablet_directory(path, bucket, partition_name)
        record = RemoteRecord(tablet_directory, RemoteManifest(path, bucket, partition_name))
        stored = read_record(bucket_directory)
        if stored is not None:
            if stored.tablet_directory != tablet_directory and stored.manifest.segments:
                logger.warning(
                    "bucket %s: remote segments were written to %s and are now expected in %s",
                    bucket, stored.tablet_directory, tablet_directory,
                )  # fmt: skip
            record = replace(stored, tablet_directory=tablet_directory)
        return RemoteLog(directory, store, record, files)

    def check_record(self, log_start_offset: int, was_noted: bool) -> None:
        """Raise FlussError if the record is missing although there was one: without it older rows would be lost.

        `was_noted` is the note in the bucket's checkpoint. Copies of indexes also prove that there was a record, since
        they are created after it.
        """
        path = self._directory / RECORD_FILE_NAME
        if path.exists():
            return
        copies = [name for name in self._files.list_directory(str(self._directory)) if not name.endswith(".tmp")]
        if was_noted or copies:
            raise FlussError(
                f"{path} is missing, which lists the rows before offset {log_start_offset} in "
                f"{self.record.tablet_directory}; nothing was removed. Restore the file from a copy. If there is none "
                f"and those rows may be lost, remove {self._directory} and {CHECKPOINT_NAME} beside it: the log then "
                f"begins at offset {log_start_offset}",
                ErrorCode.LOG_STORAGE_EXCEPTION,
            )

    @property
    def manifest(self) -> RemoteManifest:
        return self.record.manifest

    @property
    def was_used(self) -> bool:
        """True if the bucket has ever uploaded anything."""
        return self._directory.is_dir()

    @property
    def has_manifest(self) -> bool:
        """True if a segment was ever uploaded, so that the record must be kept."""
        return self.record.manifest_id is not None

    def start_position(self, segment: RemoteSegment, offset: int) -> int:
        """The position in the segment file at which a read of `offset` can begin."""
        return self._look_up(segment, INDEX_SUFFIX, position_before, offset - segment.start_offset)

    def offset_for_timestamp(self, timestamp: int, below: int) -> int | None:
        """An offset at or before the first remote batch with at least `timestamp`, if one starts below `below`."""
        segment = first_segment_with_timestamp(self.manifest, timestamp, below)
        if segment is None:
            return None
        return segment.start_offset + self._look_up(segment, TIME_INDEX_SUFFIX, offset_before_time, timestamp)

    def written_ms(self, segment: RemoteSegment, now_ms: int) -> int:
        """The time at which a segment's newest row was written; file times are used only for a time in the future."""
        noted = segment.max_timestamp if segment.written_ms is None else segment.written_ms
        return written_ms(noted, now_ms, lambda: self._uploaded_ms(segment))

    def _uploaded_ms(self, segment: RemoteSegment) -> int:
        """The time of the upload: that of the index copy, or else that of the record, which is never older."""
        for path in (self._index_copy(segment, INDEX_SUFFIX), self._directory / RECORD_FILE_NAME):
            with contextlib.suppress(OSError):
                return file_time_ms(path)
        return segment.max_timestamp

    def upload(self, sources: Sequence[SegmentInfo], now_ms: int) -> int:
        """Upload segments that follow the uploaded end; returns how many were added to the manifest."""
        with self.lock:
            if self.closed or not sources:
                return 0
            segments = [_new_segment(item, now_ms) for item in sources]
            manifest_id = new_object_id()
            self._commit(
                replace(
                    self.record,
                    garbage_segments=(*self.record.garbage_segments, *segments),
                    garbage_manifests=(*self.record.garbage_manifests, manifest_id),
                )
            )
            manifest, done = self.manifest, []
            for source, segment in zip(sources, segments, strict=True):
                if self.closed:
                    break
                self._upload_files(source, segment)
                manifest = manifest.with_segment(segment)
                done.append(segment)
            if done:
                self._publish(manifest, manifest_id, no_longer_garbage=done)
            return len(done)

    def expire(self, count: int) -> None:
        """Remove the `count` oldest segments from the manifest; the next round deletes their files."""
        with self.lock:
            if self.closed or count <= 0:
                return
            manifest_id = new_object_id()
            gone = self.manifest.segments[:count]
            self._commit(
                replace(
                    self.record,
                    garbage_manifests=(*self.record.garbage_manifests, manifest_id),
                )
            )
            self._publish(self.manifest.without(count), manifest_id, now_garbage=gone)

    def collect_garbage(self) -> None:
        """Delete remote objects that are not referred to. After a failure they stay recorded for the next round."""
        with self.lock:
            if self.closed or not self.record.has_garbage:
                return
            for segment in self.record.garbage_segments:
                self._store.delete_directory(f"{self.record.tablet_directory}/{segment.segment_id}")
                for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                    self._index_copy(segment, suffix).unlink(missing_ok=True)
            for manifest_id in self.record.garbage_manifests:
                self._store.delete(manifest_object(self.record.tablet_directory, manifest_id))
            self._commit(replace(self.record, garbage_segments=(), garbage_manifests=()))

    def close(self) -> None:
        """Start nothing more; an upload in progress stops after its current segment."""
        self.closed = True

    def destroy(self) -> None:
        """Delete everything of this bucket in the remote store, then the local record."""
        self.closed = True
        with self.lock:
            destroy_remote(self._store, self.record)
            if self.was_used:
                shutil.rmtree(self._directory)

    def _publish(
        self,
        manifest: RemoteManifest,
        manifest_id: str,
        no_longer_garbage: Sequence[RemoteSegment] = (),
        now_garbage: Sequence[RemoteSegment] = (),
    ) -> None:
        name = manifest_object(self.record.tablet_directory, manifest_id)
        self._store.write(name, manifest_to_json(manifest))
        old = self.record
        garbage = [segment for segment in old.garbage_segments if segment not in no_longer_garbage]
        manifests = [name for name in old.garbage_manifests if name != manifest_id]
        if old.manifest_id is not None:
            manifests.append(old.manifest_id)
        self._commit(
            replace(
                old,
                manifest=manifest,
                manifest_id=manifest_id,
                garbage_segments=(*garbage, *now_garbage),
                garbage_manifests=tuple(manifests),
            )
        )

    def _commit(self, record: RemoteRecord) -> None:
        """Make `record` durable, then visible."""
        make_directories(self._files, str(self._directory))
        write_file_atomically(self._files, str(self._directory / RECORD_FILE_NAME), record_to_json(record))
        self.record = record

    def _upload_files(self, source: SegmentInfo, segment: RemoteSegment) -> None:
        """Upload data and indexes; keep local copies of the indexes, so that start positions can be looked up."""
        name = segment_object(self.record.tablet_directory, segment)
        self._store.upload(Path(source.path), name, segment.size_in_bytes)
        for index, suffix in ((source.index_path, INDEX_SUFFIX), (source.time_index_path, TIME_INDEX_SUFFIX)):
            path = Path(index)
            if path.is_file():
                self._store.upload(path, name.removesuffix(LOG_SUFFIX) + suffix, path.stat().st_size)
                write_file_atomically(self._files, str(self._index_copy(segment, suffix)), path.read_bytes())

    def _index_copy(self, segment: RemoteSegment, suffix: str) -> Path:
        return self._directory / (segment.segment_id + suffix)

    def _look_up(
        self, segment: RemoteSegment, suffix: str, search: Callable[[ReadableBuffer, int], int], key: int
    ) -> int:
        """Search the copy of an index; without a sound copy return 0, the start of the segment, which always works."""
        try:
            with (
                self._index_copy(segment, suffix).open("rb") as file,
                mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as entries,
            ):
                is_time = suffix == TIME_INDEX_SUFFIX
                is_sound = (
                    time_entries_are_sound(entries)
                    if is_time
                    else offset_entries_are_sound(entries, segment.size_in_bytes)
                )
                return search(entries, key) if is_sound else 0
        except (OSError, ValueError):  # No file, or an empty one.
            return 0


def _new_segment(item: SegmentInfo, now_ms: int) -> RemoteSegment:
    written = written_ms(item.max_timestamp, now_ms, partial(file_time_ms, item.path))
    return RemoteSegment(
        new_object_id(),
        item.base_offset,
        item.next_offset,
        item.max_timestamp,
        item.size_bytes,
        written if written < item.max_timestamp else None,
    )


def read_record(bucket_directory: Path) -> RemoteRecord | None:
    """The record in a bucket's directory; None if nothing was ever uploaded, ValueError if it is damaged."""
    path = bucket_directory / DIRECTORY_NAME / RECORD_FILE_NAME
    try:
        document = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return record_from_json(document, str(path))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def destroy_remote(store: RemoteStore, record: RemoteRecord) -> None:
    """Delete all remote objects of a bucket in the current store.

    Objects in another store that the record names are kept: they may belong to the original of a copied data directory.
    """
    if record.manifest_id is not None or record.has_garbage:
        manifest = record.manifest
        tablet_directory = store.tablet_directory(manifest.path, manifest.bucket, manifest.partition_name)
        store.delete_directory(tablet_directory)
        store.remove_empty_parents(tablet_directory)
