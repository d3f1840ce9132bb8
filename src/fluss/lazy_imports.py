"""One lock for all imports at first use, so that two threads never load modules of this package at the same time.

Python locks modules one by one. If one thread loads a package and then one of its modules, while another thread starts
with the module, each holds a lock that the other waits for. Python detects the deadlock and returns a partially
initialised module, and the import fails with "cannot import name". Two first uses at the same moment, such as an append
and an upsert, failed that way in a third to two thirds of fresh processes.

    with import_lock:
        from fluss.api.lookup import TableLookup

Every import of this package inside a function uses the lock (`tests/tidy/test_lazy_imports.py`). It is reentrant, since
the loaded module may load more. A module must not wait for another thread while it is loaded.
"""

from __future__ import annotations

import threading

import_lock = threading.RLock()
