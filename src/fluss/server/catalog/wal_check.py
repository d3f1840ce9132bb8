"""Detects damage in the middle of a catalog's write-ahead log.

SQLite reads the log up to the first invalid frame and silently ignores the rest: one flipped bit undoes every later
change. A torn end is normal after a power loss. The two can be distinguished, because each commit is synced before the
next one begins (`synchronous = FULL`): after the first frame that a power loss damaged there is at most one commit,
that of the same transaction. Each frame's checksum continues the one stored in the previous frame, so frames after a
damaged one can still be checked.

Frames whose checksum continues a frame were written after it. Frames after the end that continue no other are
leftovers: a transaction that a power loss tore, or whose sync failed, is overwritten by the next one from the same
position and with the same salts, and if it was longer, its last frames remain. There may be several such leftovers,
each with its commit, so only commits that continue each other count.

The header is synced before the first frame. It is too short to be torn: either it is there, or the file has only zeros.

A checksum is a pair of numbers that grows like the Fibonacci sequence, word by word; written as a sum with Fibonacci
numbers as weights, it is one array multiplication per frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_HEADER = struct.Struct(">IIIIIIII")
_FRAME = struct.Struct(">IIIIII")
_MAGIC_LITTLE_ENDIAN, _MAGIC_BIG_ENDIAN = 0x377F0682, 0x377F0683
_MASK = 0xFFFFFFFF


class WalDamage(NamedTuple):
    """The first invalid frame (None for the header), and how many commits follow it."""

    frame: int | None
    lost_commits: int

    def __str__(self) -> str:
        if self.frame is None:
            return "the header is damaged, and without it SQLite ignores all changes in the file"
        return f"frame {self.frame} is damaged, and {self.lost_commits} changes follow it"


class _Frame(NamedTuple):
    """A frame: its number, whether its salts are the header's, and what its own header states."""

    number: int
    is_ours: bool
    is_commit: bool
    checked: bytes
    stored: tuple[int, int]


def find_damage(path: Path) -> WalDamage | None:
    """Return the damage in a log that no process has open; None if there is no log or only a torn end."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    header = content[: _HEADER.size]
    if len(content) <= _HEADER.size or not any(content):
        return None  # contains no changes
    magic, _, page_size, _, first_salt, second_salt, *stored = _HEADER.unpack(header)
    order = {_MAGIC_LITTLE_ENDIAN: "<u4", _MAGIC_BIG_ENDIAN: ">u4"}.get(magic)
    if order is None or _checksum((0, 0), header[:24], order) != tuple(stored):
        return WalDamage(None, 0)
    frames = _frames(content, page_size, (first_salt, second_salt))
    return _first_lost((stored[0], stored[1]), frames, order)


def _frames(content: bytes, page_size: int, salts: tuple[int, int]) -> Iterator[_Frame]:
    size = _FRAME.size + page_size
    for number, start in enumerate(range(_HEADER.size, len(content) - size + 1, size)):
        _, pages_after_commit, *rest = _FRAME.unpack_from(content, start)
        checked = content[start : start + 8] + content[start + _FRAME.size : start + size]
        yield _Frame(number, tuple(rest[:2]) == salts, pages_after_commit > 0, checked, (rest[2], rest[3]))


def _first_lost(start: tuple[int, int], frames: Iterable[_Frame], order: str) -> WalDamage | None:
    """Check the frames in order; after the first invalid one, count the commits that continue each other."""
    damaged, commits, most = None, 0, 0
    before = computed = start  # a frame may continue either, because the damage may be in the stored checksum
    for frame in frames:
        sums = [_checksum(each, frame.checked, order) for each in dict.fromkeys((before, computed))]
        if not frame.is_ours or frame.stored not in sums:
            damaged, commits = frame.number if damaged is None else damaged, 0
        if damaged is not None:
            commits += frame.is_ours and frame.is_commit  # other frames are from before the log was restarted
            most = max(most, commits)
        before, computed = frame.stored, sums[0]
    return WalDamage(damaged, most) if damaged is not None and most > 1 else None


def _checksum(before: tuple[int, int], content: bytes, order: str) -> tuple[int, int]:
    words = np.frombuffer(content, order).astype(np.uint32)
    count = len(words)
    weights = _fibonacci(count)
    first = int(np.sum(words * weights[count - 1 :: -1], dtype=np.uint32))
    second = int(np.sum(words * weights[count:0:-1], dtype=np.uint32))
    last, this, following = (int(weights[index]) for index in (count - 1, count, count + 1))
    return (
        (first + last * before[0] + this * before[1]) & _MASK,
        (second + this * before[0] + following * before[1]) & _MASK,
    )


@lru_cache(maxsize=4)
def _fibonacci(count: int) -> npt.NDArray[np.uint32]:
    """Return the Fibonacci numbers F(0) to F(count + 1), modulo 2**32."""
    numbers = [0, 1]
    while len(numbers) <= count + 1:
        numbers.append((numbers[-1] + numbers[-2]) & _MASK)
    return np.array(numbers, np.uint32)
