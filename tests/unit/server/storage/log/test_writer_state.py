"""Idempotent writers: the window of five, order, wrap, expiry, taking back."""

from __future__ import annotations

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log.writer_state import MAX_SEQUENCE, WriterBatch, WriterState


def _state(sequences: int, durable_offset: int = 0, max_writers: int = 100) -> WriterState:
    state = WriterState(max_writers)
    for sequence in range(sequences):
        assert state.check(1, sequence) is None
        state.record(1, WriterBatch(sequence, sequence * 10, sequence * 10 + 9, sequence), durable_offset)
    return state


def _refused(state: WriterState, writer_id: int, sequence: int) -> None:
    with pytest.raises(FlussError) as caught:
        state.check(writer_id, sequence)
    assert caught.value.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION


def test_the_first_sequence_is_zero() -> None:
    state = WriterState(10)
    assert state.check(5, 0) is None
    _refused(state, 5, 1)
    _refused(state, 5, -1)


@pytest.mark.parametrize("durable_offset", [0, 55, 1000])
def test_the_last_five_are_recognised_and_older_ones_are_not(durable_offset: int) -> None:
    state = _state(10, durable_offset)
    for sequence in range(5, 10):
        repeated = state.check(1, sequence)
        assert repeated is not None
        assert repeated.base_offset == sequence * 10
    _refused(state, 1, 4)
    _refused(state, 1, 11)
    assert state.check(1, 10) is None


def test_sequences_wrap() -> None:
    state = WriterState(10)
    state.record(1, WriterBatch(MAX_SEQUENCE, 0, 0, 0), 0)
    assert state.check(1, 0) is None
    state.record(1, WriterBatch(0, 1, 1, 0), 0)
    assert state.check(1, 1) is None
    repeated = state.check(1, MAX_SEQUENCE)
    assert repeated is not None
    assert repeated.base_offset == 0


def test_a_rollback_leaves_a_full_window() -> None:
    """Ten batches of which five are durable: the durable five are still there when the others are taken back."""
    state = _state(10, durable_offset=0)
    for sequence in range(10, 16):
        state.record(1, WriterBatch(sequence, sequence * 10, sequence * 10 + 9, sequence), 100)
    state.rollback(100)
    assert [batch.sequence for batch in state.snapshot(10**6)[0][1]] == [5, 6, 7, 8, 9]
    assert state.check(1, 10) is None
    state.rollback(0)
    assert len(state) == 0


def test_a_snapshot_describes_an_older_offset() -> None:
    state = _state(10)
    assert [batch.sequence for batch in state.snapshot(70)[0][1]] == [2, 3, 4, 5, 6]
    assert state.snapshot(5) == []
    loaded = WriterState(10)
    loaded.load(state.snapshot(70))
    assert loaded.check(1, 7) is None


def test_silent_writers_expire() -> None:
    state = _state(3)
    assert state.expire(now_ms=102, expiration_ms=100) == 0
    assert state.expire(now_ms=103, expiration_ms=100) == 1
    _refused(state, 1, 3)


def test_the_number_of_writers_is_bounded() -> None:
    state = WriterState(20)
    for writer_id in range(50):
        state.record(writer_id, WriterBatch(0, writer_id, writer_id, writer_id), 0)
    assert len(state) <= 20
    assert state.check(49, 1) is None
    _refused(state, 0, 1)


def test_writers_with_staged_rows_are_neither_expired_nor_evicted() -> None:
    state = WriterState(4)
    state.protected.add(1)
    for writer_id in (1, 2, 3):
        state.record(writer_id, WriterBatch(0, writer_id, writer_id, writer_id), 0)
    assert state.expire(1000, 10) == 2
    assert (state.last_sequence(1), state.last_sequence(2)) == (0, -1)
    for writer_id in range(10, 20):
        state.record(writer_id, WriterBatch(0, writer_id, writer_id, writer_id), 0)
    assert state.last_sequence(1) == 0
    assert len(state) <= 4
    state.forget(1)
    assert (state.last_sequence(1), state.protected) == (-1, set())
