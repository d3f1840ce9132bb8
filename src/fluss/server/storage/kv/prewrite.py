"""Rows that are accepted and not yet in the store, and rows that were written recently.

A put is accepted before its changelog is on disk, and the next put has to see its rows. So each put keeps its changes
until the changelog is durable and the rows are in the store. The newest value of every key is kept a while longer: a
put of the same key soon after does not have to read the store, which would cost more than all the rest of the put.

There are two generations of values by key (`Generation`). New values go into `_young`; when that has grown to its share
of memory (`RecentRows`), it becomes `_old`, and the previous `_old` is evicted, unless it has rows of a pending put.

Invariant: a key that one of `puts` changes is in a generation, and the value in the youngest generation that has a key
is its newest value (None: it was removed). A put leaves at the front when it is applied, after which the store has the
same values; it leaves at the back when its append failed, after which only the puts that are left are kept. Owned by
the loop thread.
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

_NOT_KNOWN: object = object()
_FIRST_NUMBER = 0


class PendingPut:
    """The changes of one put: values by key (None removes), and the change of the number of rows."""

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
    """The pending puts of one bucket, and the newest values of keys that were written recently."""

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
        """Add a put that was accepted. `content_bytes`, the approximate size of its entries, saves counting them."""
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
        """The newest values of keys, as far as they are known here, and the positions of the unknown keys.

        Keys are scattered over memory, so that hashing one costs more than all else here. The old generation is
        therefore only searched for keys that the young one lacks. Rows that are written in key order are mostly all in
        one generation.
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
        """The oldest puts, up to the last one whose changelog is below `offset`."""
        return list(takewhile(lambda put: put.append.next_offset <= offset, self.puts))

    def take_up_to(self, offset: int) -> list[PendingPut]:
        """Remove and return the oldest puts, up to the last one whose changelog is below `offset`."""
        taken: list[PendingPut] = []
        while self.puts and self.puts[0].append.next_offset <= offset:
            put = self.puts.popleft()
            self.size_bytes -= put.size_bytes
            taken.append(put)
        return taken

    def take_back(self, put: PendingPut) -> None:
        """Remove a put that failed, so that earlier values are visible again. Rare, so everything is rebuilt."""
        if put in self.puts:
            self.puts.remove(put)
            self.size_bytes -= put.size_bytes
            self.forget()
            self._recent.used(self, 0)

    def forget(self) -> None:
        """Drop all rows except those of pending puts."""
        self._young, self._old, self._old_bytes = Generation(), Generation(), 0
        self._young_bytes, self._young_from = self.size_bytes, _FIRST_NUMBER
        for put in self.puts:
            self._young.add(put.entries)

    def close(self) -> None:
        """Release the memory when the bucket is closed."""
        self._young, self._old = Generation(), Generation()
        self._recent.used(self, 0)


def _values_in(parts: Sequence[Rows], keys: list[bytes]) -> list[object]:
    found: Iterator[Any] = repeat(_NOT_KNOWN, len(keys))
    for rows in parts:
        if rows:
            found = map(rows.get, keys, found)
    return list(found)


def _not_known(values: list[object]) -> list[int]:
    return list(compress(range(len(values)), map(is_, values, repeat(_NOT_KNOWN))))
