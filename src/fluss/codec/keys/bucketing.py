"""The functions that map the bytes of a key to a bucket: of Fluss (and Lance), Paimon, Iceberg and Hudi.

Each exists for one key and for a binary array of keys; the array form hashes all keys at once, word by word.

**Tail bytes.** Fluss's and Paimon's hash mixes the up to three bytes after the last whole word one by one. Java, and so
Flink, Spark and every lake, takes them as signed bytes; pyfluss 1.0 takes them as unsigned ones. The two disagree on
every key with a tail byte of 0x80 or more (INT 128, BIGINT -1, non-ASCII strings ...). `tail="java"` is the default.
Choose `tail="pyfluss"` for a table whose rows are written by pyfluss: a lookup finds a row only in the bucket where its
writer put it. Iceberg, Hudi and Paimon's own keys (multiples of eight bytes) do not depend on it.

>>> fluss_bucket(bytes.fromhex("8001"), 3), fluss_bucket(bytes.fromhex("8001"), 3, tail="pyfluss")
(1, 0)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fluss.codec.rows.column_buffers import PaddedSource, binary_parts, null_mask
from fluss.codec.rows.values import RowValueError

if TYPE_CHECKING:
    import pyarrow as pa

Tail: TypeAlias = Literal["java", "pyfluss"]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
Int32s: TypeAlias = npt.NDArray[np.int32]

_MASK = 0xFFFFFFFF
_SEED = 42
_ICEBERG_SEED = 0
_HUDI_KEY_BYTES = 4
_C1, _C2, _M5, _N = 0xCC9E2D51, 0x1B873593, 5, 0xE6546B64
_F1, _F2 = 0x85EBCA6B, 0xC2B2AE35


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def _mix_word(word: int) -> int:
    return _rotate(word * _C1 & _MASK, 15) * _C2 & _MASK


def _mix_hash(hash_: int, mixed: int) -> int:
    return (_rotate(hash_ ^ mixed, 13) * _M5 + _N) & _MASK


def _finish(hash_: int) -> int:
    hash_ = (hash_ ^ hash_ >> 16) * _F1 & _MASK
    hash_ = (hash_ ^ hash_ >> 13) * _F2 & _MASK
    return hash_ ^ hash_ >> 16


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def fluss_hash(key: bytes, tail: Tail = "java") -> int:
    """The hash that Fluss and Paimon share, as an unsigned 32-bit number."""
    whole = len(key) & ~3
    hash_ = _SEED
    for position in range(0, whole, 4):
        hash_ = _mix_hash(hash_, _mix_word(int.from_bytes(key[position : position + 4], "little")))
    for byte in key[whole:]:
        word = byte - 256 & _MASK if byte > 0x7F and tail == "java" else byte
        hash_ = _mix_hash(hash_, _mix_word(word))
    return _finish(hash_ ^ len(key))


def fluss_spread(hash_: int) -> int:
    """Second round of the Fluss function over a 32-bit hash: a number from 0 to 2**31 - 1 (steps 5 and 6)."""
    code = _finish((_rotate(_mix_word(hash_ & _MASK), 13) * _M5 + _N & _MASK) ^ 4)
    positive = abs(_signed(code))
    return 0 if positive == 1 << 31 else positive


def murmur3(key: bytes) -> int:
    """Standard MurmurHash3 x86 32-bit with seed 0, unsigned."""
    whole = len(key) & ~3
    hash_ = _ICEBERG_SEED
    for position in range(0, whole, 4):
        hash_ = _mix_hash(hash_, _mix_word(int.from_bytes(key[position : position + 4], "little")))
    if whole < len(key):
        hash_ ^= _mix_word(int.from_bytes(key[whole:], "little"))
    return _finish(hash_ ^ len(key))


def _check(key: bytes, bucket_count: int) -> None:
    _check_count(bucket_count)
    if not key:
        raise RowValueError("a bucket key must not be empty, got b'' (e.g. from an empty string as Iceberg key)")


def _check_count(bucket_count: int) -> None:
    if bucket_count < 1:
        raise RowValueError(f"the number of buckets must be at least 1, got {bucket_count}")


def fluss_bucket(key: bytes, bucket_count: int, tail: Tail = "java") -> int:
    """The bucket of a key of a table whose lake format is Lance, or that has none."""
    _check(key, bucket_count)
    return fluss_spread(fluss_hash(key, tail)) % bucket_count


def paimon_bucket(key: bytes, bucket_count: int, tail: Tail = "java") -> int:
    """The bucket of a Paimon key."""
    _check(key, bucket_count)
    return abs(_signed(fluss_hash(key, tail))) % bucket_count


def iceberg_bucket(key: bytes, bucket_count: int, tail: Tail = "java") -> int:
    """The bucket of an Iceberg key. `tail` has no effect: it exists because all bucket functions have one signature."""
    _check(key, bucket_count)
    return (murmur3(key) & 0x7FFFFFFF) % bucket_count


def hudi_bucket(key: bytes, bucket_count: int, tail: Tail = "java") -> int:
    """The bucket of a Hudi key. `tail` has no effect: it exists because all bucket functions have one signature."""
    _check(key, bucket_count)
    if len(key) != _HUDI_KEY_BYTES:
        raise RowValueError(f"a Hudi bucket key must be {_HUDI_KEY_BYTES} bytes long, got {len(key)} bytes")
    return (int.from_bytes(key, "big") & 0x7FFFFFFF) % bucket_count


def _rotates(values: UInt32s, bits: int) -> UInt32s:
    rotated: UInt32s = values << np.uint32(bits) | values >> np.uint32(32 - bits)
    return rotated


def _mix_words(words: UInt32s) -> UInt32s:
    mixed: UInt32s = _rotates(words * np.uint32(_C1), 15) * np.uint32(_C2)
    return mixed


def _mix_hashes(hashes: UInt32s, mixed: UInt32s) -> UInt32s:
    next_hashes: UInt32s = _rotates(hashes ^ mixed, 13) * np.uint32(_M5) + np.uint32(_N)
    return next_hashes


def _finishes(hashes: UInt32s) -> UInt32s:
    hashes = (hashes ^ hashes >> np.uint32(16)) * np.uint32(_F1)
    hashes = (hashes ^ hashes >> np.uint32(13)) * np.uint32(_F2)
    finished: UInt32s = hashes ^ hashes >> np.uint32(16)
    return finished


class _Keys:
    """The keys of a binary array, with their bytes laid out so that all keys are hashed word by word."""

    def __init__(self, keys: pa.Array, bucket_count: int) -> None:
        _check_count(bucket_count)
        if null_mask(keys) is not None:
            raise RowValueError(f"a bucket key must not be null, but {keys.null_count} of {len(keys)} are")
        data, offsets = binary_parts(keys)
        self.source = PaddedSource(memoryview(data)[int(offsets[0]) : int(offsets[-1])])
        self.starts = offsets[:-1] - offsets[0]
        self.sizes = np.diff(offsets)
        if (self.sizes == 0).any():
            _check(b"", bucket_count)

    def hash_words(self, seed: int) -> UInt32s:
        """The hash of the whole words of every key. Keys with fewer words than others drop out of the later steps."""
        hashes = np.full(len(self.starts), seed, np.uint32)
        word_counts = self.sizes >> 2
        rows, number = np.flatnonzero(word_counts), 0
        while len(rows):
            words = self.source.words[self.starts[rows] + 4 * number].astype(np.uint32)
            hashes[rows] = _mix_hashes(hashes[rows], _mix_words(words))
            number += 1
            rows = rows[word_counts[rows] > number]
        return hashes

    def fluss_hashes(self, tail: Tail) -> UInt32s:
        hashes = self.hash_words(_SEED)
        for number in range(3):
            rows = np.flatnonzero((self.sizes & 3) > number)
            if len(rows):
                tails = self.source.data.take(self.starts[rows] + (self.sizes[rows] & ~3) + number)
                if tail == "java":
                    tails = tails.view(np.int8).astype(np.int32).view(np.uint32)
                hashes[rows] = _mix_hashes(hashes[rows], _mix_words(tails.astype(np.uint32)))
        return _finishes(hashes ^ self.sizes.astype(np.uint32))

    def murmur3_hashes(self) -> UInt32s:
        hashes = self.hash_words(_ICEBERG_SEED)
        rows = np.flatnonzero(self.sizes & 3)
        if len(rows):
            words = self.source.words[self.starts[rows] + (self.sizes[rows] & ~3)].astype(np.uint32)
            kept = (self.sizes[rows] & 3).astype(np.uint32) * np.uint32(8)
            hashes[rows] ^= _mix_words(words & ((np.uint32(1) << kept) - np.uint32(1)))
        return _finishes(hashes ^ self.sizes.astype(np.uint32))


def fluss_buckets(keys: pa.Array, bucket_count: int, tail: Tail = "java") -> Int32s:
    """`fluss_bucket` of every key of a binary array."""
    hashes = _Keys(keys, bucket_count).fluss_hashes(tail)
    codes = _finishes(_rotates(_mix_words(hashes), 13) * np.uint32(_M5) + np.uint32(_N) ^ np.uint32(4))
    positive = np.abs(codes.view(np.int32).astype(np.int64))
    positive[positive == 1 << 31] = 0
    return (positive % bucket_count).astype(np.int32)


def paimon_buckets(keys: pa.Array, bucket_count: int, tail: Tail = "java") -> Int32s:
    """`paimon_bucket` of every key of a binary array."""
    hashes = _Keys(keys, bucket_count).fluss_hashes(tail).view(np.int32).astype(np.int64)
    return (np.abs(hashes) % bucket_count).astype(np.int32)


def iceberg_buckets(keys: pa.Array, bucket_count: int, tail: Tail = "java") -> Int32s:
    """`iceberg_bucket` of every key of a binary array."""
    hashes = _Keys(keys, bucket_count).murmur3_hashes() & np.uint32(0x7FFFFFFF)
    buckets: Int32s = (hashes % np.uint32(bucket_count)).astype(np.int32)
    return buckets


def hudi_buckets(keys: pa.Array, bucket_count: int, tail: Tail = "java") -> Int32s:
    """`hudi_bucket` of every key of a binary array."""
    parts = _Keys(keys, bucket_count)
    if (parts.sizes != _HUDI_KEY_BYTES).any():
        wrong = int(parts.sizes[parts.sizes != _HUDI_KEY_BYTES][0])
        raise RowValueError(f"every Hudi bucket key must be {_HUDI_KEY_BYTES} bytes long, got one of {wrong} bytes")
    hashes = parts.source.words[parts.starts].astype(np.uint32).byteswap() & np.uint32(0x7FFFFFFF)
    buckets: Int32s = (hashes % np.uint32(bucket_count)).astype(np.int32)
    return buckets


# The bucket function by `table.datalake.format`; None is the key for tables without a lake format.
BUCKET_OF_LAKE_FORMAT: dict[str | None, Callable[[bytes, int, Tail], int]] = {
    None: fluss_bucket,
    "lance": fluss_bucket,
    "paimon": paimon_bucket,
    "iceberg": iceberg_bucket,
    "hudi": hudi_bucket,
}
BUCKETS_OF_LAKE_FORMAT: dict[str | None, Callable[[pa.Array, int, Tail], Int32s]] = {
    None: fluss_buckets,
    "lance": fluss_buckets,
    "paimon": paimon_buckets,
    "iceberg": iceberg_buckets,
    "hudi": hudi_buckets,
}
