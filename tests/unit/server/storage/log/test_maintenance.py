"""Rolling, removing segments, checkpoints, dropping a bucket."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log.options import LogOptions
from tests.support.storage.bucket_logs import LogBench, batch_of, read_all
from tests.support.storage.faulty_files import FaultyFiles, NoSyncFiles


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[LogBench]:
    bench = LogBench(tmp_path, NoSyncFiles(), options=LogOptions(segment_bytes=300))
    yield bench
    bench.close()


def test_rolling_on_demand(bench: LogBench) -> None:
    log = bench.open()
    assert not log.roll()
    bench.append_and_wait(log, batch_of(2))
    assert log.roll()
    assert not log.roll()
    bench.settle()
    assert [info.base_offset for info in log.sealed_segments()] == [0]
    assert (bench.directory / "log-0" / f"{2:020d}.log").exists()
    assert log.delete_segments_up_to(2) == 1
    bench.settle()
    assert (log.local_start_offset, log.high_watermark) == (2, 2)
    log.close()
    again = bench.open()
    assert (again.local_start_offset, again.high_watermark) == (2, 2)
    assert bench.append_and_wait(again, batch_of(1)).base_offset == 2


def test_a_sealed_segment_says_whether_its_index_files_are_complete(bench: LogBench) -> None:
    """A copy of the files before the next checkpoint would have only a part of the index, forever."""
    log = bench.open()
    bench.append_and_wait(log, batch_of(2))
    log.roll()
    assert [info.is_indexed for info in log.sealed_segments()] == [False]
    bench.append_and_wait(log, batch_of(2))
    bench.settle()
    (info,) = log.sealed_segments()
    assert info.is_indexed
    assert Path(info.time_index_path).stat().st_size > 0


def test_an_append_behind_a_roll_that_is_still_queued(bench: LogBench) -> None:
    log = bench.open()
    appends = []
    for _ in range(5):
        appends.append(bench.append(log, batch_of(2)))
        log.roll()
    for append in appends:
        bench.wait(append)
    bench.settle()
    assert [header.base_offset for header, _ in read_all(log)] == [0, 2, 4, 6, 8]
    assert len(log.sealed_segments()) == 5


def test_only_whole_sealed_segments_below_the_offset_are_removed(bench: LogBench) -> None:
    log = bench.open()
    for _ in range(20):
        bench.append_and_wait(log, batch_of(2))
    bases = [segment.base_offset for segment in log.segments]
    assert log.delete_segments_up_to(bases[2] - 1) == 1
    assert log.local_start_offset == bases[1]
    assert log.delete_segments_up_to(10**9) == len(bases) - 2
    assert log.local_start_offset == bases[-1]
    assert log.size_bytes == log.segments[0].committed_size
    bench.settle()
    names = sorted(name for name in os.listdir(bench.directory / "log-0") if name.endswith(".log"))
    assert names == [f"{bases[-1]:020d}.log"]


def test_an_interrupted_removal_is_finished_at_the_next_start(tmp_path: Path) -> None:
    """The checkpoint with the new start is written first; then power fails at any point of the removal."""
    for seed in range(30):
        before, after = tmp_path / f"b{seed}", tmp_path / f"a{seed}"
        before.mkdir()
        files = FaultyFiles(before)
        bench = LogBench(before, files, options=LogOptions(segment_bytes=200))
        log = bench.open()
        for _ in range(10):
            bench.append_and_wait(log, batch_of(2))
        bench.settle()
        rng = random.Random(seed)
        files.power_off_after = files.change_count + rng.randrange(20)
        log.delete_segments_up_to(14)
        bench.settle()
        files.after_power_loss(after, rng)
        bench.close()
        recovered = LogBench(after, NoSyncFiles()).open()
        assert recovered.high_watermark == 20
        assert recovered.local_start_offset in (0, log.local_start_offset)
        assert recovered.segments[0].base_offset == recovered.local_start_offset
        assert [h.base_offset for h, _ in read_all(recovered)] == list(range(recovered.local_start_offset, 20, 2))


def test_a_full_disk_delays_the_checkpoint_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = FaultyFiles(tmp_path)
    bench = LogBench(tmp_path, files, options=LogOptions(checkpoint_bytes=100))
    log = bench.open()
    bench.append_and_wait(log, batch_of(1))
    files.failing_writes = {"checkpoint"}
    for _ in range(10):
        bench.append_and_wait(log, batch_of(1))
    bench.settle()
    assert len(caplog.messages) == 1
    files.failing_writes = set()
    log.checkpoint()
    bench.settle()
    bench.close()
    assert LogBench(tmp_path, NoSyncFiles()).open().recovery_report.scanned_bytes == 0


def test_dropping_a_bucket_fails_what_is_queued_and_removes_the_files(bench: LogBench) -> None:
    log, other = bench.open("log-0"), bench.open("log-1")
    bench.append_and_wait(log, batch_of(1))
    view = log.read(0, 100).view
    appends = [bench.append(log, batch_of(1)) for _ in range(3)]
    (bench.directory / "log-0" / "notes").mkdir()
    (bench.directory / "log-0" / "notes" / "of-others").write_text("x")
    done: list[bool] = []
    log.destroy(lambda: done.append(True))
    bench.loop.run_until(lambda: bool(done))
    assert not (bench.directory / "log-0").exists()
    assert bytes(view)
    for append in appends:
        with pytest.raises(FlussError) as caught:
            bench.wait(append)
        assert caught.value.error_code == ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION
    with pytest.raises(FlussError) as caught:
        bench.append(log, batch_of(1))
    assert caught.value.error_code == ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION
    bench.append_and_wait(other, batch_of(1))
    assert bench.committer.queued_bytes == 0


def test_dropping_an_empty_and_a_closed_bucket(bench: LogBench) -> None:
    done: list[str] = []
    bench.open("log-0").destroy(lambda: done.append("empty"))
    closed = bench.open("log-1")
    bench.append_and_wait(closed, batch_of(1))
    closed.close()
    closed.destroy(lambda: done.append("closed"))
    bench.loop.run_until(lambda: len(done) == 2)
    assert not (bench.directory / "log-1").exists()


def test_the_index_files_of_a_reopened_segment_continue_where_they_ended(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=5000, index_interval_bytes=150)
    bench = LogBench(tmp_path, NoSyncFiles(), options=options)
    straight = bench.open("straight")
    for _ in range(100):
        bench.append_and_wait(straight, batch_of(1))
    straight.close()
    for number in range(100):
        log = bench.open("interrupted")
        bench.append_and_wait(log, batch_of(1))
        if number % 3:
            log.close()
        else:
            bench.settle()
    bench.open("interrupted").close()
    for path in sorted((tmp_path / "straight").iterdir()):
        if path.suffix in (".log", ".index"):
            assert path.read_bytes() == (tmp_path / "interrupted" / path.name).read_bytes(), path.name
    bench.close()


def test_the_worked_example_of_the_format_document(tmp_path: Path) -> None:
    bench = LogBench(tmp_path, NoSyncFiles(), options=LogOptions(segment_bytes=250, index_interval_bytes=60))
    log = bench.open()
    for number in range(5):
        batch = batch_of(2, payload=b"rows", writer_id=7, sequence=number)
        bench.append_and_wait(log, batch, 1_700_000_000_000 + number)
    log.close()
    bench.close()
    document = (Path(__file__).parents[5] / "docs" / "formats" / "storage.md").read_text()
    example = document[document.index("## Worked example") :].replace(" ", "")
    directory = tmp_path / "log-0"
    first, second = f"{0:020d}", f"{8:020d}"
    assert (directory / f"{first}.log").stat().st_size == 208
    assert (directory / f"{second}.log").stat().st_size == 52
    assert f"{first}.index{(directory / f'{first}.index').read_bytes().hex()}" in example
    times = (directory / f"{first}.timeindex").read_bytes().hex()
    assert times[:24] in example
    assert times[24:] in example
    checkpoint = (directory / "bucket.checkpoint").read_bytes().hex()
    for start, end in ((0, 16), (16, 48), (48, 80), (80, 96), (96, 128), (128, 200), (len(checkpoint) - 8, None)):
        assert checkpoint[start:end] in example
