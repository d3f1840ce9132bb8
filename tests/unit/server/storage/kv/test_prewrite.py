"""Pending rows and recently written rows: the newest wins, failed ones are taken back, memory has a limit."""

from __future__ import annotations

from typing import Any, cast

from fluss.server.storage.kv.limits import PENDING_ROW_OVERHEAD_BYTES
from fluss.server.storage.kv.prewrite import PreWriteBuffer
from fluss.server.storage.kv.recent_rows import RecentRows

KEYS = [b"a", b"b", b"c"]
ROW_BYTES = PENDING_ROW_OVERHEAD_BYTES + 2


class _Append:
    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset


def _append(next_offset: int) -> Any:
    return cast(Any, _Append(next_offset))


def _buffer(limit_rows: int = 1000) -> PreWriteBuffer:
    return PreWriteBuffer(RecentRows(limit_rows * ROW_BYTES))


def _known(buffer: PreWriteBuffer, keys: list[bytes] = KEYS) -> dict[bytes, bytes | None]:
    values, unknown = buffer.find(keys)
    return {key: value for place, (key, value) in enumerate(zip(keys, values, strict=True)) if place not in unknown}


def test_the_newest_value_of_a_key_is_known_even_after_it_is_applied() -> None:
    buffer = _buffer()
    buffer.add(_append(2), {b"a": b"1", b"b": b"1"}, 2)
    buffer.add(_append(4), {b"a": None, b"c": b"2"}, 0)
    newest = {b"a": None, b"b": b"1", b"c": b"2"}
    assert _known(buffer) == newest
    assert [put.entries for put in buffer.take_up_to(3)] == [{b"a": b"1", b"b": b"1"}]
    assert _known(buffer) == newest
    assert buffer.take_up_to(3) == []
    assert len(buffer.take_up_to(4)) == 1
    assert _known(buffer) == newest
    assert buffer.size_bytes == 0


def test_failed_puts_are_taken_back() -> None:
    buffer = _buffer()
    first = buffer.add(_append(1), {b"a": b"1"}, 1)
    second = buffer.add(_append(2), {b"a": b"2", b"b": b"2"}, 1)
    third = buffer.add(_append(3), {b"b": None}, -1)
    for put in (second, third):
        buffer.take_back(put)
    assert _known(buffer) == {b"a": b"1"}
    assert list(buffer.puts) == [first]
    buffer.take_back(third)
    buffer.take_back(first)
    assert _known(buffer) == {}
    assert buffer.size_bytes == 0


def test_old_rows_are_evicted_but_not_pending_ones() -> None:
    buffer = _buffer(limit_rows=4)
    waiting = [bytes((number,)) for number in range(10)]
    for number, key in enumerate(waiting):
        buffer.add(_append(number + 1), {key: b"1"}, 1)
    assert _known(buffer, waiting) == dict.fromkeys(waiting, b"1")
    buffer.take_up_to(10)
    written = [bytes((number,)) for number in range(10, 40)]
    for number, key in enumerate(written, 10):
        buffer.add(_append(number + 1), {key: b"2"}, 1)
        buffer.take_up_to(number + 1)
    known = _known(buffer, [*waiting, *written])
    assert list(known) == written[-len(known) :], "the newest are known"
    assert 2 <= len(known) <= 6


def test_the_younger_generation_wins_for_keys_in_both() -> None:
    buffer = _buffer(limit_rows=8)
    buffer.add(_append(1), {b"a": b"1", b"b": b"1", b"c": None, b"d": b"1", b"e": b"1"}, 4)  # these become old
    buffer.take_up_to(1)
    buffer.add(_append(2), {b"b": b"2", b"d": None}, -1)
    everything = {b"a": b"1", b"b": b"2", b"c": None, b"d": None, b"e": b"1"}
    asked = [[b"d", b"x", b"a", b"b", b"y", b"c"], [b"b", b"d"], [b"e", b"a"], [b"e", b"z"], [b"b", b"z"], [b"z"], []]
    for keys in asked:
        assert _known(buffer, keys) == {key: everything[key] for key in keys if key in everything}


def test_a_failed_put_between_generations_leaves_no_trace() -> None:
    buffer = _buffer(limit_rows=2)
    buffer.add(_append(1), {b"a": b"1"}, 1)
    buffer.take_up_to(1)
    failed = buffer.add(_append(2), {b"a": b"2", b"b": b"2"}, 1)
    waiting = buffer.add(_append(3), {b"c": b"3"}, 1)
    buffer.take_back(failed)
    assert _known(buffer) == {b"c": b"3"}
    assert list(buffer.puts) == [waiting]


def test_buckets_share_the_memory_and_idle_ones_evict_first() -> None:
    recent = RecentRows(10 * ROW_BYTES)
    quiet, waiting, busy = (PreWriteBuffer(recent) for _ in range(3))
    for number in range(4):
        quiet.add(_append(number + 1), {bytes((number,)): b"1"}, 1)
        waiting.add(_append(number + 1), {bytes((number,)): b"1"}, 1)
    quiet.take_up_to(4)
    quiet.add(_append(5), {b"q": b"1"}, 1)
    quiet.take_up_to(5)
    for number in range(100, 112):
        busy.add(_append(number + 1), {bytes((number,)): b"1"}, 1)
        busy.take_up_to(number + 1)
    assert recent.total_bytes <= 10 * ROW_BYTES
    assert not _known(quiet, [b"q"])
    assert _known(waiting, [b"\0"]), "what waits for the disk is not forgotten"
    busy.close()
    assert recent.total_bytes == 0
