"""Rows that are accepted and not yet in the store.

A put is accepted before its changelog is on disk, and the next put has to see its rows. So each put keeps what it
changes until the changelog is durable and the rows are in the store; `newest` maps a key to the newest such change.

Invariant: `newest[key]` is (number of the put, value) of the last put in `puts` that changes the key, and exactly the
keys of those puts are in it. Puts leave at the front when they are applied, and at the back when their append failed.
Owned by the loop thread.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat

from fluss.server.storage.kv.limits import PENDING_ROW_OVERHEAD_BYTES
from fluss.server.storage.log.append import Append


class PendingPut:
    """What one put changes: values by key (None removes), and by how much the number of rows changes."""

    __slots__ = ("append", "entries", "number", "row_delta", "size_bytes")

    def __init__(self, append: Append, entries: dict[bytes, bytes | None], row_delta: int, number: int) -> None:
        self.append = append
        self.entries = entries
        self.row_delta = row_delta
        self.number = number
        content = sum(map(len, entries)) + sum(map(len, filter(None, entries.values())))
        self.size_bytes = content + len(entries) * PENDING_ROW_OVERHEAD_BYTES


class PreWriteBuffer:
    """See the module text."""

    def __init__(self) -> None:
        self.puts: deque[PendingPut] = deque()
        self.newest: dict[bytes, tuple[int, bytes | None]] = {}
        self.size_bytes = 0
        self._next_number = 0

    def add(self, append: Append, entries: dict[bytes, bytes | None], row_delta: int) -> PendingPut:
        """A put was accepted."""
        put = PendingPut(append, entries, row_delta, self._next_number)
        self._next_number += 1
        self.puts.append(put)
        self.size_bytes += put.size_bytes
        self._note(put)
        return put

    def take_up_to(self, offset: int) -> list[PendingPut]:
        """Remove the oldest puts, as far as their changelog lies below `offset`."""
        taken: list[PendingPut] = []
        while self.puts and self.puts[0].append.next_offset <= offset:
            put = self.puts.popleft()
            self.size_bytes -= put.size_bytes
            taken.append(put)
        if not self.puts:
            self.newest.clear()
            return taken
        newest = self.newest
        for put in taken:
            for key in put.entries:
                if newest[key][0] == put.number:
                    del newest[key]
        return taken

    def take_back(self, put: PendingPut) -> None:
        """A put failed: what lies under its rows shows again. Rare, so everything is noted anew."""
        if put in self.puts:
            self.puts.remove(put)
            self.size_bytes -= put.size_bytes
            self.newest.clear()
            for other in self.puts:
                self._note(other)

    def _note(self, put: PendingPut) -> None:
        self.newest.update(zip(put.entries, zip(repeat(put.number), put.entries.values()), strict=False))
