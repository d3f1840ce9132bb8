"""Helper threads that encode large Arrow batches in parallel with the writing thread.

Compressing is most of the work of writing Arrow data, and Arrow does it outside of Python's lock, so a second core
helps. Work is taken only if a helper is free at that moment; otherwise the caller does it itself. So nothing is queued,
and the memory in use is limited to one batch per helper. Threads start at first use and are shared by all connections
of the process; a forked process starts its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

# More helpers would only compete with the server and the writing thread.
MAX_HELPERS = 3
# Read once: the system reads it from a file each time.
_HELPERS = min(MAX_HELPERS, (os.cpu_count() or 1) - 1)

_lock = threading.Lock()
_helpers: Helpers | None = None


class Helpers:
    """Use `try_help`."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)
        self._executor = ThreadPoolExecutor(count, "fluss-encode")

    def try_run(self, work: Callable[[], None]) -> bool:
        """Run `work` on a helper; False if none is free."""
        if not self._free.acquire(blocking=False):
            return False
        try:
            self._executor.submit(self._run, work)
        except RuntimeError:  # the interpreter is shutting down
            self._free.release()
            return False
        return True

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self._free.release()


def try_help(work: Callable[[], None]) -> bool:
    """Run `work` on a helper thread if one is free; False means that the caller must do it. `work` must not raise."""
    global _helpers
    if _HELPERS < 1:
        return False
    if _helpers is None:
        with _lock:
            _helpers = _helpers or Helpers(_HELPERS)
    return _helpers.try_run(work)


def _after_fork_in_child() -> None:
    global _helpers, _lock
    _helpers = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
