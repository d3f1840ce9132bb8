"""The commit thread's side of one bucket: the file that is being written.

Only the commit thread may call the methods here, except those that say otherwise. Rules:

- if readers see rows that are not on disk, offsets are reserved before they are written (`reserved_offsets`);
- bytes are written in the order of the appends, one file at a time;
- a segment is synced before its successor is created, so only the newest segment can have a torn end;
- a new file's name is synced before anything in it counts as written;
- after a failed write the file is truncated to where the failed run began, and every append of the same epoch is
  skipped: the loop takes them all back and starts a new epoch;
- lack of memory for a write is not a defect of the disk: the file is truncated as for a full disk, and the bucket
  continues;
- after a failed sync nothing more is written or synced. The kernel may have dropped the dirty pages, so a second sync
  that succeeds would prove nothing.
"""

from __future__ import annotations

import errno
import logging
import os
import time

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.files import FULL_DISK_ERRORS, FileSystem, make_directories, write_all
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.background_files import BackgroundFiles
from fluss.server.storage.log.reserved_offsets import Reservation
from fluss.server.storage.log.segment import Segment
from fluss.server.storage.log.synced_mark import UNKNOWN_OFFSET, SyncedMark, write_mark

# A mark after every sync would make a single append 7 % slower: the file system has one more inode to journal.
MARK_INTERVAL_SECONDS = 0.02

_logger = logging.getLogger(__name__)


class WriteFailure(Exception):  # noqa: N818 - it is a result that is passed to the loop thread
    """The error for appends from `first` on, which did not reach the file. `stops`: no more writes until a restart."""

    def __init__(self, error: FlussError, first: Append | None, stops: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.first = first
        self.stops = stops


class LogWriter:
    """Writes and syncs the newest segment of a bucket."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        cut_after_failed_sync: bool,
        reserved_free_bytes: int = 0,
        lost: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self._files = files
        self._directory = directory
        self._cut_after_failed_sync = cut_after_failed_sync
        self._reserved_free_bytes = reserved_free_bytes
        # Only needed if rows are shown before they are on disk.
        self._reservation = None if cut_after_failed_sync else Reservation(files, directory, lost)
        self._segment: Segment | None = None
        self._descriptor = -1
        self._refused_epoch = -1
        self._synced_end = 0
        self._written_end = 0
        self._closed = False
        self._mark_failed = False
        self._next_mark_at = 0.0
        self._directory_inode = 0
        self.stopped = False
        self.last_written: Append | None = None

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    @property
    def is_dirty(self) -> bool:
        """True if bytes were written since the last sync."""
        return self.is_open and self._written_end > self._synced_end

    def mark_closed(self) -> None:
        """Stop writing: the bucket is being destroyed. May be called by the loop thread."""
        self._closed = True

    def write(self, appends: list[Append]) -> tuple[list[Append], WriteFailure | None]:
        """Write appends in order; returns those that are in the file now, and the failure of the others."""
        if self._closed or self.stopped:
            return [], None
        appends = [append for append in appends if append.epoch > self._refused_epoch]
        done = 0
        while done < len(appends):
            segment = appends[done].segment
            assert segment is not None
            end = done + 1
            while end < len(appends) and appends[end].segment is segment:
                end += 1
            failure = self._write_run(segment, appends[done:end])
            if failure is not None:
                self._refused_epoch = appends[done].epoch
                return appends[:done], failure
            done = end
        return appends, None

    def _write_run(self, segment: Segment, run: list[Append]) -> WriteFailure | None:
        start = run[0].position
        try:
            if segment is not self._segment:
                self._switch(segment, start)
            elif not self.is_open:
                self._descriptor = self._files.open_write(segment.log_path)
            # After the switch, because that syncs the old segment.
            self._check_room(run[-1].position + run[-1].size - start)
            buffers = [append.buffer for append in run if append.buffer is not None]
            if self._reservation is not None and run[-1].next_offset > self._reservation.until:
                self._reservation.reserve(run[-1].next_offset)
            self._written_end = start
            end = write_all(self._files, self._descriptor, buffers, start) if buffers else start
        except WriteFailure as failure:
            failure.first = run[0]
            return failure
        except (OSError, MemoryError) as error:
            return self._failed_write(error, run[0], segment)
        assert end == run[-1].position + run[-1].size, "the run did not end where the next append starts"
        self._written_end = end
        self.last_written = run[-1]
        return None

    def _check_room(self, size: int) -> None:
        """Raise ENOSPC if `size` more bytes would leave less than the reserve; one quick system call."""
        reserved = self._reserved_free_bytes
        if reserved and size and self._files.free_bytes(self._directory) - size < reserved:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _switch(self, segment: Segment, start: int) -> None:
        """Finish the old segment and open the next; raises WriteFailure if the old one cannot be synced."""
        if self.is_dirty:
            failure = self.sync()
            if failure is not None:
                raise failure
        self.close()
        make_directories(self._files, self._directory)
        descriptor = self._files.open_write(segment.log_path)
        size = self._files.size(descriptor)
        if size != start:
            self._files.close(descriptor)
            self.stopped = True
            raise WriteFailure(_stop_error(f"{segment.log_path} has {size} bytes, expected {start}"), None, True)
        self._descriptor = descriptor
        self._files.sync_directory(self._directory)
        self._directory_inode = self._files.inode(self._directory)
        self._segment = segment
        self._synced_end = self._written_end = start

    def _failed_write(self, error: OSError | MemoryError, first: Append, segment: Segment) -> WriteFailure:
        code = error.errno if isinstance(error, OSError) else errno.ENOMEM
        no_memory = code == errno.ENOMEM
        if not (no_memory or code in FULL_DISK_ERRORS):
            # Opening may fail temporarily, for lack of descriptors; a write that fails means that the disk is broken.
            if not self.is_open:
                text = f"cannot open {segment.log_path}: {os.strerror(code or 0)}; nothing was written, retry later"
                return WriteFailure(FlussError(text, ErrorCode.LOG_STORAGE_EXCEPTION), first, False)
            self.stopped = True
        if self.is_open and self._segment is segment:
            try:
                self._files.truncate(self._descriptor, first.position)
                self._written_end = first.position
                self._synced_end = min(self._synced_end, first.position)
            except OSError:
                self.stopped = True
        elif self.is_open:
            self.close()
        if self.stopped:
            return WriteFailure(_stop_error(f"writing {segment.log_path} failed: {error}"), first, True)
        if no_memory:
            text = f"out of memory while writing to {segment.log_path}; nothing was written, retry later"
            return WriteFailure(FlussError(text, ErrorCode.LOG_STORAGE_EXCEPTION), first, False)
        return WriteFailure(self._full_error(), first, False)

    def _full_error(self) -> FlussError:
        free = self._files.free_bytes(self._directory)
        kept = f", of which {self._reserved_free_bytes} are reserved for metadata" if self._reserved_free_bytes else ""
        return FlussError(
            f"no space left on the disk of {self._directory}: {free} bytes are free{kept}. Nothing was written; free"
            " some space (drop tables, lower table.log.ttl, enlarge the disk) and writes continue by themselves. Reads"
            " work meanwhile",
            ErrorCode.DISK_WRITE_LOCKED,
        )

    def sync(self) -> WriteFailure | None:
        """Make everything written durable. Called by the commit thread, or by a helper thread on its behalf."""
        if self.stopped or not self.is_open or not self.is_dirty:
            return None
        try:
            self._files.fdatasync(self._descriptor)
        except OSError as error:
            self.stopped = True
            self._cut_unsynced()
            path = self._segment.log_path if self._segment is not None else self._directory
            return WriteFailure(_stop_error(f"syncing {path} failed: {error}"), None, True)
        self._synced_end = self._written_end
        self._mark_synced()
        return None

    def _mark_synced(self) -> None:
        now = time.monotonic()
        if now < self._next_mark_at:
            return
        assert self._segment is not None, "only an open segment is synced"
        self._next_mark_at = now + MARK_INTERVAL_SECONDS
        try:
            end_offset = UNKNOWN_OFFSET if self.last_written is None else self.last_written.next_offset
            mark = SyncedMark(self._segment.base_offset, self._synced_end, end_offset, self._directory_inode)
            write_mark(self._files, self._directory, mark)
        except OSError as error:
            if not self._mark_failed:
                _logger.warning("cannot write the mark of synced bytes in %s, continuing: %s", self._directory, error)
            self._mark_failed = True

    def _cut_unsynced(self) -> None:
        """Truncate what the failed sync should have saved, unless readers may have seen it.

        The page cache may show these bytes although the disk does not have them, and a restart would trust them.
        """
        if not self._cut_after_failed_sync:
            return
        try:
            self._files.truncate(self._descriptor, self._synced_end)
        except OSError:
            # The disk is broken in more than one way; the bucket is stopped in any case.
            return
        self._written_end = self._synced_end

    def reserve_ahead(self, next_offset: int, background: BackgroundFiles) -> None:
        """Reserve offsets for appends after `next_offset`, up to which all are shown. Called by the loop thread."""
        if self._reservation is not None:
            self._reservation.reserve_ahead(next_offset, background.submit)

    def release_reservation(self) -> None:
        """Release the reserved offsets. Called by the loop thread when all is on disk and no more will be written."""
        if self._reservation is not None and not self.stopped:
            self._reservation.release()

    def close(self) -> None:
        """Close the descriptor. Everything that matters was synced before, so an error is only logged."""
        if not self.is_open:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            self._files.close(descriptor)
        except OSError as error:
            _logger.warning("closing a log file in %s failed: %s", self._directory, error)


def _stop_error(what: str) -> FlussError:
    return FlussError(
        f"{what}; the bucket accepts no more writes until the server is restarted, check the disk first",
        ErrorCode.STORAGE_EXCEPTION,
    )
