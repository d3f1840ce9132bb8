"""Values by key, where later puts override earlier ones.

Merging the rows of a large put into one dict with all others takes longer than most other steps of the put, and while a
table is filled with new keys, few of them are looked up. So each large put keeps its own dict, for up to `MAX_PARTS`
puts, until many keys are looked up at once. Owned by the loop thread.
"""

from __future__ import annotations

from collections.abc import Sequence

Rows = dict[bytes, bytes | None]

# A put of at least this many rows keeps its own dict.
MIN_PART_ROWS = 1_000
MAX_PARTS = 32
# Looking up more keys than this is faster in one merged dict.
MAX_KEYS_OF_PARTS = 1_000


class Generation:
    """The newest values of a set of keys, in up to `MAX_PARTS` dicts."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        # From the oldest to the newest. The first one is our own; the others belong to puts and must not change.
        self._parts: list[Rows] = [{}]

    def add(self, entries: Rows) -> None:
        """Add newer values of some keys, which override those that were added before."""
        if len(entries) >= MIN_PART_ROWS and len(self._parts) < MAX_PARTS:
            self._parts.append(entries)
        else:
            self._join()
            self._parts[0].update(entries)

    def parts(self, key_count: int) -> Sequence[Rows]:
        """The dicts in which to look up `key_count` keys; a later one overrides the earlier ones."""
        if key_count > MAX_KEYS_OF_PARTS:
            self._join()
        return self._parts

    def _join(self) -> None:
        own = self._parts[0]
        for part in self._parts[1:]:
            own.update(part)
        del self._parts[1:]
