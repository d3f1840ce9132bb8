"""Appends to servers without staged appends, as Apache Fluss: as near to once as its protocol allows.

A task keeps its rows until all are there (`spool`, `whole_input`), so that whatever fails before leaves nothing in the
table. Then it claims its partition, appends, waits for the acknowledgement of every row, and leaves a note that these
rows are in the table (`markers`). An attempt that finds the claim of another one waits for its note or its end: a task
that runs twice at once (speculation) appends once. An attempt that finds the note has nothing to do: a task whose
driver died after it appended, and which is repeated with the same rows, does not append again.

What is left: a process that dies after the first row is appended and before the note is left. Then the repeated task
appends all rows, and those that had arrived are there twice. Nothing is ever lost.
"""

from __future__ import annotations

import contextlib
import secrets
import time

from fluss.errors import ErrorCode, FlussError
from fluss.spark.connecting import OpenTable
from fluss.spark.write.append import Batches, append, wanted_bytes
from fluss.spark.write.markers import CLAIM_MS, PAUSE_SECONDS, ROWS_MS, Markers
from fluss.spark.write.messages import TaskDone, TaskIdentity
from fluss.spark.write.plan import WritePlan
from fluss.spark.write.rows import RowConverter, gathered
from fluss.spark.write.spool import Spool

CLAIM_WAIT_SECONDS = 600.0
"""How long an attempt waits for another one that appends the same rows."""
MAX_TOKEN_BITS = 62


def append_spooled(plan: WritePlan, opened: OpenTable, identity: TaskIdentity, batches: Batches) -> TaskDone:
    """Append the rows of a task once all of them are there, unless they are in the table already."""
    markers = Markers(opened, identity.transaction, identity.batch_id)
    if identity.may_be_replay and markers.is_committed():
        return TaskDone(identity, 0, was_committed=True)
    converter = RowConverter(plan)
    with Spool(plan.target) as spool:
        for batch in gathered(batches, wanted_bytes(opened)):
            spool.add(converter.rows(batch))
        if not spool.rows:
            return TaskDone(identity, 0)
        note = markers.rows_id(identity.partition_id, spool.rows, spool.checksum)
        claim = markers.claim_id(identity.partition_id)
        if _may_append(markers, note, claim):
            try:
                append(opened, spool.batches())
                markers.leave(note, ROWS_MS)
            finally:
                _remove(markers, claim)
        return TaskDone(identity, spool.rows, notes=(note,))


def _may_append(markers: Markers, note: str, claim: str) -> bool:
    """Wait for the right to append; False if another attempt did it."""
    token = secrets.randbits(MAX_TOKEN_BITS)
    deadline = time.monotonic() + CLAIM_WAIT_SECONDS
    while True:
        if markers.is_there(note):
            return False
        if markers.leave(claim, CLAIM_MS, token):
            # The other one may have finished between the two looks.
            if markers.is_there(note):
                _remove(markers, claim)
                return False
            return True
        if time.monotonic() > deadline:
            text = f"another attempt of this task has been appending its rows for {CLAIM_WAIT_SECONDS:g} seconds"
            raise FlussError(text, ErrorCode.REQUEST_TIME_OUT)
        time.sleep(PAUSE_SECONDS)


def _remove(markers: Markers, claim: str) -> None:
    with contextlib.suppress(FlussError):  # it is forgotten by itself soon
        markers.remove(claim)


def commit_spooled(opened: OpenTable, done: list[TaskDone]) -> None:
    """The batch is in the table: say so for replays, and take away what tasks left for theirs."""
    identity = done[0].identity
    markers = Markers(opened, identity.transaction, identity.batch_id)
    if identity.may_be_replay:
        markers.set_committed()
    for task in done:
        for note in task.notes:
            markers.remove(note)
