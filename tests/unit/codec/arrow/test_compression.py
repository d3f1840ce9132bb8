"""Compression settings, and the bytes of single buffers."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluss.codec.arrow.compression import BufferCompressor, Compression, CompressionKind

LZ4 = Compression(CompressionKind.LZ4_FRAME)
ZSTD = Compression(CompressionKind.ZSTD)


def test_settings_from_properties() -> None:
    assert Compression.from_properties({}) == Compression(CompressionKind.ZSTD, 1)
    properties = {"table.log.arrow.compression.type": "zstd", "table.log.arrow.compression.zstd.level": "22"}
    assert Compression.from_properties(properties) == Compression(CompressionKind.ZSTD, 22)
    assert Compression.from_properties({"table.log.arrow.compression.type": "None"}).kind is CompressionKind.NONE
    assert Compression.parse("LZ4_FRAME") == LZ4


@pytest.mark.parametrize(("kind", "level"), [("snappy", "3"), ("ZSTD", "0"), ("ZSTD", "23"), ("ZSTD", "fast")])
def test_wrong_settings_are_refused(kind: str, level: str) -> None:
    properties = {"table.log.arrow.compression.type": kind, "table.log.arrow.compression.zstd.level": level}
    with pytest.raises(ValueError, match="must be"):
        Compression.from_properties(properties)


def stored(compression: Compression, raw: bytes) -> bytes:
    return b"".join(BufferCompressor(compression).compress(memoryview(raw)))


def unpacked(codec: str, content: bytes) -> bytes:
    length = int.from_bytes(content[:8], "little", signed=True)
    if length == -1:
        return content[8:]
    return bytes(pa.decompress(content[8:], length, codec, asbytes=True))


def lz4_blocks(frame: bytes) -> list[tuple[bool, int]]:
    """(raw, size) of the blocks of a frame; asserts the form that Java's reader needs."""
    assert frame[:7].hex() == "04224d18604082"
    position, blocks = 7, []
    while (word := int.from_bytes(frame[position : position + 4], "little")) != 0:
        size = word & 0x7FFFFFFF
        blocks.append((bool(word >> 31), size))
        position += 4 + size
    assert position + 4 == len(frame)
    return blocks


@pytest.mark.parametrize("size", [11, 65_535, 65_536, 65_537, 200_000])
def test_lz4_frames_have_independent_blocks(size: int) -> None:
    raw = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    content = stored(LZ4, raw)
    assert unpacked("lz4", content) == raw
    if size > 11:
        assert len(lz4_blocks(content[8:])) == -(-size // 65_536)


def test_lz4_block_that_does_not_shrink_is_raw() -> None:
    raw = b"a" * 65_536 + os.urandom(65_536)
    content = stored(LZ4, raw)
    assert [is_raw for is_raw, _ in lz4_blocks(content[8:])] == [False, True]
    assert unpacked("lz4", content) == raw


@pytest.mark.parametrize("compression", [LZ4, ZSTD])
def test_what_does_not_shrink_is_stored_raw(compression: Compression) -> None:
    for raw in (b"x", os.urandom(1000)):
        assert stored(compression, raw) == b"\xff" * 8 + raw


@given(st.sampled_from([(LZ4, "lz4"), (ZSTD, "zstd")]), st.binary(min_size=1, max_size=40), st.integers(1, 9000))
def test_buffers_round_trip(codec: tuple[Compression, str], seed: bytes, repeats: int) -> None:
    raw = seed * repeats
    assert unpacked(codec[1], stored(codec[0], raw)) == raw
