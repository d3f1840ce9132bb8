"""The reader of `spark.readStream.format("fluss")`.

Spark creates it twice: once in a long-lived process on the driver, whose methods it calls for every micro-batch, and
once while the query is planned, to send it, pickled, to the tasks, which call `read`. So the object holds plain values;
the driver's planner, with its connection, is created by the first call that needs it and never pickled.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from fluss.errors import FlussError
from fluss.spark.convert.arrow import for_spark, spark_arrow_schema
from fluss.spark.options.parsing import FlussOptions
from fluss.spark.read.output_batches import sized
from fluss.spark.stream.limits import Limits
from fluss.spark.stream.planner import StreamPlanner
from fluss.spark.stream.task_read import read_task
from fluss.spark.stream.tasks import StreamTask

if TYPE_CHECKING:
    import pyarrow as pa

    from fluss.model.json_types import JsonObject

RUNNER = "python_streaming_source_runner.py"
"""The file name of Spark's program for readers on the driver, which serves one query and ends with it."""


def build_stream_reader(options: FlussOptions, schema: StructType) -> DataSourceStreamReader:
    """Build a streaming reader of the table in the options, with the columns of `schema`."""
    if options.mode == "lake":
        raise FlussError("mode lake is for batch reads: a stream begins with the lake anyway, so leave the mode out")
    return FlussStreamReader(options, schema)


class FlussStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of streaming queries; see the module docstring."""

    def __init__(self, options: FlussOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planner: StreamPlanner | None = None

    # ---- on the driver ----

    @property
    def planner(self) -> StreamPlanner:
        """The planner of the query, on the driver only."""
        if self._planner is None:
            self._planner = StreamPlanner(self._options, self._schema)
        return self._planner

    def initialOffset(self) -> JsonObject:  # noqa: N802 - Spark's name
        """The offsets at which a query without a checkpoint begins."""
        return self.planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit that Spark passes to `latestOffset`; Spark has none for rows and bytes together (`_limits`)."""
        stream = self._options.stream
        if stream.max_rows_per_trigger is not None:
            return ReadMaxRows(stream.max_rows_per_trigger)
        if stream.max_bytes_per_trigger is not None:
            return ReadMaxBytes(stream.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read the rows that exist now, then end."""
        self.planner.fix_target()

    def latestOffset(self, start: JsonObject, limit: ReadLimit) -> JsonObject:  # noqa: N802 - Spark's name
        """The end of the next micro-batch."""
        return self.planner.next_end(start, self._limits(limit))

    def reportLatestOffset(self) -> JsonObject | None:  # noqa: N802 - Spark's name
        """The ends of the logs and how far behind the query is, for the progress report."""
        return self.planner.report()

    def partitions(self, start: JsonObject, end: JsonObject) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        return self.planner.tasks(start, end)

    def commit(self, end: JsonObject) -> None:
        """Do nothing: servers expire rows by time, not by who has read them. (A cursor moves with `latestOffset`.)"""

    def stop(self) -> None:
        """Give the connection back."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        if _java_is_gone():
            # Java is gone. Spark's program would try to report to it and print a traceback on the user's screen.
            sys.stderr.flush()
            os._exit(0)

    def _limits(self, limit: ReadLimit) -> Limits:
        """Both limits of the options apply if Spark passes one of them; with ReadAllAvailable none applies."""
        if isinstance(limit, ReadMaxRows):
            return Limits(limit.max_rows, self._options.stream.max_bytes_per_trigger)
        if isinstance(limit, ReadMaxBytes):
            return Limits(self._options.stream.max_rows_per_trigger, limit.max_bytes)
        return Limits()

    # ---- in the tasks ----

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return Arrow batches with exactly Spark's schema."""
        if not isinstance(partition, StreamTask):
            return
        target = spark_arrow_schema(self._schema)
        for batch in sized(read_task(self._options, self._schema, partition)):
            yield for_spark(batch, target)

    def __getstate__(self) -> JsonObject:
        return {**self.__dict__, "_planner": None}


def _java_is_gone() -> bool:
    """True if Spark's program called `stop` because the socket to Java was closed, as at the end of each query."""
    caller = Path(sys._getframe(2).f_code.co_filename).name
    return caller == RUNNER and isinstance(sys.exc_info()[1], EOFError)
