"""Rows that are accepted and not yet stored: newest wins, applied ones leave, failed ones are taken back."""

from __future__ import annotations

from typing import Any, cast

from fluss.server.storage.kv.prewrite import PreWriteBuffer


class _Append:
    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset


def _append(next_offset: int) -> Any:
    return cast(Any, _Append(next_offset))


def _values(buffer: PreWriteBuffer) -> dict[bytes, bytes | None]:
    return {key: value for key, (_, value) in buffer.newest.items()}


def test_applied_puts_leave_what_was_written_again() -> None:
    buffer = PreWriteBuffer()
    buffer.add(_append(2), {b"a": b"1", b"b": b"1"}, 2)
    buffer.add(_append(4), {b"a": None, b"c": b"2"}, 0)
    assert _values(buffer) == {b"a": None, b"b": b"1", b"c": b"2"}
    assert [put.entries for put in buffer.take_up_to(3)] == [{b"a": b"1", b"b": b"1"}]
    assert _values(buffer) == {b"a": None, b"c": b"2"}
    assert buffer.take_up_to(3) == []
    assert len(buffer.take_up_to(4)) == 1
    assert not buffer.newest
    assert buffer.size_bytes == 0


def test_failed_puts_are_taken_back() -> None:
    buffer = PreWriteBuffer()
    first = buffer.add(_append(1), {b"a": b"1"}, 1)
    second = buffer.add(_append(2), {b"a": b"2", b"b": b"2"}, 1)
    third = buffer.add(_append(3), {b"b": None}, -1)
    for put in (second, third):
        buffer.take_back(put)
    assert _values(buffer) == {b"a": b"1"}
    assert list(buffer.puts) == [first]
    buffer.take_back(third)
    buffer.take_back(first)
    assert not buffer.newest
    assert buffer.size_bytes == 0
