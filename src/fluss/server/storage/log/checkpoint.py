"""The checkpoint of a bucket: where recovery starts, and the writer state at that point.

A small file that is replaced atomically. Little-endian:

    magic "FLCK" | version u16 | flags u16 | local start offset i64 | recovery offset i64 | segment base offset i64 |
    byte position in that segment i64 | newest timestamp i64 | offset index entries u32 | time index entries u32 |
    writers u32 | batches u32 |
    per batch: writer id i64, sequence i32, base offset i64, last offset i64, timestamp i64 |
    CRC-32C of everything before u32

Flag 1: older rows of the bucket are in remote storage, so `remote-log.json` must be there. (Earlier versions wrote no
flags and ignore them.)

Everything before the recovery point is on disk, including the counted entries of the segment's index files. A file with
a wrong checksum counts as missing: recovery then reads the whole log, it never guesses. Magic, version and checksum
are at the same places in every version, so that an intact file of a later version is recognised and refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct

from fluss.codec.crc import crc32c
from fluss.model.formats import refuse_newer
from fluss.server.storage.files import FileSystem, write_file_atomically
from fluss.server.storage.log.writer_state import WriterBatch

CHECKPOINT_NAME = "bucket.checkpoint"
_MAGIC = b"FLCK"
_VERSION = 1
_HEAD = Struct("<4sHHqqqqqIIII")
_START = Struct("<4sH")
_BATCH = Struct("<qiqqq")
_CRC = Struct("<I")
_HAS_REMOTE_FLAG = 1


@dataclass(frozen=True)
class Checkpoint:
    """State of a bucket as of its recovery point."""

    local_start_offset: int
    recovery_offset: int
    segment_base_offset: int
    segment_position: int
    newest_timestamp: int
    offset_index_entries: int
    time_index_entries: int
    writers: list[tuple[int, list[WriterBatch]]] = field(default_factory=list)
    has_remote_record: bool = False


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Encode a checkpoint as the content of its file."""
    pack = _BATCH.pack
    batches = [pack(writer_id, *batch) for writer_id, kept in checkpoint.writers for batch in kept]
    head = _HEAD.pack(
        _MAGIC,
        _VERSION,
        _HAS_REMOTE_FLAG if checkpoint.has_remote_record else 0,
        checkpoint.local_start_offset,
        checkpoint.recovery_offset,
        checkpoint.segment_base_offset,
        checkpoint.segment_position,
        checkpoint.newest_timestamp,
        checkpoint.offset_index_entries,
        checkpoint.time_index_entries,
        len(checkpoint.writers),
        len(batches),
    )
    content = head + b"".join(batches)
    return content + _CRC.pack(crc32c(content))


def decode_checkpoint(content: bytes, name: str = CHECKPOINT_NAME) -> Checkpoint | None:
    """Decode a checkpoint; None if the bytes are damaged or no checkpoint, FlussError if a later version wrote them."""
    body_size = len(content) - _CRC.size
    if body_size < _START.size or _CRC.unpack_from(content, body_size)[0] != crc32c(content, 0, body_size):
        return None
    magic, version = _START.unpack_from(content)
    if magic == _MAGIC:
        refuse_newer(f"checkpoint {name}", version, _VERSION)
    if body_size < _HEAD.size:
        return None
    magic, version, flags, local_start, offset, base, position, timestamp, offset_entries, time_entries, *counts = (
        _HEAD.unpack_from(content)
    )
    writer_count, batch_count = counts
    if magic != _MAGIC or version != _VERSION or body_size != _HEAD.size + batch_count * _BATCH.size:
        return None
    writers = _group(_BATCH.iter_unpack(memoryview(content)[_HEAD.size : body_size]))
    if len(writers) != writer_count:
        return None
    has_remote = bool(flags & _HAS_REMOTE_FLAG)
    return Checkpoint(local_start, offset, base, position, timestamp, offset_entries, time_entries, writers, has_remote)


def _group(rows: Iterable[tuple[int, ...]]) -> list[tuple[int, list[WriterBatch]]]:
    writers: dict[int, list[WriterBatch]] = {}
    for writer_id, *batch in rows:
        writers.setdefault(writer_id, []).append(WriterBatch(*batch))
    return list(writers.items())


def write_checkpoint(files: FileSystem, directory: str, content: bytes) -> None:
    """Replace the checkpoint of the bucket; durable when this returns."""
    write_file_atomically(files, f"{directory}/{CHECKPOINT_NAME}", content)


def load_checkpoint(files: FileSystem, directory: str) -> tuple[Checkpoint | None, bool]:
    """Return the checkpoint of a bucket (None if missing or damaged), and True if there was a file."""
    path = f"{directory}/{CHECKPOINT_NAME}"
    try:
        content = files.read_file(path)
    except FileNotFoundError:
        return None, False
    return decode_checkpoint(content, path), True
