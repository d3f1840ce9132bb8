"""A Bloom filter of the keys that a bucket may have, so that the store is not asked for keys that are surely new.

A put has to know the old row of every key. Most rows that are loaded into a table are new, and asking RocksDB for a key
that it does not have costs about as much as all the rest of a put. The filter answers for a whole batch with a few
array operations.

Each key sets four bits of one 64-bit word; a key whose bits are not all set was never added. About one absent key in a
hundred finds all its bits set by other keys; then the store is asked as usual. Deleted keys stay in the filter. A layer
holds a fixed number of keys; when it is full, a larger one takes the new keys, and all layers are searched.

Invariant: the filter has every key that a put may have written since the bucket was empty. So only buckets that are
opened empty have a filter; after a restart of the server they have none. When the filters of the process together use
`KEY_FILTERS_BYTES`, a filter that needs more gives up: every key may be present then. Owned by the loop thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fluss.codec.rows.column_buffers import PaddedSource, binary_parts
from fluss.codec.rows.varint import Bools, UInt64s

if TYPE_CHECKING:
    from fluss.codec.rows.varint import Int64s

FIRST_LAYER_KEYS = 16_384
LAYER_GROWTH = 4
BITS_PER_KEY = 16
WORD_BITS = 64
# Keys of small batches are added together: an array operation costs the same for one key and for a hundred.
MAX_QUEUED_KEYS = 4_096

_U = np.uint64
# Shifts of the hash that give the second, third and fourth bit.
_MORE_BITS = (_U(6), _U(12), _U(18))
_WORD_BYTES = 8
_START = _U(0x9E3779B97F4A7C15)
_FACTOR = _U(0xFF51AFD7ED558CCD)
_FACTOR_2 = _U(0xC4CEB9FE1A85EC53)
# Indexed by the number of bytes that are left of a key: a mask of the word's bytes that belong to it.
_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(_WORD_BYTES + 1)], np.uint64)


def hash_keys(keys: pa.Array) -> UInt64s:
    """64-bit hashes of the keys of a binary array, computed eight bytes of all keys at a time."""
    data, offsets = binary_parts(keys)
    first, last = int(offsets[0]), int(offsets[-1])
    source = PaddedSource(memoryview(data)[first:last])
    cursors, left = offsets[:-1] - first, np.diff(offsets)
    hashes: UInt64s = left.astype(np.uint64) * _START
    rows: slice | Int64s = slice(None)
    while len(cursors):
        words = source.words[cursors] & _MASKS[np.minimum(left, _WORD_BYTES)]
        mixed = (hashes[rows] ^ words) * _FACTOR
        hashes[rows] = (mixed ^ mixed >> _U(32)) * _FACTOR_2
        longer = left > _WORD_BYTES
        if not longer.any():
            break
        rows = np.flatnonzero(longer) if isinstance(rows, slice) else rows[longer]
        cursors, left = cursors[longer] + _WORD_BYTES, left[longer] - _WORD_BYTES
    hashes ^= hashes >> _U(29)
    return hashes


class FilterMemory:
    """The bytes that all filters of a process may use together."""

    def __init__(self, limit_bytes: int) -> None:
        self._free_bytes = limit_bytes

    def take(self, size_bytes: int) -> bool:
        """Reserve bytes; False if there are not enough left."""
        if size_bytes > self._free_bytes:
            return False
        self._free_bytes -= size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Release the bytes of a filter that is gone."""
        self._free_bytes += size_bytes


class _Layer:
    """Bits of up to `capacity` keys."""

    __slots__ = ("_words", "room")

    def __init__(self, capacity: int) -> None:
        self.room = capacity
        self._words: UInt64s = np.zeros(_words_of(capacity), np.uint64)

    def _places(self, hashes: UInt64s) -> tuple[UInt64s, UInt64s]:
        """Word and bits of each key: the upper half of the hash selects the word, the lower half the bits."""
        places = (hashes >> _U(32)) * _U(len(self._words)) >> _U(32)
        mask = _U(WORD_BITS - 1)
        bits = _U(1) << (hashes & mask)
        for shift in _MORE_BITS:
            bits |= _U(1) << (hashes >> shift & mask)
        return places, bits

    def has(self, hashes: UInt64s) -> Bools:
        places, bits = self._places(hashes)
        found: Bools = self._words[places] & bits == bits
        return found

    def add(self, hashes: UInt64s) -> None:
        self.room -= len(hashes)
        places, bits = self._places(hashes)
        while len(places):
            # If several keys share a word, only one of them is sure to set its bits: the others are added again.
            self._words[places] |= bits
            missing = self._words[places] & bits != bits
            places, bits = places[missing], bits[missing]


class KeyFilter:
    """The filter of one bucket: layers of bits, and keys that are queued to be added."""

    def __init__(self, memory: FilterMemory) -> None:
        self._memory = memory
        self._layers: list[_Layer] | None = []
        self._size_bytes = 0
        self._queued: list[bytes] = []

    @property
    def is_useful(self) -> bool:
        """True while it can rule out keys; False once it has given up."""
        return self._layers is not None

    def note(self, keys: Sequence[bytes]) -> None:
        """Add keys; small numbers of them are queued and added later."""
        if self._layers is None:
            return
        self._queued += keys
        if len(self._queued) >= MAX_QUEUED_KEYS:
            self._note_queued()

    def note_and_find(self, keys: pa.Array) -> Bools | None:
        """Add the keys of a binary array; returns a mask of those that may be old, or None if any of them may be."""
        self._note_queued()
        return None if self._layers is None else self._note(hash_keys(keys))

    def close(self) -> None:
        """Give up: every key may be present, and the memory is released."""
        self._memory.give_back(self._size_bytes)
        self._layers, self._size_bytes, self._queued = None, 0, []

    def _note_queued(self) -> None:
        if self._queued and self._layers is not None:
            queued, self._queued = self._queued, []
            self._note(hash_keys(pa.array(queued, pa.binary())))

    def _note(self, hashes: UInt64s) -> Bools | None:
        assert self._layers is not None, "the filter has not given up"
        found: Bools = np.zeros(len(hashes), np.bool_)
        for layer in self._layers:
            found |= layer.has(hashes)
        new = hashes if not found.any() else hashes[~found]
        while len(new):
            room = self._layers[-1].room if self._layers else 0
            if room <= 0:
                if not self._grow():
                    self.close()
                    return None
                continue
            self._layers[-1].add(new[:room])
            new = new[room:]
        return found

    def _grow(self) -> bool:
        assert self._layers is not None, "the filter has not given up"
        capacity = FIRST_LAYER_KEYS * LAYER_GROWTH ** len(self._layers)
        size_bytes = _words_of(capacity) * _WORD_BYTES
        if not self._memory.take(size_bytes):
            return False
        self._size_bytes += size_bytes
        self._layers.append(_Layer(capacity))
        return True


def _words_of(capacity: int) -> int:
    return capacity * BITS_PER_KEY // WORD_BITS
