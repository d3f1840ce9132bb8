"""The file `bucket.offsets`: which offsets readers may have seen, so that no offset is used for two rows.

If `log.flush` is not `always`, readers see rows that a power failure may take. A reader that has read up to offset 1050
would skip rows if the log came back ending at 1000 and used 1000 to 1049 for other rows. So offsets are *reserved* in
large steps: a limit N is synced before the first offset at or above the previous limit is shown. After a start in which
the end of the log may be missing, the log continues behind N, and a batch without rows, the *filler*, covers the
offsets in between. Everything that follows the chain of batches (readers, replays, remote segments, other clients)
treats it like any other batch: a reader that is before or inside it continues with the first new row.

    magic "FLGO" | version u16 | reserved u16 | boot id, 36 bytes | reserved until i64, 0: nothing | ranges u32 |
    per range of lost offsets: first i64, next i64 | CRC-32C of all before u32

The end may be missing if the machine was rebooted since (another boot id), or if bytes had to be cut off; a killed
process alone loses nothing. A clean stop removes the reservation. With `always` there is none.

The lost ranges are kept for good: the number of rows of a log is that of its offsets minus theirs, and a key-value
store whose applied offset is inside one contains rows that the changelog lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from fluss.codec.crc import crc32c
from fluss.model.formats import refuse_newer
from fluss.model.offsets import MIN_LOST_OFFSETS
from fluss.server.storage.files import FileSystem, write_file_atomically
from fluss.server.storage.log.background_files import Job, nothing

RESERVED_NAME = "bucket.offsets"
# Offsets are reserved ahead for about this time of writing. The two syncs of a reservation may have to write much of
# what the page cache holds, so they must be rare.
RESERVED_SECONDS = 10.0
MIN_RESERVED_OFFSETS = 1 << 20
MAX_RESERVED_OFFSETS = 1 << 24

_MAGIC = b"FLGO"
_VERSION = 1
_HEAD = Struct("<4sHH36sqI")
_START = Struct("<4sH")
_RANGE = Struct("<qq")
_CRC = Struct("<I")
_logger = logging.getLogger(__name__)


class ReservedOffsets(NamedTuple):
    """The content of `bucket.offsets`. With `reserved_until` 0, every offset that was shown is on disk."""

    reserved_until: int = 0
    boot_id: str = ""
    lost: tuple[tuple[int, int], ...] = ()


def encode_reserved(reserved: ReservedOffsets) -> bytes:
    """Encode the content of `bucket.offsets`."""
    head = _HEAD.pack(
        _MAGIC, _VERSION, 0, reserved.boot_id.encode("ascii"), reserved.reserved_until, len(reserved.lost)
    )
    content = head + b"".join([_RANGE.pack(*each) for each in reserved.lost])
    return content + _CRC.pack(crc32c(content))


def decode_reserved(content: bytes, name: str = RESERVED_NAME) -> ReservedOffsets | None:
    """Decode the content of `bucket.offsets`; None if it is damaged, FlussError if a later version wrote it."""
    body_size = len(content) - _CRC.size
    if body_size < _START.size or _CRC.unpack_from(content, body_size)[0] != crc32c(content, 0, body_size):
        return None
    magic, version = _START.unpack_from(content)
    if magic != _MAGIC:
        return None
    refuse_newer(f"reserved offsets {name}", version, _VERSION)
    if body_size < _HEAD.size:
        return None
    _, _, _, boot_id, reserved_until, count = _HEAD.unpack_from(content)
    if body_size != _HEAD.size + count * _RANGE.size:
        return None
    ranges = tuple(_RANGE.iter_unpack(memoryview(content)[_HEAD.size : body_size]))
    return ReservedOffsets(reserved_until, boot_id.rstrip(b"\0").decode("ascii", "replace"), ranges)


def load_reserved(files: FileSystem, directory: str) -> ReservedOffsets | None:
    """Read `bucket.offsets` of a bucket, which must exist; None if it is damaged."""
    path = f"{directory}/{RESERVED_NAME}"
    return decode_reserved(files.read_file(path), path)


def write_reserved(files: FileSystem, directory: str, reserved: ReservedOffsets) -> None:
    """Write `bucket.offsets`, or remove it if there is nothing to record. Durable when this returns."""
    path = f"{directory}/{RESERVED_NAME}"
    if reserved.reserved_until or reserved.lost:
        write_file_atomically(files, path, encode_reserved(reserved))
        return
    files.unlink(path)
    files.sync_directory(directory)


def first_free_offset(reserved: ReservedOffsets | None, end_offset: int, boot_id: str, was_cut: bool) -> int:
    """The offset at which a log continues whose files end at `end_offset`, behind all offsets that may have been shown.

    That is `end_offset` itself if nothing is missing at the end.
    """
    if reserved is None:
        return end_offset + MAX_RESERVED_OFFSETS
    was_rebooted = not boot_id or reserved.boot_id != boot_id
    if end_offset >= reserved.reserved_until or not (was_rebooted or was_cut):
        return end_offset
    # One more than was reserved, so that a key-value store that is ahead of the log is never exactly at its new end.
    return max(reserved.reserved_until, end_offset + MIN_LOST_OFFSETS) + 1


def with_lost_range(reserved: ReservedOffsets, first: int, following: int) -> ReservedOffsets:
    """The content while the filler is written. It has no boot id: after a kill, the next start writes the filler."""
    kept = tuple(each for each in reserved.lost if each[0] < first)
    return ReservedOffsets(following, "", (*kept, (first, following)))


def lost_offsets(lost: tuple[tuple[int, int], ...], start: int) -> int:
    """The number of offsets from `start` on that have no rows."""
    return sum(max(0, following - max(first, start)) for first, following in lost)


def offset_of_last_rows(lost: tuple[tuple[int, int], ...], end: int, limit: int) -> int:
    """The offset of the first of the last `limit` rows before `end`; below the log's start if there are fewer rows."""
    for first, following in reversed(lost):
        if following <= end - limit:
            break
        limit -= end - following
        end = first
    return end - limit


class Reservation:
    """The offsets of one bucket that readers may be shown.

    `reserve` is for the commit thread; `reserve_ahead` is for the loop and starts a job in the background. So appends
    wait only for the first reservation, or when they come faster than the disk can store reservations.
    """

    def __init__(self, files: FileSystem, directory: str, lost: tuple[tuple[int, int], ...]) -> None:
        self._files = files
        self._directory = directory
        self._lost = lost
        self._lock = threading.Lock()
        self._step = MIN_RESERVED_OFFSETS
        self._reserved_at = float("-inf")
        self._is_ahead = False
        self._is_released = False
        self.until = 0

    def reserve(self, next_offset: int) -> None:
        """Reserve all offsets below `next_offset`, and some more. OSError if the file cannot be written."""
        with self._lock:
            if next_offset > self.until:
                self._extend(next_offset)

    def reserve_ahead(self, next_offset: int, submit: Callable[[Job], None]) -> None:
        """Reserve more in the background if half of the reservation is used."""
        if self.until and not self._is_ahead and next_offset > self.until - self._step // 2:
            self._is_ahead = True
            submit(self._reserve_in_background)

    def _reserve_in_background(self) -> Callable[[], None]:
        with self._lock:
            self._is_ahead = False
            if not self._is_released:
                try:
                    self._extend(self.until)
                except OSError as error:
                    # The append that needs the offsets tries again and fails with the reason.
                    _logger.debug("cannot reserve offsets of %s ahead: %s", self._directory, error)
        return nothing

    def _extend(self, next_offset: int) -> None:
        now = time.monotonic()
        is_soon = now - self._reserved_at < RESERVED_SECONDS
        step = min(self._step * 4, MAX_RESERVED_OFFSETS) if is_soon else max(self._step // 2, MIN_RESERVED_OFFSETS)
        until = next_offset + step
        write_reserved(self._files, self._directory, ReservedOffsets(until, self._files.boot_id(), self._lost))
        self._step, self._reserved_at, self.until = step, now, until

    def release(self) -> None:
        """Remove the reservation: everything that was shown is on disk, and nothing more will be written."""
        with self._lock:
            self._is_released = True
            if not self.until:
                return
            self.until = 0
            try:
                write_reserved(self._files, self._directory, ReservedOffsets(lost=self._lost))
            except OSError as error:
                _logger.warning("cannot release the reserved offsets of %s: %s", self._directory, error)
