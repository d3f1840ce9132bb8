"""Checks that a task has received all its rows.

When an earlier step of a task fails, Spark closes the socket to the Python process of the sink, which Arrow treats as
the end of the rows: the writer sees some of them and then a normal end. Spark still fails the task, but by then a
writer that appends at the end of its input would have appended the incomplete rows. So the end is checked: after the
rows Spark sends a final marker, which is missing if the socket was closed.

The stream that has the marker is a local variable of PySpark (`infile`), found by walking up the stack. In a release of
PySpark without that variable, a truncated input cannot be detected; a test checks that it exists.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from fluss.errors import FlussError

STREAM_NAME = "infile"
PYSPARK_MODULES = ("pyspark.worker", "pyspark.daemon", "__main__")


def whole(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass batches on; raise at the end if the input was truncated."""
    yield from batches
    stream = spark_stream()
    if stream is not None and not _has_more(stream):
        raise FlussError(
            "the rows of this task are incomplete, because an earlier step of it failed: see the error of that step"
        )


def spark_stream() -> object:
    """The stream from Spark to the running task, or None outside of a task."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") in PYSPARK_MODULES:
            stream = frame.f_locals.get(STREAM_NAME)
            if hasattr(stream, "peek"):
                return stream
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _has_more(stream: Any) -> bool:
    """True if data follows the rows; waits for it, or for the end of the stream."""
    try:
        return bool(stream.peek(1))
    except OSError:
        return False
