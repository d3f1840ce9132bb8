"""Whether the write-ahead log of a catalog is damaged in its middle.

SQLite reads such a log up to the first frame that is not sound and says nothing about the rest: one flipped bit takes
back every later change. A torn end is normal, a power loss makes one. The two can be told apart, because each commit is
synced before the next one begins (`synchronous = FULL`): behind the first frame that a power loss spoiled there is at
most one commit, that of the same transaction. Each frame's checksum goes on from the one stored in the frame before,
so frames behind a damaged one can still be checked.

A checksum is a pair of numbers that grows like Fibonacci's, word by word; as a sum with Fibonacci's numbers for
weights it is one multiplication of arrays per frame.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_HEADER = struct.Struct(">IIIIIIII")
_FRAME = struct.Struct(">IIIIII")
_MAGIC_LITTLE_ENDIAN, _MAGIC_BIG_ENDIAN = 0x377F0682, 0x377F0683
_MASK = 0xFFFFFFFF


class WalDamage(NamedTuple):
    """The first frame that is not sound, and how many commits are behind it."""

    frame: int
    lost_commits: int


def find_damage(path: Path) -> WalDamage | None:
    """The damage in a log that nobody has open; None when there is no log, or nothing but a torn end."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < _HEADER.size:
        return None
    magic, _, page_size, _, *salts, first, second = _HEADER.unpack_from(content)
    order = {_MAGIC_LITTLE_ENDIAN: "<u4", _MAGIC_BIG_ENDIAN: ">u4"}.get(magic)
    if order is None or _checksum((0, 0), content[:24], order) != (first, second):
        return None  # SQLite begins a log with its header: one without was not used yet
    before, damaged, commits = (first, second), None, 0
    frame_size = _FRAME.size + page_size
    for number, start in enumerate(range(_HEADER.size, len(content) - frame_size + 1, frame_size)):
        _, pages_after_commit, *rest = _FRAME.unpack_from(content, start)
        stored = (rest[2], rest[3])
        is_ours = rest[:2] == salts  # else it is left from before the log was begun anew
        words = content[start : start + 8] + content[start + _FRAME.size : start + frame_size]
        is_sound = is_ours and _checksum(before, words, order) == stored
        if not is_sound and damaged is None:
            damaged = number
            commits += is_ours and pages_after_commit > 0
        elif is_sound and damaged is not None:
            commits += pages_after_commit > 0
        before = stored
    return WalDamage(damaged, commits) if damaged is not None and commits > 1 else None


def _checksum(before: tuple[int, int], content: bytes, order: str) -> tuple[int, int]:
    words = np.frombuffer(content, order).astype(np.uint32)
    count = len(words)
    weights: Any = _fibonacci(count)
    first = int(np.sum(words * weights[count - 1 :: -1], dtype=np.uint32))
    second = int(np.sum(words * weights[count:0:-1], dtype=np.uint32))
    last, this, following = (int(weights[index]) for index in (count - 1, count, count + 1))
    return (
        (first + last * before[0] + this * before[1]) & _MASK,
        (second + this * before[0] + following * before[1]) & _MASK,
    )


@lru_cache(maxsize=4)
def _fibonacci(count: int) -> Any:
    """F(0) to F(count + 1), modulo 2**32."""
    numbers = [0, 1]
    while len(numbers) <= count + 1:
        numbers.append((numbers[-1] + numbers[-2]) & _MASK)
    return np.array(numbers, np.uint32)
