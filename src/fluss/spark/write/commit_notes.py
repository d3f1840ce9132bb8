"""Small notes at the coordinator, for servers without staged appends: which attempt appends now, and what is done.

A note is an entry of the coordinator's producer offsets: an id, a number, and a time at which it expires. Creating a
note that already exists fails, so a note is also a lock. Ids consist of letters, digits, `-` and `_`.

| note | left by | meaning | removed |
|---|---|---|---|
| claim (two) | a task, while it appends | this attempt appends now | when it is done or dies (`append_claim`) |
| rows | a task, after it appended | these rows of this batch are in the table | at the commit, or `BATCH_MS` |
| batch | the driver's commit | this batch of this query is in the table | with the batch after next, or `BATCH_MS` |

A note about rows is found only by the same rows in the same order (their number and checksum are part of its id). So a
task with other rows never finds it, and its rows are appended: none can be lost.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fluss.errors import FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.spark.sessions.connection_cache import OpenTable

if TYPE_CHECKING:
    from google.protobuf.message import Message

BATCH_MS = 30 * 24 * 3_600_000
"""How long notes about rows and batches are kept: a query must be started again within this time after a crash."""
CALL_SECONDS = 60.0
PAUSE_SECONDS = 0.2
CREATED = 0


@dataclass(frozen=True)
class Markers:
    """The notes about one batch of one transaction and table."""

    opened: OpenTable
    transaction: str
    batch_id: int

    def _id(self, kind: str, batch_id: int, rest: str = "") -> str:
        return f"{self.transaction}-t{self.opened.info.table_id}-b{batch_id}-{kind}{rest}"

    def claim_ids(self, partition_id: int) -> tuple[str, str]:
        """The ids of the two notes that claim the right to append the rows of a partition."""
        first = self._id("claim", self.batch_id, f"-p{partition_id}")
        return first, f"{first}-renewed"

    def rows_id(self, partition_id: int, rows: int, checksum: int) -> str:
        """The id of the note that these rows are in the table."""
        return self._id("rows", self.batch_id, f"-p{partition_id}-n{rows}-c{checksum:08x}")

    def is_committed(self) -> bool:
        """True if the whole batch is in the table."""
        return self.is_there(self._id("done", self.batch_id))

    def set_committed(self) -> None:
        """Record that the batch is in the table, and remove the notes about the batch before the last one."""
        self.leave(self._id("done", self.batch_id), BATCH_MS)
        if self.batch_id >= 2:
            self.remove(self._id("done", self.batch_id - 2))

    # ---- notes by id ----

    def leave(self, note_id: str, ttl_ms: int, number: int = 0) -> bool:
        """Create a note; False if there is already a note with this id and another number, which is kept."""
        request = pb.RegisterProducerOffsetsRequest(producer_id=note_id, ttl_ms=ttl_ms)
        offsets = request.table_offsets.add(table_id=self.opened.info.table_id)
        offsets.bucket_offsets.add(bucket_id=0, log_end_offset=number)
        if self._call(ApiKey.REGISTER_PRODUCER_OFFSETS, request).result == CREATED:
            return True
        # It may be our own note, from a request whose answer was lost.
        return self._find(note_id) == number

    def is_there(self, note_id: str) -> bool:
        """True if the note exists."""
        return self._find(note_id) is not None

    def remove(self, note_id: str) -> None:
        """Remove a note, if it exists."""
        self._call(ApiKey.DELETE_PRODUCER_OFFSETS, pb.DeleteProducerOffsetsRequest(producer_id=note_id))

    def _find(self, note_id: str) -> int | None:
        """The number of a note, None if it does not exist. Apache Fluss also returns expired notes for a while."""
        answer = self._call(ApiKey.GET_PRODUCER_OFFSETS, pb.GetProducerOffsetsRequest(producer_id=note_id))
        if not answer.producer_id or answer.expiration_time <= time.time() * 1000:
            return None
        for table in answer.table_offsets:
            for bucket in table.bucket_offsets:
                return int(bucket.log_end_offset)
        return 0

    def _call(self, key: ApiKey, request: Message) -> Any:
        """Send a request that is safe to repeat, and repeat it while the coordinator restarts."""
        deadline = time.monotonic() + CALL_SECONDS
        while True:
            try:
                return self.opened.run(self.opened.engine.call_coordinator(key, request))
            except FlussError as error:
                if not error.is_retriable or time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_SECONDS)
