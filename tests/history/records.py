"""Histories: which call began and ended when, and what it gave.

Moments are numbers of one counter, so that no two are equal and no clock is asked. A write that failed may have
happened or may still happen: it has no end. A read that failed says nothing and is not recorded.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

NEVER = 2**62


class Write(NamedTuple):
    """A call that wrote. `end` NEVER: it is unknown whether it was done."""

    key: Hashable
    value: Any
    start: int
    end: int


class Read(NamedTuple):
    """A call that read; the value is None where there was nothing."""

    key: Hashable
    value: Any
    start: int
    end: int


@dataclass
class History:
    """What all clients did to one table. Any thread may add."""

    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    _moments: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> int:
        """A moment behind all before it."""
        with self._lock:
            return next(self._moments)

    def wrote(self, key: Hashable, value: Any, start: int, *, is_known: bool = True) -> None:
        end = self.now() if is_known else NEVER
        with self._lock:
            self.writes.append(Write(key, value, start, end))

    def read(self, key: Hashable, value: Any, start: int) -> None:
        end = self.now()
        with self._lock:
            self.reads.append(Read(key, value, start, end))

    def by_key(self) -> dict[Hashable, tuple[list[Write], list[Read]]]:
        """Keys are judged alone: a history is linearizable if that of each key is."""
        found: dict[Hashable, tuple[list[Write], list[Read]]] = {}
        for write in self.writes:
            found.setdefault(write.key, ([], []))[0].append(write)
        for read in self.reads:
            found.setdefault(read.key, ([], []))[1].append(read)
        return found
