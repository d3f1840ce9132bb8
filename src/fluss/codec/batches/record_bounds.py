"""The bounds of length-prefixed records: the body of row log batches and of key-value batches.

Every record is an int32 little-endian length and that many bytes. The chain can only be followed one record after
the other, but it can be guessed: nearly all records are shorter than 256 bytes, so each position whose length bytes 1
to 3 are zero may start one. A guess that no guess follows, or that follows none, is dropped; this is repeated a few
times. If what remains is one complete chain from the first byte to the last with the right number of records, it is by
induction the true one.
In all other cases a plain loop follows the chain, which also reports broken bytes.
"""

from __future__ import annotations

import struct

import numpy as np

from fluss.codec.rows.values import CorruptRowError
from fluss.codec.rows.varint import Int64s

LENGTH_BYTES = 4
MAX_GUESS_ROUNDS = 4
_GUESS_MIN_RECORDS = 64
_MAX_SHORT_RECORD_BYTES = 255
_LENGTH = struct.Struct("<i")


def record_bounds(body: memoryview, count: int, min_length: int = 0) -> tuple[Int64s, Int64s]:
    """Starts (after the length) and ends of exactly `count` records that fill `body` exactly."""
    if count < 0 or count * (LENGTH_BYTES + min_length) > len(body):
        raise CorruptRowError(f"{len(body)} bytes cannot hold {count} records of {LENGTH_BYTES + min_length} bytes")
    # Records that are on average longer than a guess allows cannot be guessed.
    if count >= _GUESS_MIN_RECORDS and len(body) <= count * (LENGTH_BYTES + _MAX_SHORT_RECORD_BYTES):
        guessed = _guess(body, count, min_length)
        if guessed is not None:
            return guessed
    return _follow(body, count, min_length)


def _follow(body: memoryview, count: int, min_length: int) -> tuple[Int64s, Int64s]:
    """Follow the chain record by record. Lengths are not negative, so the next record reveals one that is too long."""
    size, position, unpack_from = len(body), 0, _LENGTH.unpack_from
    behind: list[int] = []
    append = behind.append
    try:
        for _ in range(count):
            (length,) = unpack_from(body, position)
            if length < min_length:
                break
            position += length + LENGTH_BYTES
            append(position)
    except struct.error:
        if position <= size:
            text = f"record {len(behind)} of {count} has no length at byte {position} of {size}"
            raise CorruptRowError(text) from None
    if position > size:
        start = behind[-2] if len(behind) > 1 else 0
        wrong, place = position - start - LENGTH_BYTES, start + LENGTH_BYTES
        raise CorruptRowError(f"record {len(behind) - 1} of {count} has length {wrong} at byte {place} of {size}")
    if len(behind) < count:
        place = position + LENGTH_BYTES
        raise CorruptRowError(f"record {len(behind)} of {count} has length {length} at byte {place} of {size}")
    if position != size:
        raise CorruptRowError(f"{size - position} unexpected bytes after {count} records")
    ends = np.array(behind, np.int64)
    starts = np.empty(count, np.int64)
    starts[:1] = LENGTH_BYTES
    starts[1:] = ends[:-1] + LENGTH_BYTES
    return starts, ends


def _guess(body: memoryview, count: int, min_length: int) -> tuple[Int64s, Int64s] | None:
    data = np.frombuffer(body, np.uint8)
    zero = data == 0
    places = np.flatnonzero(zero[1:-2] & zero[2:-1] & zero[3:])
    following = places + LENGTH_BYTES + data[places]
    # True at every position that may still be the start of a record, and at the end of the body.
    is_start = np.zeros(len(data) + LENGTH_BYTES + _MAX_SHORT_RECORD_BYTES + 1, np.bool_)
    is_start[places] = True
    is_start[len(data)] = True
    for _ in range(MAX_GUESS_ROUNDS):
        if len(places) <= count:
            break
        reached = np.zeros(len(is_start), np.bool_)
        reached[following] = True
        reached[0] = True
        kept = is_start[following] & reached[places]
        is_start[places[~kept]] = False
        places, following = places[kept], following[kept]
    complete = (
        len(places) == count
        and places[0] == 0
        and following[-1] == len(data)
        and bool((places[1:] == following[:-1]).all())
    )
    if not complete or (following - places < LENGTH_BYTES + min_length).any():
        return None
    return places + LENGTH_BYTES, following
