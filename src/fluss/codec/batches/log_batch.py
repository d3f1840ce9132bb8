"""The header of a log record batch, and iteration over concatenated batches.

Layout by magic (all integers little-endian, see docs/formats/log-batch.md):

    V0  base offset 8 | length 4 | magic 1 | commit timestamp 8 | crc 4 | schema id 2 | attributes 1 |
        last offset delta 4 | writer id 8 | batch sequence 4 | record count 4                      = 48 bytes
    V1  V0 and statistics length 4                                                                 = 52 bytes
    V2  V1 with leader epoch 4 in front of the crc                                                 = 56 bytes

The checksum covers everything from the schema id on, so a server may write base offset and commit timestamp into a
batch without touching the rest. The functions here are stateless and read any buffer in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from fluss.codec.buffers import ReadableBuffer, WritableBuffer
from fluss.codec.crc import crc32c, crc32c_of_pieces

MAGIC_V0 = 0
MAGIC_V1 = 1
MAGIC_V2 = 2
NO_WRITER_ID = -1
NO_BATCH_SEQUENCE = -1
APPEND_ONLY_FLAG = 0x01
# The base offset and the length itself, which `length` does not count.
LENGTH_PREFIX_BYTES = 12
MIN_HEADER_BYTES = 48
MAX_BATCH_BYTES = 2**31 - 1
# A compressed message has dozens of parts: joining them before the checksum takes 29 us, a call for each of them 65 us.
MAX_PIECES_FOR_CHECKSUM = 4
MAX_SCHEMA_ID = 2**15 - 1
MAX_CHANGE_TYPE = 4

_V0 = Struct("<qibqIhbiqii")
_V1 = Struct("<qibqIhbiqiii")
_V2 = Struct("<qibqiIhbiqiii")
_HEADER_BYTES = (_V0.size, _V1.size, _V2.size)
_CRC_POSITIONS = (21, 21, 25)
_INT32 = Struct("<i")
_INT64 = Struct("<q")
LENGTH_POSITION = 8
_COMMIT_TIMESTAMP_POSITION = 13
_UNKNOWN_LEADER_EPOCH = -1
_CHANGE_TYPE_BYTES = bytes(range(MAX_CHANGE_TYPE + 1))


class CorruptBatch(ValueError):  # noqa: N818 - the name is part of the interface
    """Raised for bytes that are not a valid batch. The message states what is wrong and where."""


class UnknownMagic(CorruptBatch):
    """Raised for a batch whose magic byte, the version of its format, is unknown."""


class BatchHeader(NamedTuple):
    """The fixed fields of a batch; `size` counts all bytes of the batch, header included."""

    base_offset: int
    size: int
    magic: int
    commit_timestamp: int
    leader_epoch: int
    crc: int
    schema_id: int
    attributes: int
    last_offset_delta: int
    writer_id: int
    batch_sequence: int
    record_count: int
    statistics_length: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def append_only(self) -> bool:
        """True if every row is an append, so that no change types are stored (ARROW format)."""
        return bool(self.attributes & APPEND_ONLY_FLAG)

    @property
    def header_size(self) -> int:
        """The number of bytes of the fixed header, without statistics."""
        return _HEADER_BYTES[self.magic]

    @property
    def records_start(self) -> int:
        """The position after header and statistics, relative to the start of the batch."""
        return _HEADER_BYTES[self.magic] + self.statistics_length


def read_header(buffer: ReadableBuffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`; the buffer may end before the body of the batch does."""
    remaining = len(buffer) - position
    if position < 0 or remaining < MIN_HEADER_BYTES:
        raise CorruptBatch(f"a batch header needs {MIN_HEADER_BYTES} bytes, but {remaining} are left at {position}")
    (base, length, magic, timestamp, crc, schema_id, attributes, delta, writer_id, sequence, count) = _V0.unpack_from(
        buffer, position
    )
    size = length + LENGTH_PREFIX_BYTES
    leader_epoch, statistics_length = _UNKNOWN_LEADER_EPOCH, 0
    if magic:
        if not 0 < magic <= MAGIC_V2:
            raise UnknownMagic(f"unknown batch magic {magic} at position {position}")
        if remaining < _HEADER_BYTES[magic]:
            raise CorruptBatch(f"the header at {position} needs {_HEADER_BYTES[magic]} bytes, but {remaining} are left")
        if magic == MAGIC_V1:
            (statistics_length,) = _V1.unpack_from(buffer, position)[11:]
        else:
            (_, _, _, _, leader_epoch, crc, schema_id, attributes, delta, writer_id, sequence, count,
             statistics_length) = _V2.unpack_from(buffer, position)  # fmt: skip
    if size < _HEADER_BYTES[magic] or not 0 <= statistics_length <= size - _HEADER_BYTES[magic]:
        raise CorruptBatch(
            f"batch at {position}: {size} bytes cannot hold the header and {statistics_length} bytes of statistics"
        )
    if count < 0 or delta < 0:
        raise CorruptBatch(f"batch at {position}: record count {count} and offset delta {delta} must not be negative")
    return BatchHeader(
        base, size, magic, timestamp, leader_epoch, crc, schema_id, attributes, delta, writer_id, sequence, count,
        statistics_length,
    )  # fmt: skip


def iter_batches(
    buffer: ReadableBuffer, position: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of every whole batch, until the end or an incomplete batch, which is not an error."""
    stop = len(buffer) if end is None else min(end, len(buffer))
    while stop - position >= MIN_HEADER_BYTES:
        (length,) = _INT32.unpack_from(buffer, position + LENGTH_POSITION)
        if length < 0:
            raise CorruptBatch(f"batch at {position}: negative length {length}")
        if length + LENGTH_PREFIX_BYTES > stop - position:
            return
        header = read_header(buffer, position)
        yield position, header
        position += header.size


def check_crc(buffer: ReadableBuffer, position: int, header: BatchHeader) -> bool:
    """True if the buffer has the whole batch and its checksum is right."""
    end = position + header.size
    if end > len(buffer):
        return False
    return crc32c(buffer, position + _CRC_POSITIONS[header.magic] + 4, end) == header.crc


def stamp(buffer: WritableBuffer, position: int, base_offset: int, commit_timestamp: int) -> None:
    """Write the offset and timestamp that the leader assigns into a batch, in place; the checksum excludes them."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT64.pack_into(buffer, position + _COMMIT_TIMESTAMP_POSITION, commit_timestamp)


def encode_header(header: BatchHeader) -> bytes:
    """Encode a header. The checksum is taken from `header` as it is."""
    length = header.size - LENGTH_PREFIX_BYTES
    front = (header.base_offset, length, header.magic, header.commit_timestamp)
    back = header[6:12]
    if header.magic == MAGIC_V0:
        return _V0.pack(*front, header.crc, *back)
    if header.magic == MAGIC_V1:
        return _V1.pack(*front, header.crc, *back, header.statistics_length)
    if header.magic == MAGIC_V2:
        return _V2.pack(*front, header.leader_epoch, header.crc, *back, header.statistics_length)
    raise UnknownMagic(f"unknown batch magic {header.magic}")


def encode_batch(
    body: Sequence[ReadableBuffer],
    record_count: int,
    schema_id: int,
    *,
    append_only: bool,
    writer_id: int = NO_WRITER_ID,
    batch_sequence: int = NO_BATCH_SEQUENCE,
    statistics: bytes = b"",
    magic: int = MAGIC_V0,
    base_offset: int = 0,
    commit_timestamp: int = 0,
) -> bytes:
    """Encode a batch: the header with its checksum, then `body` (change types and message, or row records)."""
    if not 0 <= schema_id <= MAX_SCHEMA_ID:
        raise ValueError(f"schema id must be from 0 to {MAX_SCHEMA_ID}, got {schema_id}")
    if statistics and magic == MAGIC_V0:
        raise ValueError(f"a V0 batch cannot hold statistics, got {len(statistics)} bytes of them; use magic V1")
    size = _HEADER_BYTES[magic] + len(statistics) + sum(map(len, body))
    if size > MAX_BATCH_BYTES:
        raise ValueError(f"a batch holds at most {MAX_BATCH_BYTES} bytes, but this one would have {size}; split it")
    header = BatchHeader(
        base_offset, size, magic, commit_timestamp, _UNKNOWN_LEADER_EPOCH, 0, schema_id,
        APPEND_ONLY_FLAG if append_only else 0, max(record_count - 1, 0), writer_id, batch_sequence, record_count,
        len(statistics),
    )  # fmt: skip
    if len(body) > MAX_PIECES_FOR_CHECKSUM:
        body = (b"".join(body),)
    covered = encode_header(header)[_CRC_POSITIONS[magic] + 4 :]
    checksum = crc32c_of_pieces((covered, statistics, *body))
    return b"".join((encode_header(header._replace(crc=checksum)), statistics, *body))


def empty_batch(
    schema_id: int,
    *,
    append_only: bool = False,
    writer_id: int = NO_WRITER_ID,
    batch_sequence: int = NO_BATCH_SEQUENCE,
    magic: int = MAGIC_V0,
) -> bytes:
    """A batch without rows: only the header. It still takes one offset of the log."""
    return encode_batch(
        (), 0, schema_id, append_only=append_only, writer_id=writer_id, batch_sequence=batch_sequence, magic=magic
    )


def filler_batch(schema_id: int, base_offset: int, next_offset: int, commit_timestamp: int) -> bytes:
    """A batch without rows that takes all offsets below `next_offset`, where readers continue. Clients send none."""
    header = read_header(empty_batch(schema_id, append_only=True))._replace(
        base_offset=base_offset, commit_timestamp=commit_timestamp, last_offset_delta=next_offset - base_offset - 1
    )
    checksum = crc32c(encode_header(header)[_CRC_POSITIONS[header.magic] + 4 :])
    return encode_header(header._replace(crc=checksum))


def check_change_types(change_types: bytes, record_count: int) -> None:
    """Raise CorruptBatch unless there is one byte from 0 to 4 per row."""
    if len(change_types) != record_count:
        raise CorruptBatch(f"the number of change types must be {record_count}, that of rows, got {len(change_types)}")
    unknown = change_types.translate(None, _CHANGE_TYPE_BYTES)
    if unknown:
        raise CorruptBatch(f"unknown change type {unknown[0]}; known are 0 to {MAX_CHANGE_TYPE}")
