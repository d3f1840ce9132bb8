"""The few file operations that storage needs, behind one interface.

Everything that storage writes goes through a `FileSystem`, so that a test can substitute a disk that is full, slow or
failing, or that loses what was not synced. The class has no state; any thread may call any method.

Rules for callers:

- a new file survives a power failure only after `fdatasync` of the file AND `sync_directory` of its directory;
- a rename likewise: sync the content before `replace`, the directory after it;
- never truncate a file below a size that is mapped anywhere (reading the mapping would raise SIGBUS).
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Sequence
from functools import cache

from fluss.codec.buffers import ReadableBuffer
from fluss.errors import ErrorCode, FlussError

# Linux takes at most this many buffers in one pwritev.
MAX_BUFFERS_PER_WRITE = 1024
# For larger writes the kernel takes larger pages into its cache. In a virtual machine those are often memory that the
# host provides only when it is touched: appends of 2 MB in one call were half as fast as in slices of this size.
MAX_BYTES_PER_WRITE = 256 * 1024
# Directories above a bucket that several processes may create at once: partition, table, database, data.
MAX_SHARED_PARENT_DIRECTORIES = 4
# Errors that mean "no room", a state that ends when space is freed; all others mean a broken disk.
FULL_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})
# Linux only. In a container it is the id of the host.
_BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
# macOS has no fdatasync.
_fdatasync = getattr(os, "fdatasync", os.fsync)


class FileSystem:
    """Operations on real files. Subclasses inject faults."""

    def open_write(self, path: str) -> int:
        """Open a file for reading and writing; it is created if it is missing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def open_read(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def path_size(self, path: str) -> int:
        return os.stat(path).st_size

    def inode(self, path: str) -> int:
        """Return the inode, a number that a file or directory keeps and that differs for a copy of it."""
        return os.stat(path).st_ino

    def pwritev(self, descriptor: int, buffers: Sequence[ReadableBuffer], position: int) -> int:
        """One write call. It may write fewer bytes than it was given: see `write_all`."""
        return os.pwritev(descriptor, buffers, position)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        return os.pread(descriptor, size, position)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def fdatasync(self, descriptor: int) -> None:
        _fdatasync(descriptor)

    def sync_directory(self, path: str) -> None:
        """Make the names that were created, renamed and removed in a directory durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory; empty if the directory is missing."""
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        os.mkdir(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def map(self, descriptor: int, size: int) -> mmap.mmap:
        """A read-only mapping of the first `size` bytes. It stays valid after the descriptor is closed."""
        return mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ)

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def has_hole(self, descriptor: int, start: int, end: int) -> bool:
        """True if a byte of the range was never written. Always False on file systems without holes."""
        try:
            return os.lseek(descriptor, start, os.SEEK_HOLE) < end
        except OSError:
            return False

    def boot_id(self) -> str:
        """A string that changes with every boot of the machine; empty if it is not known.

        While it stays the same, the page cache still has what was written, even if the process was killed.
        """
        return _boot_id()

    def free_bytes(self, path: str) -> int:
        """Return the bytes that are free for an unprivileged user on the disk of `path`, which need not exist."""
        while True:
            try:
                status = os.statvfs(path)
                return status.f_bavail * status.f_frsize
            except FileNotFoundError:
                parent = os.path.dirname(path)
                if parent == path:
                    raise
                path = parent


@cache
def _boot_id() -> str:
    try:
        with open(_BOOT_ID_PATH, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def write_all(files: FileSystem, descriptor: int, buffers: Sequence[ReadableBuffer], position: int) -> int:
    """Write all buffers one after the other, in as many calls as needed; returns the end position."""
    pending: list[ReadableBuffer] = [part for buffer in buffers for part in _slices(buffer)]
    first = 0
    while first < len(pending):
        limit = _end_of_call(pending, first)
        written = files.pwritev(descriptor, pending[first:limit], position)
        if written <= 0 and any(len(buffer) for buffer in pending[first:limit]):
            raise OSError(errno.ENOSPC, "the write call wrote no bytes")
        position += written
        while first < limit and written >= len(pending[first]):
            written -= len(pending[first])
            first += 1
        if written:
            pending[first] = memoryview(pending[first])[written:]
    return position


def _slices(buffer: ReadableBuffer) -> Sequence[ReadableBuffer]:
    size = len(buffer)
    if size <= MAX_BYTES_PER_WRITE:
        return (buffer,)
    view = memoryview(buffer)
    return [view[start : start + MAX_BYTES_PER_WRITE] for start in range(0, size, MAX_BYTES_PER_WRITE)]


def _end_of_call(pending: Sequence[ReadableBuffer], first: int) -> int:
    """The end of the range of buffers that one call writes, beginning with the one at `first`."""
    size = len(pending[first])
    for end in range(first + 1, min(len(pending), first + MAX_BUFFERS_PER_WRITE)):
        size += len(pending[end])
        if size > MAX_BYTES_PER_WRITE:
            return end
    return min(len(pending), first + MAX_BUFFERS_PER_WRITE)


def make_directories(files: FileSystem, path: str) -> None:
    """Create a directory and its missing parents so that they survive a power failure.

    The nearest parents are synced even if they exist: another tablet process may have just created a common parent
    and not synced it yet.
    """
    made = make_missing_directories(files, path)
    for _ in range(max(made, MAX_SHARED_PARENT_DIRECTORIES)):
        parent = os.path.dirname(path)
        if parent == path:
            return
        files.sync_directory(parent)
        path = parent


def make_missing_directories(files: FileSystem, path: str) -> int:
    """Create a directory and its missing parents without syncing them; returns how many were missing."""
    missing = []
    directory = path
    while not files.is_directory(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    for directory in reversed(missing):
        try:
            files.make_directory(directory)
        except FileExistsError:
            if not files.is_directory(directory):
                raise
    return len(missing)


def write_file_atomically(files: FileSystem, path: str, content: bytes, *, is_synced: bool = True) -> None:
    """Replace a whole file: after a crash at any point the path holds the old or the new content.

    Without the syncs this holds only for a killed process; a power failure may leave a torn file.
    """
    temporary = path + ".tmp"
    descriptor = files.open_write(temporary)
    try:
        files.truncate(descriptor, 0)
        write_all(files, descriptor, [content], 0)
        if is_synced:
            files.fdatasync(descriptor)
    finally:
        files.close(descriptor)
    files.replace(temporary, path)
    if is_synced:
        files.sync_directory(os.path.dirname(path))


def file_time_ms(path: str | os.PathLike[str]) -> int:
    """Return the time of the last write to a file, in epoch milliseconds."""
    return int(os.stat(path).st_mtime * 1000)


def is_disk_full(error: OSError) -> bool:
    return error.errno in FULL_DISK_ERRORS


def is_shortage(error: BaseException | None) -> bool:
    """True if a resource that all buckets share ran out, as opposed to a fault of a single file."""
    if isinstance(error, FlussError):
        return error.error_code == ErrorCode.DISK_WRITE_LOCKED or is_shortage(error.__cause__)
    if isinstance(error, OSError):
        return is_disk_full(error) or error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
    return isinstance(error, MemoryError)
