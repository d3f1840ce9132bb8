"""Threads that decode larger answers, shared by all scanners of a process and started at first use.

Arrow decompresses without holding the interpreter's lock, so decoding overlaps with network work and with the user's
own code. A forked child starts its own pool.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

DECODING_THREADS = 2

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def decode_pool() -> ThreadPoolExecutor:
    """The pool of this process."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(DECODING_THREADS, thread_name_prefix="fluss-decode")
        return _pool


def _after_fork_in_child() -> None:
    """The parent's threads do not exist here, and one of them may have held the lock."""
    global _lock, _pool
    _lock = threading.Lock()
    _pool = None


os.register_at_fork(after_in_child=_after_fork_in_child)
