"""The file layer: short writes, directories, atomic replacement."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from fluss.codec.buffers import ReadableBuffer
from fluss.server.storage.files import (
    MAX_BUFFERS_PER_WRITE,
    MAX_BYTES_PER_WRITE,
    FileSystem,
    is_disk_full,
    make_directories,
    write_all,
    write_file_atomically,
)


class ShortWrites(FileSystem):
    """Writes a few bytes at a time."""

    def __init__(self, step: int) -> None:
        self.step = step

    def pwritev(self, descriptor: int, buffers: Sequence[ReadableBuffer], position: int) -> int:
        assert len(buffers) <= MAX_BUFFERS_PER_WRITE
        content = b"".join(bytes(buffer) for buffer in buffers)
        return os.pwrite(descriptor, content[: self.step], position)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
def test_short_writes_are_continued(tmp_path: Path, step: int) -> None:
    files = ShortWrites(step)
    descriptor = files.open_write(str(tmp_path / "f"))
    buffers: list[ReadableBuffer] = [b"abc", b"", memoryview(b"defgh"), b"i"]
    assert write_all(files, descriptor, buffers, 0) == 9
    assert write_all(files, descriptor, [b"xyz"], 9) == 12
    files.close(descriptor)
    assert (tmp_path / "f").read_bytes() == b"abcdefghixyz"


def test_more_buffers_than_one_call_takes(tmp_path: Path) -> None:
    files = FileSystem()
    descriptor = files.open_write(str(tmp_path / "f"))
    buffers: list[ReadableBuffer] = [bytes([number % 251]) for number in range(3000)]
    assert write_all(files, descriptor, buffers, 0) == 3000
    files.close(descriptor)
    assert (tmp_path / "f").read_bytes() == b"".join(bytes(buffer) for buffer in buffers)


def test_a_disk_that_takes_nothing_is_full(tmp_path: Path) -> None:
    files = ShortWrites(0)
    descriptor = files.open_write(str(tmp_path / "f"))
    with pytest.raises(OSError, match="no byte") as caught:
        write_all(files, descriptor, [b"abc"], 0)
    assert is_disk_full(caught.value)
    assert not is_disk_full(OSError(errno.EIO, "broken"))
    files.close(descriptor)


def test_directories_and_atomic_files(tmp_path: Path) -> None:
    files = FileSystem()
    directory = str(tmp_path / "a" / "b" / "c")
    make_directories(files, directory)
    make_directories(files, directory)
    write_file_atomically(files, f"{directory}/f", b"one")
    write_file_atomically(files, f"{directory}/f", b"2")
    assert files.read_file(f"{directory}/f") == b"2"
    assert files.list_directory(directory) == ["f"]
    assert files.list_directory(f"{directory}/missing") == []


def test_holes_are_found(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with open(path, "wb") as file:
        file.write(b"x" * 4096)
        file.seek(4096 * 3)
        file.write(b"y" * 100)
    files = FileSystem()
    descriptor = files.open_read(str(path))
    assert files.has_hole(descriptor, 100, 4096 * 3 + 100)
    assert files.has_hole(descriptor, 5000, 6000)
    assert not files.has_hole(descriptor, 0, 4096)
    assert not files.has_hole(descriptor, 4096 * 3, 4096 * 3 + 100)
    files.close(descriptor)


def test_free_bytes_of_a_directory_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert FileSystem().free_bytes(str(tmp_path / "x" / "y")) > 0


def test_large_writes_are_made_of_calls_of_limited_size(tmp_path: Path) -> None:
    class Counting(FileSystem):
        sizes: ClassVar[list[int]] = []

        def pwritev(self, descriptor: int, buffers: Sequence[ReadableBuffer], position: int) -> int:
            self.sizes.append(sum(map(len, buffers)))
            return super().pwritev(descriptor, buffers, position)

    files = Counting()
    descriptor = files.open_write(str(tmp_path / "file"))
    buffers = [bytes([number]) * size for number, size in enumerate((10, 700_000, 0, 5, 250_000, 20_000))]
    assert write_all(files, descriptor, buffers, 3) == 970_018
    files.close(descriptor)
    assert (tmp_path / "file").read_bytes()[3:] == b"".join(buffers)
    assert max(files.sizes) <= MAX_BYTES_PER_WRITE
    assert len(files.sizes) == 6, "small buffers share a call"
