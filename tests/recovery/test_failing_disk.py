"""A full disk is temporary, a failing one stops the bucket; other buckets are never affected."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from fluss.codec.buffers import ReadableBuffer
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.options import LogOptions
from tests.support.storage.bucket_logs import LogBench, batch_of, read_all
from tests.support.storage.faulty_files import FaultyFiles, NoSyncFiles
from tools.waiting import patience


def _bench(directory: Path, options: LogOptions | None = None) -> tuple[LogBench, FaultyFiles]:
    files = FaultyFiles(directory)
    return LogBench(directory, files, options=options), files


def _outcomes(bench: LogBench, appends: list[Append]) -> list[int]:
    """The error codes in order of the appends; 0 for success."""
    codes: dict[int, int] = {}

    def note(number: int, error: FlussError | None) -> None:
        assert number not in codes, "an append was answered twice"
        codes[number] = error.error_code if error else 0

    for number, append in enumerate(appends):
        append.add_durable(lambda error, number=number: note(number, error))  # type: ignore[misc]
    bench.loop.run_until(lambda: len(codes) == len(appends))
    return [codes[number] for number in range(len(appends))]


def test_a_full_disk_refuses_writes_serves_reads_and_recovers_when_there_is_room(tmp_path: Path) -> None:
    bench, files = _bench(tmp_path)
    log = bench.open()
    bench.append_and_wait(log, batch_of(2, writer_id=1, sequence=0))
    files.free_space_bytes = 100
    big = batch_of(3, payload=bytes(500), writer_id=1, sequence=1)
    with pytest.raises(FlussError) as caught:
        bench.append_and_wait(log, big)
    assert caught.value.error_code == ErrorCode.DISK_WRITE_LOCKED
    assert "100 bytes are free" in caught.value.message
    assert len(read_all(log)) == 1
    assert log.log_end_offset == log.high_watermark == 2
    # The sequence was taken back with the rows: the same batch is welcome later, and is not a duplicate.
    files.free_space_bytes = 10_000
    answer = bench.append_and_wait(log, big)
    assert (answer.base_offset, answer.duplicate) == (2, False)
    bench.close()
    assert bench.releases == 3
    assert bench.committer.queued_bytes == 0


def test_all_appends_queued_behind_the_failed_one_fail_too(tmp_path: Path) -> None:
    bench, files = _bench(tmp_path, LogOptions(segment_bytes=300))
    log = bench.open()
    files.free_space_bytes = 250
    appends = [bench.append(log, batch_of(1, payload=bytes(50), writer_id=1, sequence=number)) for number in range(10)]
    codes = _outcomes(bench, appends)
    stored = codes.count(0)
    assert codes == [0] * stored + [70] * (10 - stored)
    assert stored < 10
    assert log.log_end_offset == stored
    assert len(read_all(log)) == stored
    files.free_space_bytes = None
    assert bench.append_and_wait(log, batch_of(1, writer_id=1, sequence=stored)).base_offset == stored
    log.close()
    assert len(read_all(bench.open())) == stored + 1
    bench.close()


def test_appends_leave_the_reserve_alone(tmp_path: Path) -> None:
    bench, files = _bench(tmp_path, LogOptions(segment_bytes=400, reserved_free_bytes=1000))
    log = bench.open()
    files.free_space_bytes = 2000
    appends = [bench.append(log, batch_of(1, payload=bytes(100), writer_id=1, sequence=number)) for number in range(20)]
    codes = _outcomes(bench, appends)
    stored = codes.count(0)
    assert codes == [0] * stored + [70] * (20 - stored)
    assert 0 < stored < 20
    # Checkpoints are what the reserve is for, and one may have been written by now.
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.log")) <= 1000
    with pytest.raises(FlussError, match="of which 1000 are reserved for metadata"):
        bench.append_and_wait(log, batch_of(1, payload=bytes(2000), writer_id=1, sequence=stored))
    files.free_space_bytes = 5000
    assert bench.append_and_wait(log, batch_of(1, writer_id=1, sequence=stored)).base_offset == stored
    bench.settle()
    after = tmp_path.parent / f"{tmp_path.name}-after-power-loss"
    files.after_power_loss(after, random.Random(1))
    survivor = LogBench(after)
    assert len(read_all(survivor.open())) == stored + 1
    survivor.close()
    bench.close()


class FullOnce(NoSyncFiles):
    """One write waits until the test allows it and then finds the disk full; the next ones find room."""

    def __init__(self) -> None:
        self.armed = False
        self.is_writing = threading.Event()
        self.may_fail = threading.Event()

    def pwritev(self, descriptor: int, buffers: Sequence[ReadableBuffer], position: int) -> int:
        if self.armed:
            self.armed = False
            self.is_writing.set()
            self.may_fail.wait(patience(60))
            raise OSError(errno.ENOSPC, "full")
        return super().pwritev(descriptor, buffers, position)


def test_appends_accepted_before_the_failure_was_known_are_not_written(tmp_path: Path) -> None:
    """They carry offsets behind the failed ones. Written, they would be found by a later start."""
    files = FullOnce()
    bench = LogBench(tmp_path, files)
    log = bench.open()
    bench.append_and_wait(log, batch_of(1))
    files.armed = True
    failed = [bench.append(log, batch_of(1))]
    assert files.is_writing.wait(patience(60))
    failed += [bench.append(log, batch_of(1)) for _ in range(5)]
    files.may_fail.set()
    assert _outcomes(bench, failed) == [70] * 6
    assert (tmp_path / "log-0" / f"{0:020d}.log").stat().st_size == log.size_bytes
    assert bench.append_and_wait(log, batch_of(2)).base_offset == 1
    bench.close()
    assert [header.base_offset for header, _ in read_all(LogBench(tmp_path, NoSyncFiles()).open())] == [0, 1]


def test_a_repetition_of_a_failed_batch_fails_with_it(tmp_path: Path) -> None:
    bench, files = _bench(tmp_path)
    log = bench.open()
    files.free_space_bytes = 10
    batch = batch_of(1, writer_id=1, sequence=0)
    original, repeated = bench.append(log, batch), bench.append(log, batch)
    assert repeated.duplicate
    assert _outcomes(bench, [original, repeated]) == [70, 70]
    bench.close()


def test_random_full_disks_never_lose_or_double_a_row(tmp_path: Path) -> None:
    for seed in range(40):
        rng = random.Random(seed)
        directory = tmp_path / str(seed)
        directory.mkdir()
        options = LogOptions(segment_bytes=rng.choice((120, 1000, 100_000)), checkpoint_bytes=500)
        bench, files = _bench(directory, options)
        log = bench.open()
        stored: list[bytes] = []
        for _ in range(15):
            files.free_space_bytes = rng.choice((None, None, rng.randrange(1500)))
            batches = [
                batch_of(1, payload=rng.randbytes(rng.randrange(300)), writer_id=3, sequence=len(stored) + number)
                for number in range(rng.randint(1, 6))
            ]
            codes = _outcomes(bench, [bench.append(log, batch) for batch in batches])
            good = codes.count(0)
            assert codes == [0] * good + [ErrorCode.DISK_WRITE_LOCKED] * (len(codes) - good)
            stored += batches[:good]
            assert [content[21:] for _, content in read_all(log)] == [batch[21:] for batch in stored]
        files.free_space_bytes = None
        bench.settle()
        bench.close()
        # Killed here: what was acknowledged is found again, also with a disk that has no room for a new checkpoint.
        reopened = FaultyFiles(directory)
        reopened.free_space_bytes = 0
        recovered = LogBench(directory, reopened, options=options)
        log = recovered.open()
        assert [content[21:] for _, content in read_all(log)] == [batch[21:] for batch in stored]
        reopened.free_space_bytes = None
        assert recovered.append_and_wait(log, batch_of(1, writer_id=3, sequence=len(stored))).base_offset == len(stored)
        recovered.close()


def test_a_failed_sync_stops_the_bucket_until_a_restart(tmp_path: Path) -> None:
    bench, files = _bench(tmp_path)
    log = bench.open()
    bench.append_and_wait(log, batch_of(1))
    files.failing_syncs = {"log-0/"}
    with pytest.raises(FlussError) as caught:
        bench.append_and_wait(log, batch_of(1))
    assert caught.value.error_code == ErrorCode.STORAGE_EXCEPTION
    files.failing_syncs = set()
    syncs = files.sync_count
    with pytest.raises(FlussError) as caught:
        bench.append(log, batch_of(1))
    assert caught.value.error_code == ErrorCode.STORAGE_EXCEPTION
    assert files.sync_count == syncs, "a failed sync was tried again"
    assert log.high_watermark == 1
    assert len(read_all(log)) == 1
    log.close()
    again = bench.open()
    assert again.high_watermark == 1
    assert bench.append_and_wait(again, batch_of(1)).base_offset == 1
    bench.close()


def test_a_failed_write_stops_the_bucket(tmp_path: Path) -> None:
    bench, files = _bench(tmp_path)
    log = bench.open()
    bench.append_and_wait(log, batch_of(1))
    files.failing_writes = {"log-0/"}
    assert _outcomes(bench, [bench.append(log, batch_of(1)) for _ in range(3)]) == [26, 26, 26]
    assert log.log_end_offset == 1
    bench.close()


@pytest.mark.parametrize("fault", ["sync", "write"])
def test_other_buckets_in_the_same_group_are_not_affected(tmp_path: Path, fault: str) -> None:
    bench, files = _bench(tmp_path)
    logs = [bench.open(f"log-{number}") for number in range(4)]
    (files.failing_syncs if fault == "sync" else files.failing_writes).add("log-2/")
    appends = [bench.append(log, batch_of(1)) for _ in range(5) for log in logs]
    codes = _outcomes(bench, appends)
    assert [codes[number] for number in range(20) if number % 4 == 2] == [26] * 5
    assert [codes[number] for number in range(20) if number % 4 != 2] == [0] * 15
    assert [log.high_watermark for log in logs] == [5, 5, 0, 5]
    bench.close()


def test_a_segment_file_that_appears_from_nowhere_is_not_overwritten(tmp_path: Path) -> None:
    bench = LogBench(tmp_path, NoSyncFiles())
    log = bench.open()
    (tmp_path / "log-0").mkdir()
    stranger = tmp_path / "log-0" / f"{0:020d}.log"
    stranger.write_bytes(b"precious")
    assert _outcomes(bench, [bench.append(log, batch_of(1))]) == [26]
    assert stranger.read_bytes() == b"precious"
    bench.close()
