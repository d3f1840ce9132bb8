"""Running streaming queries in tests: the rows of each micro-batch, and the state of the query.

Waits end when a query stalls, not when it is slow: `STALL_SECONDS` start again with every micro-batch, which takes a
second on an idle machine. The limit of a whole test is that of `tests.support.runner.time_limits`.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tools.waiting import patience

STALL_SECONDS = patience(100.0)
POLL_SECONDS = 0.03

Row = tuple[Any, ...]


class Seen:
    """The rows of a query by micro-batch; a batch that runs again replaces what it had before."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}
        self.runs: list[int] = []

    def take(self, frame: DataFrame, batch_id: int) -> None:
        """Store the rows of a batch; for `foreachBatch`."""
        rows = [tuple(row) for row in frame.collect()]
        self.runs.append(batch_id)
        self.batches[batch_id] = rows

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of the batches."""
        return [row for batch_id in sorted(self.batches) for row in self.batches[batch_id]]

    @property
    def count(self) -> int:
        """The number of rows; for threads that check while batches arrive."""
        return sum(len(rows) for rows in list(self.batches.values()))

    @property
    def sizes(self) -> list[int]:
        """The number of rows of each batch."""
        return [len(self.batches[batch_id]) for batch_id in sorted(self.batches)]

    def column(self, index: int = 0) -> list[Any]:
        """One column of all rows, sorted."""
        return sorted(row[index] for row in self.rows)


def run_to_end(frame: DataFrame, checkpoint: Path, seen: Seen | None = None, **trigger: Any) -> Seen:
    """Run the query once over the existing rows (AvailableNow by default)."""
    seen = seen or Seen()
    writer = frame.writeStream.foreachBatch(seen.take).option("checkpointLocation", str(checkpoint))
    ended(writer.trigger(**(trigger or {"availableNow": True})).start())
    return seen


def ended(query: StreamingQuery) -> StreamingQuery:
    """Wait until the query ends by itself; raise its error if there is one."""
    try:
        last, since = None, time.monotonic()
        while not query.awaitTermination(1):
            progress = query.lastProgress
            if progress is not None and progress["batchId"] != last:
                last, since = progress["batchId"], time.monotonic()
            assert time.monotonic() - since < STALL_SECONDS, f"no end, and no batch for {STALL_SECONDS} s: {progress}"
    finally:
        query.stop()
    return query


@contextlib.contextmanager
def running(frame: DataFrame, checkpoint: Path, seen: Seen, **trigger: Any) -> Iterator[StreamingQuery]:
    """Run a query in the background."""
    writer = frame.writeStream.foreachBatch(seen.take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()
    try:
        yield query
    finally:
        query.stop()


def wait_for_rows(query: StreamingQuery, seen: Seen, count: int) -> None:
    """Wait until the query has seen this many rows; raise its error if it ends before."""
    wait_for(query, seen, lambda: seen.count >= count, f"{count} rows in the query")


def wait_for(query: StreamingQuery, seen: Seen, condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition as long as batches arrive; raise the query's error if it ends before."""
    last, since = 0, time.monotonic()
    while not condition():
        error = query.exception()
        assert error is None, str(error)
        if len(seen.runs) != last:
            last, since = len(seen.runs), time.monotonic()
        assert time.monotonic() - since < STALL_SECONDS, f"no batch for {STALL_SECONDS} s, still waiting: {what}"
        time.sleep(POLL_SECONDS)


def logged_offsets(checkpoint: Path) -> list[dict[str, Any]]:
    """The offsets in Spark's checkpoint, batch by batch."""
    files = sorted((int(path.name), path) for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal())
    return [json.loads(path.read_text().splitlines()[2]) for _, path in files]
