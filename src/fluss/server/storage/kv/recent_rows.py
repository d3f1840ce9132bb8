"""The memory that buckets use for rows that were written lately (see `prewrite`), over all buckets of a process.

Every bucket tells after a write how much it holds that it could forget. When all together hold more than the limit,
those that wrote longest ago are told to forget, until it fits. The one that is writing keeps to about the limit by
itself: each of its two generations may be half of it. Owned by the loop thread.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Forgetful(Protocol):
    """Holds rows that it can do without."""

    def forget(self) -> None:
        """Keep only what is needed."""


class RecentRows:
    """See the module text."""

    def __init__(self, limit_bytes: int) -> None:
        self.generation_bytes = limit_bytes // 2
        self._limit_bytes = limit_bytes
        self._sizes: OrderedDict[Forgetful, int] = OrderedDict()
        self._total_bytes = 0

    @property
    def total_bytes(self) -> int:
        """What all buckets hold and could forget."""
        return self._total_bytes

    def used(self, buffer: Forgetful, size_bytes: int) -> None:
        """A bucket has written, and holds that much that it could forget."""
        self._note(buffer, size_bytes)
        while self._total_bytes > self._limit_bytes:
            longest_ago = next(iter(self._sizes))
            if longest_ago is buffer:
                break
            longest_ago.forget()
            self._note(longest_ago, 0)

    def _note(self, buffer: Forgetful, size_bytes: int) -> None:
        self._total_bytes += size_bytes - self._sizes.pop(buffer, 0)
        if size_bytes:
            self._sizes[buffer] = size_bytes
