"""Where length-prefixed records begin and end: the body of row log batches and of key-value batches.

Every record is an int32 little-endian length and that many bytes. The chain can only be followed one record after
the other, except that it can be guessed: nearly all records are shorter than 256 bytes, so each position whose length
bytes 1 to 3 are zero may be one. Guesses whose successor is no guess are dropped a few times; if what remains is one
complete chain from the first byte to the last with the right number of records, it is by induction the true one.
Everything else takes the plain loop, which is also the judge of broken bytes.
"""

from __future__ import annotations

import struct

import numpy as np

from fluss.codec.row_values import CorruptRowError
from fluss.codec.varint import Int64s

LENGTH_BYTES = 4
MAX_GUESS_ROUNDS = 4
_GUESS_MIN_RECORDS = 64
_MAX_SHORT_RECORD_BYTES = 255
_LENGTH = struct.Struct("<i")


def record_bounds(body: memoryview, count: int, min_length: int = 0) -> tuple[Int64s, Int64s]:
    """Starts (behind the length) and ends of exactly `count` records that fill `body` exactly."""
    if count < 0 or count * (LENGTH_BYTES + min_length) > len(body):
        raise CorruptRowError(f"{len(body)} bytes cannot hold {count} records of {LENGTH_BYTES + min_length} bytes")
    if count >= _GUESS_MIN_RECORDS:
        guessed = _guess(body, count, min_length)
        if guessed is not None:
            return guessed
    starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    position, unpack_from = 0, _LENGTH.unpack_from
    for index in range(count):
        if len(body) - position < LENGTH_BYTES:
            raise CorruptRowError(f"record {index} of {count} has no length at byte {position} of {len(body)}")
        (length,) = unpack_from(body, position)
        position += LENGTH_BYTES
        if not min_length <= length <= len(body) - position:
            raise CorruptRowError(f"record {index} of {count} has length {length} at byte {position} of {len(body)}")
        starts[index] = position
        position += length
        ends[index] = position
    if position != len(body):
        raise CorruptRowError(f"{len(body) - position} bytes are left over after {count} records")
    return starts, ends


def _guess(body: memoryview, count: int, min_length: int) -> tuple[Int64s, Int64s] | None:
    data = np.frombuffer(body, np.uint8)
    zero = data == 0
    places = np.flatnonzero(zero[1:-2] & zero[2:-1] & zero[3:])
    following = places + LENGTH_BYTES + data[places]
    # True at every position that is still thought to be the start of a record, and at the end of the body.
    is_start = np.zeros(len(data) + LENGTH_BYTES + _MAX_SHORT_RECORD_BYTES + 1, np.bool_)
    is_start[places] = True
    is_start[len(data)] = True
    for _ in range(MAX_GUESS_ROUNDS):
        if len(places) <= count:
            break
        kept = is_start[following]
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
