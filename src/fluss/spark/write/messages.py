"""The messages between tasks and the driver."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from fluss.api.staged import StagedAttempt
from fluss.errors import FlussError

QUERY_ID_PROPERTY = "sql.streaming.queryId"
QUERY_PREFIX = "spark-"
BATCH_JOB_NUMBER = 0
"""The batch id of a job without a name from the user, which has only one batch."""


@dataclass(frozen=True)
class TaskIdentity:
    """The identity of the rows that a task writes: a replay of them has the same transaction, batch and partition."""

    transaction: str
    batch_id: int
    partition_id: int
    may_be_replay: bool
    """True if the same rows may have been written before, as in streams."""

    @property
    def is_of_query(self) -> bool:
        """True if Spark numbers the batches, by a checkpoint."""
        return self.transaction.startswith(QUERY_PREFIX)


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """A task has written its rows, or found that its batch `was_committed` before."""

    identity: TaskIdentity
    rows: int
    was_committed: bool = False
    notes: tuple[str, ...] = ()
    """Ids of notes at the coordinator; see `commit_notes`."""
    attempt: StagedAttempt | None = None


def query_transaction(context: TaskContext) -> str:
    """The name of all batches of the streaming query of a task; another checkpoint is another query."""
    query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
    if query_id is None:
        raise FlussError(
            "this task belongs to no streaming query: option transactionBatch needs option transaction too, a name of "
            "the series of batches"
        )
    return f"{QUERY_PREFIX}{query_id}"
