"""Finds the bounds of length-prefixed records: the body of row log batches and of key-value batches.

Every record is an int32 little-endian length and that many bytes. Following this chain takes one step per record, so
the positions are guessed for all records at once: nearly all records are shorter than 256 bytes, so every position
whose length bytes 1 to 3 are zero may be the start of a record. A guess is dropped if no other guess is where its
record would end, or if it is not where the record of another guess ends; this is repeated a few times. If the remaining
guesses are one complete chain from the first byte to the last, with the right number of records, they are by induction
the true starts. In all other cases a plain loop follows the chain, which also reports broken bytes.
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
    """The starts (after the length) and ends of the records; CorruptRowError unless exactly `count` fill `body`."""
    if count < 0 or count * (LENGTH_BYTES + min_length) > len(body):
        raise CorruptRowError(f"{len(body)} bytes cannot hold {count} records of {LENGTH_BYTES + min_length} bytes")
    # The guess fails if records are longer on average than the longest that it can find.
    if count >= _GUESS_MIN_RECORDS and len(body) <= count * (LENGTH_BYTES + _MAX_SHORT_RECORD_BYTES):
        guessed = _guess(body, count, min_length)
        if guessed is not None:
            return guessed
    return _follow(body, count, min_length)


def _follow(body: memoryview, count: int, min_length: int) -> tuple[Int64s, Int64s]:
    """Follow the chain record by record. A length that is too long is noticed at the next record or at the end."""
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
        raise CorruptRowError(f"record {len(behind) - 1} of {count} has wrong length {wrong} at byte {place} of {size}")
    if len(behind) < count:
        place = position + LENGTH_BYTES
        raise CorruptRowError(f"record {len(behind)} of {count} has wrong length {length} at byte {place} of {size}")
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
