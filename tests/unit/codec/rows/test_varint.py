"""Variable-length integers: worked examples, and columns against single numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.codec.rows.column_buffers import PaddedSource
from fluss.codec.rows.values import CorruptRowError
from fluss.codec.rows.varint import (
    MASK64,
    MAX_VARINT32_BYTES,
    MAX_VARINT64_BYTES,
    read_length,
    read_varint32,
    read_varint64,
    read_varint_column,
    varint_bytes,
    write_varint32,
    write_varint64,
)

EXAMPLES_32 = {
    0: "00", 1: "01", 127: "7f", 128: "8001", 300: "ac02", 16383: "ff7f", 16384: "808001",
    2147483647: "ffffffff07", -1: "ffffffff0f", -2147483648: "8080808008",
}  # fmt: skip
EXAMPLES_64 = {
    0: "00", 127: "7f", 128: "8001", 300: "ac02", 16384: "808001", 2147483647: "ffffffff07",
    -1: "ffffffffffffffffff01", -2147483648: "80808080f8ffffffff01",
    2**63 - 1: "ffffffffffffffff7f", -(2**63): "80808080808080808001",
}  # fmt: skip
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300) | st.integers(0, 62).map(lambda bits: 1 << bits)


@pytest.mark.parametrize(("value", "text"), EXAMPLES_32.items())
def test_examples_of_32_bits(value: int, text: str) -> None:
    out = bytearray()
    write_varint32(value, out)
    assert out.hex() == text
    assert read_varint32(memoryview(out), 0) == (value, len(out))


@pytest.mark.parametrize(("value", "text"), EXAMPLES_64.items())
def test_examples_of_64_bits(value: int, text: str) -> None:
    out = bytearray()
    write_varint64(value, out)
    assert out.hex() == text
    assert read_varint64(memoryview(out), 0) == (value, len(out))


@given(st.lists(NUMBERS, max_size=40), st.data())
def test_columns_agree_with_single_numbers(values: list[int], data: st.DataObject) -> None:
    out = bytearray()
    starts = []
    for value in values:
        starts.append(len(out))
        write_varint64(value, out)
    encoded, sizes = varint_bytes(np.array([value & MASK64 for value in values], np.uint64))
    assert encoded.tobytes() == bytes(out)
    nulls = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))), np.bool_)
    source = PaddedSource(bytes(out))
    numbers, read_sizes = read_varint_column(
        source.data, source.words, np.array(starts, np.int64), nulls, MAX_VARINT64_BYTES
    )
    expected = [0 if is_null else value for value, is_null in zip(values, nulls, strict=True)]
    assert numbers.view(np.int64).tolist() == expected
    assert read_sizes.tolist() == np.where(nulls, 0, sizes).tolist()


@given(st.binary(min_size=1, max_size=14))
def test_any_bytes_read_alike_in_both_ways(content: bytes) -> None:
    source = PaddedSource(content)
    cursors = np.zeros(1, np.int64)
    for max_bytes, read, mask in (
        (MAX_VARINT32_BYTES, read_varint32, 2**32 - 1),
        (MAX_VARINT64_BYTES, read_varint64, MASK64),
    ):
        try:
            value, end = read(memoryview(content), 0)
        except CorruptRowError:
            value, end = 0, -1
        try:
            numbers, sizes = read_varint_column(source.data, source.words, cursors, None, max_bytes)
            column_end = int(sizes[0]) if sizes[0] <= len(content) else -1
        except CorruptRowError:
            column_end = -1
        assert column_end == end
        if end > 0:
            assert int(numbers[0]) & mask == value & mask


def test_truncated_and_endless_numbers_are_refused() -> None:
    with pytest.raises(CorruptRowError, match="past the end"):
        read_varint32(memoryview(b"\x80\x80"), 0)
    with pytest.raises(CorruptRowError, match="more than 5 bytes"):
        read_varint32(memoryview(b"\x80" * 20), 0)
    with pytest.raises(CorruptRowError, match="more than 10 bytes"):
        read_varint64(memoryview(b"\x80" * 20), 0)
    with pytest.raises(CorruptRowError, match="length"):
        read_length(memoryview(b"\x05abc"), 0)
