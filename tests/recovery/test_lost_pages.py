"""Pages that were never written, on file systems without holes: real zeros in place of a page, as `cp` copies them.

In the last group, which was not acknowledged, they are a torn end. Before it they are damage on a bad disk: nothing is
removed, and readers get an error.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from fluss.codec.crc import crc32c
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log import log_writer
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.options import LogOptions
from fluss.server.storage.log.synced_mark import MARK_NAME, SyncedMark, decode_mark, encode_mark
from tests.recovery.test_damaged_files import readable
from tests.support.storage.bucket_logs import LogBench, batch_of, read_all
from tests.support.storage.faulty_files import PAGE_BYTES, NoSyncFiles

FIRST = f"log-0/{0:020d}.log"
SIZES = (100, 3000, 9000, 50, 14_000)


@pytest.fixture(autouse=True)
def _marks_after_every_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "MARK_INTERVAL_SECONDS", 0.0)


class Written:
    """A bucket whose last group was being written when the power failed; all of it may be on disk."""

    def __init__(self, directory: Path, *, checkpoint: bool, mark: bool) -> None:
        self.directory = directory
        rng = random.Random(5)
        bench = LogBench(directory, NoSyncFiles())
        log = bench.open()
        for size in SIZES:
            # Rows may have pages of zeros themselves.
            bench.append_and_wait(log, batch_of(2, payload=rng.randbytes(size) + bytes(3 * PAGE_BYTES)))
        bench.settle()
        self.group_start = log.size_bytes
        self.acknowledged = log.high_watermark
        if checkpoint:
            log.checkpoint()
            bench.settle()
        saved = (directory / "log-0" / MARK_NAME).read_bytes()
        inode = (directory / "log-0").stat().st_ino
        assert decode_mark(saved) == SyncedMark(0, self.group_start, self.acknowledged, inode)
        for size in SIZES:
            bench.append(log, batch_of(2, payload=rng.randbytes(size)))
        bench.settle()
        self.stored = [content for _, content in read_all(log)]
        bench.close()
        # It is written after the sync, which was never finished.
        if mark:
            (directory / "log-0" / MARK_NAME).write_bytes(saved)
        else:
            (directory / "log-0" / MARK_NAME).unlink()
        self.content = (directory / FIRST).read_bytes()

    def damaged(self, target: Path, start: int, content: bytes) -> BucketLog:
        """Open a copy in which some bytes are changed."""
        shutil.copytree(self.directory, target)
        changed = self.content[:start] + content + self.content[start + len(content) :]
        assert len(changed) == len(self.content)
        (target / FIRST).write_bytes(changed)
        return LogBench(target, NoSyncFiles()).open()


@pytest.mark.parametrize(("checkpoint", "mark"), [(False, True), (True, False), (True, True)])
def test_a_page_of_the_last_group_is_a_torn_end(tmp_path: Path, checkpoint: bool, mark: bool) -> None:
    written = Written(tmp_path / "whole", checkpoint=checkpoint, mark=mark)
    size = len(written.content)
    starts = [written.group_start, *range(-(-written.group_start // PAGE_BYTES) * PAGE_BYTES, size, PAGE_BYTES)]
    cuts = set()
    for start in starts:
        end = min((start // PAGE_BYTES + 1) * PAGE_BYTES, size)
        log = written.damaged(tmp_path / str(start), start, bytes(end - start))
        assert log.recovery_report.damages == 0
        found = [content for _, content in read_all(log)]
        assert len(SIZES) <= len(found) < len(written.stored)
        assert found == written.stored[: len(found)]
        cuts.add(len(found))
    assert len(cuts) > 3


@pytest.mark.parametrize(("checkpoint", "mark"), [(False, True), (True, False), (True, True)])
def test_a_page_that_was_synced_is_damage(tmp_path: Path, checkpoint: bool, mark: bool) -> None:
    written = Written(tmp_path / "whole", checkpoint=checkpoint, mark=mark)
    hurt = 0
    for start in range(0, written.group_start, PAGE_BYTES):
        end = min(start + PAGE_BYTES, written.group_start)
        if not any(written.content[start:end]):
            continue  # these zeros are the rows'
        hurt += 1
        log = written.damaged(tmp_path / str(start), start, bytes(end - start))
        _is_kept(log, written)
    assert hurt > 5


@pytest.mark.parametrize(("checkpoint", "mark"), [(False, True), (True, False)])
def test_a_flipped_bit_beside_zeros_of_rows_is_damage(tmp_path: Path, checkpoint: bool, mark: bool) -> None:
    written = Written(tmp_path / "whole", checkpoint=checkpoint, mark=mark)
    position = 0
    for batch in written.stored[: len(SIZES)]:
        at = position + 60
        log = written.damaged(tmp_path / str(position), at, bytes([written.content[at] ^ 1]))
        _is_kept(log, written)
        position += len(batch)


def _is_kept(log: BucketLog, written: Written) -> None:
    """Check that nothing is cut, that all rows of other batches are there, and that errors name the damaged ones."""
    assert log.recovery_report.cut_bytes == 0
    assert log.high_watermark == 4 * len(SIZES)
    assert Path(log.directory, Path(FIRST).name).stat().st_size == len(written.content)
    found, errors = readable(log)
    assert set(found) <= set(written.stored)
    assert 0 < len(written.stored) - len(found) <= 2
    assert {error.error_code for error in errors} == {ErrorCode.CORRUPT_RECORD_EXCEPTION}
    assert all(f"{Path(FIRST).name} at byte" in error.message for error in errors)


def test_a_mark_is_never_ahead_of_a_cut_file(tmp_path: Path) -> None:
    """If a file is cut before its mark, the mark is moved back: what is written there next is not synced.

    A copy may be in this state: the log was copied, rows were added and synced, then the mark was copied.
    """
    written = Written(tmp_path / "original", checkpoint=False, mark=True)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "original", copy)
    middle = sum(map(len, written.stored[:2])) + 10
    with open(copy / FIRST, "r+b") as file:
        file.truncate(middle)
    log = LogBench(copy, NoSyncFiles()).open()
    assert log.recovery_report.cut_bytes == 10
    assert log.high_watermark == 4
    inode = (copy / "log-0").stat().st_ino
    assert decode_mark((copy / "log-0" / MARK_NAME).read_bytes()) == SyncedMark(0, middle - 10, 4, inode)


def _end_cut(content: bytes, boundary: int) -> bytes:
    return content[:boundary]


def _last_batch_cut(content: bytes, boundary: int) -> bytes:
    return content[: boundary + 30]


def _last_batch_damaged(content: bytes, boundary: int) -> bytes:
    return content[: boundary + 60] + bytes([content[boundary + 60] ^ 1]) + content[boundary + 61 :]


def _emptied(content: bytes, boundary: int) -> bytes:
    return b""


def _deleted(content: bytes, boundary: int) -> None:
    return None


@pytest.mark.parametrize("damage", [_end_cut, _last_batch_cut, _last_batch_damaged, _emptied, _deleted])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_synced_rows_at_the_end_are_never_taken_for_a_torn_write(
    tmp_path: Path, checkpoint: bool, damage: Callable[[bytes, int], bytes | None]
) -> None:
    """Nothing good is behind them, as for a torn write; but they are known to have been on disk."""
    bench = LogBench(tmp_path, NoSyncFiles())
    log = bench.open()
    for number in range(3):
        bench.append_and_wait(log, batch_of(2, payload=bytes([number]) * 200))
        if checkpoint and number == 0:
            log.checkpoint()
            bench.settle()
    stored = [content for _, content in read_all(log)]
    bench.close()
    content = damage((tmp_path / FIRST).read_bytes(), len(stored[0]) + len(stored[1]))
    if content is None:
        (tmp_path / FIRST).unlink()
    else:
        (tmp_path / FIRST).write_bytes(content)
    for _ in range(2):  # the second opening finds what the first one has left
        bench = LogBench(tmp_path, NoSyncFiles())
        log = bench.open()
        assert (log.local_start_offset, log.high_watermark) == (0, 6)
        found, errors = readable(log)
        assert found == (stored[:2] if content else [])
        assert {error.error_code for error in errors} == {ErrorCode.CORRUPT_RECORD_EXCEPTION}
        assert all(Path(FIRST).name in error.message for error in errors)
        bench.close()
    bench = LogBench(tmp_path, NoSyncFiles())
    log = bench.open()
    assert bench.append_and_wait(log, batch_of(1)).base_offset == 6
    assert log.read(6, 1000).first_batch_offset == 6
    bench.close()


def test_a_missing_first_segment_is_not_a_log_that_begins_later(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=300)
    bench = LogBench(tmp_path, NoSyncFiles(), options=options)
    log = bench.open()
    for _ in range(6):
        bench.append_and_wait(log, batch_of(2, payload=bytes(100)))
    log.checkpoint()
    bench.settle()
    second = log.segments[1].base_offset
    bench.close()
    (tmp_path / FIRST).unlink()
    log = LogBench(tmp_path, NoSyncFiles(), options=options).open()
    assert (log.local_start_offset, log.high_watermark) == (0, 12)
    with pytest.raises(FlussError, match=rf"{Path(FIRST).name}.*offsets 0 to {second - 1} cannot be read"):
        log.read(0, 1000)
    assert log.read(second, 1000).first_batch_offset == second


def test_every_damaged_mark_is_ignored() -> None:
    content = encode_mark(SyncedMark(77, 4096, 80, 2**63))
    assert decode_mark(content) == SyncedMark(77, 4096, 80, 2**63)
    assert decode_mark(b"") is None
    for position in range(len(content)):
        assert decode_mark(content[:position]) is None
        assert decode_mark(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :]) is None


def test_a_mark_of_the_first_version_is_read() -> None:
    """The format without the end offset and the inode."""
    body = struct.pack("<4sHHqq", b"FLSM", 1, 0, 77, 4096)
    assert decode_mark(body + struct.pack("<I", crc32c(body))) == SyncedMark(77, 4096)
