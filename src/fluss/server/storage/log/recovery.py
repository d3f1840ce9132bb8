"""Opening a bucket after any kind of stop.

Only the bytes behind the recovery point of the checkpoint are read: every batch there is checked, and the indexes and
the writer state are brought up to date. Earlier segments are not read now but checked when they are read.

How damage is classified:

- in the newest segment, with nothing good behind it: a torn write. It is cut off, with one log line. But if its rows
  are known to have been on disk, from the checkpoint or the mark of the last sync (`synced_mark`), it is real damage.
- in the newest segment, with good batches behind it, if part of it was never written (a hole in the file, a page of
  zeros, or zeros from the start of a batch to the end of its page), and neither the checkpoint nor the mark of the last
  sync covers it: power failed during one group of writes, and the disk wrote the later part of the group first.
  Nothing of that group was acknowledged, so it is cut off as well.
- anything else is acknowledged data on a bad disk. Nothing is removed; reads of the batch get error 14, and everything
  behind it stays readable.

A bucket is never emptied to repair it, and an offset is never used twice: if files begin after the start offset of the
checkpoint, or end before what is known to have been on disk, reads of the missing range get error 14. If rows were
shown that never reached the disk (`log.flush` other than `always`) and power failed, the log continues behind all
offsets that were shown: `reserved_offsets`.

A directory that was copied while its server ran may have a mark that was copied after the log: there it is ignored.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from fluss.codec.batches.log_batch import NO_WRITER_ID, BatchHeader, CorruptBatch, filler_batch, read_header
from fluss.codec.batches.log_scan import Damage, batch_at, scan_batches
from fluss.server.storage.files import FileSystem, make_directories, write_all
from fluss.server.storage.log.checkpoint import Checkpoint, load_checkpoint
from fluss.server.storage.log.index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    SegmentIndex,
    offset_entries_are_sound,
    time_entries_are_sound,
)
from fluss.server.storage.log.options import MAX_RELATIVE_OFFSET, LogOptions
from fluss.server.storage.log.reader import add_to_index, log_damage
from fluss.server.storage.log.reserved_offsets import (
    RESERVED_NAME,
    ReservedOffsets,
    first_free_offset,
    load_reserved,
    with_lost_range,
    write_reserved,
)
from fluss.server.storage.log.segment import Segment, segment_base_offset
from fluss.server.storage.log.synced_mark import UNKNOWN_OFFSET, SyncedMark, load_mark, take_back_mark
from fluss.server.storage.log.unwritten_pages import has_unwritten_page
from fluss.server.storage.log.writer_state import WriterBatch, WriterState
from fluss.server.storage.staged_files import check_staged_versions, staged_writer_ids

_logger = logging.getLogger(__name__)
_FIRST_SCHEMA_ID = 1


@dataclass
class RecoveryReport:
    """The figures of one recovery: how much it has read, cut off, found damaged and removed."""

    scanned_bytes: int = 0
    cut_bytes: int = 0
    damages: int = 0
    removed_files: list[str] = field(default_factory=list)


@dataclass
class RecoveredLog:
    """A bucket as found on disk; everything in it is durable."""

    segments: list[Segment]
    local_start_offset: int
    end_offset: int
    newest_timestamp: int
    writers: WriterState
    report: RecoveryReport
    has_remote_record: bool = False
    # Ranges of offsets (first, next) whose rows may have been shown and are lost.
    lost: tuple[tuple[int, int], ...] = ()


class Recovery:
    """One run of recovery over one directory. Blocks; may run in any thread, before the log is in use."""

    def __init__(self, directory: str, options: LogOptions, files: FileSystem) -> None:
        self._directory = directory
        self._options = options
        self._files = files
        self._report = RecoveryReport()
        self._writers = WriterState(options.max_writers_per_bucket)
        self._checkpoint: Checkpoint | None = None
        self._mark: SyncedMark | None = None
        self._recovery_offset = 0
        # All rows below this offset are known to have been on disk.
        self._known_end = 0
        self._timestamp = 0
        self._schema_id = _FIRST_SCHEMA_ID

    def run(self) -> RecoveredLog:
        """Recover the bucket; OSError if the disk fails, FlussError for files of a later version."""
        names = self._files.list_directory(self._directory)
        staged = staged_writer_ids(self._files, self._directory)
        check_staged_versions(self._files, self._directory, staged)
        self._writers.protected.update(staged)
        self._load_checkpoint(names)
        self._mark = load_mark(self._files, self._directory)
        self._known_end = max(self._recovery_offset, self._marked_end())
        segments = self._list_segments(names)
        first = self._first_to_scan(segments)
        for position, segment in enumerate(segments[:-1]):
            segment.sealed = True
            segment.end_offset = segments[position + 1].base_offset
        for position in range(first, len(segments)):
            self._scan_segment(segments[position], is_last=position == len(segments) - 1)
        last = segments[-1]
        if last.end_offset < self._known_end:
            last = self._continue_behind_gap(last)
            segments.append(last)
        lost: tuple[tuple[int, int], ...] = ()
        if RESERVED_NAME in names:
            lost = self._skip_reserved_offsets(segments)
            last = segments[-1]
        start = max(segments[0].base_offset, self._checkpoint.local_start_offset if self._checkpoint else 0)
        has_remote = self._checkpoint is not None and self._checkpoint.has_remote_record
        return RecoveredLog(
            segments, start, last.end_offset, self._timestamp, self._writers, self._report, has_remote, lost
        )

    def _load_checkpoint(self, names: list[str]) -> None:
        self._checkpoint, existed = load_checkpoint(self._files, self._directory)
        for name in names:
            if name.endswith(".tmp"):
                self._files.unlink(f"{self._directory}/{name}")
        if self._checkpoint is None:
            if existed:
                _logger.error("the checkpoint in %s is damaged: reading the whole bucket instead", self._directory)
            return
        self._recovery_offset = self._checkpoint.recovery_offset
        self._timestamp = self._checkpoint.newest_timestamp
        self._writers.load(self._checkpoint.writers)

    def _list_segments(self, names: list[str]) -> list[Segment]:
        bases = sorted(base for base in map(segment_base_offset, names) if base is not None)
        if self._checkpoint is not None:
            # A removal was interrupted: the checkpoint has the new start of the log, so remove the files before it.
            while len(bases) > 1 and bases[1] <= self._checkpoint.local_start_offset:
                for path in Segment(self._directory, bases.pop(0)).paths:
                    self._remove(path)
        start = self._checkpoint.local_start_offset if self._checkpoint is not None else 0
        if not bases or (self._checkpoint is not None and bases[0] > start):
            bases.insert(0, start)
        segments = [Segment(self._directory, base) for base in bases]
        for segment in segments:
            try:
                segment.size = segment.committed_size = self._files.path_size(segment.log_path)
            except FileNotFoundError:
                if self._known_end > segment.base_offset:
                    _logger.error("%s is missing; it had rows that were acknowledged", segment.log_path)
            segment.trusted_from = segment.size
        return segments

    def _remove(self, path: str) -> None:
        try:
            self._files.unlink(path)
        except FileNotFoundError:
            return
        self._report.removed_files.append(path)

    def _first_to_scan(self, segments: list[Segment]) -> int:
        if self._checkpoint is None:
            return 0
        at_or_before = [
            position
            for position, segment in enumerate(segments)
            if segment.base_offset <= self._checkpoint.segment_base_offset
        ]
        return at_or_before[-1] if at_or_before else 0

    def _scan_segment(self, segment: Segment, is_last: bool) -> None:
        """Check a segment from the recovery point, or from its start, and build its index."""
        if segment.size == 0:
            segment.index = SegmentIndex(self._options.index_interval_bytes)
            return
        descriptor = self._files.open_write(segment.log_path)
        try:
            mapped = self._files.map(descriptor, segment.size)
            view = memoryview(mapped)
            start, expected = self._scan_start(segment, view)
            segment.index = self._index_up_to(segment, view, start)
            end = self._scan_batches(segment, view, descriptor, start, expected, is_last)
            view.release()
            mapped.close()
            if end < segment.size:
                _logger.warning(
                    "cut the torn end of %s at byte %d: %d bytes of an unfinished write",
                    segment.log_path,
                    end,
                    segment.size - end,
                )
                self._report.cut_bytes += segment.size - end
                self._files.truncate(descriptor, end)
                if end < self._synced_position(segment):
                    mark = SyncedMark(segment.base_offset, end, segment.end_offset, self._files.inode(self._directory))
                    take_back_mark(self._files, self._directory, mark)
            if start < segment.size:
                # A killed process may leave whole batches only in the page cache. Sync them before readers see them.
                self._files.fdatasync(descriptor)
                self._files.sync_directory(self._directory)
        finally:
            self._files.close(descriptor)
        self._report.scanned_bytes += segment.size - start
        segment.size = segment.committed_size = end
        segment.trusted_from = start

    def _scan_start(self, segment: Segment, view: memoryview) -> tuple[int, int]:
        checkpoint = self._checkpoint
        if checkpoint is None or checkpoint.segment_base_offset != segment.base_offset:
            return 0, segment.base_offset
        position = checkpoint.segment_position
        if position == segment.size:
            return position, checkpoint.recovery_offset
        if position < segment.size:
            # A good batch with another offset at this position means that file and checkpoint do not match.
            header = batch_at(view, position, segment.size)
            if header is None or header.base_offset == checkpoint.recovery_offset:
                return position, checkpoint.recovery_offset
        _logger.error("%s does not match its checkpoint: reading the whole segment instead", segment.log_path)
        return 0, segment.base_offset

    def _scan_batches(
        self, segment: Segment, view: memoryview, descriptor: int, start: int, expected: int, is_last: bool
    ) -> int:
        """Check batches from `start` on; returns the position at which the good part of the segment ends."""
        assert segment.index is not None
        segment.max_timestamp = self._timestamp if start > 0 else segment.max_timestamp
        for position, item in scan_batches(view, start, segment.size, expected, self._timestamp if start else 0):
            if isinstance(item, BatchHeader):
                add_to_index(segment.index, segment.base_offset, position, item)
                self._replay(item)
                expected = item.next_offset
                segment.max_timestamp = max(segment.max_timestamp, item.commit_timestamp)
                continue
            if is_last and self._is_torn(segment, view, descriptor, item):
                segment.end_offset = expected
                return position
            if item.next_offset < 0:
                item = item._replace(next_offset=self._known_end if is_last else segment.end_offset)
            expected = item.next_offset
            segment.damages.append(item)
            self._report.damages += 1
            log_damage(segment, item)
        if is_last:
            segment.end_offset = expected
        return segment.size

    def _is_torn(self, segment: Segment, view: memoryview, descriptor: int, damage: Damage) -> bool:
        if damage.next_offset < 0:
            return damage.first_offset >= self._known_end
        if damage.start < self._synced_position(segment):
            return False
        return self._files.has_hole(descriptor, damage.start, damage.end) or has_unwritten_page(
            view, damage.start, damage.end, damage.first_offset
        )

    def _marked_end(self) -> int:
        if self._mark is None or self._mark.end_offset == UNKNOWN_OFFSET:
            return 0
        is_copied = self._mark.directory_inode != self._files.inode(self._directory)
        return 0 if is_copied else self._mark.end_offset

    def _synced_position(self, segment: Segment) -> int:
        """The position in the segment below which all bytes were on disk before the stop."""
        position = 0 if self._mark is None else self._mark.position_in(segment.base_offset)
        if self._checkpoint is not None and self._checkpoint.segment_base_offset == segment.base_offset:
            position = max(position, self._checkpoint.segment_position)
        return position

    def _replay(self, header: BatchHeader) -> None:
        self._timestamp = max(self._timestamp, header.commit_timestamp)
        self._schema_id = header.schema_id
        if header.writer_id == NO_WRITER_ID or header.last_offset < self._recovery_offset:
            return
        batch = WriterBatch(header.batch_sequence, header.base_offset, header.last_offset, header.commit_timestamp)
        self._writers.record(header.writer_id, batch, header.next_offset)

    def _index_up_to(self, segment: Segment, view: memoryview, end: int) -> SegmentIndex:
        """The index of the part that is not scanned, from the index files or, if those are damaged, from headers."""
        index = SegmentIndex(self._options.index_interval_bytes)
        if end == 0 or self._load_index(segment, index, end):
            return index
        index = SegmentIndex(self._options.index_interval_bytes)
        position = 0
        while position < end:
            try:
                header = read_header(view, position)
            except CorruptBatch:
                break  # the first reader of that part scans the segment
            add_to_index(index, segment.base_offset, position, header)
            position += header.size
        return index

    def _load_index(self, segment: Segment, index: SegmentIndex, end: int) -> bool:
        assert self._checkpoint is not None
        offset_size = self._checkpoint.offset_index_entries * OFFSET_ENTRY.size
        time_size = self._checkpoint.time_index_entries * TIME_ENTRY.size
        offset_entries = time_entries = b""
        try:
            if offset_size or time_size:
                offset_entries = self._files.read_file(segment.index_path)[:offset_size]
                time_entries = self._files.read_file(segment.time_index_path)[:time_size]
        except OSError:
            return False
        if len(offset_entries) < offset_size or not offset_entries_are_sound(offset_entries, end):
            return False
        if len(time_entries) < time_size or not time_entries_are_sound(time_entries):
            return False
        index.load(offset_entries, time_entries)
        index.bytes_since_entry = end - (index.positions[-1] if index.positions else 0)
        return True

    def _continue_behind_gap(self, last: Segment) -> Segment:
        _logger.error(
            "%s ends at offset %d, but offsets up to %d were acknowledged: the range between them is lost",
            last.log_path,
            last.end_offset,
            self._known_end - 1,
        )
        last.sealed = True
        last.end_offset = self._known_end
        following = Segment(self._directory, self._known_end)
        following.index = SegmentIndex(self._options.index_interval_bytes)
        return following

    def _skip_reserved_offsets(self, segments: list[Segment]) -> tuple[tuple[int, int], ...]:
        """Continue the log behind offsets that may have been shown for lost rows; returns all such ranges."""
        reserved, boot_id = load_reserved(self._files, self._directory), self._files.boot_id()
        end = segments[-1].end_offset
        following = first_free_offset(reserved, end, boot_id, self._report.cut_bytes > 0)
        reserved = reserved or ReservedOffsets()
        if following > end:
            _logger.warning(
                "%s: the machine stopped before all rows were on disk (log.flush is not 'always'). The log ends at"
                " offset %d; offsets up to %d may have been used for rows that are lost, and are not used again",
                self._directory,
                end,
                following - 1,
            )
            reserved = with_lost_range(reserved, end, following)
            write_reserved(self._files, self._directory, reserved)
            while segments[-1].end_offset < following:
                self._write_filler(segments, min(following, segments[-1].end_offset + MAX_RELATIVE_OFFSET))
        if reserved.reserved_until:
            # Everything that is left is on disk now, and nothing else was shown.
            write_reserved(self._files, self._directory, ReservedOffsets(lost=reserved.lost))
        return reserved.lost

    def _write_filler(self, segments: list[Segment], following: int) -> None:
        """Write a batch without rows at the end of the log, so that the next offset is `following`."""
        segment, first = segments[-1], segments[-1].end_offset
        if segment.size and following - segment.base_offset > MAX_RELATIVE_OFFSET:
            segment.sealed = True
            segment = Segment(self._directory, first)
            segment.index = SegmentIndex(self._options.index_interval_bytes)
            segments.append(segment)
        batch = filler_batch(self._schema_id, first, following, self._timestamp)
        make_directories(self._files, self._directory)
        descriptor = self._files.open_write(segment.log_path)
        try:
            write_all(self._files, descriptor, [batch], segment.size)
            self._files.fdatasync(descriptor)
            self._files.sync_directory(self._directory)
        finally:
            self._files.close(descriptor)
        assert segment.index is not None, "the newest segment is scanned"
        add_to_index(segment.index, segment.base_offset, segment.size, read_header(batch))
        segment.size = segment.committed_size = segment.size + len(batch)
        segment.end_offset = following
        segment.max_timestamp = self._timestamp
        self._report.scanned_bytes += len(batch)
