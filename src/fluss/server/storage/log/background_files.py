"""A thread for file work that no request waits for: index files, checkpoints, removing segments and buckets.

Jobs run one after the other, in order of submission. A job is a plain function that does file operations and returns a
function for the loop thread; exceptions are logged. The callers keep the number of queued jobs bounded: a bucket has at
most one checkpoint and one removal in progress.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

_logger = logging.getLogger(__name__)

Job: TypeAlias = Callable[[], Callable[[], None]]


class BackgroundFiles:
    """The thread and its queue of jobs. `submit`, `drain` and `close` are for the loop thread."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: Job) -> None:
        """Run a job in the thread, and then, in the loop, the function that the job returns."""
        self._jobs.put(job)
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="fluss-log-files", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError) as error:
                # The job stays queued: the next one tries to start the thread again, and closing runs what is left.
                _logger.warning("cannot start the thread for checkpoints and file removal, will retry: %s", error)
                return
            self._thread = thread

    def drain(self) -> None:
        """Wait until every job submitted so far is done."""
        if self._thread is None:
            if not self._jobs.empty():
                # The thread could not be started: the caller, which waits anyway, runs the jobs.
                self._jobs.put(None)
                self._work()
            return
        done = threading.Event()

        def mark() -> Callable[[], None]:
            done.set()
            return nothing

        self._jobs.put(mark)
        done.wait()

    def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            try:
                finish = job()
            except Exception:
                # The jobs of other buckets continue; recovery repeats what was left undone here.
                _logger.exception("file work of a bucket log failed")
                continue
            if finish is not nothing:
                self._post(finish)


def nothing() -> None:
    """The result of a job after which the loop has nothing to do."""
