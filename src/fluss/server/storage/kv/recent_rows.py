"""The memory that the buckets of a process use together for rows that were written recently (see `prewrite`).

After each write a bucket reports how many bytes it could drop. When all buckets together exceed the limit, those that
wrote longest ago have to drop theirs until the total fits. The bucket that is writing stays near the limit by itself:
each of its two generations may use half of it. Owned by the loop thread.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Evictable(Protocol):
    """A cache of rows that can be dropped at any time."""

    def forget(self) -> None:
        """Drop all rows that can be read from the store again."""


class RecentRows:
    """The budget that all buckets of a process share."""

    def __init__(self, limit_bytes: int) -> None:
        self.generation_bytes = limit_bytes // 2
        self._limit_bytes = limit_bytes
        self._sizes: OrderedDict[Evictable, int] = OrderedDict()
        self._total_bytes = 0

    @property
    def total_bytes(self) -> int:
        """The bytes that all buckets together could drop."""
        return self._total_bytes

    def used(self, buffer: Evictable, size_bytes: int) -> None:
        """Record that a bucket has written and could drop `size_bytes`; make others drop theirs if over the limit."""
        self._note(buffer, size_bytes)
        while self._total_bytes > self._limit_bytes:
            longest_ago = next(iter(self._sizes))
            if longest_ago is buffer:
                break
            longest_ago.forget()
            self._note(longest_ago, 0)

    def _note(self, buffer: Evictable, size_bytes: int) -> None:
        self._total_bytes += size_bytes - self._sizes.pop(buffer, 0)
        if size_bytes:
            self._sizes[buffer] = size_bytes
