"""Numbers that sort as the beginnings of binary values do."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fluss.codec.rows.column_buffers import first_words

WORD_BYTES = 8


@given(values=st.lists(st.binary(max_size=12)), skipped=st.integers(0, 3))
def test_first_words_are_the_first_eight_bytes_in_their_order(values: list[bytes], skipped: int) -> None:
    array = pa.array([b"others"] * skipped + values, pa.binary()).slice(skipped)
    expected = [int.from_bytes(value[:WORD_BYTES].ljust(WORD_BYTES, b"\0"), "big") for value in values]
    assert first_words(array).tolist() == expected
