"""Segments that are open for reading: a bounded number of mappings, of which the least recently used are closed first.

A mapping never reaches beyond the committed size of its segment, so mapped bytes are never truncated. If a reader needs
bytes after the mapping, a short tail is read with one `pread`; a longer one gets a new mapping. Old mappings are not
closed but dropped: slices of them may still be in send queues and keep them alive.

Owned by the loop thread.
"""

from __future__ import annotations

import mmap
from collections import OrderedDict

from fluss.codec.buffers import ReadableBuffer
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.options import MAX_PREAD_BYTES, READ_AHEAD_BYTES
from fluss.server.storage.log.segment import Segment

# Offset indexes up to this size are read into memory, larger ones are mapped.
_MAX_INDEX_READ_BYTES = 64 * 1024


class OpenSegment:
    """Read access to the bytes of one segment."""

    __slots__ = ("_advised_until", "_descriptor", "_files", "_map", "_segment", "_view", "index_entries")

    def __init__(self, files: FileSystem, segment: Segment) -> None:
        self._files = files
        self._segment = segment
        self._descriptor = files.open_read(segment.log_path)
        self._map: mmap.mmap | None = None
        self._view = memoryview(b"")
        self._advised_until = 0
        # The bytes of the `.index` file of a sealed segment, once they have been checked.
        self.index_entries: ReadableBuffer | None = None

    def window(self, start: int) -> tuple[memoryview, int]:
        """A view of at least the bytes from `start` to the committed end, and the position of its first byte."""
        size = self._segment.committed_size
        if len(self._view) < size:
            if size - start <= MAX_PREAD_BYTES:
                return memoryview(self._files.pread(self._descriptor, size - start, start)), start
            self._map = self._files.map(self._descriptor, size)
            self._view = memoryview(self._map)
        return self._view, 0

    def whole(self) -> memoryview:
        """A view of all committed bytes."""
        view, origin = self.window(0)
        assert origin == 0
        return view

    def advise(self, position: int) -> None:
        """Ask the kernel to read old data ahead of a reader, so that the loop waits less for the disk."""
        if self._map is None or position < self._advised_until - READ_AHEAD_BYTES // 2:
            return
        start = position // mmap.PAGESIZE * mmap.PAGESIZE
        length = min(READ_AHEAD_BYTES, len(self._view) - start)
        if length > 0:
            self._map.madvise(mmap.MADV_WILLNEED, start, length)
        self._advised_until = start + READ_AHEAD_BYTES

    def load_index(self) -> ReadableBuffer:
        """Return the bytes of the segment's `.index` file."""
        if self._files.path_size(self._segment.index_path) <= _MAX_INDEX_READ_BYTES:
            return self._files.read_file(self._segment.index_path)
        descriptor = self._files.open_read(self._segment.index_path)
        try:
            return self._files.map(descriptor, self._files.size(descriptor))
        finally:
            self._files.close(descriptor)

    def close(self) -> None:
        self._files.close(self._descriptor)
        self._map = None
        self._view = memoryview(b"")


class OpenSegments:
    """The cache of open segments. One per process, shared by all bucket logs."""

    def __init__(self, files: FileSystem, max_segments: int) -> None:
        self._files = files
        self._max_segments = max_segments
        self._open: OrderedDict[Segment, OpenSegment] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, segment: Segment) -> OpenSegment:
        """The open segment. It is opened if necessary, and the least recently used one is closed."""
        found = self._open.get(segment)
        if found is not None:
            self._open.move_to_end(segment)
            return found
        while len(self._open) >= self._max_segments:
            self._open.popitem(last=False)[1].close()
        opened = OpenSegment(self._files, segment)
        self._open[segment] = opened
        return opened

    def drop(self, segment: Segment) -> None:
        """Remove a segment that is closed or deleted from the cache."""
        found = self._open.pop(segment, None)
        if found is not None:
            found.close()
