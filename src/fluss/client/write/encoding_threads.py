"""Helper threads that encode large Arrow batches beside the writing thread.

Compressing is most of the work of writing Arrow data, and Arrow does it outside of Python's lock, so a second core
helps. A piece of work is taken only if a helper is free this moment; otherwise the caller does it itself. So nothing
queues up, and the memory under way is bounded by one batch per helper. Threads start when first needed and are shared
by all connections of the process; a forked process starts its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

# More helpers would only take turns with the server and the writing thread.
MAX_HELPERS = 3
# Asked once: the system reads it from a file each time.
_HELPERS = min(MAX_HELPERS, (os.cpu_count() or 1) - 1)

_lock = threading.Lock()
_helpers: Helpers | None = None


class Helpers:
    """Use `try_help`."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)
        self._executor = ThreadPoolExecutor(count, "fluss-encode")

    def try_run(self, work: Callable[[], None]) -> bool:
        """Have a helper do it; False if none is free."""
        if not self._free.acquire(blocking=False):
            return False
        try:
            self._executor.submit(self._run, work)
        except RuntimeError:  # the interpreter is on its way out
            self._free.release()
            return False
        return True

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self._free.release()


def try_help(work: Callable[[], None]) -> bool:
    """Run `work` on a helper thread if one is free; False means: do it yourself. `work` must not raise."""
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
