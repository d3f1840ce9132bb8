"""The memory that rows use which are not in files yet, over all buckets of a process.

RocksDB makes a file when a store has enough full buffers for one, and a bucket asks for one after a number of rows
(`FLUSH_AFTER_ROWS`). Buckets that are written now and then reach neither, and their rows would stay in memory: so when
all together use more than the limit, the one that has had such rows for longest is told to bring them into files, and
the next one when that is done. Owned by the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Flushable(Protocol):
    """Has rows that are not in files."""

    def flush(self) -> None:
        """Begin to bring them into files."""

    @property
    def is_flushing(self) -> bool:
        """Whether that is under way."""


class UnflushedBuckets:
    """See the module text. `used_bytes` tells what all buckets use."""

    def __init__(self, limit_bytes: int, used_bytes: Callable[[], int]) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = used_bytes
        self._buckets: dict[Flushable, None] = {}
        self._flushing: Flushable | None = None

    def wrote(self, bucket: Flushable) -> None:
        """A bucket has rows that are not in files."""
        self._buckets.setdefault(bucket)
        if self._used_bytes() <= self._limit_bytes or (self._flushing is not None and self._flushing.is_flushing):
            return
        self._flushing = next(iter(self._buckets))
        self._flushing.flush()

    def flushed(self, bucket: Flushable) -> None:
        """All rows of a bucket are in files, or on their way, or of no use any more."""
        self._buckets.pop(bucket, None)

    def closed(self, bucket: Flushable) -> None:
        """A bucket is gone."""
        self.flushed(bucket)
        if self._flushing is bucket:
            self._flushing = None
