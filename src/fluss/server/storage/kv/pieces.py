"""Where the keys of a store can be cut, so that the pieces are about equally large.

RocksDB does not tell how many keys lie before a key. Two things do, roughly:

- its files. Those of one level below the first have no key in common, so each is a stretch of keys of known size. Large
  stores have most of their rows there, in many files, and looking at the list costs nothing.
- a sample of the keys, which takes a walk over all of them. Small stores have too few files to go by.

A bad guess makes pieces unequal, never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# The rows of a level tell about those of all levels if they are at least this share of the files.
_TELLING_SHARE = 0.5


class KeySample:
    """Every n-th key of a store, n growing with the number of keys, so that a sample never is large."""

    MAX_KEYS = 1024

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self._stride = 1
        self._passed = 0

    def add(self, keys: Sequence[bytes]) -> None:
        """The next keys, in order."""
        self.keys += keys[(-self._passed) % self._stride :: self._stride]
        self._passed += len(keys)
        while len(self.keys) > self.MAX_KEYS:
            del self.keys[1::2]
            self._stride *= 2

    def cuts(self, pieces: int) -> list[bytes]:
        """The first key of every piece but the first one."""
        places = [len(self.keys) * number // pieces for number in range(1, pieces)]
        return _ascending([self.keys[place] for place in places if place])


def cuts_between_files(files: Sequence[Mapping[str, Any]], pieces: int) -> list[bytes] | None:
    """The same by the files of RocksDB's `live_files`; None if they do not tell."""
    by_level: dict[int, list[Mapping[str, Any]]] = {}
    for file in files:
        by_level.setdefault(file["level"], []).append(file)
    by_level.pop(0, None)
    level = max(by_level.values(), key=_size, default=[])
    if not level or _size(level) < _TELLING_SHARE * _size(files):
        return None
    cuts: list[bytes] = []
    before, total = 0, _size(level)
    for file in sorted(level, key=lambda file: file["start_key"]):
        # A cut goes where the next file begins, once the files so far have the next share of the whole.
        if before * pieces >= (len(cuts) + 1) * total:
            cuts.append(file["start_key"])
        before += file["size"]
    return _ascending(cuts)


def _size(files: Sequence[Mapping[str, Any]]) -> int:
    return sum(file["size"] for file in files)


def _ascending(cuts: Sequence[bytes]) -> list[bytes]:
    """Without those that would make an empty piece."""
    return sorted({cut for cut in cuts if cut})
