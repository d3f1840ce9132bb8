"""A reader that runs for long: a thousand micro-batches leave nothing behind, on the driver and in a worker."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.spark.reader_calls import ReaderTables, new_database
from tests.support.targets import running_target

MICRO_BATCHES = 1000
WARM_UP_BATCHES = 100
WORKER_TASKS = 200
MAX_MORE_BYTES = 12 * 1024 * 1024


@pytest.fixture
def tables() -> Iterator[ReaderTables]:
    yield from new_database(running_target("standalone"))


def resources() -> tuple[int, int, int]:
    """Open files, threads, bytes."""
    gc.collect()
    process = psutil.Process()
    return process.num_fds(), threading.active_count(), process.memory_info().rss


def test_a_thousand_micro_batches_leave_nothing_behind(tables: ReaderTables) -> None:
    tables.create()
    tables.append(0, 2 * (MICRO_BATCHES + WARM_UP_BATCHES))
    seen = 0
    before = (0, 0, 0)
    with tables.reading({"maxRowsPerTrigger": 2}) as query:
        start = query.begin()
        for number, rows in enumerate(query.batches(most=2 * MICRO_BATCHES), start=1):
            seen += len(rows)
            if number == WARM_UP_BATCHES:
                before, middle = resources(), query.offset
        assert number == MICRO_BATCHES + WARM_UP_BATCHES
        after = resources()
    assert seen == 2 * number
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2
    assert after[2] <= before[2] + MAX_MORE_BYTES

    # A worker has no reader that keeps the connection: tasks take it and give it back.
    tasks = query.tasks(start, middle)
    query.close()
    for _ in range(WORKER_TASKS):
        batches: list[Any] = [batch for task in tasks for batch in query.reader.read(task)]
        assert sum(batch.num_rows for batch in batches) == 2 * WARM_UP_BATCHES
    worker = resources()
    assert worker[0] <= after[0] + 2
    assert worker[1] <= after[1] + 3  # one timer that closes idle connections
    assert worker[2] <= after[2] + MAX_MORE_BYTES
