"""Offsets that readers have seen are never used for other rows, even if a power cut loses rows that were shown."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from fluss.codec.batches.log_batch import filler_batch
from fluss.codec.batches.log_scan import is_filler
from fluss.errors import FlussError
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.committer import FlushMode
from fluss.server.storage.log.options import LogOptions
from fluss.server.storage.log.reserved_offsets import (
    RESERVED_NAME,
    ReservedOffsets,
    decode_reserved,
    encode_reserved,
    load_reserved,
    lost_offsets,
    offset_of_last_rows,
    write_reserved,
)
from tests.support.storage.bucket_logs import LogBench, batch_of, read_all
from tests.support.storage.faulty_files import FaultyFiles, NoSyncFiles, RebootedFiles


def _rows(log: BucketLog, offset: int) -> list[int]:
    """The offsets of all rows that a reader gets from an offset on."""
    headers = [header for header, _ in read_all(log, offset)]
    return [
        each
        for header in headers
        for each in range(header.base_offset, header.base_offset + header.record_count)
        if each >= offset
    ]


def _power_cut(tmp_path: Path, flush: FlushMode) -> tuple[Path, int]:
    """Ten rows on disk, ten more that readers saw but no disk has; returns the directory and the readers' offset."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    files = FaultyFiles(before)
    bench = LogBench(before, files, flush, flush_interval_ms=3_600_000)
    log = bench.open()
    bench.append_and_wait(log, batch_of(10))
    log.checkpoint()
    bench.settle()
    bench.append_and_wait(log, batch_of(10))
    shown = log.high_watermark
    files.power_is_off = True
    bench.close()
    for seed in range(100):  # one of the outcomes in which the second batch did not arrive
        files.after_power_loss(after / str(seed), random.Random(seed))
        if (after / str(seed) / "log-0" / "00000000000000000000.log").stat().st_size == log.segments[0].size // 2:
            return after / str(seed), shown
    raise AssertionError("the second batch arrived every time")


@pytest.mark.parametrize("flush", ["interval", "os"])
def test_a_reader_that_was_ahead_of_a_power_cut_skips_nothing(tmp_path: Path, flush: FlushMode) -> None:
    directory, shown = _power_cut(tmp_path, flush)
    bench = LogBench(directory, RebootedFiles(), flush)
    log = bench.open()
    first_new = log.log_end_offset
    assert first_new > shown
    appended = [bench.append_and_wait(log, batch_of(10)).base_offset for _ in range(3)]
    assert appended[0] == first_new
    # Readers that saw the lost rows, and those that did not, continue with the first new one.
    new = list(range(first_new, first_new + 30))
    assert _rows(log, shown) == new
    assert _rows(log, 15) == new
    assert _rows(log, 5) == [5, 6, 7, 8, 9, *new]
    assert lost_offsets(log.lost, 0) == first_new - 10
    assert log.high_watermark - lost_offsets(log.lost, 0) == 40
    assert offset_of_last_rows(log.lost, log.high_watermark, 35) == 5
    assert offset_of_last_rows(log.lost, log.high_watermark, 30) == first_new
    log.close()
    bench.close()


def test_the_gap_stays_and_does_not_grow_with_kills_and_clean_stops(tmp_path: Path) -> None:
    directory, _ = _power_cut(tmp_path, "os")
    bench = LogBench(directory, RebootedFiles(), "os")
    end, lost = bench.open().log_end_offset, bench.open().lost
    bench.close()
    for number in range(3):
        bench = LogBench(directory, RebootedFiles(), "os")
        log = bench.open()
        assert (log.log_end_offset, log.lost) == (end + number, lost)
        bench.append_and_wait(log, batch_of(1))
        if number == 1:
            log.close()
            assert load_reserved(bench.files, log.directory) == ReservedOffsets(lost=lost)
        bench.close()


def test_a_second_power_cut_while_the_gap_is_made(tmp_path: Path) -> None:
    """Whatever part of the repair reaches the disk, the log ends behind the shown offsets after the next start."""
    directory, shown = _power_cut(tmp_path, "os")
    for cut_after in range(12):
        files = FaultyFiles(directory)
        files.boot_id = RebootedFiles().boot_id  # type: ignore[method-assign]
        files.power_off_after = cut_after
        bench = LogBench(directory, files, "os")
        with contextlib.suppress(FlussError):
            bench.open()
        bench.close()
        copy = tmp_path / f"cut-{cut_after}"
        files.after_power_loss(copy, random.Random(cut_after))
        again = LogBench(copy, RebootedFiles(), "os")
        log = again.open()
        assert log.log_end_offset > shown
        assert log.log_end_offset - lost_offsets(log.lost, 0) == 10
        assert _rows(log, 0) == list(range(10))
        again.close()


def test_a_killed_process_leaves_no_gap(tmp_path: Path) -> None:
    for number in range(3):
        bench = LogBench(tmp_path, NoSyncFiles(), "os")
        log = bench.open()
        assert (log.log_end_offset, log.lost) == (number, ())
        bench.append_and_wait(log, batch_of(1))
        bench.close()


def test_always_needs_no_file_and_removes_that_of_another_mode(tmp_path: Path) -> None:
    bench = LogBench(tmp_path, NoSyncFiles(), "os")
    bench.append_and_wait(bench.open(), batch_of(1))
    assert (tmp_path / "log-0" / RESERVED_NAME).exists()
    bench.close()
    bench = LogBench(tmp_path, NoSyncFiles())
    log = bench.open()
    bench.append_and_wait(log, batch_of(1))
    assert not (tmp_path / "log-0" / RESERVED_NAME).exists()
    bench.close()
    bench = LogBench(tmp_path, RebootedFiles(), "os")
    assert bench.open().log_end_offset == 2
    bench.close()


def test_offsets_are_reserved_again_before_they_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluss.server.storage.log.reserved_offsets.MIN_RESERVED_OFFSETS", 8)
    monkeypatch.setattr("fluss.server.storage.log.reserved_offsets.MAX_RESERVED_OFFSETS", 16)
    bench = LogBench(tmp_path, NoSyncFiles(), "os")
    log = bench.open()
    for _ in range(40):
        bench.append_and_wait(log, batch_of(3))
        reserved = load_reserved(bench.files, log.directory)
        assert reserved is not None
        assert log.high_watermark <= reserved.reserved_until <= log.high_watermark + 3 * 16
    bench.close()


def test_a_full_disk_at_a_reservation_fails_the_append_and_is_temporary(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    bench = LogBench(tmp_path, files, "os")
    log = bench.open()
    files.free_space_bytes = 0
    with pytest.raises(FlussError) as full:
        bench.append_and_wait(log, batch_of(1))
    assert full.value.error_code == 70
    files.free_space_bytes = 1_000_000
    assert bench.append_and_wait(log, batch_of(1)).base_offset == 0
    bench.close()


def test_a_gap_that_does_not_fit_into_the_segment_begins_another(tmp_path: Path) -> None:
    bench = LogBench(tmp_path, NoSyncFiles(), "os")
    log = bench.open()
    bench.append_and_wait(log, batch_of(5))
    bench.close()
    until = 2**31 + 10
    write_reserved(NoSyncFiles(), log.directory, ReservedOffsets(until, "another boot"))
    bench = LogBench(tmp_path, NoSyncFiles(), "os", LogOptions())
    log = bench.open()
    assert [segment.base_offset for segment in log.segments] == [0, 5, 5 + 2**31 - 1]
    assert bench.append_and_wait(log, batch_of(2)).base_offset == log.lost[0][1] > until
    assert _rows(log, 3) == [3, 4, log.lost[0][1], log.lost[0][1] + 1]
    bench.close()


def test_a_damaged_file_leaves_room_for_the_largest_reservation(tmp_path: Path) -> None:
    bench = LogBench(tmp_path, NoSyncFiles(), "os")
    log = bench.open()
    bench.append_and_wait(log, batch_of(5))
    bench.close()
    (tmp_path / "log-0" / RESERVED_NAME).write_bytes(b"FLGO and nonsense")
    bench = LogBench(tmp_path, NoSyncFiles(), "os")
    log = bench.open()
    assert log.log_end_offset > 1_000_000
    assert [is_filler(header) for header, _ in read_all(log)] == [False, True]
    bench.close()


def test_the_file_has_a_version() -> None:
    reserved = ReservedOffsets(70_000, "419333cc-a54f-41bb-b81e-9ca077f61e24", ((3, 9), (20, 30)))
    content = encode_reserved(reserved)
    assert decode_reserved(content) == reserved
    assert decode_reserved(content[:-1]) is None
    assert decode_reserved(b"") is None


def test_clients_cannot_send_fillers(tmp_path: Path) -> None:
    bench = LogBench(tmp_path, NoSyncFiles())
    with pytest.raises(FlussError) as refused:
        bench.append_and_wait(bench.open(), filler_batch(1, 0, 100, 5))
    assert refused.value.error_code == 14
    bench.close()
