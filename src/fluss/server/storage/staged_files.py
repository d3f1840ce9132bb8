"""The files of staged appends: log batches of one attempt for one bucket, outside the log.

A file is `staging/<writer id>.staged` in the bucket's directory: a header that names the transaction of the rows, and
the batches as they were received, one after the other, with sequences 0, 1, 2, ... (docs/formats/storage.md has the
layout). Batches have their own checksums, so the file needs none: a truncated file ends with its last whole batch, and
the append checks every batch again like a normal append. That costs little (the checksum runs at several GB/s) and
detects a byte that the disk changed between staging and appending, when there is no client left to send it again.

The functions have no state and may be called by any thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from fluss.codec.batches.log_batch import (
    MIN_HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    check_crc,
    iter_batches,
    read_header,
)
from fluss.codec.crc import crc32c
from fluss.model.formats import refuse_newer
from fluss.server.storage.files import FileSystem

STAGING_DIRECTORY = "staging"
MAGIC = b"FLST"
VERSION = 1
# Appending and scanning read this many bytes at a time, or one batch if it is larger.
READ_BYTES = 4 * 1024 * 1024

_SUFFIX = ".staged"
# magic, version, bytes of the name, checksum of everything after it | table id, writer id, batch id
_HEAD = Struct("<4sHHI")
_BODY = Struct("<qqq")


class StagedHeader(NamedTuple):
    """The table, writer and transaction of the rows in a file."""

    table_id: int
    writer_id: int
    batch_id: int
    transaction: str


class StagedBatches(NamedTuple):
    """Whole batches of a file: their bytes, their position in the file, and their headers with positions in `data`."""

    data: bytearray
    position: int
    batches: list[tuple[int, BatchHeader]]

    @property
    def end(self) -> int:
        """The position in the file after the last batch."""
        return self.position + len(self.data)


def encode_header(header: StagedHeader) -> bytes:
    """Encode the header with which a staged file begins."""
    name = header.transaction.encode()
    body = _BODY.pack(header.table_id, header.writer_id, header.batch_id) + name
    return _HEAD.pack(MAGIC, VERSION, len(name), crc32c(body)) + body


def decode_header(data: bytes) -> tuple[StagedHeader, int] | None:
    """The header and its size; None if it is incomplete, since the process died while it created the file."""
    if len(data) < _HEAD.size + _BODY.size:
        return None
    magic, version, name_size, checksum = _HEAD.unpack_from(data)
    size = _HEAD.size + _BODY.size + name_size
    if magic != MAGIC or version != VERSION or len(data) < size or crc32c(data, _HEAD.size, size) != checksum:
        return None
    table_id, writer_id, batch_id = _BODY.unpack_from(data, _HEAD.size)
    name = data[_HEAD.size + _BODY.size : size].decode(errors="replace")
    return StagedHeader(table_id, writer_id, batch_id, name), size


# The length of a name is stored in 16 bits; real names are far shorter.
MAX_HEADER_BYTES = _HEAD.size + _BODY.size + 2**16


def read_header_of(path: str) -> StagedHeader | None:
    """The header of a file, without reading the rest; None if it is missing or incomplete."""
    try:
        with open(path, "rb", buffering=0) as file:
            decoded = decode_header(file.read(MAX_HEADER_BYTES) or b"")
    except OSError:
        return None
    return None if decoded is None else decoded[0]


def staging_directory(bucket_directory: str) -> str:
    """The directory of a bucket's staged files."""
    return os.path.join(bucket_directory, STAGING_DIRECTORY)


def staged_path(bucket_directory: str, writer_id: int) -> str:
    """Return the path of the staged file of an attempt."""
    return os.path.join(bucket_directory, STAGING_DIRECTORY, f"{writer_id}{_SUFFIX}")


def staged_writer_ids(files: FileSystem, bucket_directory: str) -> list[int]:
    """The writer ids of the attempts that have a file in a bucket."""
    names = files.list_directory(staging_directory(bucket_directory))
    stems = [name[: -len(_SUFFIX)] for name in names if name.endswith(_SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def check_staged_versions(files: FileSystem, bucket_directory: str, writer_ids: Iterable[int]) -> None:
    """Raise FlussError if a later version wrote one of the files, which would be taken for an unfinished file."""
    for writer_id in writer_ids:
        path = staged_path(bucket_directory, writer_id)
        descriptor = files.open_read(path)
        try:
            start = files.pread(descriptor, _HEAD.size, 0)
        finally:
            files.close(descriptor)
        if len(start) == _HEAD.size and start.startswith(MAGIC):
            refuse_newer(f"staged file {path}", _HEAD.unpack(start)[1], VERSION)


def read_staged_batches(files: FileSystem, descriptor: int, position: int, end: int) -> StagedBatches | None:
    """The whole batches from `position` on, about `READ_BYTES` of them; None if there is no whole one before `end`.

    Raises CorruptBatch if the first batch is damaged; batches before a later damaged one are returned.
    """
    wanted = min(READ_BYTES, end - position)
    if wanted < MIN_HEADER_BYTES:
        return None
    data = bytearray(files.pread(descriptor, wanted, position))
    batches = _batches(data)
    if not batches and len(data) >= MIN_HEADER_BYTES:
        size = read_header(data).size
        if READ_BYTES < size <= end - position:
            data = bytearray(files.pread(descriptor, size, position))
            batches = _batches(data)
    if not batches:
        return None
    last_position, last = batches[-1]
    del data[last_position + last.size :]
    return StagedBatches(data, position, batches)


def _batches(data: bytearray) -> list[tuple[int, BatchHeader]]:
    found = []
    try:
        for item in iter_batches(data):
            found.append(item)
    except CorruptBatch:
        if not found:
            raise
    return found


def sound_batches(files: FileSystem, descriptor: int, position: int, end: int) -> Iterator[StagedBatches]:
    """Yield batches as long as they are whole, have correct checksums and are numbered from 0 without a gap."""
    sequence = 0
    while True:
        try:
            part = read_staged_batches(files, descriptor, position, end)
        except CorruptBatch:
            return
        if part is None:
            return
        for count, (start, header) in enumerate(part.batches):
            if header.batch_sequence != sequence or not check_crc(part.data, start, header):
                if count:
                    del part.data[start:]
                    yield StagedBatches(part.data, position, part.batches[:count])
                return
            sequence += 1
        yield part
        position = part.end
