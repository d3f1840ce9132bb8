"""What tasks and the driver tell each other."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from fluss.api.staged import StagedAttempt
from fluss.errors import FlussError

QUERY_ID_PROPERTY = "sql.streaming.queryId"
QUERY_PREFIX = "spark-"
BATCH_JOB_NUMBER = 0
"""The batch id of a job without a name of its own, which has only one."""


@dataclass(frozen=True)
class TaskIdentity:
    """Which rows a task writes: a replay of the same rows has the same transaction, batch and partition."""

    transaction: str
    batch_id: int
    partition_id: int
    may_be_replay: bool
    """Whether the same rows may have been written before, as in streams."""

    @property
    def is_of_query(self) -> bool:
        """Whether Spark numbers the batches, by a checkpoint."""
        return self.transaction.startswith(QUERY_PREFIX)


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """A task has written its rows, or found that its batch `was_committed` before."""

    identity: TaskIdentity
    rows: int
    was_committed: bool = False
    notes: tuple[str, ...] = ()
    """Ids of notes at the coordinator; see `markers`."""
    attempt: StagedAttempt | None = None


def query_transaction(context: TaskContext) -> str:
    """The name of all batches of the streaming query that a task belongs to; another checkpoint is another query."""
    query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
    if query_id is None:
        raise FlussError(
            "this task belongs to no streaming query: with option transactionBatch give also transaction, a name for "
            "the series of batches"
        )
    return f"{QUERY_PREFIX}{query_id}"
