"""Appends that become visible when the driver commits, and exactly once (`fluss.api.staged`).

Rows of a task attempt wait at the servers under the attempt's name. The commit includes only the attempts that Spark
reports to the driver, so rows staged by failed or slow attempts are never seen. A batch that is repeated after a crash
is recognised by its number: its tasks do not even start, and its commit drops what was staged for it.
"""

from __future__ import annotations

import logging

from fluss.api.staged import StagedAppender, abort_staged, commit_staged, last_committed
from fluss.errors import FlussError
from fluss.spark.sessions.connection_cache import OpenTable
from fluss.spark.write.append import Batches, wanted_bytes
from fluss.spark.write.messages import TaskDone, TaskIdentity
from fluss.spark.write.plan import WritePlan
from fluss.spark.write.rows import RowConverter, gathered

logger = logging.getLogger(__name__)


def append_staged(plan: WritePlan, opened: OpenTable, identity: TaskIdentity, batches: Batches) -> TaskDone:
    """Stage the rows of a task attempt, unless its batch is already committed."""
    if identity.may_be_replay:
        last = last_committed(opened.table, identity.transaction)
        if last is not None and last > identity.batch_id and identity.is_of_query:
            # Spark repeats its newest batch, never an older one: these may not be the rows committed with that number.
            raise FlussError(
                f"table {opened.info.table_path} has the batches of this query up to number {last}, but this is number "
                f"{identity.batch_id}: its checkpoint was reset. Continue with a new checkpointLocation, from the "
                "offsets or the time where the table's rows end"
            )
        if last is not None and last >= identity.batch_id:
            return TaskDone(identity, 0, was_committed=True)
    converter = RowConverter(plan)
    with StagedAppender(opened.table, identity.transaction, identity.batch_id) as appender:
        for batch in gathered(batches, wanted_bytes(opened)):
            appender.write_arrow_batch(converter.rows(batch))
        attempt = appender.finish()
    return TaskDone(identity, attempt.row_count, attempt=attempt)


def commit_attempts(opened: OpenTable, done: list[TaskDone]) -> None:
    """Make the rows of these tasks visible; return when they can be read."""
    attempts = [task.attempt for task in sorted(done, key=_partition) if task.attempt is not None and task.rows]
    if not attempts:
        return
    identity = done[0].identity
    if commit_staged(opened.table, identity.transaction, identity.batch_id, attempts):
        return
    if not identity.may_be_replay:
        # Rows of a job that cannot have been written before must not be dropped silently.
        raise FlussError(
            f"the rows were not written to {opened.info.table_path}: a job with the same name "
            f"({identity.transaction!r}) was committed before. Start a new write"
        )
    path = opened.info.table_path
    logger.info("batch %d of %s was committed before: the repeated rows are dropped", identity.batch_id, path)


def abort_attempts(opened: OpenTable, done: list[TaskDone]) -> None:
    """Drop what these tasks have staged; committed rows stay.

    Attempts of other tasks are not touched, because another driver may be repeating the same batch of the query at this
    moment. Rows of attempts that sent no message are removed with the next batch, or when they expire.
    """
    attempts = [task.attempt for task in done if task.attempt is not None]
    if attempts:
        abort_staged(opened.table, done[0].identity.transaction, done[0].identity.batch_id, attempts)


def _partition(task: TaskDone) -> int:
    return task.identity.partition_id
