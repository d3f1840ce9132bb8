"""Index entries, their bytes, and the checkpoint file."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from fluss.server.storage.log.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from fluss.server.storage.log.index import (
    SegmentIndex,
    offset_before_time,
    offset_entries_are_sound,
    position_before,
    time_entries_are_sound,
)
from fluss.server.storage.log.writer_state import WriterBatch

sets = st.lists(st.tuples(st.integers(1, 5), st.integers(48, 400), st.integers(0, 3)), max_size=60)


def _build(interval: int, appended: list[tuple[int, int, int]]) -> tuple[SegmentIndex, list[tuple[int, int, int, int]]]:
    """An index and the appends in it as (first offset, last offset, position, timestamp)."""
    index = SegmentIndex(interval)
    offset = position = timestamp = 0
    model = []
    for rows, size, later in appended:
        timestamp += later
        index.add(offset, offset + rows - 1, position, size, timestamp)
        model.append((offset, offset + rows - 1, position, timestamp))
        offset += rows
        position += size
    return index, model


def test_entries_have_the_documented_format() -> None:
    """More than the interval after the last entry: last offset and start of the new append, big-endian."""
    index = SegmentIndex(100)
    index.add(0, 4, 0, 101, 5)
    index.add(5, 6, 101, 60, 9)
    index.add(7, 7, 161, 60, 9)
    assert index.offset_bytes(0, len(index.offsets)) == bytes.fromhex("0000000600000065")
    assert index.time_bytes(0, len(index.timestamps)) == bytes.fromhex("000000000000000900000005")


@given(st.integers(1, 500), sets)
def test_lookups_find_an_append_at_or_before_the_offset(interval: int, appended: list[tuple[int, int, int]]) -> None:
    index, model = _build(interval, appended)
    entries = index.offset_bytes(0, len(index.offsets))
    times = index.time_bytes(0, len(index.timestamps))
    assert offset_entries_are_sound(entries, 10**6)
    assert time_entries_are_sound(times)
    starts = {position: first for first, _, position, _ in model}
    for first, last, position, timestamp in model:
        for offset in (first, last):
            found = index.position_before(offset)
            assert found == position_before(entries, offset)
            assert found in starts
            assert found <= position
        # No set in front of the place where a time lookup starts is late enough.
        start = offset_before_time(times, timestamp)
        assert all(time < timestamp for begin, _, _, time in model if begin < start)


@given(st.integers(1, 300), sets, st.integers(0, 60))
def test_rollback_restores_the_state_before_an_append(
    interval: int, appended: list[tuple[int, int, int]], kept: int
) -> None:
    kept = min(kept, len(appended))
    expected, _ = _build(interval, appended[:kept])
    index, model = _build(interval, appended[:kept])
    mark = index.mark()
    offset = model[-1][1] + 1 if model else 0
    position = sum(size for _, size, _ in appended[:kept])
    timestamp = model[-1][3] if model else 0
    for rows, size, later in appended[kept:]:
        timestamp += later
        index.add(offset, offset + rows - 1, position, size, timestamp)
        offset, position = offset + rows, position + size
    index.rollback(mark)
    assert index.mark() == expected.mark()
    assert index.offsets == expected.offsets
    assert index.timestamps == expected.timestamps


@given(st.integers(1, 300), sets)
def test_stored_entries_can_be_loaded(interval: int, appended: list[tuple[int, int, int]]) -> None:
    index, _ = _build(interval, appended)
    loaded = SegmentIndex(interval)
    loaded.load(index.offset_bytes(0, len(index.offsets)), index.time_bytes(0, len(index.timestamps)))
    assert loaded.offsets == index.offsets
    assert loaded.positions == index.positions
    assert loaded.timestamps == index.timestamps
    assert loaded.time_offsets == index.time_offsets


def test_unsound_entries_are_refused() -> None:
    assert not offset_entries_are_sound(bytes(7), 100)
    assert not offset_entries_are_sound(bytes.fromhex("0000000500000030 0000000500000040"), 100)
    assert not offset_entries_are_sound(bytes.fromhex("0000000500000064"), 100)
    assert not time_entries_are_sound(bytes(13))
    assert not time_entries_are_sound(bytes.fromhex("0000000000000009 00000005 0000000000000009 00000006"))


big = st.integers(-(2**63), 2**63 - 1)
count = st.integers(0, 2**32 - 1)
batches = st.lists(st.builds(WriterBatch, st.integers(0, 2**31 - 1), big, big, big), min_size=1, max_size=5)


@given(st.tuples(big, big, big, big, big), count, count, st.dictionaries(big, batches, max_size=5), st.booleans())
def test_checkpoints_survive_a_round_trip(
    numbers: tuple[int, int, int, int, int],
    offsets: int,
    times: int,
    writers: dict[int, list[WriterBatch]],
    has_remote: bool,
) -> None:
    checkpoint = Checkpoint(*numbers, offsets, times, list(writers.items()), has_remote)
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


def test_every_damaged_checkpoint_is_refused() -> None:
    content = encode_checkpoint(Checkpoint(1, 2, 0, 100, 5, 3, 4, [(7, [WriterBatch(0, 0, 1, 5)])]))
    rng = random.Random(3)
    for position in range(len(content)):
        broken = bytearray(content)
        broken[position] ^= 1 << rng.randrange(8)
        assert decode_checkpoint(bytes(broken)) is None
        assert decode_checkpoint(content[:position]) is None
    assert decode_checkpoint(content + b"\0") is None
