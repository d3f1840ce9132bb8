"""The staged files of one bucket.

Theory. A `BucketFiles` belongs to one staging thread (see `workers`): all its methods run there, one after the other,
so they need no locks and see files in the order of the requests. The state of a file is kept in memory; after a restart
a file is scanned when it is first requested, and truncated after its last whole batch.

States of a file: missing -> growing (batches 0, 1, 2, ... arrive in order) -> removed. If a write fails, the file is
truncated to its previous end and its attempt is refused from then on (`_failed`): half an attempt is useless. It is not
removed here, since a file that gets a late batch may already be decided; `cleaning` finds that out. Batches that are
already in the file are skipped, so a repeated request is harmless.

No file is kept open. A file and its name are synced when it is prepared.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from fluss.codec.batches.log_batch import BatchHeader
from fluss.errors import ErrorCode, FlussError
from fluss.server.catalog.staged_records import StagedFileEntry
from fluss.server.storage.files import FileSystem, is_disk_full, make_directories, write_all
from fluss.server.storage.staged_files import (
    MAX_HEADER_BYTES,
    StagedHeader,
    decode_header,
    encode_header,
    sound_batches,
    staged_path,
    staged_writer_ids,
    staging_directory,
)
from fluss.server.tablet.staging.limits import StagedBytes, StagingLimits

logger = logging.getLogger(__name__)

# Failed attempts that are kept, so that their later batches get the same error. The oldest are dropped.
MAX_FAILED_ATTEMPTS = 1000


class FileSummary(NamedTuple):
    """Description of a file for cleaning. A file without a header cannot have been prepared."""

    header: StagedHeader | None
    writer_id: int
    touched_ms: int


class _StagedFile:
    """One staged file. `end` is the position after its last whole batch; it is only known if the file was `scanned`."""

    __slots__ = (
        "counted",
        "end",
        "has_tail",
        "header",
        "header_bytes",
        "next_sequence",
        "scanned",
        "synced_end",
        "touched_ms",
    )

    def __init__(self, header: StagedHeader | None, header_bytes: int, touched_ms: int) -> None:
        self.header = header
        self.header_bytes = header_bytes
        self.touched_ms = touched_ms
        self.end = header_bytes
        self.next_sequence = 0
        self.scanned = False
        self.has_tail = False  # there are bytes after `end` that are not a whole batch
        self.synced_end = -1
        self.counted = 0


class BucketFiles:
    """The staged files of one bucket, their state and their total size."""

    def __init__(
        self, directory: str, name: str, files: FileSystem, limits: StagingLimits, staged_bytes: StagedBytes
    ) -> None:
        self._directory = directory
        self._name = name
        self._io = files
        self._limits = limits
        self._staged_bytes = staged_bytes
        self._files: dict[int, _StagedFile] | None = None
        self._bucket_bytes = 0
        self._failed: OrderedDict[int, FlussError] = OrderedDict()
        self._directories_synced = False

    # ---- staging ----

    def stage(
        self, header: StagedHeader, records: memoryview, batches: Sequence[tuple[int, BatchHeader]], now_ms: int
    ) -> int:
        """Write the batches that the file lacks; returns their bytes. The sequences of `batches` have no gaps."""
        failure = self._failed.get(header.writer_id)
        if failure is not None:
            # Clients retry after the code of a broken disk, but this attempt is over, so it gets another code.
            broken = failure.error_code == ErrorCode.STORAGE_EXCEPTION
            raise FlussError(failure.message, ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION if broken else failure.error_code)
        known = self._load()
        file = known.get(header.writer_id)
        if file is None or file.header is None:
            file = _StagedFile(header, len(encode_header(header)), now_ms)
            file.scanned = True
        elif file.header != header:
            raise self._other_attempt(file.header, header)
        elif not file.scanned:
            self._scan(file, header.writer_id)
        file.touched_ms = now_ms
        first = batches[0][1].batch_sequence
        if first > file.next_sequence:
            raise FlussError(
                f"{self._name}: attempt {header.writer_id} sent batch {first}, expected {file.next_sequence}; send "
                "the missing batches first",
                ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION,
            )
        new = [item for item in batches if item[1].batch_sequence >= file.next_sequence]
        if new:
            self._write(header, file, records[new[0][0] : new[-1][0] + new[-1][1].size], len(new))
        return sum(item[1].size for item in new)

    def _write(self, header: StagedHeader, file: _StagedFile, data: memoryview, count: int) -> None:
        is_new = file.next_sequence == 0
        start = 0 if is_new else file.end
        buffers: list[bytes | memoryview] = [encode_header(header), data] if is_new else [data]
        size = sum(map(len, buffers))
        try:
            self._check_room(size)
            if is_new:
                self._make_directory()
            descriptor = self._io.open_write(staged_path(self._directory, header.writer_id))
            try:
                if is_new or file.has_tail:
                    self._io.truncate(descriptor, start)
                try:
                    file.end = write_all(self._io, descriptor, buffers, start)
                except OSError:
                    self._io.truncate(descriptor, start)
                    raise
            finally:
                self._io.close(descriptor)
        except (OSError, FlussError) as error:
            failure = self._give_up(header.writer_id, error)
            if is_new:
                with contextlib.suppress(OSError):  # an empty file that is left expires
                    self.remove([header.writer_id])
            raise failure from error
        known = self._load()
        replaced = known.get(header.writer_id)
        if is_new and replaced is not None:
            self._count(replaced, -replaced.counted)
        known[header.writer_id] = file
        file.has_tail = False
        file.next_sequence += count
        self._count(file, size)

    def _make_directory(self) -> None:
        """Create the directory without syncing it; `prepare` does that, and most files are created long before."""
        missing = []
        directory = staging_directory(self._directory)
        while not self._io.is_directory(directory):
            missing.append(directory)
            directory = os.path.dirname(directory)
        for directory in reversed(missing):
            try:
                self._io.make_directory(directory)
            except FileExistsError:
                continue  # another tablet created the parent directory for its own bucket

    def _check_room(self, size: int) -> None:
        """Check limits, then the disk, which needs room for a second copy of the rows when they are appended."""
        limits, total = self._limits, self._staged_bytes.total
        for used, limit, what, option in (
            (self._bucket_bytes, limits.max_bucket_bytes, "this bucket", "staged.append.max-bucket-size"),
            (total, limits.max_tablet_bytes, "this tablet", "staged.append.max-size"),
        ):
            if used + size > limit:
                raise FlussError(
                    f"{self._name}: {used} bytes are staged in {what} and not committed, {size} more would exceed the "
                    f"limit of {limit}; commit in smaller batches or raise {option}",
                    ErrorCode.RECORD_TOO_LARGE_EXCEPTION,
                )
        if self._io.free_bytes(self._directory) - 2 * size - total < limits.reserved_free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _give_up(self, writer_id: int, error: OSError | FlussError) -> FlussError:
        """Give up an attempt and keep the error for its later requests."""
        if isinstance(error, FlussError):
            failure = error
        elif is_disk_full(error):
            free = self._io.free_bytes(self._directory)
            failure = FlussError(
                f"no space left to stage rows for {self._name}: {free} bytes are free, of which the staged rows need "
                f"{self._staged_bytes.total} when they are committed. The attempt was given up and nothing was "
                "committed; free some space (drop tables, lower table.log.ttl, enlarge the disk) and write again",
                ErrorCode.DISK_WRITE_LOCKED,
            )
        else:
            failure = FlussError(
                f"cannot stage rows for {self._name}: {error}. The attempt was given up and nothing was committed; "
                "stage the rows again with a new writer id",
                ErrorCode.STORAGE_EXCEPTION if os.path.isdir(self._directory) else ErrorCode.TABLE_NOT_EXIST,
            )
        logger.warning("%s", failure.message)
        self._failed[writer_id] = failure
        while len(self._failed) > MAX_FAILED_ATTEMPTS:
            self._failed.popitem(last=False)
        return failure

    # ---- committing ----

    def prepare(self, transaction: str, batch_id: int, entries: Sequence[StagedFileEntry]) -> None:
        """Check that files are complete as the client counts them, and sync them; FlussError 33 if they are not."""
        known = self._load()
        for entry in entries:
            file = known.get(entry.writer_id)
            if entry.writer_id in self._failed:
                raise self._incomplete(entry, self._failed[entry.writer_id].message)
            if file is None or file.header is None:
                raise self._incomplete(entry, "there is no such file")
            if (file.header.transaction, file.header.batch_id) != (transaction, batch_id):
                raise self._incomplete(entry, f"it belongs to batch {file.header.batch_id} of another commit")
            if not file.scanned:
                self._scan(file, entry.writer_id)
            size = file.end - file.header_bytes
            if (file.next_sequence, size) != (entry.batch_count, entry.size_bytes):
                raise self._incomplete(entry, f"the file has {file.next_sequence} batches with {size} bytes")
        for entry in entries:
            self._sync(known[entry.writer_id], entry.writer_id)
        if entries:
            directory = staging_directory(self._directory)
            self._io.sync_directory(directory)
            if not self._directories_synced:
                make_directories(self._io, directory)  # the directories exist, so this only syncs their names
                self._directories_synced = True

    def _sync(self, file: _StagedFile, writer_id: int) -> None:
        if file.synced_end == file.end:
            return
        descriptor = self._io.open_write(staged_path(self._directory, writer_id))
        try:
            self._io.fdatasync(descriptor)
        except OSError as error:
            # The kernel may have dropped the pages: a second sync that succeeds would prove nothing.
            raise self._give_up(writer_id, error) from error
        finally:
            self._io.close(descriptor)
        file.synced_end = file.end

    def header_bytes(self, writer_id: int) -> int | None:
        """The position at which the batches of a file begin; None if the file is missing."""
        file = self._load().get(writer_id)
        return None if file is None or file.header is None else file.header_bytes

    # ---- removing ----

    def remove(self, writer_ids: Sequence[int]) -> None:
        """Remove files; missing ones are ignored."""
        known = self._load()
        for writer_id in writer_ids:
            file = known.pop(writer_id, None)
            if file is not None:
                self._count(file, -file.counted)
            try:
                self._io.unlink(staged_path(self._directory, writer_id))
            except FileNotFoundError:
                continue

    def forget(self) -> None:
        """Subtract the files of a bucket that is gone from the bytes of the tablet."""
        for file in (self._files or {}).values():
            self._count(file, -file.counted)
        self._files = {}

    def summaries(self, now_ms: int) -> list[FileSummary]:
        """Describe all files, for cleaning. A file with a time in the future counts as written now."""
        known = self._load()
        for file in known.values():
            file.touched_ms = min(file.touched_ms, now_ms)
        return [FileSummary(file.header, writer_id, file.touched_ms) for writer_id, file in known.items()]

    # ---- the state of files ----

    def _load(self) -> dict[int, _StagedFile]:
        if self._files is None:
            self._files = {}
            for writer_id in staged_writer_ids(self._io, self._directory):
                file, size = self._read_header(writer_id)
                self._files[writer_id] = file
                self._count(file, size)
        return self._files

    def _read_header(self, writer_id: int) -> tuple[_StagedFile, int]:
        path = staged_path(self._directory, writer_id)
        touched_ms = int(os.stat(path).st_mtime * 1000)
        descriptor = self._io.open_read(path)
        try:
            size = self._io.size(descriptor)
            decoded = decode_header(self._io.pread(descriptor, min(size, MAX_HEADER_BYTES), 0))
        finally:
            self._io.close(descriptor)
        header, header_bytes = decoded or (None, 0)
        return _StagedFile(header, header_bytes, touched_ms), size

    def _scan(self, file: _StagedFile, writer_id: int) -> None:
        """Find the end of the last whole batch in a file of an earlier process; the next write truncates the rest."""
        descriptor = self._io.open_read(staged_path(self._directory, writer_id))
        try:
            size = self._io.size(descriptor)
            file.end, file.next_sequence = file.header_bytes, 0
            for part in sound_batches(self._io, descriptor, file.end, size):
                file.end = part.end
                file.next_sequence += len(part.batches)
        finally:
            self._io.close(descriptor)
        file.has_tail = file.end < size
        self._count(file, file.end - size)
        file.scanned = True

    def _count(self, file: _StagedFile, size: int) -> None:
        file.counted += size
        self._bucket_bytes += size
        self._staged_bytes.add(size)

    def _incomplete(self, entry: StagedFileEntry, what: str) -> FlussError:
        return FlussError(
            f"{self._name}: the rows of attempt {entry.writer_id} are not all staged: expected {entry.batch_count} "
            f"batches with {entry.size_bytes} bytes, but {what} ({staged_path(self._directory, entry.writer_id)}); "
            "nothing was committed, stage the rows again",
            ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION,
        )

    def _other_attempt(self, there: StagedHeader, given: StagedHeader) -> FlussError:
        return FlussError(
            f"{self._name}: writer id {given.writer_id} is already staging batch {there.batch_id} of "
            f"{there.transaction!r}, got batch {given.batch_id} of {given.transaction!r}; use a new writer id for "
            "every attempt",
            ErrorCode.INVALID_PRODUCER_ID_EXCEPTION,
        )
