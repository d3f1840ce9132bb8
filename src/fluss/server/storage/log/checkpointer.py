"""When and how a bucket writes its checkpoint.

States: idle -> syncing (flush modes other than always: the data has to reach the disk first) -> writing (the job runs
in the background thread) -> idle. A request that arrives meanwhile starts one more checkpoint afterwards. Loop thread
only.

`durable_*` state how far the log is known to be on disk; they never decrease. A checkpoint that cannot be written (full
disk) only makes a recovery longer: it is tried again after the checkpoint interval.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.background_files import nothing
from fluss.server.storage.log.checkpoint import Checkpoint, encode_checkpoint
from fluss.server.storage.log.checkpoint_job import (
    CheckpointJob,
    IndexWrite,
    finish_index_writes,
    index_write,
    remove_bucket,
    run_checkpoint,
)
from fluss.server.storage.log.segment import Segment

if TYPE_CHECKING:
    from fluss.server.storage.log.bucket_log import BucketLog

_logger = logging.getLogger(__name__)
_IDLE, _SYNCING, _WRITING = "idle", "syncing", "writing"


class Checkpointer:
    """Writes the checkpoints of one bucket, which move its recovery point forward."""

    def __init__(self, log: BucketLog) -> None:
        self._log = log
        active = log.segments[-1]
        self.durable_offset = log.log_end_offset
        self._durable_segment = active
        self._durable_position = active.size
        self._durable_timestamp = log.newest_timestamp
        self._state = _IDLE
        self._again = False
        self._failed = False
        self._removed: list[Segment] = []
        self._written_offset = log.log_end_offset
        self._written_segment_base = active.base_offset
        self._bytes_since = 0
        self._written_at = time.monotonic()

    def note_committed(self, last: Append, size: int, synced: bool) -> None:
        """Count the bytes of committed appends; start a checkpoint if they are many, or after a roll of the segment."""
        if synced:
            self.note_synced(last)
        self._bytes_since += size
        log = self._log
        if log not in log.committer.uncheckpointed_logs:
            log.committer.watch(log)
            self._written_at = time.monotonic()
        assert last.segment is not None
        rolled = last.segment.base_offset != self._written_segment_base
        if (rolled and not self._failed) or self._bytes_since >= log.options.checkpoint_bytes:
            self.start()

    def note_synced(self, last: Append | None) -> None:
        """Record that everything up to `last` is on disk."""
        if last is not None and last.segment is not None and last.next_offset >= self.durable_offset:
            self.durable_offset = last.next_offset
            self._durable_segment = last.segment
            self._durable_position = last.position + last.size
            self._durable_timestamp = last.timestamp
        if self._state == _SYNCING:
            self._start_job()

    def start_if_due(self) -> None:
        """Start a checkpoint if the interval has passed. Called periodically while there is something to save."""
        waited_ms = (time.monotonic() - self._written_at) * 1000
        if waited_ms >= self._log.options.checkpoint_interval_ms:
            self.start()

    def start(self) -> None:
        """Start a checkpoint, or another one after the one in progress."""
        if self._log.is_closed or self._log.writer.stopped:
            return
        if self._state != _IDLE:
            self._again = True
        elif self.durable_offset < self._log.high_watermark:
            self._state = _SYNCING
            self._log.committer.request_sync(self._log)
        else:
            self._start_job()

    def remove_segments(self, segments: list[Segment]) -> None:
        """Remove files of segments after a checkpoint that no longer needs them."""
        self._removed += segments
        self._log.committer.watch(self._log)
        self.start()

    def finish(self) -> None:
        """Bring the checkpoint up to date before the log is closed. Blocks until all writes are finished."""
        committer = self._log.committer
        committer.drain()
        self._again = False
        while self._state == _WRITING or (self._state == _SYNCING and not self._log.writer.stopped):
            committer.drain()
        if self._log.writer.stopped:
            return
        if self.durable_offset < self._log.high_watermark:
            committer.request_sync(self._log)
            committer.drain()
        if self._log in committer.uncheckpointed_logs and not self._log.writer.stopped:
            self.write_now()

    def write_now(self) -> None:
        """Write a checkpoint in the calling thread, for opening and closing, when nothing else uses the log."""
        job = self._job()
        error: OSError | None = None
        try:
            run_checkpoint(self._log.committer.files, job)
        except OSError as problem:
            error = problem
        self._finish_job(job, error)

    def remove_directory(self, on_done: Callable[[], None] | None) -> None:
        """Remove all files of the bucket once the commit thread has closed them."""
        committer = self._log.committer
        job = partial(_remove_directory, committer.files, self._log.directory, on_done)
        committer.call_after_writes(lambda: committer.background.submit(job))

    def _start_job(self) -> None:
        self._state = _WRITING
        job = self._job()
        self._log.committer.background.submit(partial(self._run_job, job))

    def _run_job(self, job: CheckpointJob) -> Callable[[], None]:
        """Run the job in the background thread; returns the function that reports its result to the loop."""
        error: OSError | None = None
        try:
            run_checkpoint(self._log.committer.files, job)
        except OSError as problem:
            error = problem
        return partial(self._finish_job, job, error)

    def _finish_job(self, job: CheckpointJob, error: OSError | None) -> None:
        self._state = _IDLE
        self._written_at = time.monotonic()
        log = self._log
        if error is not None:
            if not self._failed and not log.is_closed:
                _logger.warning("cannot write the checkpoint of %s, will retry later: %s", log.directory, error)
            self._failed = True
            self._bytes_since = 0
            return
        self._failed = False
        finish_index_writes(job.index_writes)
        self._removed = [segment for segment in self._removed if segment not in job.removed]
        if job.recovery_offset == log.high_watermark and not self._removed:
            log.committer.uncheckpointed_logs.discard(log)
        if self._again:
            self._again = False
            self.start()

    def _job(self) -> CheckpointJob:
        """Describe the checkpoint of the durable part of the log."""
        log = self._log
        writes = self._index_writes()
        counts = self._durable_segment.stored_entries or (0, 0)
        index = self._durable_segment.index
        if index is not None:
            relative = self.durable_offset - self._durable_segment.base_offset
            counts = index.entries_before(self._durable_position, relative)
        checkpoint = Checkpoint(
            log.local_start_offset,
            self.durable_offset,
            self._durable_segment.base_offset,
            self._durable_position,
            self._durable_timestamp,
            *counts,
            writers=log.writers.snapshot(self.durable_offset),
            has_remote_record=log.has_remote_record,
        )
        self._bytes_since = 0
        self._written_segment_base = self._durable_segment.base_offset
        content = encode_checkpoint(checkpoint)
        return CheckpointJob(log.directory, self.durable_offset, content, writes, list(self._removed))

    def _index_writes(self) -> list[IndexWrite]:
        writes = []
        for segment in reversed(self._log.segments):
            if segment.base_offset > self._durable_segment.base_offset:
                continue
            if segment.index is None:
                break  # the index files of older segments are complete, too
            is_last = segment is self._durable_segment
            position = self._durable_position if is_last else segment.size
            write = index_write(segment, position, self.durable_offset)
            if write is not None:
                writes.append(write)
        return writes


def _remove_directory(files: FileSystem, directory: str, on_done: Callable[[], None] | None) -> Callable[[], None]:
    """Remove a bucket in the background thread; returns the function for the loop."""
    remove_bucket(files, directory)
    return on_done if on_done is not None else nothing
