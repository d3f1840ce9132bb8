"""A disk that fills up, fails, or loses what was not synced.

`FaultyFiles` works on real files, so that mappings work, and remembers beside them what a real disk would still have
after a power failure: per file the content at its last sync, per directory the names at its last sync.
`after_power_loss` builds that state in a new directory. Whatever was not synced may have arrived or not, independently:
each name, and each 4 KiB page of a file; pages that did not arrive are holes.

Faults: `free_space_bytes` (short writes, then ENOSPC), `failing_syncs` and `failing_writes` (EIO for paths that contain
a string), `power_off_after` (every change after that many raises and does nothing).
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Sequence
from pathlib import Path

from fluss.codec.buffers import ReadableBuffer
from fluss.server.storage.files import FileSystem

PAGE_BYTES = 4096


class NoSyncFiles(FileSystem):
    """Real files without waiting for the disk: for tests whose process does not die."""

    def fdatasync(self, descriptor: int) -> None:
        """Nothing: the page cache is as good as the disk here."""

    def sync_directory(self, path: str) -> None:
        """Nothing, likewise."""


class RebootedFiles(NoSyncFiles):
    """The file system after a restart of the machine."""

    def boot_id(self) -> str:
        """Of no real machine."""
        return "00000000-0000-0000-0000-000000000000"


class FaultyFiles(FileSystem):
    """See the module docstring. The root directory itself and what is in it at the start count as durable."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.free_space_bytes: int | None = None
        self.failing_syncs: set[str] = set()
        self.failing_writes: set[str] = set()
        self.power_off_after: int | None = None
        self.change_count = 0
        self.sync_count = 0
        self.power_is_off = False
        self._lock = threading.RLock()
        self._next_file = 0
        self._open: dict[int, tuple[int, str]] = {}
        self._names: dict[str, int] = {}
        self._durable_names: dict[str, dict[str, int | None]] = {}
        self._durable_content: dict[int, bytes] = {}
        self._adopt(self.root)

    # --- faults --------------------------------------------------------------------------------------------------

    def _change(self) -> None:
        self.change_count += 1
        if self.power_off_after is not None and self.change_count > self.power_off_after:
            self.power_is_off = True
        if self.power_is_off:
            raise OSError(errno.EIO, "the power is off")

    def _check_space(self) -> None:
        if self.free_space_bytes == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # --- changes -------------------------------------------------------------------------------------------------

    def open_write(self, path: str) -> int:
        with self._lock:
            if not os.path.exists(path):
                self._change()
                self._check_space()
                self._names[path] = self._new_file()
            descriptor = super().open_write(path)
            self._open[descriptor] = (self._names[path], path)
            return descriptor

    def open_read(self, path: str) -> int:
        with self._lock:
            descriptor = super().open_read(path)
            if path in self._names:
                self._open[descriptor] = (self._names[path], path)
            return descriptor

    def close(self, descriptor: int) -> None:
        with self._lock:
            self._open.pop(descriptor, None)
            super().close(descriptor)

    def pwritev(self, descriptor: int, buffers: Sequence[ReadableBuffer], position: int) -> int:
        with self._lock:
            self._change()
            path = self._open[descriptor][1]
            if any(text in path for text in self.failing_writes):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            content = b"".join(bytes(buffer) for buffer in buffers)
            if self.free_space_bytes is not None and content:
                growth = position + len(content) - max(self.size(descriptor), position)
                room = min(growth, self.free_space_bytes)
                content = content[: len(content) - (growth - room)]
                if not content:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self.free_space_bytes -= room
            return os.pwrite(descriptor, content, position)

    def truncate(self, descriptor: int, size: int) -> None:
        with self._lock:
            self._change()
            if self.free_space_bytes is not None:
                self.free_space_bytes += max(0, self.size(descriptor) - size)
            super().truncate(descriptor, size)

    def fdatasync(self, descriptor: int) -> None:
        with self._lock:
            self._change()
            file, path = self._open[descriptor]
            if any(text in path for text in self.failing_syncs):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.sync_count += 1
            self._durable_content[file] = os.pread(descriptor, self.size(descriptor), 0)

    def sync_directory(self, path: str) -> None:
        with self._lock:
            self._change()
            if path.startswith(self.root):
                self._durable_names[path] = self._current_names(path)

    def replace(self, source: str, target: str) -> None:
        with self._lock:
            self._change()
            super().replace(source, target)
            self._names[target] = self._names.pop(source)

    def unlink(self, path: str) -> None:
        with self._lock:
            self._change()
            super().unlink(path)
            self._names.pop(path, None)

    def make_directory(self, path: str) -> None:
        with self._lock:
            self._change()
            self._check_space()
            super().make_directory(path)
            self._durable_names[path] = {}

    def remove_directory(self, path: str) -> None:
        with self._lock:
            self._change()
            super().remove_directory(path)

    def free_bytes(self, path: str) -> int:
        return super().free_bytes(path) if self.free_space_bytes is None else self.free_space_bytes

    # --- power loss ----------------------------------------------------------------------------------------------

    def after_power_loss(self, target: Path, rng: random.Random) -> None:
        """Build what the disk holds after a power failure, as a new directory tree."""
        with self._lock:
            self.power_is_off = True
            self._rebuild(self.root, str(target), rng)

    def _rebuild(self, source: str, target: str, rng: random.Random) -> None:
        os.makedirs(target, exist_ok=True)
        durable, current = self._durable_names.get(source, {}), self._current_names(source)
        for name in sorted(durable.keys() | current.keys()):
            states = [names[name] for names in (durable, current) if name in names]
            if len(states) == 1 and rng.random() < 0.5:
                continue
            state = rng.choice(states)
            if state is None:
                if os.path.isdir(f"{source}/{name}"):
                    self._rebuild(f"{source}/{name}", f"{target}/{name}", rng)
            else:
                self._rebuild_file(state, f"{target}/{name}", rng)

    def _rebuild_file(self, file: int, target: str, rng: random.Random) -> None:
        durable = self._durable_content.get(file, b"")
        current = durable
        for path, candidate in self._names.items():
            if candidate == file:
                current = Path(path).read_bytes()
        with open(target, "wb") as output:
            for position, content in _surviving_pages(durable, current, rng):
                output.seek(position)
                output.write(content)
            size = output.tell()
            if len(current) < len(durable):
                size = rng.choice((len(current), len(durable)))
            output.truncate(max(size, min(len(durable), len(current))))

    # --- what exists ---------------------------------------------------------------------------------------------

    def _new_file(self) -> int:
        self._next_file += 1
        return self._next_file

    def _current_names(self, directory: str) -> dict[str, int | None]:
        """Name -> file, None for a directory."""
        return {name: self._names.get(f"{directory}/{name}") for name in os.listdir(directory)}

    def _adopt(self, directory: str) -> None:
        for name in os.listdir(directory):
            path = f"{directory}/{name}"
            if os.path.isdir(path):
                self._adopt(path)
            else:
                self._names[path] = self._new_file()
                self._durable_content[self._names[path]] = Path(path).read_bytes()
        self._durable_names[directory] = self._current_names(directory)


def _surviving_pages(durable: bytes, current: bytes, rng: random.Random) -> list[tuple[int, bytes]]:
    """Pieces of a file, in order of position. What is missing between them was never written: a hole."""
    fate = rng.choice(("nothing", "everything", "prefix", "pages", "pages"))
    if fate == "nothing" or durable == current:
        return [(0, durable)]
    if fate == "everything":
        return [(0, current)]
    if fate == "prefix" and current.startswith(durable):
        return [(0, current[: rng.randint(len(durable), len(current))])]
    pieces = []
    for start in range(0, max(len(durable), len(current)), PAGE_BYTES):
        old, new = durable[start : start + PAGE_BYTES], current[start : start + PAGE_BYTES]
        kept = new if rng.random() < 0.5 else old
        if kept:
            pieces.append((start, kept))
    if not pieces:
        return [(0, b"")]
    # A page that kept its old, shorter content reads as zeros up to its end.
    last = pieces[-1][0]
    return [(at, kept if at == last else kept.ljust(PAGE_BYTES, b"\0")) for at, kept in pieces]
