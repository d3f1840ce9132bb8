"""Batch writes: `df.write.format("fluss").mode("append").save("shop.orders")`.

Spark creates the writer on the driver while it plans, and pickles it: one copy for every task, one for the process that
commits or aborts. So a transaction name that is generated here is the same throughout the job, and unique to it. With
the options `transaction` and `transactionBatch` the name is the user's, and a repeated job is recognised by it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter

from fluss.spark.write.messages import BATCH_JOB_NUMBER, TaskDone, TaskIdentity, query_transaction
from fluss.spark.write.plan import WritePlan, plan_write
from fluss.spark.write.task import Messages, abort, commit, run_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from fluss.spark.options.parsing import FlussOptions


def build_writer(options: FlussOptions, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Build the writer of one batch job; `FlussError` if the rows cannot be written."""
    plan = plan_write(options, schema, overwrite=overwrite, is_stream=False)
    return FlussBatchWriter(plan, f"spark-batch-{uuid.uuid4()}")


class FlussBatchWriter(DataSourceArrowWriter):
    """The writer of one batch job. It holds only values that can be pickled; see the module docstring."""

    def __init__(self, plan: WritePlan, job: str) -> None:
        self._plan = plan
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:  # type: ignore[override]
        """Write the rows of a task."""
        return run_task(self._plan, self._identity(), iterator)

    def _identity(self) -> TaskIdentity:
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        name, number = self._plan.options.write.transaction, self._plan.options.write.transaction_batch
        if number is None or self._plan.way not in ("staged", "spooled"):  # other ways ignore names
            return TaskIdentity(self._job, BATCH_JOB_NUMBER, context.partitionId(), may_be_replay=False)
        if name is None:
            name = query_transaction(context)
        return TaskIdentity(name, number, context.partitionId(), may_be_replay=True)

    def commit(self, messages: Messages) -> None:
        """Commit after all tasks are done."""
        commit(self._plan, messages)

    def abort(self, messages: Messages) -> None:
        """Abort after a task or the commit failed."""
        is_named = self._plan.options.write.transaction_batch is not None
        abort(self._plan, messages, None if is_named else self._job)
