"""The types of buffers that the codecs accept: those that `struct` can read without a copy."""

from __future__ import annotations

import mmap
from typing import TypeAlias

ReadableBuffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap
WritableBuffer: TypeAlias = bytearray | memoryview | mmap.mmap


def byte_view(buffer: ReadableBuffer) -> memoryview:
    """A flat view whose `len` is its size in bytes."""
    view = memoryview(buffer)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")
