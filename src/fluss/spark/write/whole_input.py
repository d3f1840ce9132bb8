"""Whether a task has been given all its rows.

When an earlier step of a task fails, Spark closes the socket to the Python process of the sink, and Arrow takes that
for the end of the rows: the writer sees some of them and then a normal end. Spark fails the task all the same, but a
writer that appends at the end of its input would have appended half of it by then. So the end is looked at: behind the
rows Spark sends a last word, which is missing when the socket was closed.

Where to look is known to PySpark only. The stream is found on the stack, as `infile` of PySpark's own functions; in a
release where it is not there, a short input cannot be told from a whole one. A test says whether it is there.
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
    """The same batches; raises at the end if there should have been more."""
    yield from batches
    stream = spark_stream()
    if stream is not None and not _has_more(stream):
        raise FlussError("the rows of this task end in the middle: an earlier step of it failed, see its error")


def spark_stream() -> Any:
    """The stream from Spark to the task that runs here; None outside of a task."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") in PYSPARK_MODULES:
            stream = frame.f_locals.get(STREAM_NAME)
            if hasattr(stream, "peek"):
                return stream
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _has_more(stream: Any) -> bool:
    """Whether something follows the rows; waits for it, or for the end of the stream."""
    try:
        return bool(stream.peek(1))
    except OSError:
        return False
