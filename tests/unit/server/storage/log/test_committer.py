"""Group commit, flush modes, limits."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.options import LogOptions
from tests.support.storage.bucket_logs import LogBench, batch_of, read_all
from tests.support.storage.faulty_files import FaultyFiles, NoSyncFiles
from tools.waiting import patience


class SlowSyncs(FileSystem):
    """Syncs wait until the test allows them, so that work piles up behind them."""

    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.log_syncs = 0

    def fdatasync(self, descriptor: int) -> None:
        self.may_sync.wait(patience(60))
        self.log_syncs += 1


def test_one_sync_covers_what_arrived_meanwhile(tmp_path: Path) -> None:
    files = SlowSyncs()
    bench = LogBench(tmp_path, files)
    log = bench.open()
    appends = [bench.append(log, batch_of(1)) for _ in range(200)]
    files.may_sync.set()
    for append in appends:
        bench.wait(append)
    assert files.log_syncs < 10
    assert [header.base_offset for header, _ in read_all(log)] == list(range(200))
    bench.close()


def test_rows_are_invisible_until_they_are_durable_but_acks_1_does_not_wait(tmp_path: Path) -> None:
    files = SlowSyncs()
    bench = LogBench(tmp_path, files)
    log = bench.open()
    append = bench.append(log, batch_of(2))
    written: list[FlussError | None] = []
    append.add_written(written.append)
    bench.loop.run_until(lambda: bool(written))
    assert written == [None]
    assert bench.releases == 1
    assert (log.high_watermark, log.log_end_offset) == (0, 2)
    assert log.read(0, 1000).first_batch_offset == -1
    assert log.read(1, 1000).first_batch_offset == -1
    files.may_sync.set()
    bench.wait(append)
    assert log.read(0, 1000).first_batch_offset == 0
    bench.close()


@pytest.mark.parametrize("flush", ["interval", "os"])
def test_weaker_modes_commit_without_a_sync(tmp_path: Path, flush: str) -> None:
    files = FaultyFiles(tmp_path)
    bench = LogBench(tmp_path, files, "interval" if flush == "interval" else "os", flush_interval_ms=50)
    log = bench.open()
    bench.append_and_wait(log, batch_of(1))
    reservation = 1  # the first append notes which offsets will be shown
    if flush == "os":
        bench.append_and_wait(log, batch_of(1))
        assert files.sync_count == reservation
    else:
        bench.loop.run_until(lambda: log._checkpointer.durable_offset == 1)
        assert files.sync_count == reservation + 1
    log.close()
    assert log._checkpointer.durable_offset == log.high_watermark
    assert bench.open().recovery_report.scanned_bytes == 0
    bench.close()


def test_a_failed_sync_of_the_interval_mode_stops_the_bucket(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    files.failing_syncs = {"log-0/0000"}
    bench = LogBench(tmp_path, files, "interval", flush_interval_ms=1)
    log = bench.open()
    bench.append_and_wait(log, batch_of(1))
    bench.loop.run_until(lambda: log.writer.stopped)
    bench.settle()
    with pytest.raises(FlussError) as caught:
        bench.append(log, batch_of(1))
    assert caught.value.error_code == ErrorCode.STORAGE_EXCEPTION
    assert len(read_all(log)) == 1
    log.close()
    bench.close()


def test_many_buckets_share_few_open_files(tmp_path: Path) -> None:
    bench = LogBench(tmp_path, NoSyncFiles(), max_open_files=4)
    logs = [bench.open(f"log-{number}") for number in range(20)]
    for _ in range(3):
        for append in [bench.append(log, batch_of(1)) for log in logs]:
            bench.wait(append)
    assert sum(log.writer.is_open for log in logs) <= 4
    assert all(len(read_all(log)) == 3 for log in logs)
    bench.close()


@pytest.mark.parametrize("flush", ["always", "os"])
def test_many_buckets_in_one_group_with_few_files(tmp_path: Path, flush: str) -> None:
    files = FaultyFiles(tmp_path)
    bench = LogBench(tmp_path, files, "always" if flush == "always" else "os", max_open_files=2)
    logs = [bench.open(f"log-{number}") for number in range(10)]
    appends = [bench.append(log, batch_of(1)) for log in logs for _ in range(3)]
    for append in appends:
        bench.wait(append)
    assert [log.high_watermark for log in logs] == [3] * 10
    bench.close()


def test_queued_bytes_are_counted_limited_and_drain(tmp_path: Path) -> None:
    files = SlowSyncs()
    bench = LogBench(tmp_path, files, max_queued_bytes=5000)
    log = bench.open()
    drained: list[bool] = []
    appends = []
    while not bench.committer.is_full:
        appends.append(bench.append(log, batch_of(1, payload=bytes(500))))
    bench.committer.add_drained_callback(lambda: drained.append(True))
    while not bench.committer.refuses:
        appends.append(bench.append(log, batch_of(1, payload=bytes(500))))
    with pytest.raises(FlussError) as caught:
        bench.append(log, batch_of(1))
    assert caught.value.error_code == ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION
    assert bench.committer.queued_bytes < 5000 * 2 + 2000
    assert not drained
    files.may_sync.set()
    for append in appends:
        bench.wait(append)
    assert drained == [True]
    assert bench.committer.queued_bytes == 0
    assert not bench.append_and_wait(log, batch_of(1)).duplicate
    bench.close()


def test_a_checkpoint_is_written_after_the_interval_without_new_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fluss.server.storage.log.committer._TICK_SECONDS", 0.01)
    bench = LogBench(tmp_path, NoSyncFiles(), options=LogOptions(checkpoint_interval_ms=30))
    log = bench.open()
    bench.append_and_wait(log, batch_of(1))
    bench.loop.run_until(lambda: (tmp_path / "log-0" / "bucket.checkpoint").exists())
    bench.loop.run_until(lambda: log not in bench.committer.uncheckpointed_logs)
    bench.close()


def test_a_defect_while_writing_stops_one_bucket_and_not_the_thread(tmp_path: Path) -> None:
    bench = LogBench(tmp_path, NoSyncFiles())
    broken, healthy = bench.open("log-0"), bench.open("log-1")

    def fail(appends: object) -> tuple[list[object], None]:
        raise ValueError("a defect")

    broken.writer.write = fail  # type: ignore[assignment, method-assign]
    with pytest.raises(FlussError) as caught:
        bench.append_and_wait(broken, batch_of(1))
    assert caught.value.error_code == ErrorCode.STORAGE_EXCEPTION
    bench.append_and_wait(healthy, batch_of(1))
    bench.close()


class DefectiveSyncs(NoSyncFiles):
    """A sync of one bucket's log raises an exception that no disk raises."""

    def __init__(self) -> None:
        self._defective: set[int] = set()

    def open_write(self, path: str) -> int:
        descriptor = super().open_write(path)
        if "log-0/" in path and path.endswith(".log"):
            self._defective.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        self._defective.discard(descriptor)
        super().close(descriptor)

    def fdatasync(self, descriptor: int) -> None:
        if descriptor in self._defective:
            raise ValueError("a defect")


@pytest.mark.parametrize("buckets", [1, 5])
@pytest.mark.parametrize("flush", ["always", "interval"])
def test_a_defect_while_syncing_stops_one_bucket_and_not_the_thread(tmp_path: Path, flush: str, buckets: int) -> None:
    """One dirty bucket is synced by the commit thread itself, several by its helpers."""
    bench = LogBench(tmp_path, DefectiveSyncs(), "always" if flush == "always" else "interval", flush_interval_ms=1)
    logs = [bench.open(f"log-{number}") for number in range(buckets)]
    for _ in range(4):  # more often than there are helpers
        outcomes: list[FlussError | None] = []
        taking = [log for log in logs if not log.writer.stopped]
        for log in taking:
            bench.append(log, batch_of(1)).add_durable(outcomes.append)
        bench.settle()
        assert len(outcomes) == len(taking)
    bench.loop.run_until(lambda: logs[0].writer.stopped)
    bench.settle()
    with pytest.raises(FlussError) as caught:
        bench.append(logs[0], batch_of(1))
    assert caught.value.error_code == ErrorCode.STORAGE_EXCEPTION
    assert "a defect" in caught.value.message
    assert [len(read_all(log)) for log in logs[1:]] == [4] * (buckets - 1)
    bench.close()


def test_work_that_fails_between_groups_does_not_end_the_thread(tmp_path: Path) -> None:
    bench = LogBench(tmp_path, NoSyncFiles())
    log = bench.open()

    def fail() -> None:
        raise ValueError("a defect")

    bench.committer._enqueue(fail)
    bench.append_and_wait(log, batch_of(1))
    bench.close()


def test_flush_modes_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"log\.flush must be"):
        LogBench(tmp_path, flush="never")  # type: ignore[arg-type]
