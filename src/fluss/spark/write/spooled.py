"""Appends to servers without staged appends, such as Apache Fluss: as close to exactly-once as its protocol allows.

A task keeps its rows until all have arrived (`spool`, `input_check`), so that earlier failures leave nothing in the
table. Then it claims its partition (`append_claim`), appends, waits for the acknowledgement of every row, and leaves a
note that these rows are in the table (`commit_notes`). An attempt that meets the claim of another attempt waits until
that one has left its note or given up its claim: a task that runs twice at once (speculation) appends once. An attempt
that finds the note has nothing to do: a task whose driver died after it appended, and which is repeated with the same
rows, does not append again.

One case still duplicates rows: an append that is interrupted, because its process dies or a server refuses rows for
good. Failures that the client can handle (lost connections, restarts, new leaders) do not interrupt an append: the same
writer continues, and the server recognises the rows it has. After an interruption, the repeated task appends all rows,
and those that had arrived are duplicated. Rows are never lost.
"""

from __future__ import annotations

import time

from fluss.spark.sessions.connection_cache import OpenTable
from fluss.spark.write.append import Batches, append, wanted_bytes
from fluss.spark.write.append_claim import Claim
from fluss.spark.write.commit_notes import BATCH_MS, PAUSE_SECONDS, Markers
from fluss.spark.write.messages import TaskDone, TaskIdentity
from fluss.spark.write.plan import WritePlan
from fluss.spark.write.rows import RowConverter, gathered
from fluss.spark.write.spool import Spool

ACKNOWLEDGEMENT_SECONDS = 3600.0
"""How long an append waits at its end for a server. It is long, because giving up may duplicate the rows in flight."""


def append_spooled(plan: WritePlan, opened: OpenTable, identity: TaskIdentity, batches: Batches) -> TaskDone:
    """Append the rows of a task once all have arrived, unless they are already in the table."""
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
        claim = Claim(markers, identity.partition_id)
        if _may_append(markers, note, claim):
            with claim:
                append(opened, claim.checked(spool.batches()), ACKNOWLEDGEMENT_SECONDS)
                markers.leave(note, BATCH_MS)
        return TaskDone(identity, spool.rows, notes=(note,))


def _may_append(markers: Markers, note: str, claim: Claim) -> bool:
    """Wait for the right to append while a live attempt has it; False if that attempt appended the rows."""
    while not markers.is_there(note):
        if claim.take():
            if not markers.is_there(note):
                return True
            claim.give_back()  # the other attempt finished between the two checks
        else:
            time.sleep(PAUSE_SECONDS)
    return False


def commit_spooled(opened: OpenTable, done: list[TaskDone]) -> None:
    """Leave a note that the batch is in the table, for replays of it, and remove the notes of its tasks."""
    identity = done[0].identity
    markers = Markers(opened, identity.transaction, identity.batch_id)
    if identity.may_be_replay:
        markers.set_committed()
    for task in done:
        for note in task.notes:
            markers.remove(note)
