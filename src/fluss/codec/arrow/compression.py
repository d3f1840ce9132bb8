"""Buffer compression of Arrow log batches: which codec a table uses, and the bytes of one buffer.

A compressed buffer is an int64 with the uncompressed length, followed by one ZSTD or LZ4 frame; length -1 means that
the bytes after it are raw. Java reads only LZ4 frames of independent blocks, and Arrow C++ links blocks as soon as a
buffer is larger than one block, so LZ4 frames are assembled here from raw blocks.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct

import pyarrow as pa

from fluss.model.properties import COMPRESSION_TYPE, COMPRESSION_ZSTD_LEVEL, DEFAULT_ZSTD_LEVEL

MIN_ZSTD_LEVEL = 1
MAX_ZSTD_LEVEL = 22
RAW_BUFFER_LENGTH = -1
LENGTH_PREFIX_BYTES = 8

_LZ4_BLOCK_BYTES = 64 * 1024
# magic number, version 1 with independent blocks, block size code 4 (64 KiB), header checksum
_LZ4_FRAME_HEADER = bytes.fromhex("04224d18604082")
_LZ4_RAW_BLOCK_FLAG = 0x80000000
_LZ4_END_MARK = bytes(4)
# A zstd frame has at least 9 bytes around its content and an LZ4 frame 15: smaller buffers cannot shrink.
_SMALLEST_COMPRESSIBLE_BYTES = 11
_UINT32 = Struct("<I")
_INT64 = Struct("<q")


class CompressionKind(enum.Enum):
    """Codec of the buffers of a batch; the value is its number in the Arrow metadata, None if they are uncompressed."""

    NONE = None
    LZ4_FRAME = 0
    ZSTD = 1


@dataclass(frozen=True)
class Compression:
    """The compression of a table's batches: the codec, and the `level`, which only ZSTD uses."""

    kind: CompressionKind = CompressionKind.ZSTD
    level: int = DEFAULT_ZSTD_LEVEL

    def __post_init__(self) -> None:
        if not MIN_ZSTD_LEVEL <= self.level <= MAX_ZSTD_LEVEL:
            raise ValueError(
                f"{COMPRESSION_ZSTD_LEVEL} must be from {MIN_ZSTD_LEVEL} to {MAX_ZSTD_LEVEL}, got {self.level}"
            )

    @staticmethod
    def parse(kind: str, level: int = DEFAULT_ZSTD_LEVEL) -> Compression:
        """The compression for a value of the property `table.log.arrow.compression.type`, in upper or lower case.

        >>> Compression.parse("lz4_frame").kind.name
        'LZ4_FRAME'
        """
        try:
            return Compression(CompressionKind[kind.strip().upper()], level)
        except KeyError:
            known = ", ".join(each.name for each in CompressionKind)
            raise ValueError(f"{COMPRESSION_TYPE} must be one of {known}, got {kind!r}") from None

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> Compression:
        """The compression that the properties of a table require; by default ZSTD with level 1."""
        level = properties.get(COMPRESSION_ZSTD_LEVEL, str(DEFAULT_ZSTD_LEVEL))
        try:
            level_number = int(level)
        except ValueError:
            raise ValueError(f"{COMPRESSION_ZSTD_LEVEL} must be an integer, got {level!r}") from None
        return Compression.parse(properties.get(COMPRESSION_TYPE, CompressionKind.ZSTD.name), level_number)


NO_COMPRESSION = Compression(CompressionKind.NONE)


class BufferCompressor:
    """Compresses the buffers of one batch. Make one per batch: codec objects are not shared between threads."""

    def __init__(self, compression: Compression) -> None:
        self._is_lz4 = compression.kind is CompressionKind.LZ4_FRAME
        self._codec = pa.Codec("lz4_raw") if self._is_lz4 else pa.Codec("zstd", compression.level)

    def compress(self, buffer: memoryview) -> list[bytes | memoryview]:
        """The stored form of a non-empty buffer, as a list of parts: prefix, then frame or raw bytes."""
        raw_length = len(buffer)
        if raw_length >= _SMALLEST_COMPRESSIBLE_BYTES:
            pieces = self._lz4_frame(buffer) if self._is_lz4 else [self._codec.compress(buffer, asbytes=True)]
            if sum(map(len, pieces)) <= raw_length:
                return [_INT64.pack(raw_length), *pieces]
        return [_INT64.pack(RAW_BUFFER_LENGTH), buffer]

    def _lz4_frame(self, buffer: memoryview) -> list[bytes | memoryview]:
        pieces: list[bytes | memoryview] = [_LZ4_FRAME_HEADER]
        for start in range(0, len(buffer), _LZ4_BLOCK_BYTES):
            block = buffer[start : start + _LZ4_BLOCK_BYTES]
            compressed = self._codec.compress(block, asbytes=True)
            if len(compressed) < len(block):
                pieces += (_UINT32.pack(len(compressed)), compressed)
            else:
                pieces += (_UINT32.pack(len(block) | _LZ4_RAW_BLOCK_FLAG), block)
        pieces.append(_LZ4_END_MARK)
        return pieces
