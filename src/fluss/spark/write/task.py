"""The steps of a write: a task attempt, and the driver's commit or abort.

| step | upsert, plain | last_rows | spooled | staged |
|---|---|---|---|---|
| task | writes and waits | keeps its rows, then upserts them | keeps its rows, then appends them | stages its rows |
| commit | nothing | nothing | leaves a note that the batch is written | makes all rows visible at once |
| abort | nothing | nothing | nothing | drops staged rows, unless they are committed |

Spark also calls `abort` after a `commit` that raised, when rows may well be in the table, so `abort` removes nothing
that could be visible.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import WriterCommitMessage

from fluss.api.staged import abort_staged
from fluss.errors import ErrorCode, FlussError
from fluss.spark.sessions.connection_cache import OpenTable, open_table
from fluss.spark.sessions.outage_retries import patience_seconds, patiently
from fluss.spark.write.append import Batches, append_plain
from fluss.spark.write.input_check import whole
from fluss.spark.write.last_rows import upsert_last_rows
from fluss.spark.write.messages import BATCH_JOB_NUMBER, TaskDone, TaskIdentity
from fluss.spark.write.plan import WritePlan
from fluss.spark.write.spooled import append_spooled, commit_spooled
from fluss.spark.write.staged import abort_attempts, append_staged, commit_attempts
from fluss.spark.write.upsert import upsert

logger = logging.getLogger(__name__)

Messages = Sequence[WriterCommitMessage | None]

# Ways that need no commit.
_WRITES_AT_ONCE = {"upsert": upsert, "last_rows": upsert_last_rows, "plain": append_plain}


def run_task(plan: WritePlan, identity: TaskIdentity, batches: Batches) -> TaskDone:
    """Write all rows of a task attempt; an error fails the attempt with the server's reason."""
    with _opened(plan) as opened:
        _check_same_table(plan, opened)
        batches = whole(batches)
        if plan.way == "staged":
            return append_staged(plan, opened, identity, batches)
        if plan.way == "spooled":
            return append_spooled(plan, opened, identity, batches)
        write = _WRITES_AT_ONCE[plan.way]
        return TaskDone(identity, write(plan, opened, batches))


def commit(plan: WritePlan, messages: Messages) -> None:
    """Commit after all tasks are done. Return when every row can be read."""
    done = _done_tasks(messages)
    if not done or plan.way not in ("staged", "spooled"):
        return
    with _opened(plan) as opened:
        if plan.way == "staged":
            commit_attempts(opened, done)
        else:
            commit_spooled(opened, done)


def abort(plan: WritePlan, messages: Messages, job: str | None = None) -> None:
    """Abort after a task or `commit` failed. Errors in here must not hide the first error, so they are only logged.

    `job` is the transaction of a batch job that no other job can be writing to: everything staged for it is dropped.
    """
    done = _done_tasks(messages)
    if plan.way != "staged" or (job is None and not done):
        return
    try:
        with open_table(plan.options) as opened:
            if job is None:
                abort_attempts(opened, done)
            else:
                abort_staged(opened.table, job, BATCH_JOB_NUMBER)
    except FlussError as error:
        logger.warning("rows staged for table %s stay until they expire: %s", plan.table, error)


@contextlib.contextmanager
def _opened(plan: WritePlan) -> Iterator[OpenTable]:
    """Open the table; if the server does not answer, wait for as long as streams do."""
    with contextlib.ExitStack() as stack:
        yield patiently(lambda: stack.enter_context(open_table(plan.options)), patience_seconds(plan.options))


def _done_tasks(messages: Messages) -> list[TaskDone]:
    """The messages of successful tasks; None stands for a failed task."""
    return [message for message in messages if isinstance(message, TaskDone)]


def _check_same_table(plan: WritePlan, opened: OpenTable) -> None:
    """Raise if the table was recreated: the new one may have other columns, and the rows were meant for the old one."""
    if opened.info.table_id != plan.table_id:
        raise FlussError(
            f"table {plan.table} was dropped and created again after the write was planned: run the write again",
            ErrorCode.TABLE_NOT_EXIST,
        )
