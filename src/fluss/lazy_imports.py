"""One lock for every import that is made at first use, so that two threads never load parts of us at the same time.

Python locks modules one by one. A thread that loads a package and, through it, one of its modules, meets another that
came to the same two from the other end: each holds what the other waits for. Python notices the circle and hands out a
module that is half loaded, and the import fails with "cannot import name". It took two first uses at the same moment,
an append beside an upsert say, in a third to two thirds of fresh processes.

    with import_lock:
        from fluss.api.lookup import TableLookup

Whoever loads something of ours inside of a function does it like that (`tests/tidy/test_lazy_imports.py`). The lock may
be taken again by who has it, since what is loaded may load more. Nothing waits for another thread while it is loaded.
"""

from __future__ import annotations

import threading

import_lock = threading.RLock()
