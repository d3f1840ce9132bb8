"""How far the newest segment of a bucket is known to be on disk: a small file beside it, `bucket.synced`.

    magic "FLSM" | version u16 | reserved u16 | segment base offset i64 | byte position i64 | end offset i64 |
    inode of the bucket's directory u64 | CRC-32C of all before u32

(The first version has neither end offset nor inode.)

Recovery needs the mark to distinguish a torn write from a bad disk if the bytes look alike: a damaged or truncated end,
and pages of zeros with good batches behind them. Before the mark everything was synced, so such bytes are damage, and
nothing is removed; behind it they may be pages of the last, unacknowledged group that were never written.

If a directory is copied while its server runs, the log may be copied before the mark, so that the mark in the copy is
ahead of the log. Such a copy is recognised by the inode of the directory, which a copy does not keep.

The mark is written after a sync, at most every 20 ms, and is not synced itself: that would cost every group a second
sync. After a kill it may lack the syncs of the last milliseconds, after a power failure it may be old or missing. The
only requirement is that it is never ahead of what was synced. The checkpoint, which is synced, has the same information
for everything older than about 30 seconds.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from fluss.codec.crc import crc32c
from fluss.server.storage.files import FileSystem, write_all, write_file_atomically

MARK_NAME = "bucket.synced"
_MAGIC = b"FLSM"
_VERSION = 2
_BODY = Struct("<4sHHqqqQ")
_FIRST_BODY = Struct("<4sHHqq")
_CRC = Struct("<I")

UNKNOWN_OFFSET = -1


class SyncedMark(NamedTuple):
    """All bytes of the segment before `position` are on disk, and so are all segments before it.

    The rows there end before `end_offset`, if the bucket's directory still has that inode.
    """

    segment_base_offset: int
    position: int
    end_offset: int = UNKNOWN_OFFSET
    directory_inode: int = 0

    def position_in(self, base_offset: int) -> int:
        """The number of bytes of the segment at `base_offset` that are certainly on disk; 0 for a newer segment."""
        return self.position if self.segment_base_offset == base_offset else 0


def encode_mark(mark: SyncedMark) -> bytes:
    """Encode the content of `bucket.synced`. It fits into one page, so it is written completely or not at all."""
    body = _BODY.pack(_MAGIC, _VERSION, 0, *mark)
    return body + _CRC.pack(crc32c(body))


def decode_mark(content: bytes) -> SyncedMark | None:
    """Decode a mark; None for other bytes and for later versions. Recovery can do without: a mark only adds caution."""
    size = len(content) - _CRC.size
    if size not in (_BODY.size, _FIRST_BODY.size) or _CRC.unpack_from(content, size)[0] != crc32c(content, 0, size):
        return None
    body = _BODY if size == _BODY.size else _FIRST_BODY
    magic, version, _, *fields = body.unpack_from(content)
    is_known = (magic, version) == (_MAGIC, _VERSION if body is _BODY else 1)
    return SyncedMark(*fields) if is_known else None


def write_mark(files: FileSystem, directory: str, mark: SyncedMark) -> None:
    """Write the mark after a sync. OSError if that fails, which is harmless."""
    descriptor = files.open_write(f"{directory}/{MARK_NAME}")
    try:
        write_all(files, descriptor, [encode_mark(mark)], 0)
    finally:
        files.close(descriptor)


def take_back_mark(files: FileSystem, directory: str, mark: SyncedMark) -> None:
    """Move the mark back, and sync it, after a file was cut before the mark: the old one would be ahead of the file."""
    write_file_atomically(files, f"{directory}/{MARK_NAME}", encode_mark(mark))


def load_mark(files: FileSystem, directory: str) -> SyncedMark | None:
    """The mark of a bucket; None if it is missing or damaged."""
    try:
        return decode_mark(files.read_file(f"{directory}/{MARK_NAME}"))
    except OSError:
        return None
