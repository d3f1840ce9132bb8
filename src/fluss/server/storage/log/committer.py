"""Group commit: one thread writes and syncs for all buckets of a tablet.

Appends that arrive while a group is being synced become the next group, so one sync covers many appends. Buckets are
independent: a failed write or sync fails the appends of its own bucket only.

Threads. All public methods are for the loop thread. The commit thread takes work from `_queue`, uses the buckets'
`LogWriter`s and puts results into `_results`; it then asks the loop, through `post`, to run `process_results`. A third
thread writes checkpoints and removes files (`BackgroundFiles`), so that these never delay an acknowledgement.

`flush` decides what "committed" means: "always" = synced; "interval" and "os" = written, with a sync every
`flush_interval_ms`, or only when the kernel, a roll or a checkpoint does it.

Memory. `queued_bytes` counts what was accepted and not yet written. Callers stop reading from their clients while
`is_full`, and continue when a drained callback runs. Appends beyond twice the limit are refused with error 72.

Shortage of memory or threads. If the commit thread cannot be started, an append is refused before it is accepted. The
commit thread keeps what it has taken from the queue in `_held`, `_group` and `_calls` until it is done with it. So
after any exception in between, every append is answered, with the error that stops its bucket (`_fail_group`).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Literal

from fluss.errors import ErrorCode, FlussError
from fluss.server.runtime.long_work import TIME_SLICE_SECONDS
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.background_files import BackgroundFiles, nothing
from fluss.server.storage.log.commit_reports import (
    Failures,
    Written,
    report,
    report_synced,
    report_written,
    reports,
    stop_after_defect,
)
from fluss.server.storage.log.log_writer import WriteFailure
from fluss.server.storage.log.open_segments import OpenSegments
from fluss.server.storage.log.options import (
    APPEND_OVERHEAD_BYTES,
    MAX_GROUP_BYTES,
    MAX_SYNC_HELPERS,
    open_files_limit,
)
from fluss.server.storage.log.sync_helpers import SyncHelpers

if TYPE_CHECKING:
    from fluss.server.storage.log.bucket_log import BucketLog

FlushMode = Literal["always", "interval", "os"]
_logger = logging.getLogger(__name__)
_TICK_SECONDS = 5.0
_MEMORY_PAUSE_SECONDS = 0.05


class Committer:
    """The commit thread, its queue and its results. One per process."""

    def __init__(
        self,
        post: Callable[[Callable[[], None]], object],
        files: FileSystem,
        flush: FlushMode = "always",
        flush_interval_ms: int = 100,
        *,
        max_queued_bytes: int = 256 * 1024 * 1024,
        max_open_files: int | None = None,
    ) -> None:
        if flush not in ("always", "interval", "os"):
            raise ValueError(f"log.flush must be 'always', 'interval' or 'os', got {flush!r}")
        self.files = files
        self.flush = flush
        self.max_queued_bytes = max_queued_bytes
        self.queued_bytes = 0
        self.background = BackgroundFiles(self._post_results)
        self.uncheckpointed_logs: set[BucketLog] = set()
        self._post = post
        self._flush_interval_s = flush_interval_ms / 1000
        self._max_open_files = max_open_files or open_files_limit()
        self.open_segments = OpenSegments(files, self._max_open_files)
        self._drained_callbacks: list[Callable[[], None]] = []
        self._written_waiters = 0
        # Between the threads. Bounded by queued_bytes, and by the number of groups.
        self._queue: SimpleQueue[Append | Callable[[], None]] = SimpleQueue()
        self._results: deque[Callable[[], None]] = deque()
        self._results_posted = False
        # Owned by the commit thread.
        self._held: Append | Callable[[], None] | None = None
        self._group: dict[BucketLog, list[Append]] = {}
        self._calls: list[Callable[[], None]] = []
        self._stopping = False
        self._helpers = SyncHelpers(MAX_SYNC_HELPERS)
        self._open_writers: OrderedDict[BucketLog, None] = OrderedDict()
        self._unsynced: dict[BucketLog, None] = {}
        self._next_flush_at = 0.0
        self._next_tick_at = time.monotonic() + _TICK_SECONDS
        self._thread: threading.Thread | None = None

    # --- loop thread ---------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """True if callers should stop reading data from their clients."""
        return self.queued_bytes >= self.max_queued_bytes

    @property
    def refuses(self) -> bool:
        """True if appends are refused because a caller did not stop at `is_full`."""
        return self.queued_bytes >= 2 * self.max_queued_bytes

    def add_drained_callback(self, callback: Callable[[], None]) -> None:
        """Have a function called once, when the queue is at most half full again."""
        self._drained_callbacks.append(callback)

    @property
    def is_started(self) -> bool:
        """True if the commit thread runs, so that `submit` can only fail for lack of memory."""
        return self._thread is not None

    def start_thread(self) -> None:
        """Start the commit thread; FlussError if the system has no thread left. The next call tries again."""
        thread = threading.Thread(target=self._run, name="fluss-log-commit", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            text = f"cannot start the thread that writes the server's logs ({error}); nothing was written, retry later"
            raise FlussError(text, ErrorCode.LOG_STORAGE_EXCEPTION) from error
        self._thread = thread

    def submit(self, append: Append) -> None:
        """Queue an append; appends of one bucket are written in the order of submission."""
        self._enqueue(append)
        if append.release is not None:
            self.queued_bytes += append.size + APPEND_OVERHEAD_BYTES

    def request_sync(self, log: BucketLog) -> None:
        """Sync what was submitted for a bucket so far, in any flush mode."""
        self._enqueue(partial(self._sync, [log]))

    def close_writer(self, log: BucketLog) -> None:
        """Close the file of a bucket after everything that was submitted for it."""

        def close() -> None:
            self._open_writers.pop(log, None)
            self._unsynced.pop(log, None)
            log.writer.close()

        self._enqueue(close)

    def watch(self, log: BucketLog) -> None:
        """Call `checkpoint_if_due` of a log periodically until its checkpoint is up to date."""
        is_first = not self.uncheckpointed_logs
        self.uncheckpointed_logs.add(log)
        if is_first:
            self._enqueue(nothing)  # wake the commit thread, which keeps the time: it may sleep without a deadline

    def call_after_writes(self, callback: Callable[[], None]) -> None:
        """Run a callback in the loop after everything submitted so far is done."""
        self._enqueue(partial(self._post_results, callback))

    def release_queued(self, size: int) -> None:
        """Record that an append of `size` bytes has left the queue."""
        self.queued_bytes -= size + APPEND_OVERHEAD_BYTES
        if self._drained_callbacks and self.queued_bytes <= self.max_queued_bytes // 2:
            callbacks, self._drained_callbacks = self._drained_callbacks, []
            for callback in callbacks:
                callback()

    def expect_written(self) -> None:
        """Report written appends before the sync, since a caller waits only for the page cache."""
        self._written_waiters += 1

    def written_answered(self, count: int) -> None:
        self._written_waiters -= count

    def drain(self) -> None:
        """Wait until everything submitted so far is done, and run its callbacks. For closing: it blocks the loop."""
        if self._thread is not None:
            done = threading.Event()
            self._enqueue(done.set)
            done.wait()
        self.background.drain()
        self.process_results(math.inf)

    def process_results(self, turn_seconds: float = TIME_SLICE_SECONDS) -> None:
        """Run the results of the other threads for one turn; post the rest, so that other work gets its turn."""
        self._results_posted = False
        until = time.monotonic() + turn_seconds
        while self._results:
            if time.monotonic() >= until:
                self._post_processing()
                return
            result = self._results.popleft()
            try:
                result()
            except Exception:
                # The results of other logs are waiting behind this one.
                _logger.exception("processing the result of a log write failed")

    def close(self, drain: bool = True) -> None:
        """Stop the threads; with `drain`, after everything queued is done."""
        if drain:
            self.drain()
        if self._thread is not None:
            self._queue.put(self._stop)
            self._thread.join()
            self._thread = None
        self.background.close()
        if drain:
            self.process_results(math.inf)

    def _enqueue(self, item: Append | Callable[[], None]) -> None:
        if self._thread is None:
            self.start_thread()
        self._queue.put(item)

    def _tick(self) -> None:
        for log in list(self.uncheckpointed_logs):
            log.checkpoint_if_due()

    # --- any thread ----------------------------------------------------------------------------------------------

    def _post_results(self, result: Callable[[], None]) -> None:
        self._results.append(result)
        if not self._results_posted:
            self._post_processing()

    def _post_processing(self) -> None:
        self._results_posted = True
        while True:
            try:
                self._post(self.process_results)
            except MemoryError:
                # All callers wait for these results, and the memory for one queue entry will become free.
                time.sleep(_MEMORY_PAUSE_SECONDS)
                continue
            except RuntimeError:
                self._results_posted = False  # the loop is closed, the process is stopping: drain() finds the results
            return

    # --- commit thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._round()
            except Exception as error:
                # The thread has to continue after any error: all callers depend on it.
                self._fail_group(error)
        self._sync(list(self._unsynced))
        self._helpers.close()
        for log in self._open_writers:
            log.writer.close()

    def _round(self) -> None:
        self._take()
        if self._group:
            self._commit(self._group)
            self._group = {}
        while self._calls:
            call = self._calls.pop(0)
            try:
                call()
            except Exception:
                _logger.exception("work between two groups of log writes failed")
        now = time.monotonic()
        if self._unsynced and self.flush == "interval" and now >= self._next_flush_at:
            self._sync(list(self._unsynced))
        if now >= self._next_tick_at:
            self._next_tick_at = now + _TICK_SECONDS
            self._post_results(self._tick)

    def _fail_group(self, error: Exception) -> None:
        """Stop the buckets of a group that hit a defect or lack of memory: it is unknown how far the group came."""
        while self._group:
            try:
                failures = [(log, stop_after_defect(log, "committing", error, None)) for log in self._group]
                self._post_results(partial(report, [], failures, False))
            except MemoryError:
                time.sleep(_MEMORY_PAUSE_SECONDS)
            else:
                self._group = {}

    def _stop(self) -> None:
        self._stopping = True

    def _take(self) -> None:
        """Collect the next group by bucket, and calls queued behind it. Waits for work or for the next deadline."""
        if self._calls:
            return  # the calls are left over from a round that failed
        group, calls = self._group, self._calls
        size = 0
        try:
            item = self._held = self._held or self._queue.get(timeout=self._seconds_to_wait())
            while True:
                if not isinstance(item, Append):
                    calls.append(item)
                elif calls:
                    return  # a call is for everything queued before it and nothing after: keep the append for later
                else:
                    size += item.size
                    group.setdefault(item.log, []).append(item)
                self._held = None
                if size >= MAX_GROUP_BYTES:
                    return
                item = self._held = self._queue.get_nowait()
        except Empty:
            return

    def _seconds_to_wait(self) -> float | None:
        deadlines = []
        if self._unsynced and self.flush == "interval":
            deadlines.append(self._next_flush_at)
        if self.uncheckpointed_logs:
            deadlines.append(self._next_tick_at)
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _commit(self, group: dict[BucketLog, list[Append]]) -> None:
        written: Written = []
        failures: Failures = []
        for log, appends in group.items():
            done, failure = self._write(log, appends)
            if failure is not None:
                failures.append((log, failure))
            if done and not (failure is not None and failure.stops):
                written.append((log, done))
                self._use_writer(log)
        if self.flush == "always":
            if self._written_waiters and written:
                self._post_results(lambda: report_written(written))
            failures += self._sync_files([log for log, _ in written])
            written = [(log, appends) for log, appends in written if not log.writer.stopped]
        else:
            if not self._unsynced:
                self._next_flush_at = time.monotonic() + self._flush_interval_s
            self._unsynced.update((log, None) for log, _ in written)
        for part in reports(written, failures, self.flush == "always"):
            self._post_results(part)

    def _write(self, log: BucketLog, appends: list[Append]) -> tuple[list[Append], WriteFailure | None]:
        try:
            return log.writer.write(appends)
        except Exception as error:
            return [], stop_after_defect(log, "writing", error, appends[0])

    def _sync(self, logs: list[BucketLog]) -> None:
        """Sync buckets outside a group and report how far they are durable now."""
        if not logs:
            return
        failures = self._sync_files(logs)
        for log in logs:
            self._unsynced.pop(log, None)
        self._next_flush_at = time.monotonic() + self._flush_interval_s
        failed = {log for log, _ in failures}
        synced = [(log, log.writer.last_written) for log in logs if log not in failed and not log.writer.stopped]
        self._post_results(partial(report_synced, synced, failures))

    def _sync_files(self, logs: list[BucketLog]) -> Failures:
        """Sync the files of buckets, several at a time; returns the failures."""
        failures: Failures = []

        def sync_one(log: BucketLog) -> None:
            try:
                failure = log.writer.sync()
            except Exception as error:
                failure = stop_after_defect(log, "syncing", error, None)
            if failure is not None:
                failures.append((log, failure))

        dirty = [log for log in logs if log.writer.is_dirty]
        if len(dirty) == 1:
            sync_one(dirty[0])
        elif dirty:
            self._helpers.run([partial(sync_one, log) for log in dirty])
        return failures

    def _use_writer(self, log: BucketLog) -> None:
        """Keep the number of open files bounded: close the least recently written ones."""
        self._open_writers[log] = None
        self._open_writers.move_to_end(log)
        while len(self._open_writers) > self._max_open_files:
            oldest, _ = self._open_writers.popitem(last=False)
            if oldest.writer.is_dirty:
                self._sync([oldest])
            oldest.writer.close()
