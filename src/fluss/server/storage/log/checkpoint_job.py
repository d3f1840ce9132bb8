"""Writing a checkpoint: first the new index entries, then the checkpoint itself, then the removal of old segments.

The loop thread describes the work (`CheckpointJob`, immutable bytes and paths), another thread carries it out, and the
loop gets the result. The order matters: a checkpoint counts index entries, so they must be on disk before it; a segment
is removed only when the checkpoint records that the log starts after it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from fluss.server.storage.files import FileSystem, write_all
from fluss.server.storage.log.checkpoint import write_checkpoint
from fluss.server.storage.log.index import OFFSET_ENTRY, TIME_ENTRY
from fluss.server.storage.log.segment import Segment

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class IndexWrite:
    """New entries for the index files of one segment, and the numbers of entries afterwards."""

    segment: Segment
    offset_entries: bytes
    time_entries: bytes
    offset_entry_count: int
    time_entry_count: int
    # True if the segment is sealed and these are its last entries.
    completes: bool


@dataclass(frozen=True)
class CheckpointJob:
    """The work for one checkpoint: index entries and the checkpoint to write, segments to remove."""

    directory: str
    recovery_offset: int
    checkpoint: bytes
    index_writes: list[IndexWrite]
    removed: list[Segment] = field(default_factory=list)


def index_write(segment: Segment, durable_position: int, durable_offset: int) -> IndexWrite | None:
    """The entries of durable bytes that a segment's index files lack; None if there are none. Loop thread."""
    index = segment.index
    if index is None:
        return None
    completes = segment.sealed and durable_position >= segment.size
    if completes:
        index.add_time_entry()
        offset_count, time_count = len(index.offsets), len(index.timestamps)
    else:
        offset_count, time_count = index.entries_before(durable_position, durable_offset - segment.base_offset)
    first_offset, first_time = index.flushed_offset_entries, index.flushed_time_entries
    if not completes and (offset_count <= first_offset and time_count <= first_time):
        return None
    return IndexWrite(
        segment,
        index.offset_bytes(first_offset, max(first_offset, offset_count)),
        index.time_bytes(first_time, max(first_time, time_count)),
        max(first_offset, offset_count),
        max(first_time, time_count),
        completes,
    )


def run_checkpoint(files: FileSystem, job: CheckpointJob) -> None:
    """Carry out a job; OSError if the disk is full or broken. An unfinished job is harmless."""
    for write in job.index_writes:
        paths = write.segment.paths
        _write_entries(files, paths[1], write.offset_entries, write.offset_entry_count * OFFSET_ENTRY.size)
        _write_entries(files, paths[2], write.time_entries, write.time_entry_count * TIME_ENTRY.size)
    write_checkpoint(files, job.directory, job.checkpoint)
    for segment in job.removed:
        remove_segment(files, segment)


def finish_index_writes(writes: list[IndexWrite]) -> None:
    """Record the number of entries in the files; a sealed segment is read from its files from now on. Loop thread."""
    for write in writes:
        index = write.segment.index
        if index is None:
            continue
        index.flushed_offset_entries = write.offset_entry_count
        index.flushed_time_entries = write.time_entry_count
        if write.completes:
            write.segment.stored_entries = (write.offset_entry_count, write.time_entry_count)
            write.segment.index = None


def remove_segment(files: FileSystem, segment: Segment) -> None:
    """Remove the files of a segment. A failure is logged: the next start tries again."""
    for path in segment.paths:
        try:
            files.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            _logger.warning("cannot remove %s: %s", path, error)


def remove_bucket(files: FileSystem, directory: str) -> None:
    """Remove the directory of a dropped bucket. Files that cannot be removed are logged; the next start tries again."""
    try:
        for name in files.list_directory(directory):
            path = f"{directory}/{name}"
            if files.is_directory(path):
                remove_bucket(files, path)
            else:
                files.unlink(path)
        files.remove_directory(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        _logger.warning("cannot remove the dropped bucket %s: %s", directory, error)


def _write_entries(files: FileSystem, path: str, entries: bytes, end: int) -> None:
    """Write entries so that the file ends with them at `end`."""
    descriptor = files.open_write(path)
    try:
        write_all(files, descriptor, [entries], end - len(entries))
        if files.size(descriptor) != end:
            files.truncate(descriptor, end)  # leftovers of a process that died
        files.fdatasync(descriptor)
    finally:
        files.close(descriptor)
