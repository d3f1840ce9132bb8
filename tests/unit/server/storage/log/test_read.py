"""Reading ranges, batches and timestamps; lifetime of what was read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fluss.codec.batches.log_batch import iter_batches
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.open_segments import OpenSegments
from fluss.server.storage.log.options import MAX_PREAD_BYTES, LogOptions
from tests.support.storage.bucket_logs import LogBench, batch_of, read_all
from tests.support.storage.faulty_files import NoSyncFiles


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[LogBench]:
    bench = LogBench(tmp_path, NoSyncFiles(), options=LogOptions(segment_bytes=1000, index_interval_bytes=200))
    yield bench
    bench.close()


def _filled(bench: LogBench, batches: int, payload_bytes: int = 50, rows: int = 2) -> BucketLog:
    log = bench.open()
    for number in range(batches):
        bench.append_and_wait(
            log, batch_of(rows, payload=bytes([number % 256]) * payload_bytes), 1000 + number // 3 * 10
        )
    return log


def test_a_range_starts_at_the_batch_that_contains_the_offset_and_ends_with_its_segment(bench: LogBench) -> None:
    log = _filled(bench, 30)
    size = log.segments[0].committed_size
    for offset in range(60):
        read = log.read(offset, 10**6)
        segment = log.segment_of(offset)
        assert read.first_batch_offset == offset // 2 * 2
        assert read.segment_base_offset == segment.base_offset
        assert read.position + len(read.view) == segment.committed_size
        headers = [header for _, header in iter_batches(read.view)]
        assert headers[0].base_offset == read.first_batch_offset
        assert headers[-1].next_offset == segment.end_offset
    assert size <= 1000


def test_a_range_is_limited_by_bytes_but_the_first_batch_is_whole_on_request(bench: LogBench) -> None:
    log = _filled(bench, 5)
    size = 48 + 50
    assert len(log.read(0, 10, whole_first_batch=True).view) == size
    assert len(log.read(0, 10, whole_first_batch=False).view) == 10
    assert len(log.read(0, size + 7).view) == size + 7
    assert len(log.read(0, 0, whole_first_batch=False).view) == 0


def test_offsets_outside_the_log_are_refused(bench: LogBench) -> None:
    log = _filled(bench, 30)
    assert log.read(60, 100).first_batch_offset == -1
    for offset in (-1, 61):
        with pytest.raises(FlussError) as caught:
            log.read(offset, 100)
        assert caught.value.error_code == ErrorCode.LOG_OFFSET_OUT_OF_RANGE_EXCEPTION
    log.delete_segments_up_to(20)
    assert log.local_start_offset > 0
    with pytest.raises(FlussError):
        log.read(0, 100)
    assert log.read(log.local_start_offset, 100).first_batch_offset == log.local_start_offset


def test_an_empty_log_has_nothing_to_read(bench: LogBench) -> None:
    log = bench.open()
    assert log.read(0, 100).first_batch_offset == -1
    assert list(log.read_batches(0)) == []
    assert log.offset_for_timestamp(0) is None
    assert log.newest_timestamp == 0
    assert not (bench.directory / "log-0").exists(), "an empty bucket needs no directory"


def test_long_tails_are_mapped_and_short_ones_are_not(tmp_path: Path) -> None:
    bench = LogBench(tmp_path, NoSyncFiles())
    log = bench.open()
    payloads = [bytes([number]) * (MAX_PREAD_BYTES // 3) for number in range(20)]
    for number, payload in enumerate(payloads):
        bench.append_and_wait(log, batch_of(1, payload=payload))
        read = log.read(number, 10**6)
        assert bytes(read.view[48:]) == payload
        assert bytes(log.read(0, 10).view[48:]) == payloads[0]
    assert len(log.read(0, 10**9).view) == log.size_bytes
    bench.close()


def test_slices_outlive_remapping_removal_and_closing(bench: LogBench) -> None:
    log = _filled(bench, 60, payload_bytes=300)
    reads = [(offset, log.read(offset, 10**6).view) for offset in range(0, 120, 2)]
    log.delete_segments_up_to(100)
    bench.settle()
    log.close()
    for offset, view in reads:
        assert view[48] == offset // 2


def test_timestamps_find_the_first_batch_at_or_after_them(bench: LogBench) -> None:
    """Three batches share each timestamp 1000, 1010, ..."""
    log = _filled(bench, 30)
    for _ in range(2):
        assert log.offset_for_timestamp(-5) == 0
        for number in range(10):
            assert log.offset_for_timestamp(1000 + number * 10) == number * 6
            assert log.offset_for_timestamp(1000 + number * 10 - 9) == number * 6
        assert log.offset_for_timestamp(1091) is None
        log.close()
        log = bench.open()
    assert log.newest_timestamp == 1090


def test_sealed_segments_describe_the_files(bench: LogBench) -> None:
    log = _filled(bench, 30)
    log.close()
    log = bench.open()
    infos = log.sealed_segments()
    assert len(infos) == len(log.segments) - 1
    following = [info.base_offset for info in infos[1:]] + [log.segments[-1].base_offset]
    for info, next_base in zip(infos, following, strict=True):
        content = Path(info.path).read_bytes()
        headers = [header for _, header in iter_batches(content)]
        assert info.size_bytes == len(content)
        assert (info.base_offset, info.next_offset) == (headers[0].base_offset, next_base)
        assert info.max_timestamp == headers[-1].commit_timestamp
        times = Path(info.time_index_path).read_bytes()
        assert int.from_bytes(times[-12:-4], "big") == info.max_timestamp
        offsets = Path(info.index_path).read_bytes()
        assert len(offsets) % 8 == 0
        for at in range(0, len(offsets), 8):
            relative, position = (int.from_bytes(offsets[at + i : at + i + 4], "big") for i in (0, 4))
            assert {pos: h.last_offset for pos, h in iter_batches(content)}[position] == info.base_offset + relative


def test_batches_stop_at_the_high_watermark_of_the_call(bench: LogBench) -> None:
    log = _filled(bench, 3)
    batches = log.read_batches(1)
    first = next(batches)
    assert first[2].base_offset == 0
    bench.append_and_wait(log, batch_of(2))
    assert [header.base_offset for _, _, header in batches] == [2, 4]


def test_the_number_of_open_segments_is_bounded(bench: LogBench) -> None:
    bench.committer.open_segments = OpenSegments(bench.files, max_segments=3)
    log = _filled(bench, 60)
    assert len(log.segments) > 5
    assert len(read_all(log)) == 60
    assert len(bench.committer.open_segments) == 3


def test_a_closed_log_refuses_reads_and_appends(bench: LogBench) -> None:
    log = _filled(bench, 1)
    log.close()
    log.close()
    with pytest.raises(FlussError):
        log.read(0, 10)
    with pytest.raises(FlussError) as caught:
        bench.append(log, batch_of(1))
    assert caught.value.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
