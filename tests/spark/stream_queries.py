"""Running streaming queries in tests: what each micro-batch had, and how the query stands."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.server_process import wait_until

DEADLINE_SECONDS = 150.0

Row = tuple[Any, ...]


class Seen:
    """The rows of a query by micro-batch; a batch that runs again replaces what it had before."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}
        self.runs: list[int] = []

    def take(self, frame: DataFrame, batch_id: int) -> None:
        """For `foreachBatch`."""
        rows = [tuple(row) for row in frame.collect()]
        self.runs.append(batch_id)
        self.batches[batch_id] = rows

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of the batches."""
        return [row for batch_id in sorted(self.batches) for row in self.batches[batch_id]]

    @property
    def sizes(self) -> list[int]:
        """Rows of each batch."""
        return [len(self.batches[batch_id]) for batch_id in sorted(self.batches)]

    def column(self, index: int = 0) -> list[Any]:
        """One column of all rows, sorted."""
        return sorted(row[index] for row in self.rows)


def run_to_end(frame: DataFrame, checkpoint: Path, seen: Seen | None = None, **trigger: Any) -> Seen:
    """Run the query once over what is there (AvailableNow unless said otherwise)."""
    seen = seen or Seen()
    writer = frame.writeStream.foreachBatch(seen.take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**(trigger or {"availableNow": True})).start()
    try:
        assert query.awaitTermination(int(DEADLINE_SECONDS)), "the query did not end"
    finally:
        query.stop()
    return seen


@contextlib.contextmanager
def running(frame: DataFrame, checkpoint: Path, seen: Seen, **trigger: Any) -> Iterator[StreamingQuery]:
    """A query that runs in the background."""
    writer = frame.writeStream.foreachBatch(seen.take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()
    try:
        yield query
    finally:
        query.stop()


def wait_for_rows(query: StreamingQuery, seen: Seen, count: int, deadline_seconds: float = DEADLINE_SECONDS) -> None:
    """Until the query has seen so many rows; its error if it ends before."""

    def arrived() -> bool:
        error = query.exception()
        assert error is None, str(error)
        return len(seen.rows) >= count

    wait_until(arrived, f"{count} rows in the query", deadline_seconds)


def logged_offsets(checkpoint: Path) -> list[dict[str, Any]]:
    """What Spark wrote to the checkpoint, batch by batch."""
    files = sorted((int(path.name), path) for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal())
    return [json.loads(path.read_text().splitlines()[2]) for _, path in files]
