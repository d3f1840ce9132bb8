"""The system runs out of memory or threads: appends fail, none waits forever, and the log continues to work."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from fluss.codec.buffers import ReadableBuffer
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.committer import Committer
from fluss.server.storage.log.index import SegmentIndex
from tests.support.storage.bucket_logs import LogBench, batch_of, read_all


class Threads:
    """Starts of threads whose name begins with `refused` fail as they do at the limit of a user's processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused: str | None = None
        start = threading.Thread.start

        def start_or_fail(thread: threading.Thread) -> None:
            if self.refused is not None and thread.name.startswith(self.refused):
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_or_fail)


class NoMemoryToWrite(FileSystem):
    """The next `failures` writes write a part and then run out of memory."""

    failures = 0

    def pwritev(self, descriptor: int, buffers: Sequence[ReadableBuffer], position: int) -> int:
        if self.failures:
            self.failures -= 1
            super().pwritev(descriptor, [bytes(buffers[0])[:7]], position)
            raise MemoryError
        return super().pwritev(descriptor, buffers, position)


def offsets(bench: LogBench, name: str = "log-0") -> list[int]:
    """The offsets that the next process finds when it opens the bucket."""
    bench.close()
    other = LogBench(bench.directory)
    found = [header.base_offset for header, _ in read_all(other.open(name))]
    other.close()
    return found


def test_an_append_without_a_commit_thread_is_refused_and_the_next_one_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = Threads(monkeypatch)
    bench = LogBench(tmp_path)
    log = bench.open()
    threads.refused = "fluss-log-commit"
    for _ in range(2):
        with pytest.raises(FlussError, match="can't start new thread") as caught:
            bench.append(log, batch_of(1, writer_id=7, sequence=0))
        assert caught.value.error_code == ErrorCode.LOG_STORAGE_EXCEPTION
    assert (log.log_end_offset, bench.releases, bench.committer.queued_bytes) == (0, 0, 0)
    threads.refused = None
    assert bench.append_and_wait(log, batch_of(1, writer_id=7, sequence=0)).base_offset == 0
    assert bench.append_and_wait(log, batch_of(1, writer_id=7, sequence=1)).base_offset == 1
    assert offsets(bench) == [0, 1]


def test_without_helpers_the_commit_thread_syncs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(monkeypatch)
    bench = LogBench(tmp_path)
    logs = [bench.open(f"log-{number}") for number in range(4)]
    threads.refused = "fluss-log-sync"
    for _ in range(5):
        for append in [bench.append(log, batch_of(1)) for log in logs]:
            bench.wait(append)
    assert offsets(bench, "log-3") == list(range(5))


def test_without_a_thread_for_files_appends_work_and_closing_writes_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = Threads(monkeypatch)
    bench = LogBench(tmp_path)
    log = bench.open()
    threads.refused = "fluss-log-files"
    bench.append_and_wait(log, batch_of(3))
    log.checkpoint()
    bench.append_and_wait(log, batch_of(2))
    log.close()
    bench.close()
    other = LogBench(tmp_path)
    again = other.open()
    assert (again.high_watermark, again.recovery_report.scanned_bytes) == (5, 0)
    other.close()


def test_no_memory_for_a_write_fails_its_appends_and_the_bucket_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = NoMemoryToWrite()
    bench = LogBench(tmp_path, files)
    log = bench.open()
    bench.append_and_wait(log, batch_of(1, writer_id=7, sequence=0))
    files.failures = 1
    with pytest.raises(FlussError, match="out of memory") as caught:
        bench.append_and_wait(log, batch_of(1, writer_id=7, sequence=1))
    assert caught.value.error_code == ErrorCode.LOG_STORAGE_EXCEPTION
    assert [record.getMessage()[:11] for record in caplog.records] == ["appends to "]
    assert bench.append_and_wait(log, batch_of(1, writer_id=7, sequence=1)).base_offset == 1
    assert bench.releases == 3
    assert offsets(bench) == [0, 1]


def test_no_memory_while_an_append_is_accepted_leaves_no_trace_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = LogBench(tmp_path)
    log = bench.open()
    bench.append_and_wait(log, batch_of(1, writer_id=7, sequence=0))

    def no_memory(*_: object) -> None:
        raise MemoryError

    for owner, name in ((SegmentIndex, "add"), (Committer, "submit")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, no_memory)
            with pytest.raises(MemoryError):
                bench.append(log, batch_of(2, writer_id=7, sequence=1))
        assert (log.log_end_offset, log.segments[-1].size) == (1, log.segments[-1].committed_size)
    assert bench.append_and_wait(log, batch_of(2, writer_id=7, sequence=1)).base_offset == 1
    assert offsets(bench) == [0, 1]


def test_after_any_failure_in_a_group_its_appends_are_answered_and_other_buckets_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = LogBench(tmp_path)
    log, other = bench.open(), bench.open("log-1")

    def no_memory(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "_use_writer", no_memory)
        with pytest.raises(FlussError, match="committing the bucket log failed"):
            bench.append_and_wait(log, batch_of(1))
    assert bench.append_and_wait(other, batch_of(1)).base_offset == 0
    bench.close()


def test_no_memory_for_the_report_of_a_bucket_does_not_block_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = LogBench(tmp_path)
    logs = [bench.open(f"log-{number}") for number in range(3)]
    for log in logs:
        bench.append_and_wait(log, batch_of(1))
    checkpointer = logs[0]._checkpointer

    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(checkpointer, "note_committed", no_memory)
    appends = [bench.append(log, batch_of(1)) for log in logs]
    with pytest.raises(FlussError, match="failed"):
        bench.wait(appends[0])
    for append in appends[1:]:
        assert bench.wait(append).base_offset == 1
    bench.close()
