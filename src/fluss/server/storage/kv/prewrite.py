"""Rows that are accepted and not yet in the store, and rows that were written lately.

A put is accepted before its changelog is on disk, and the next put has to see its rows. So each put keeps what it
changes until the changelog is durable and the rows are in the store. The newest value of every key is kept a while
longer than that: whoever writes a key once more soon is spared a read of the store, which costs more than all the rest.

Two generations of values by key (`Generation`). New ones go into `_young`; when that has grown to its share of memory
(`RecentRows`), it becomes `_old`, and what was old is forgotten, unless a put of that age still waits.

Invariant: a key that one of `puts` changes is in a generation; what a generation says of a key, the younger first, is
the newest value of it (None: it was removed). Puts leave at the front when they are applied, which makes the store say
the same, and at the back when their append failed, which makes us forget everything but the puts that are left.
Owned by the loop thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import compress, repeat, takewhile
from operator import is_
from typing import Any

from fluss.server.storage.kv.generation import Generation, Rows
from fluss.server.storage.kv.limits import PENDING_ROW_OVERHEAD_BYTES
from fluss.server.storage.kv.recent_rows import RecentRows
from fluss.server.storage.log.append import Append

_NOT_KNOWN: Any = object()
_FIRST_NUMBER = 0


class PendingPut:
    """What one put changes: values by key (None removes), and by how much the number of rows changes."""

    __slots__ = ("append", "entries", "number", "row_delta", "size_bytes")

    def __init__(
        self,
        append: Append,
        entries: dict[bytes, bytes | None],
        row_delta: int,
        number: int,
        content_bytes: int | None = None,
    ) -> None:
        self.append = append
        self.entries = entries
        self.row_delta = row_delta
        self.number = number
        if content_bytes is None:
            content_bytes = sum(map(len, entries)) + sum(map(len, filter(None, entries.values())))
        self.size_bytes = content_bytes + len(entries) * PENDING_ROW_OVERHEAD_BYTES


class PreWriteBuffer:
    """See the module text."""

    def __init__(self, recent: RecentRows) -> None:
        self.puts: deque[PendingPut] = deque()
        self.size_bytes = 0
        self._recent = recent
        self._young, self._old = Generation(), Generation()
        self._young_bytes = self._old_bytes = 0
        # The number of the first put whose rows are only in the young generation.
        self._young_from = _FIRST_NUMBER
        self._next_number = _FIRST_NUMBER

    def add(
        self,
        append: Append,
        entries: dict[bytes, bytes | None],
        row_delta: int,
        content_bytes: int | None = None,
    ) -> PendingPut:
        """A put was accepted. Whoever knows about how many bytes the entries have spares us counting them."""
        put = PendingPut(append, entries, row_delta, self._next_number, content_bytes)
        self._next_number += 1
        self.puts.append(put)
        self.size_bytes += put.size_bytes
        self._young.add(entries)
        self._young_bytes += put.size_bytes
        if self._young_bytes > self._recent.generation_bytes and self._old_is_applied:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes = Generation(), 0
            self._young_from = self._next_number
        self._recent.used(self, self._young_bytes + self._old_bytes - self.size_bytes)
        return put

    @property
    def _old_is_applied(self) -> bool:
        return not self.puts or self.puts[0].number >= self._young_from

    def find(self, keys: list[bytes]) -> tuple[list[Any], list[int]]:
        """The newest values of keys, as far as they are known here, and the positions of the keys that are not.

        Keys lie all over memory, so a look at one costs more than all else here: the old generation is only asked for
        keys that the young one does not know. Rows that are written in some order are mostly all in one of them.
        """
        values = _values_in(self._young.parts(len(keys)), keys)
        unknown = _not_known(values)
        if not unknown:
            return values, unknown
        if len(unknown) == len(keys):
            values = _values_in(self._old.parts(len(keys)), keys)
            return values, _not_known(values)
        left = [keys[position] for position in unknown]
        for position, value in zip(unknown, _values_in(self._old.parts(len(left)), left), strict=True):
            values[position] = value
        return values, [position for position in unknown if values[position] is _NOT_KNOWN]

    def up_to(self, offset: int) -> list[PendingPut]:
        """The oldest puts, as far as their changelog lies below `offset`."""
        return list(takewhile(lambda put: put.append.next_offset <= offset, self.puts))

    def take_up_to(self, offset: int) -> list[PendingPut]:
        """Remove the oldest puts, as far as their changelog lies below `offset`."""
        taken: list[PendingPut] = []
        while self.puts and self.puts[0].append.next_offset <= offset:
            put = self.puts.popleft()
            self.size_bytes -= put.size_bytes
            taken.append(put)
        return taken

    def take_back(self, put: PendingPut) -> None:
        """A put failed: what lies under its rows shows again. Rare, so everything is noted anew."""
        if put in self.puts:
            self.puts.remove(put)
            self.size_bytes -= put.size_bytes
            self.forget()
            self._recent.used(self, 0)

    def forget(self) -> None:
        """Keep what waits, and nothing else."""
        self._young, self._old, self._old_bytes = Generation(), Generation(), 0
        self._young_bytes, self._young_from = self.size_bytes, _FIRST_NUMBER
        for put in self.puts:
            self._young.add(put.entries)

    def close(self) -> None:
        """The bucket is closed."""
        self._young, self._old = Generation(), Generation()
        self._recent.used(self, 0)


def _values_in(parts: Sequence[Rows], keys: list[bytes]) -> list[Any]:
    found: Iterator[Any] = repeat(_NOT_KNOWN, len(keys))
    for rows in parts:
        if rows:
            found = map(rows.get, keys, found)
    return list(found)


def _not_known(values: list[Any]) -> list[int]:
    return list(compress(range(len(values)), map(is_, values, repeat(_NOT_KNOWN))))
