"""The messages of tasks to the driver, and the names by which writes are recognised when they are repeated."""

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
        """True if the batch belongs to a streaming query, whose batches Spark numbers."""
        return self.transaction.startswith(QUERY_PREFIX)


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """The message of a task that has written its rows, or found that its batch `was_committed` before."""

    identity: TaskIdentity
    rows: int
    was_committed: bool = False
    notes: tuple[str, ...] = ()
    """Ids of notes at the coordinator; see `commit_notes`."""
    attempt: StagedAttempt | None = None


def query_transaction(context: TaskContext) -> str:
    """The transaction name of the streaming query of a task; a query with a new checkpoint has a new name."""
    query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
    if query_id is None:
        raise FlussError(
            "this task belongs to no streaming query: outside of one, option transactionBatch needs option transaction "
            "too, a name for the series of batches"
        )
    return f"{QUERY_PREFIX}{query_id}"
