"""A reader that runs for long: a thousand micro-batches leave nothing behind, on the driver and in a worker."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pytest

from tests.support.servers.targets import running_target
from tests.support.spark.reader_calls import ReaderTables, new_database

MICRO_BATCHES = 1000
WARM_UP_BATCHES = 100
WORKER_TASKS = 200
# A few objects per micro-batch would be more: the memory of Python and Arrow does not depend on the load.
MAX_MORE_BLOCKS = 2 * MICRO_BATCHES
MAX_MORE_ARROW_BYTES = 64 * 1024
# The memory of the process does: every thread that contends for malloc may get its own arena.
MAX_MORE_BYTES = 64 * 1024 * 1024


@pytest.fixture
def tables() -> Iterator[ReaderTables]:
    yield from new_database(running_target("standalone"))


class Resources(NamedTuple):
    """The present resources of this process."""

    files: int
    threads: int
    blocks: int
    arrow_bytes: int
    resident_bytes: int

    @classmethod
    def now(cls) -> Resources:
        gc.collect()
        process = psutil.Process()
        held = sys.getallocatedblocks(), pa.total_allocated_bytes(), process.memory_info().rss
        return cls(process.num_fds(), threading.active_count(), *held)

    def are_as_before(self, before: Resources, more_threads: int) -> None:
        assert self.files <= before.files + 2
        assert self.threads <= before.threads + more_threads
        assert self.blocks <= before.blocks + MAX_MORE_BLOCKS
        assert self.arrow_bytes <= before.arrow_bytes + MAX_MORE_ARROW_BYTES
        assert self.resident_bytes <= before.resident_bytes + MAX_MORE_BYTES


@pytest.mark.all  # long, and tests no further behaviour
def test_a_thousand_micro_batches_leave_nothing_behind(tables: ReaderTables) -> None:
    tables.create()
    tables.append(0, 2 * (MICRO_BATCHES + WARM_UP_BATCHES))
    seen = 0
    before = Resources.now()
    with tables.reading({"maxRowsPerTrigger": 2}) as query:
        start = query.begin()
        for number, rows in enumerate(query.batches(most=2 * MICRO_BATCHES), start=1):
            seen += len(rows)
            if number == WARM_UP_BATCHES:
                before, middle = Resources.now(), query.offset
        assert number == MICRO_BATCHES + WARM_UP_BATCHES
        after = Resources.now()
    assert seen == 2 * number
    after.are_as_before(before, more_threads=2)

    # A worker has no reader that keeps the connection: tasks lease it and give it back.
    tasks = query.tasks(start, middle)
    query.close()
    for _ in range(WORKER_TASKS):
        batches: list[Any] = [batch for task in tasks for batch in query.reader.read(task)]
        assert sum(batch.num_rows for batch in batches) == 2 * WARM_UP_BATCHES
    del batches
    Resources.now().are_as_before(after, more_threads=3)  # one timer that closes idle connections
