"""Threads that sync files in parallel.

A file system commits its journal for all files that are being synced at that moment, so syncing several dirty files at
once costs little more than syncing one. The helpers start with the first group that writes to more than one file, and
do nothing but that one system call.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

_logger = logging.getLogger(__name__)


class SyncHelpers:
    """Runs a few blocking calls in parallel with the calling thread. Used by one thread at a time."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._threads: list[threading.Thread] = []
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        self._starting_failed = False

    def run(self, calls: Sequence[Callable[[], None]]) -> None:
        """Run all calls; returns when the last one has. The calls must not raise."""
        if len(calls) > 1 and self._max_threads > 0:
            self._start_threads(min(self._max_threads, len(calls) - 1))
        given = 0
        if self._threads:
            try:
                for call in calls[1:]:
                    self._calls.put(call)
                    given += 1
            except MemoryError as error:
                _logger.warning("out of memory while sharing syncs, running %d alone: %r", len(calls) - given, error)
        calls[0]()
        for call in calls[1 + given :]:
            call()
        for _ in range(given):
            self._done.get()

    def _start_threads(self, wanted: int) -> None:
        """Start helpers until there are `wanted`, or as many as the system allows; there may be none."""
        while len(self._threads) < wanted:
            thread = threading.Thread(target=self._work, name="fluss-log-sync", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError) as error:
                if not self._starting_failed:
                    self._starting_failed = True
                    _logger.warning("cannot start more threads for syncs, continuing with fewer: %s", error)
                return
            self._threads.append(thread)

    def close(self) -> None:
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            try:
                call()
            finally:
                self._done.put(None)
