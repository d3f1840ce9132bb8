"""Values of keys, each put on top of the ones before it.

To bring the rows of a large put into one dict with all others takes longer than most other steps of the put, and while
a table is filled with new keys nobody asks for them but a few. So the rows of large puts are left as they came, up to
`MAX_PARTS` puts, until somebody asks for many keys. Owned by the loop thread.
"""

from __future__ import annotations

from collections.abc import Sequence

Rows = dict[bytes, bytes | None]

# A put of at least that many rows is left as it came.
MIN_PART_ROWS = 1_000
MAX_PARTS = 32
# Whoever asks for more keys had better look into one dict.
MAX_KEYS_OF_PARTS = 1_000


class Generation:
    """See the module text."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        # From the oldest to the newest. The first one is our own; the others belong to puts and are not changed.
        self._parts: list[Rows] = [{}]

    def add(self, entries: Rows) -> None:
        """These are the newest values of their keys."""
        if len(entries) >= MIN_PART_ROWS and len(self._parts) < MAX_PARTS:
            self._parts.append(entries)
        else:
            self._join()
            self._parts[0].update(entries)

    def parts(self, key_count: int) -> Sequence[Rows]:
        """Where to look for that many keys: dicts, of which a later one wins."""
        if key_count > MAX_KEYS_OF_PARTS:
            self._join()
        return self._parts

    def _join(self) -> None:
        own = self._parts[0]
        for part in self._parts[1:]:
            own.update(part)
        del self._parts[1:]
