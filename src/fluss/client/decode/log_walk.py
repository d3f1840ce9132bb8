"""Iterating over the batches in a part of a log, and finding the next batch after damaged bytes.

Readers rely on lengths, offsets and magics, and no checksum covers most of them. So they are checked against each
other: every batch must begin at the offset where the previous one ended. Where it does not, `walk` stops and reports
why. The last batch before that place is part of the damage if its checksum is wrong, because its own length or offsets
led there. `next_sound_batch` finds where to continue.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from fluss.codec.batches.log_batch import (
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    MIN_HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    check_crc,
    read_header,
)
from fluss.codec.batches.log_scan import batch_at, find_next_batch, is_filler, offsets_are_sound

# base offset, length, magic, schema id and offset delta of magic 0 and 1
_FRONT = Struct("<qib12xhxi")
# schema id and offset delta of magic 2
_EPOCH_FRONT = Struct("<hxi")
_EPOCH_FRONT_POSITION = 29


class Walked(NamedTuple):
    """The contents of a part of a log: the end of its whole batches, the offset after them, the schema ids.

    `middle` is the start of a batch near the half: two threads can decode the two parts. If there is a `fault`, the
    bytes at `end` are not a batch that continues the previous ones.
    """

    end: int
    next_offset: int | None
    schema_ids: set[int]
    middle: int = 0
    fault: str | None = None


class BrokenHeader(NamedTuple):
    """A batch at the expected position whose header is otherwise invalid."""

    base_offset: int
    next_offset: int
    error: CorruptBatch


def walk(view: memoryview, wanted_offset: int = -1, *, has_gaps: bool = False) -> Walked:
    """Step over the whole batches, the first of which must hold `wanted_offset` (if negative: any).

    With `has_gaps`, batches may be missing between them, as with a filter.
    """
    position, remaining = 0, len(view)
    last, middle, half = -1, 0, len(view) // 2
    expected = -1
    fault: str | None = None
    schema_ids: set[int] = set()
    while remaining - position >= MIN_HEADER_BYTES:
        base, length, magic, schema_id, delta = _FRONT.unpack_from(view, position)
        if magic == MAGIC_V2:
            schema_id, delta = _EPOCH_FRONT.unpack_from(view, position + _EPOCH_FRONT_POSITION)
        if length < MIN_HEADER_BYTES - LENGTH_PREFIX_BYTES:
            fault = f"batch at {position}: invalid length {length}"
        elif not 0 <= magic <= MAGIC_V2 or delta < 0:
            fault = f"batch at {position}: invalid magic {magic} or offset delta {delta}"
        elif base != expected and (last >= 0 or base > wanted_offset >= 0) and not (has_gaps and base > expected):
            fault = f"batch at {position}: it has offset {base}, expected {expected if last >= 0 else wanted_offset}"
        if fault is not None or length + LENGTH_PREFIX_BYTES > remaining - position:
            break
        schema_ids.add(schema_id)
        last = position
        expected = base + delta + 1
        position += length + LENGTH_PREFIX_BYTES
        if not middle and position >= half:
            middle = position
    if last < 0:
        return Walked(0, None, schema_ids, fault=fault)
    if fault is not None and last == 0 and _base_offset(view, 0) < wanted_offset:
        return Walked(0, None, set(), fault=fault)  # it is unknown which of the two offsets is wrong
    doubt = _doubt(view, last, is_in_question=fault is not None)
    if doubt is not None:
        return walk(view[:last], wanted_offset, has_gaps=has_gaps)._replace(fault=fault or doubt)
    return Walked(position, expected, schema_ids, middle, fault)


def _doubt(view: memoryview, start: int, *, is_in_question: bool) -> str | None:
    """The reason to distrust the end of the last batch: no batch after it confirms its length and offsets."""
    try:
        header = read_header(view, start)
    except CorruptBatch as error:
        return str(error)
    if not is_in_question and (offsets_are_sound(header) or is_filler(header)):
        return None
    return None if check_crc(view, start, header) else f"batch at {start}: the checksum of its header is wrong"


def headers(view: memoryview) -> Iterator[tuple[int, BatchHeader | BrokenHeader]]:
    """Position and header of every whole batch, including those whose headers only `walk` accepts."""
    position, stop = 0, len(view)
    while stop - position >= MIN_HEADER_BYTES:
        base, length, magic, _, delta = _FRONT.unpack_from(view, position)
        if length < MIN_HEADER_BYTES - LENGTH_PREFIX_BYTES:
            raise CorruptBatch(f"batch at {position}: invalid length {length}")
        if length + LENGTH_PREFIX_BYTES > stop - position:
            return
        try:
            yield position, read_header(view, position)
        except CorruptBatch as error:
            if magic == MAGIC_V2:
                _, delta = _EPOCH_FRONT.unpack_from(view, position + _EPOCH_FRONT_POSITION)
            yield position, BrokenHeader(base, base + max(delta, 0) + 1, error)
        position += length + LENGTH_PREFIX_BYTES


def next_sound_batch(
    view: memoryview, offset: int, end_offset: int = -1, *, has_gaps: bool = False
) -> tuple[int, int] | None:
    """Position and base offset of the next whole batch not before `offset`; None if there is none.

    No checksum covers a base offset. So it must be `offset` itself, or be confirmed by the next batch, or lead to
    `end_offset`.
    """
    offset = max(offset, 0)
    position, end = 0, len(view)
    header = batch_at(view, 0, end)
    while True:
        if header is None or header.base_offset < offset:
            found = find_next_batch(view, position, end, offset, 0)
            if found is None:
                return None
            position, header = found
        behind = batch_at(view, position + header.size, end)
        if header.base_offset == offset or (behind is None and header.next_offset == end_offset):
            return position, header.base_offset
        if behind is not None and (
            behind.base_offset == header.next_offset or (has_gaps and behind.base_offset > header.next_offset)
        ):
            return position, header.base_offset
        position, header = position + header.size, behind
        if position >= end:
            return None


def _base_offset(view: memoryview, position: int) -> int:
    return int(_FRONT.unpack_from(view, position)[0])
