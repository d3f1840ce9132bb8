"""Containers of roaring bitmaps: sets of 16-bit numbers in one of three forms, and the union of two of them.

    array    sorted 16-bit numbers, at most 4096
    bitmap   1024 words of 64 bits, for more than 4096 numbers
    run      a count, then pairs (first number, count of numbers after it)

Everything is little-endian. A container is written in the form that Java's library gives it after a union and
`runOptimize`. That form depends on the forms of the two operands: if two forms have almost the same size, the container
keeps the one it has.

A container is kept as bytes, because a union only copies most containers of a large bitmap. Two bitmap containers are
united word by word, all others as sorted arrays of numbers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fluss.errors import ErrorCode, FlussError

if TYPE_CHECKING:
    import numpy.typing as npt

    from fluss.codec.rows.varint import Int64s, UInt64s

RUN, BITMAP, ARRAY = 0, 1, 2  # as numbered in the 64-bit form
MAX_ARRAY_NUMBERS = 4096
CONTAINER_NUMBERS = 1 << 16
BITMAP_BYTES = CONTAINER_NUMBERS // 8
_U16 = struct.Struct("<H")
UInt16s: TypeAlias = "npt.NDArray[np.uint16]"
_NUMBERS = np.dtype("<u2")
_WORDS = np.dtype("<u8")


def broken(why: str) -> FlussError:
    """Return the error for bytes that are not a bitmap; `why` is the second half of its message."""
    return FlussError(
        f"a value of an rbm column is not a serialised roaring bitmap: {why}", ErrorCode.UNKNOWN_SERVER_ERROR
    )


class Cursor:
    """Reads bytes sequentially; reading past their end is an error."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise broken(f"it is cut off after {len(self._data)} bytes")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def unpack(self, structure: struct.Struct) -> tuple[Any, ...]:
        """Return the next fields, read with `structure`."""
        return structure.unpack(self.take(structure.size))


class Container:
    """An immutable set of numbers below 65536, as the bytes of one of the forms."""

    __slots__ = ("count", "data", "form", "run_count")

    def __init__(self, form: int, count: int, run_count: int, data: bytes) -> None:
        self.form = form
        self.count = count
        self.run_count = run_count
        self.data = data

    def __len__(self) -> int:
        return self.count

    @property
    def numbers(self) -> UInt16s:
        """The numbers as a sorted array."""
        if self.form == ARRAY:
            return np.frombuffer(self.data, _NUMBERS)
        if self.form == BITMAP:
            flags = np.unpackbits(np.frombuffer(self.data, np.uint8), bitorder="little")
            return np.flatnonzero(flags).astype(_NUMBERS)
        starts, lasts = _starts_and_lasts(self.data[2:])
        lengths = lasts - starts + 1
        offsets = np.arange(self.count) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        numbers: UInt16s = (np.repeat(starts, lengths) + offsets).astype(_NUMBERS)
        return numbers

    def words(self) -> UInt64s:
        """The numbers as the bits of 1024 words."""
        if self.form == BITMAP:
            return np.frombuffer(self.data, _WORDS)
        flags = np.zeros(CONTAINER_NUMBERS, np.bool_)
        flags[self.numbers] = True
        return np.packbits(flags, bitorder="little").view(_WORDS)

    def in_form(self, form: int) -> Container:
        """The same numbers in another form."""
        return self if form == self.form else _in_form(form, self.numbers)


def read_container(form: int, count: int, cursor: Cursor) -> Container:
    """Read a container of a given form that has `count` numbers; for a run container, `count` is not used."""
    if form == ARRAY:
        data = cursor.take(2 * count)
        numbers = np.frombuffer(data, _NUMBERS)
        if not 0 < count <= MAX_ARRAY_NUMBERS or not (numbers[1:] > numbers[:-1]).all():
            raise broken(f"the {count} numbers of a container are not sorted, or should be a bitmap")
        return Container(ARRAY, count, _count_runs(numbers), data)
    if form == BITMAP:
        container = _of_words(np.frombuffer(cursor.take(BITMAP_BYTES), _WORDS))
        if container.count != count or count <= MAX_ARRAY_NUMBERS:
            raise broken(f"a container claims {count} numbers, but its bitmap has {container.count} bits")
        return container
    if form == RUN:
        head = cursor.take(2)
        (run_count,) = _U16.unpack(head)
        data = cursor.take(4 * run_count)
        starts, lasts = _starts_and_lasts(data)
        if not run_count or lasts[-1] >= CONTAINER_NUMBERS or not (starts[1:] > lasts[:-1]).all():
            raise broken(f"the {run_count} runs of a container overlap or leave its range")
        return Container(RUN, int((lasts - starts).sum()) + run_count, run_count, head + data)
    raise broken(f"unknown container type {form}")


def container_of(numbers: npt.ArrayLike) -> Container:
    """A container of sorted numbers, in the form that it has in Java after adding them one by one."""
    array = np.asarray(numbers, _NUMBERS)
    return _in_form(ARRAY if len(array) <= MAX_ARRAY_NUMBERS else BITMAP, array)


def union(one: Container, other: Container) -> Container:
    """The union of two containers, in the form that Java gives it before `runOptimize`."""
    forms = {one.form, other.form}
    if BITMAP in forms:
        united = _of_words(one.words() | other.words())
        return united.in_form(RUN) if united.count == CONTAINER_NUMBERS else united
    if one.count + other.count <= MAX_ARRAY_NUMBERS:
        numbers = np.union1d(one.numbers, other.numbers)
    else:
        numbers = _of_words(one.words() | other.words()).numbers
    if len(numbers) == CONTAINER_NUMBERS:
        return _in_form(RUN, numbers)
    united = container_of(numbers)
    return optimised(united.in_form(RUN)) if RUN in forms else united


def optimised(container: Container) -> Container:
    """The same numbers in the form that Java's `runOptimize` gives."""
    run_bytes = 2 + 4 * container.run_count
    if container.form != RUN:
        size = 2 * container.count if container.form == ARRAY else BITMAP_BYTES
        return container.in_form(RUN) if size > run_bytes else container
    # As in Java: runs are chosen if sizes are equal, and an array counts as two bytes longer than it is.
    if run_bytes <= min(BITMAP_BYTES, 2 * container.count + 2):
        return container
    return container_of(container.numbers)


def _in_form(form: int, numbers: UInt16s) -> Container:
    run_count = _count_runs(numbers)
    if form == ARRAY:
        return Container(ARRAY, len(numbers), run_count, numbers.tobytes())
    if form == BITMAP:
        flags = np.zeros(CONTAINER_NUMBERS, np.bool_)
        flags[numbers] = True
        data = np.packbits(flags, bitorder="little").tobytes()
        return Container(BITMAP, len(numbers), run_count, data)
    breaks = np.flatnonzero(np.diff(numbers.astype(np.int32)) != 1)
    pairs = np.empty((run_count, 2), _NUMBERS)
    first = np.concatenate(([0], breaks + 1))
    pairs[:, 0] = numbers[first]
    pairs[:, 1] = np.concatenate((breaks, [len(numbers) - 1])) - first
    return Container(RUN, len(numbers), run_count, _U16.pack(run_count) + pairs.tobytes())


def _of_words(words: UInt64s) -> Container:
    """A bitmap container of 1024 words. Its runs are counted: one begins at each set bit after an unset one."""
    before = words << np.uint64(1)
    before[1:] |= words[:-1] >> np.uint64(63)
    run_count = int(np.bitwise_count(words & ~before).sum())
    return Container(BITMAP, int(np.bitwise_count(words).sum()), run_count, words.tobytes())


def _count_runs(numbers: UInt16s) -> int:
    return int(np.count_nonzero(np.diff(numbers.astype(np.int32)) != 1)) + 1 if len(numbers) else 0


def _starts_and_lasts(data: bytes) -> tuple[Int64s, Int64s]:
    """The first and the last number of every run."""
    pairs = np.frombuffer(data, _NUMBERS).reshape(-1, 2).astype(np.int64)
    return pairs[:, 0], pairs[:, 0] + pairs[:, 1]
