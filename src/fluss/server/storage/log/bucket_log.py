"""The log of one bucket.

Appends are accepted in the loop thread in order of arrival: checked, given offsets and a timestamp, queued. From that
moment `log_end_offset`, the writer state, and the active segment's `size` and index are ahead of the disk: they are
*speculative*. The commit thread writes and syncs; its report advances `high_watermark` (on_committed) or resets the
speculative state to the first append that failed (on_failed). Readers see nothing at or above the high watermark.

Invariants: local_start_offset <= durable offset <= log_end_offset; local_start_offset <= high_watermark <=
log_end_offset; `_pending` holds exactly the appends between high_watermark and log_end_offset, in order; the last
segment is the only one that is written.

All methods are for the loop thread, except `open`, which may run in any thread before the log is used. `writer` belongs
to the commit thread.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from fluss.codec.batches.log_batch import NO_WRITER_ID, BatchHeader, stamp
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.files import FileSystem, is_disk_full
from fluss.server.storage.log.append import Append, run_listener, settled
from fluss.server.storage.log.checkpointer import Checkpointer
from fluss.server.storage.log.committer import Committer
from fluss.server.storage.log.held_commits import HeldCommits
from fluss.server.storage.log.incoming import whole_batches
from fluss.server.storage.log.index import SegmentIndex
from fluss.server.storage.log.log_reads import LogReads, ReadRange
from fluss.server.storage.log.log_writer import LogWriter, WriteFailure
from fluss.server.storage.log.options import MAX_RELATIVE_OFFSET, MAX_SEGMENT_BYTES, LogOptions
from fluss.server.storage.log.recovery import RecoveredLog, Recovery
from fluss.server.storage.log.segment import Segment, SegmentInfo
from fluss.server.storage.log.writer_state import WriterBatch

BatchCheck = Callable[[list[tuple[int, BatchHeader]]], None]
_logger = logging.getLogger(__name__)


class BucketLog:
    """An open log: its segments, its offsets, and the appends that are not committed yet."""

    def __init__(self, directory: str, options: LogOptions, committer: Committer, recovered: RecoveredLog) -> None:
        self.directory = directory
        self.options = options
        self.committer = committer
        self.recovery_report = recovered.report
        self.segments = recovered.segments
        self.local_start_offset = recovered.local_start_offset
        # True if older rows of the bucket are in remote storage; stored with every checkpoint.
        self.has_remote_record = recovered.has_remote_record
        self.high_watermark = self.log_end_offset = recovered.end_offset
        # Timestamp of the newest committed batch; 0 for an empty log.
        self.newest_timestamp = recovered.newest_timestamp
        self.size_bytes = sum(segment.committed_size for segment in recovered.segments)
        self.writers = recovered.writers
        self.lost = recovered.lost
        is_synced = committer.flush == "always"
        self.writer = LogWriter(committer.files, directory, is_synced, options.reserved_free_bytes, recovered.lost)
        self.is_closed = False
        self._bases = [segment.base_offset for segment in recovered.segments]
        self._pending: deque[Append] = deque()
        self._accepted_timestamp = recovered.newest_timestamp
        self._epoch = 0
        self._refusal: FlussError | None = None
        # For primary-key buckets: reports of the commit thread that wait until their rows are stored.
        self.held: HeldCommits | None = None
        self._listeners: list[Callable[[], None]] = []
        self._reads = LogReads(self)
        self._checkpointer = Checkpointer(self)

    @classmethod
    def open(
        cls,
        directory: Path | str,
        options: LogOptions,
        committer: Committer,
        files: FileSystem,
        now_ms: int | None = None,
    ) -> BucketLog:
        """Open a bucket, recovering it if needed. A directory that does not exist yet is an empty log."""
        try:
            recovered = Recovery(str(directory), options, files).run()
        except OSError as error:
            text = f"cannot open the bucket in {directory}: {error}; nothing was removed, check the disk"
            code = ErrorCode.DISK_WRITE_LOCKED if is_disk_full(error) else ErrorCode.STORAGE_EXCEPTION
            raise FlussError(text, code) from error
        recovered.writers.expire(now_ms or int(time.time() * 1000), options.writer_expiration_ms)
        log = cls(str(directory), options, committer, recovered)
        if recovered.report.scanned_bytes or recovered.report.removed_files:
            log._checkpointer.write_now()
        return log

    # --- appending -----------------------------------------------------------------------------------------------

    def append(
        self, records: memoryview, now_ms: int, release: Callable[[], None], check: BatchCheck | None = None
    ) -> Append:
        """Accept batches. `records` must be writable and stay untouched until `release` is called, once.

        Raises FlussError and does not call `release` when nothing was accepted: what `check` raises, 14 for damaged
        batches, -1 for an unknown format, 31 for a wrong sequence, 72 when too much is queued, 26 for a stopped bucket.
        """
        self.check_writable()
        if not self.committer.is_started:
            self.committer.start_thread()  # before anything is accepted: it may fail
        if self.committer.refuses:
            text = f"too many appends ({self.committer.queued_bytes} bytes) are waiting for the disk; retry later"
            raise FlussError(text, ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION)
        batches = whole_batches(records)
        if not batches:
            release()
            return settled(Append(self, -1, -1))
        if check is not None:
            check(batches)
        repeated = self.writers.check_all(batches)
        if repeated is not None:
            release()
            return self._duplicate(repeated)
        return self._accept(records, batches, now_ms, release)

    def check_writable(self) -> None:
        """Raise the error that stopped the bucket, if it accepts no more writes."""
        if self._refusal is not None:
            raise FlussError(self._refusal.message, self._refusal.error_code)

    def _accept(
        self, records: memoryview, batches: list[tuple[int, BatchHeader]], now_ms: int, release: Callable[[], None]
    ) -> Append:
        """Assign offsets, a timestamp and a position in the active segment; the speculative state advances."""
        timestamp = max(now_ms, self._accepted_timestamp)
        position, header = batches[-1]
        size = position + header.size
        offset = self.log_end_offset
        segment = self._segment_for(size, sum([header.last_offset_delta + 1 for _, header in batches]))
        append = Append(self, offset, offset)
        append.segment = segment
        append.position = segment.size
        append.size = size
        append.timestamp = timestamp
        append.epoch = self._epoch
        append.buffer = records if len(records) == size else records[:size]
        assert segment.index is not None
        append.mark = segment.index.mark()
        try:
            durable_offset = self._checkpointer.durable_offset
            for position, header in batches:
                stamp(records, position, offset, timestamp)
                last_offset = offset + header.last_offset_delta
                if header.writer_id != NO_WRITER_ID:
                    batch = WriterBatch(header.batch_sequence, offset, last_offset, timestamp)
                    self.writers.record(header.writer_id, batch, durable_offset)
                offset = last_offset + 1
            append.last_offset = offset - 1
            base = segment.base_offset
            segment.index.add(append.base_offset - base, append.last_offset - base, segment.size, size, timestamp)
            segment.size += size
            self.log_end_offset = offset
            self._accepted_timestamp = timestamp
            append.release = release
            self._pending.append(append)
            self.committer.submit(append)
        except BaseException:
            # Usually out of memory: the log must not keep an append that was never queued.
            if self._pending and self._pending[-1] is append:
                self._pending.pop()
            self._go_back_to(append)
            raise
        return append

    def _segment_for(self, size: int, offset_count: int) -> Segment:
        """The active segment, or a new one if this append does not fit."""
        segment = self.segments[-1]
        full = segment.size + size > self.options.roll_bytes
        distant = self.log_end_offset + offset_count - segment.base_offset > MAX_RELATIVE_OFFSET
        if segment.size and (full or distant):
            if size > MAX_SEGMENT_BYTES or offset_count > MAX_RELATIVE_OFFSET:
                text = (
                    f"{size} bytes with {offset_count} offsets do not fit into one segment, which has at most "
                    f"{MAX_SEGMENT_BYTES} bytes and {MAX_RELATIVE_OFFSET} offsets"
                )
                raise FlussError(text, ErrorCode.RECORD_TOO_LARGE_EXCEPTION)
            return self._new_segment()
        return segment

    def _new_segment(self) -> Segment:
        """Seal the active segment and begin a new one. The commit thread creates its file with the first write."""
        self.segments[-1].sealed = True
        segment = Segment(self.directory, self.log_end_offset)
        segment.index = SegmentIndex(self.options.index_interval_bytes)
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        return segment

    def check_sequence(self, writer_id: int, sequence: int) -> Append | None:
        """None if a writer's batch is the next one; its append if it was accepted before; otherwise FlussError 31."""
        repeated = None if writer_id == NO_WRITER_ID else self.writers.check(writer_id, sequence)
        return None if repeated is None else self._duplicate(repeated)

    def _duplicate(self, batch: WriterBatch) -> Append:
        """The answer for a repeated batch; it does not settle before the original is committed."""
        answer = Append(self, batch.base_offset, batch.last_offset, duplicate=True)
        for pending in self._pending:
            if pending.base_offset <= batch.base_offset <= pending.last_offset:
                answer.follow(pending)
                return answer
        return settled(answer)

    # --- reports of the commit thread, in the loop thread --------------------------------------------------------

    def on_committed(self, appends: list[Append], synced: bool) -> None:
        """Make the oldest pending appends, now as durable as `log.flush` asks for, readable, and acknowledge them."""
        if self.is_closed:
            return
        for append in appends:
            oldest = self._pending.popleft()
            assert oldest is append, "appends were committed out of order"
            segment = append.segment
            assert segment is not None
            segment.committed_size = append.position + append.size
            segment.end_offset = append.next_offset
            segment.max_timestamp = append.timestamp
            self.size_bytes += append.size
        last = appends[-1]
        self.newest_timestamp, self.high_watermark = last.timestamp, last.next_offset
        self.writer.reserve_ahead(last.next_offset, self.committer.background)
        self._checkpointer.note_committed(last, sum(append.size for append in appends), synced)
        for listener in tuple(self._listeners):
            run_listener(listener)
        for append in appends:
            append.settle_committed()

    def on_synced(self, last: Append | None) -> None:
        """Called when everything up to an append is on disk (in flush modes other than always, and at checkpoints)."""
        if self.held is None or not self.held.holds_synced(last):
            self.note_synced(last)

    def note_synced(self, last: Append | None) -> None:
        """Record that everything up to this append is on disk; readers see it already."""
        if not self.is_closed:
            self._checkpointer.note_synced(last)

    def on_failed(self, failure: WriteFailure) -> None:
        """Take back appends that did not reach the disk, and report the error to their callers."""
        if self.is_closed:
            return
        if failure.stops:
            self._refusal = failure.error
            _logger.error("bucket %s has stopped: %s", self.directory, failure.error)
            # Held appends are on disk and will be shown; appends that failed because of a defect were answered.
            held = 0 if self.held is None else self.held.append_count
            first = next((append for append in islice(self._pending, held, None) if append.error is None), None)
        else:
            _logger.warning("appends to %s failed: %s", self.directory, failure.error)
            first = failure.first
        if first is None or first.error is not None:
            return
        failed: list[Append] = []
        while not failed or failed[-1] is not first:
            failed.append(self._pending.pop())
        self._go_back_to(first)
        self._epoch += 1
        for append in reversed(failed):
            append.fail(failure.error)

    def _go_back_to(self, first: Append) -> None:
        """Return to the state before `first` was accepted."""
        segment = first.segment
        assert segment is not None
        while self.segments[-1] is not segment:
            self.committer.open_segments.drop(self.segments.pop())
            self._bases.pop()
        segment.sealed = False
        segment.size = first.position
        if first.mark is not None and segment.index is not None:
            segment.index.rollback(first.mark)
        self.log_end_offset = first.base_offset
        self.writers.rollback(first.base_offset)
        self._accepted_timestamp = self._pending[-1].timestamp if self._pending else self.newest_timestamp

    def add_high_watermark_listener(self, listener: Callable[[], None]) -> None:
        """Have a function called in the loop thread each time rows become readable."""
        self._listeners.append(listener)

    def remove_high_watermark_listener(self, listener: Callable[[], None]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    # --- reading -------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, whole_first_batch: bool = True) -> ReadRange:
        """Stored bytes from the batch that contains `offset`; see LogReads.read."""
        return self._reads.read(offset, max_bytes, whole_first_batch)

    def read_batches(self, offset: int) -> Iterator[tuple[memoryview, int, BatchHeader]]:
        """Whole batches from the one that contains `offset` to the end of its segment; see LogReads.read_batches."""
        return self._reads.read_batches(offset)

    def offset_for_timestamp(self, timestamp: int) -> int | None:
        """The base offset of the first committed batch with at least this commit timestamp."""
        return self._reads.offset_for_timestamp(timestamp)

    def segment_of(self, offset: int) -> Segment:
        """The segment whose range contains an offset at or above the local start."""
        return self.segments[max(0, bisect_right(self._bases, offset) - 1)]

    def sealed_segments(self) -> list[SegmentInfo]:
        """The segments that no longer change, oldest first."""
        return self._reads.sealed_segments()

    # --- maintenance ---------------------------------------------------------------------------------------------

    def roll(self) -> bool:
        """Seal the active segment now; False if it is empty or the bucket accepts no writes."""
        if self._refusal is not None or not self.segments[-1].size:
            return False
        segment = self._new_segment()
        marker = Append(self, self.log_end_offset, self.log_end_offset - 1)
        marker.segment = segment
        marker.timestamp = self._accepted_timestamp
        marker.epoch = self._epoch
        self._pending.append(marker)
        self.committer.submit(marker)
        return True

    def delete_segments_up_to(self, offset: int) -> int:
        """Remove sealed segments that are entirely below `offset`; returns how many. Files go in the background."""
        removed = []
        while (
            len(self.segments) > 1
            and self.segments[0].committed_size == self.segments[0].size
            and self.segments[1].base_offset <= min(offset, self.high_watermark)
        ):
            segment = self.segments.pop(0)
            self._bases.pop(0)
            self.size_bytes -= segment.committed_size
            self.committer.open_segments.drop(segment)
            removed.append(segment)
        if removed:
            self.local_start_offset = self.segments[0].base_offset
            self._checkpointer.remove_segments(removed)
        return len(removed)

    def expire_writers(self, now_ms: int) -> int:
        """Forget writers that have been silent for longer than the expiration time."""
        return self.writers.expire(now_ms, self.options.writer_expiration_ms)

    @property
    def durable_offset(self) -> int:
        """The offset below which everything is on disk, in every mode of `log.flush`."""
        return self._checkpointer.durable_offset

    def checkpoint(self) -> None:
        """Move the recovery point to the high watermark, in the background."""
        self._checkpointer.start()

    def checkpoint_if_due(self) -> None:
        self._checkpointer.start_if_due()

    def close(self) -> None:
        """Finish all queued appends, write a checkpoint, release files. Blocks."""
        if self.is_closed:
            return
        if self.held is not None:
            self.held.finish()
        self._checkpointer.finish()
        if self.durable_offset == self.high_watermark:
            self.writer.release_reservation()
        self.is_closed = True
        text = f"bucket {self.directory} is closed; refresh the metadata"
        self._release_files(FlussError(text, ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def destroy(self, on_done: Callable[[], None] | None = None) -> None:
        """Stop at once and remove the directory in the background; `on_done` runs in the loop when it is gone."""
        was_closed = self.is_closed
        self.is_closed = True
        self.writer.mark_closed()
        if self.held is not None:
            self.held.drop()
        text = f"bucket {self.directory} was dropped; refresh the metadata"
        gone = FlussError(text, ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION)
        if not was_closed:
            self._release_files(gone)
        pending, self._pending = self._pending, deque()
        for append in pending:
            append.fail(gone)
        self._checkpointer.remove_directory(on_done)

    def _release_files(self, refusal: FlussError) -> None:
        self._refusal = refusal
        self.committer.close_writer(self)
        self.committer.uncheckpointed_logs.discard(self)
        for segment in self.segments:
            self.committer.open_segments.drop(segment)
