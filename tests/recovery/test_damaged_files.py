"""Torn ends and flipped bits: what is cut off, what is kept, and which errors readers get."""

from __future__ import annotations

import logging
import random
import shutil
from pathlib import Path

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.options import LogOptions
from tests.support.storage.bucket_logs import LogBench, batch_of, read_all
from tests.support.storage.faulty_files import NoSyncFiles

FIRST = f"log-0/{0:020d}.log"


def _write(
    directory: Path, batches: int, options: LogOptions | None = None, *, checkpoint: bool = False
) -> list[bytes]:
    """A bucket as a killed process leaves it: with `checkpoint`, closed in order."""
    bench = LogBench(directory, NoSyncFiles(), options=options)
    log = bench.open()
    for number in range(batches):
        bench.append_and_wait(log, batch_of(2, payload=random.Random(number).randbytes(100)))
    stored = [content for _, content in read_all(log)]
    if checkpoint:
        log.close()
    bench.close()
    return stored


def _open(directory: Path, options: LogOptions | None = None) -> BucketLog:
    return LogBench(directory, NoSyncFiles(), options=options).open()


def readable(log: BucketLog) -> tuple[list[bytes], list[FlussError]]:
    """Read like a stubborn client: after an error continue at the next offset."""
    found, errors = [], []
    offset = log.local_start_offset
    while offset < log.high_watermark:
        try:
            for view, position, header in log.read_batches(offset):
                found.append(bytes(view[position : position + header.size]))
                offset = header.next_offset
        except FlussError as error:
            errors.append(error)
            offset += 1
    return found, errors


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log lines of the storage; servers of other tests may run in this process as well."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("fluss.server.storage")]


def test_a_torn_end_is_cut_at_every_byte_position(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = tmp_path / "whole"
    stored = _write(whole, 4)
    size = (whole / FIRST).stat().st_size
    for end in range(size - len(stored[-1]), size):
        torn = tmp_path / f"torn-{end}"
        shutil.copytree(whole, torn)
        with open(torn / FIRST, "r+b") as file:
            file.truncate(end)
        caplog.clear()
        log = _open(torn)
        assert [content for _, content in read_all(log)] == stored[:-1]
        assert log.log_end_offset == 6
        assert (torn / FIRST).stat().st_size == size - len(stored[-1])
        assert len(_lines(caplog)) == (1 if end > size - len(stored[-1]) else 0)
        shutil.rmtree(torn)


def test_a_torn_end_is_cut_with_one_line_that_names_file_position_and_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = _write(tmp_path, 2)
    with open(tmp_path / FIRST, "r+b") as file:
        file.truncate(len(stored[0]) + 60)
    with caplog.at_level(logging.WARNING):
        log = _open(tmp_path)
    assert log.recovery_report.cut_bytes == 60
    (line,) = _lines(caplog)
    assert FIRST in line
    assert f"byte {len(stored[0])}" in line
    assert "60 bytes" in line


def test_appending_continues_behind_a_cut(tmp_path: Path) -> None:
    stored = _write(tmp_path, 3)
    with open(tmp_path / FIRST, "ab") as file:
        file.write(stored[0][:70])
    bench = LogBench(tmp_path, NoSyncFiles())
    log = bench.open()
    assert bench.append_and_wait(log, batch_of(1)).base_offset == 6
    log.close()
    assert len(read_all(bench.open())) == 4
    bench.close()


@pytest.mark.parametrize("checkpoint", [False, True], ids=["found by recovery", "found by the first reader"])
@pytest.mark.parametrize("segment_bytes", [500, 100_000])
def test_a_flipped_bit_costs_one_batch_and_nothing_else(tmp_path: Path, checkpoint: bool, segment_bytes: int) -> None:
    options = LogOptions(segment_bytes=segment_bytes, index_interval_bytes=300)
    whole = tmp_path / "whole"
    stored = _write(whole, 12, options, checkpoint=checkpoint)
    for seed in range(60):
        rng = random.Random(seed)
        broken = tmp_path / f"broken-{seed}"
        shutil.copytree(whole, broken)
        victim = rng.randrange(len(stored) - 1)
        _flip(broken, stored, victim, rng)
        log = _open(broken, options)
        found, errors = readable(log)
        assert log.high_watermark == 24
        kept = [content for number, content in enumerate(stored) if number != victim]
        # A flip in the timestamp cannot be seen: neither checksum nor offsets cover it.
        assert [content[21:] for content in found] in ([c[21:] for c in kept], [c[21:] for c in stored])
        assert {error.error_code for error in errors} <= {ErrorCode.CORRUPT_RECORD_EXCEPTION}
        assert all(".log at byte" in error.message for error in errors)
        shutil.rmtree(broken)


def _flip(directory: Path, stored: list[bytes], victim: int, rng: random.Random) -> None:
    """Flip one bit of one stored batch, wherever it is."""
    for path in sorted((directory / "log-0").glob("*.log")):
        content = bytearray(path.read_bytes())
        at = content.find(stored[victim])
        if at >= 0:
            byte = at + rng.choice([*range(13), *range(21, len(stored[victim]))])
            content[byte] ^= 1 << rng.randrange(8)
            path.write_bytes(content)
            return
    raise AssertionError("the batch is not there")


def test_a_damaged_batch_is_named_once_in_the_server_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stored = _write(tmp_path, 3)
    content = bytearray((tmp_path / FIRST).read_bytes())
    content[len(stored[0]) + 60] ^= 1
    (tmp_path / FIRST).write_bytes(content)
    log = _open(tmp_path)
    for _ in range(3):
        with pytest.raises(FlussError) as caught:
            log.read(2, 1000)
        assert caught.value.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
        assert "continue from offset 4" in caught.value.message
    assert len(_lines(caplog)) == 1
    # A read that starts before the damage ends there.
    assert bytes(log.read(0, 10_000).view) == stored[0]
    assert bytes(log.read(4, 10_000).view) == stored[2]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("harm", ["missing", "empty", "half", "odd", "noise"])
def test_a_bad_index_only_costs_time(tmp_path: Path, suffix: str, harm: str) -> None:
    options = LogOptions(segment_bytes=2000, index_interval_bytes=100)
    stored = _write(tmp_path, 40, options, checkpoint=True)
    for path in (tmp_path / "log-0").glob(f"*{suffix}"):
        content = path.read_bytes()
        if harm == "missing":
            path.unlink()
        else:
            half = len(content) // 24 * 12 if suffix == ".timeindex" else len(content) // 16 * 8
            noise = random.Random(5).randbytes(len(content))
            path.write_bytes({"empty": b"", "half": content[:half], "odd": content[:-3], "noise": noise}[harm])
    bench = LogBench(tmp_path, NoSyncFiles(), options=options)
    log = bench.open()
    for offset in range(80):
        read = log.read(offset, 1)
        assert bytes(read.view) == stored[offset // 2]
        assert read.first_batch_offset == offset // 2 * 2
    assert log.offset_for_timestamp(1000) == 0
    bench.append_and_wait(log, batch_of(1))
    log.close()
    assert len(read_all(bench.open())) == 41
    bench.close()


def test_a_damaged_checkpoint_means_reading_everything(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=1000)
    stored = _write(tmp_path, 20, options, checkpoint=True)
    path = tmp_path / "log-0" / "bucket.checkpoint"
    content = bytearray(path.read_bytes())
    content[20] ^= 4
    path.write_bytes(content)
    log = _open(tmp_path, options)
    assert log.recovery_report.scanned_bytes == sum(map(len, stored))
    assert [content for _, content in read_all(log)] == stored


def test_offsets_are_not_reused_when_files_were_shortened(tmp_path: Path) -> None:
    stored = _write(tmp_path, 5, checkpoint=True)
    with open(tmp_path / FIRST, "r+b") as file:
        file.truncate(len(stored[0]) * 2)
    bench = LogBench(tmp_path, NoSyncFiles())
    log = bench.open()
    assert log.log_end_offset == 10
    assert bench.append_and_wait(log, batch_of(1)).base_offset == 10
    with pytest.raises(FlussError) as caught:
        log.read(6, 100)
    assert caught.value.error_code == ErrorCode.CORRUPT_RECORD_EXCEPTION
    log.close()
    again = bench.open()
    assert bytes(again.read(2, 1).view) == stored[1]
    assert again.read(10, 1).first_batch_offset == 10
    bench.close()


def test_recovery_reads_only_behind_the_recovery_point(tmp_path: Path) -> None:
    """Bytes read at start do not grow with the log."""
    scanned = []
    for count in (50, 400):
        directory = tmp_path / str(count)
        options = LogOptions(checkpoint_bytes=3000)
        bench = LogBench(directory, NoSyncFiles(), options=options)
        log = bench.open()
        for _ in range(count):
            bench.append_and_wait(log, batch_of(1, payload=bytes(100)))
            bench.settle()
        bench.close()
        scanned.append(_open(directory, options).recovery_report.scanned_bytes)
    assert max(scanned) <= 3000 + 200


def test_foreign_files_are_ignored(tmp_path: Path) -> None:
    _write(tmp_path, 2)
    for name in ("notes.txt", "123.log", "bucket.checkpoint.tmp", "0000000000000000000x.log"):
        (tmp_path / "log-0" / name).write_bytes(b"something")
    assert _open(tmp_path).high_watermark == 4
