"""Streaming writes: `df.writeStream.format("fluss").option("checkpointLocation", ...).start("shop.orders")`.

Spark creates a new writer for every commit, in another process than those of the tasks, so it keeps no state. Tasks
know from Spark's local properties which query and which batch their rows belong to; the driver learns it from their
messages. After a crash Spark repeats the last batch with the same numbers. A query with another checkpoint counts as
another query.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter

from fluss.errors import FlussError
from fluss.spark.write.messages import TaskDone, TaskIdentity, query_transaction
from fluss.spark.write.plan import WritePlan, plan_write
from fluss.spark.write.task import Messages, abort, commit, run_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from fluss.spark.options.parsing import FlussOptions

BATCH_ID_PROPERTY = "streaming.sql.batchId"


def build_stream_writer(options: FlussOptions, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Build the writer of one micro-batch; `FlussError` if the rows cannot be written."""
    return FlussStreamWriter(plan_write(options, schema, overwrite=overwrite, is_stream=True))


class FlussStreamWriter(DataSourceStreamArrowWriter):
    """The writer of one micro-batch. It holds only values that can be pickled; see the module docstring."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:  # type: ignore[override]
        """Write the rows of a task."""
        return run_task(self._plan, stream_identity(), iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit after all tasks of the batch are done."""
        commit(self._plan, messages)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Abort after a task or the commit failed."""
        abort(self._plan, messages)


def stream_identity() -> TaskIdentity:
    """The query, the batch and the partition of the running task."""
    context = TaskContext.get()
    assert context is not None, "Spark calls this in a task"
    batch = context.getLocalProperty(BATCH_ID_PROPERTY)
    if batch is None:
        raise FlussError("Spark does not report the batch of this task: Spark 4.2 or newer is needed")
    return TaskIdentity(query_transaction(context), int(batch), context.partitionId(), may_be_replay=True)
