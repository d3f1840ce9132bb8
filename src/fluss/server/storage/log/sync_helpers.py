"""Threads that sync files side by side.

A file system commits its journal for all files that are being synced at that moment, so syncing several dirty files at
once costs little more than one. The helpers start when the first group touches more than one file, and do nothing but
that one system call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue


class SyncHelpers:
    """Runs a handful of blocking calls in parallel with the calling thread. Used by one thread at a time."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._threads: list[threading.Thread] = []
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()

    def run(self, calls: Sequence[Callable[[], None]]) -> None:
        """Run all calls; returns when the last one has. The calls must not raise."""
        if len(calls) > 1 and self._max_threads > 0:
            while len(self._threads) < min(self._max_threads, len(calls) - 1):
                thread = threading.Thread(target=self._work, name="fluss-log-sync", daemon=True)
                self._threads.append(thread)
                thread.start()
            for call in calls[1:]:
                self._calls.put(call)
            calls[0]()
            for _ in calls[1:]:
                self._done.get()
            return
        for call in calls:
            call()

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
