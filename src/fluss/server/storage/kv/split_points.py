"""Keys at which a store can be split into ranges of about equal size.

RocksDB does not report how many keys come before a key. Two estimates are available:

- its files. The files of one level below the first do not overlap, so each is a range of keys of known size. Large
  stores have most of their rows there, in many files, and reading the list of files costs nothing.
- a sample of the keys, which requires a scan of all of them. Small stores have too few files for the first estimate.

A bad estimate makes the ranges unequal, never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# A level represents the whole store if its files have at least this share of the bytes.
_REPRESENTATIVE_SHARE = 0.5


class KeySample:
    """Every n-th key of a store, where n grows with the number of keys, so that the sample stays small."""

    MAX_KEYS = 1024

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self._stride = 1
        self._passed = 0

    def add(self, keys: Sequence[bytes]) -> None:
        """Add the next keys of the store, in key order."""
        self.keys += keys[(-self._passed) % self._stride :: self._stride]
        self._passed += len(keys)
        while len(self.keys) > self.MAX_KEYS:
            del self.keys[1::2]
            self._stride *= 2

    def split_points(self, ranges: int) -> list[bytes]:
        """The first key of every range except the first one."""
        indexes = [len(self.keys) * number // ranges for number in range(1, ranges)]
        return _ascending([self.keys[index] for index in indexes if index])


def split_points_of_files(files: Sequence[Mapping[str, Any]], ranges: int) -> list[bytes] | None:
    """Split points from the files that RocksDB's `live_files` lists; None if they do not represent the store."""
    by_level: dict[int, list[Mapping[str, Any]]] = {}
    for file in files:
        by_level.setdefault(file["level"], []).append(file)
    by_level.pop(0, None)
    level = max(by_level.values(), key=_size, default=[])
    if not level or _size(level) < _REPRESENTATIVE_SHARE * _size(files):
        return None
    points: list[bytes] = []
    before, total = 0, _size(level)
    for file in sorted(level, key=lambda file: file["start_key"]):
        # Split at the start of a file once the files before it have the next share of the whole.
        if before * ranges >= (len(points) + 1) * total:
            points.append(file["start_key"])
        before += file["size"]
    return _ascending(points)


def _size(files: Sequence[Mapping[str, Any]]) -> int:
    return sum(file["size"] for file in files)


def _ascending(points: Sequence[bytes]) -> list[bytes]:
    """The points in order, without those that would make an empty range."""
    return sorted({point for point in points if point})
