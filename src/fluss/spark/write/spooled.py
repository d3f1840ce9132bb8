"""Appends to servers without staged appends, as Apache Fluss: as near to once as its protocol allows.

A task keeps its rows until all are there (`spool`, `whole_input`), so that whatever fails before leaves nothing in the
table. Then it claims its partition (`claim`), appends, waits for the acknowledgement of every row, and leaves a note
that these rows are in the table (`markers`). An attempt that finds the claim of another one waits for its note or its
end: a task that runs twice at once (speculation) appends once. An attempt that finds the note has nothing to do: a task
whose driver died after it appended, and which is repeated with the same rows, does not append again.

What is left: an append that does not come to its end, because its process dies, or because a server refuses rows for
good. What the client can cure (lost connections, restarts, new leaders) does not end an append: the same writer goes
on, and the server recognises what it has. After the others, the repeated task appends all rows, and those that had
arrived are there twice. Nothing is ever lost.
"""

from __future__ import annotations

import time

from fluss.spark.sessions.connecting import OpenTable
from fluss.spark.write.append import Batches, append, wanted_bytes
from fluss.spark.write.claim import Claim
from fluss.spark.write.markers import BATCH_MS, PAUSE_SECONDS, Markers
from fluss.spark.write.messages import TaskDone, TaskIdentity
from fluss.spark.write.plan import WritePlan
from fluss.spark.write.rows import RowConverter, gathered
from fluss.spark.write.spool import Spool

ACKNOWLEDGEMENT_SECONDS = 3600.0
"""How long a server may be away at the end of an append: giving up means that rows on their way may be there twice."""


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
        claim = Claim(markers, identity.partition_id)
        if _may_append(markers, note, claim):
            with claim:
                append(opened, claim.checked(spool.batches()), ACKNOWLEDGEMENT_SECONDS)
                markers.leave(note, BATCH_MS)
        return TaskDone(identity, spool.rows, notes=(note,))


def _may_append(markers: Markers, note: str, claim: Claim) -> bool:
    """Wait for the right to append, as long as another attempt lives that has it; False if that one did it."""
    while not markers.is_there(note):
        if claim.take():
            if not markers.is_there(note):
                return True
            claim.give_back()  # the other one finished between the two looks
        else:
            time.sleep(PAUSE_SECONDS)
    return False


def commit_spooled(opened: OpenTable, done: list[TaskDone]) -> None:
    """The batch is in the table: say so for replays, and take away what tasks left for theirs."""
    identity = done[0].identity
    markers = Markers(opened, identity.transaction, identity.batch_id)
    if identity.may_be_replay:
        markers.set_committed()
    for task in done:
        for note in task.notes:
            markers.remove(note)
