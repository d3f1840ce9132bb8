"""The memory that the buckets of a process use together for rows that are not in files yet.

RocksDB writes a file when a store has enough full buffers for one, and a bucket flushes after a number of rows
(`FLUSH_AFTER_ROWS`). Buckets that are written only now and then reach neither limit, and their rows would stay in
memory. So when all buckets together exceed the limit, the one with the oldest unflushed rows has to flush, and the next
one when that is done. Owned by the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Flushable(Protocol):
    """A store with rows that are not in files."""

    def flush(self) -> None:
        """Start to flush the rows to files."""

    @property
    def is_flushing(self) -> bool:
        """True while rows are being flushed to files."""


class UnflushedBuckets:
    """The buckets with unflushed rows, oldest first. `used_bytes` returns how much memory all of them use."""

    def __init__(self, limit_bytes: int, used_bytes: Callable[[], int]) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = used_bytes
        self._buckets: dict[Flushable, None] = {}
        self._flushing: Flushable | None = None

    def wrote(self, bucket: Flushable) -> None:
        """Record that a bucket has unflushed rows; make the oldest one flush if memory is over the limit."""
        self._buckets.setdefault(bucket)
        if self._used_bytes() <= self._limit_bytes or (self._flushing is not None and self._flushing.is_flushing):
            return
        self._flushing = next(iter(self._buckets))
        self._flushing.flush()

    def flushed(self, bucket: Flushable) -> None:
        """Record that all rows of a bucket are in files, or on their way, or no longer needed."""
        self._buckets.pop(bucket, None)

    def closed(self, bucket: Flushable) -> None:
        """Remove a bucket that was closed."""
        self.flushed(bucket)
        if self._flushing is bucket:
            self._flushing = None
