"""Bucket logs without an event loop: the test thread plays the loop."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from fluss.codec.batches.log_batch import BatchHeader, encode_batch
from fluss.errors import FlussError
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.committer import Committer, FlushMode
from fluss.server.storage.log.options import LogOptions
from tools.waiting import patience

DEADLINE_SECONDS = patience(60.0)


class TestLoop:
    """Collects what other threads post; `run_until` runs it in the calling thread."""

    __test__ = False

    def __init__(self) -> None:
        self._posted: deque[Callable[[], None]] = deque()
        self._arrived = threading.Condition()

    def post(self, callback: Callable[[], None]) -> None:
        with self._arrived:
            self._posted.append(callback)
            self._arrived.notify()

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run posted calls until the condition holds; fails after the deadline."""
        end = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            with self._arrived:
                if not self._posted:
                    remaining = end - time.monotonic()
                    assert remaining > 0, "the condition did not come true before the deadline"
                    self._arrived.wait(remaining)
                calls = list(self._posted)
                self._posted.clear()
            for call in calls:
                call()


class LogBench:
    """A committer and logs in one directory, with short names for what tests do all the time."""

    def __init__(
        self,
        directory: Path,
        files: FileSystem | None = None,
        flush: FlushMode = "always",
        options: LogOptions | None = None,
        **committer_options: int,
    ) -> None:
        self.directory = directory
        self.files = files or FileSystem()
        self.options = options or LogOptions()
        self.loop = TestLoop()
        self.committer = Committer(self.loop.post, self.files, flush, **committer_options)
        self.releases = 0
        self._logs: list[BucketLog] = []

    def open(self, name: str = "log-0", options: LogOptions | None = None) -> BucketLog:
        options = options or self.options
        log = BucketLog.open(self.directory / name, options, self.committer, self.files, now_ms=1000)
        self._logs.append(log)
        return log

    def append(self, log: BucketLog, batch: bytes, now_ms: int = 1000) -> Append:
        """Hand in records in a buffer of their own and return at once."""
        return log.append(memoryview(bytearray(batch)), now_ms, self._count_release)

    def append_and_wait(self, log: BucketLog, batch: bytes, now_ms: int = 1000) -> Append:
        """Append and wait until it is committed; raises what the append failed with."""
        return self.wait(self.append(log, batch, now_ms))

    def wait(self, append: Append) -> Append:
        outcomes: list[FlussError | None] = []
        append.add_durable(outcomes.append)
        self.loop.run_until(lambda: bool(outcomes))
        if outcomes[0] is not None:
            raise outcomes[0]
        return append

    def settle(self) -> None:
        """Wait for everything queued, checkpoints included."""
        for _ in range(3):
            self.committer.drain()

    def close(self) -> None:
        """Finish what is queued and give back the files of logs that were not closed, without their checkpoints: that
        is how a process ends that dies."""
        self.committer.close()
        for log in self._logs:
            log.writer.close()
            for segment in log.segments:
                self.committer.open_segments.drop(segment)

    def _count_release(self) -> None:
        self.releases += 1


def batch_of(
    rows: int = 1, *, payload: bytes = b"payload", writer_id: int = -1, sequence: int = -1, magic: int = 0
) -> bytes:
    """A batch as a client sends it; the log does not look into the payload."""
    return encode_batch(
        [payload] if rows else [], rows, 1, append_only=True, writer_id=writer_id, batch_sequence=sequence, magic=magic
    )


def read_all(log: BucketLog, offset: int | None = None, max_bytes: int = 1 << 20) -> list[tuple[BatchHeader, bytes]]:
    """Every readable batch from an offset on, through `read_batches`."""
    position = log.local_start_offset if offset is None else offset
    result: list[tuple[BatchHeader, bytes]] = []
    while position < log.high_watermark:
        count = len(result)
        for view, start, header in log.read_batches(position):
            result.append((header, bytes(view[start : start + header.size])))
            position = header.next_offset
        assert len(result) > count, f"no batch at offset {position}"
    return result
