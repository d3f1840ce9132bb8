"""The queue of rows for one bucket, and the numbering of its batches. I/O thread only; no I/O in here.

Pieces wait in order. A batch is made of them when it may be sent: at once if nothing of the bucket is in flight, else
when `batch_bytes` have gathered, when a piece has waited `batch_timeout_seconds`, or when it cannot grow because an
encoded piece follows. At most `max_in_flight` batches are unanswered.

Numbering: `sequence` counts from 0 per bucket and writer id (on the wire modulo 2**31). When a batch must be sent
again, the bucket sends nothing until everything in flight is answered; then the unanswered batches are sent again in
their order, with their old numbers, so that the server recognises those it has. If a batch before them was given up,
they move up to close the gap; after a reset they start at 0. A reset drops the writer id as well: the server has seen
these numbers under the old id, and would acknowledge new batches as duplicates without writing them. A batch that may
have been written is never renumbered: it fails instead, because the server could not recognise it and would write it
twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pyarrow as pa

from fluss.client.send.acknowledgements import Chunk
from fluss.client.send.log_encoding import BatchEncoder
from fluss.errors import FlussError
from fluss.model.paths import TableBucket

SEQUENCE_MASK = 0x7FFFFFFF
NO_SEQUENCE = -1


class Piece:
    """Rows of one chunk for one bucket: as a record batch, or already encoded (`data`, usually one batch)."""

    __slots__ = (
        "arrived", "batches", "bucket_id", "chunk", "data", "encoder", "error", "partition_name", "rows", "size_bytes"
    )  # fmt: skip

    def __init__(
        self, chunk: Chunk, encoder: BatchEncoder, partition_name: str | None, bucket_id: int, rows: pa.RecordBatch
    ) -> None:
        self.chunk = chunk
        self.encoder = encoder
        self.partition_name = partition_name
        self.bucket_id = bucket_id
        self.rows = rows
        self.size_bytes: int = rows.nbytes
        self.data: list[bytes] | None = None
        self.batches = 0  # unsettled batches that contain it
        self.error: FlussError | None = None
        self.arrived = 0.0


class WriteBatch:
    """One batch between encoding and acknowledgement. All its pieces have the same encoder."""

    __slots__ = (
        "attempts", "bucket", "corrupt_answers", "data", "encoder", "in_doubt", "pieces", "queue", "resets", "sequence",
        "writer_id",
    )  # fmt: skip

    def __init__(self, queue: BucketQueue, data: bytes, pieces: list[Piece]) -> None:
        self.queue = queue
        self.data = data
        self.pieces = pieces
        self.encoder = pieces[0].encoder
        self.bucket = queue.bucket
        self.writer_id = -1
        self.sequence = NO_SEQUENCE
        self.attempts = 0
        self.resets = 0
        self.corrupt_answers = 0
        self.in_doubt = False


class BucketQueue:
    """The rows and batches for one bucket. The sender sets `partition_id`."""

    def __init__(
        self,
        encoder: BatchEncoder,
        partition_name: str | None,
        bucket_id: int,
        *,
        batch_bytes: int,
        batch_timeout_seconds: float,
        max_in_flight: int,
        drop_writer_id: Callable[[int], None],
    ) -> None:
        table = encoder.table
        self.path = table.path
        self.table_id = table.table_id
        self.partition_name = partition_name
        self.bucket_id = bucket_id
        self.bucket = None if partition_name is not None else TableBucket(table.table_id, None, bucket_id)
        self._partition_id: int | None = None
        self.in_flight = 0
        self.not_before = 0.0
        self.is_preparing = False
        self.failed_preparations = 0
        self.trouble: FlussError | None = None  # the last error since a batch was written
        self.writer_id: int | None = None
        self.next_sequence = 0
        self.acknowledged = -1
        self._batch_bytes = batch_bytes
        self._timeout = batch_timeout_seconds
        self._max_in_flight = max_in_flight
        self._drop_writer_id = drop_writer_id
        self._waiting: deque[Piece] = deque()
        self._waiting_bytes = 0
        self._waiting_encoded = 0  # the number of them that are encoded already
        self._encoded: deque[WriteBatch] = deque()  # to be sent before the waiting pieces
        self._again: list[WriteBatch] = []
        self._is_silent = False
        self._has_gap = False
        self._is_reset = False

    # ---- filling ----

    def add(self, piece: Piece, now: float) -> None:
        """Add rows of a writer after all earlier rows."""
        piece.arrived = now
        self._waiting.append(piece)
        self._waiting_bytes += piece.size_bytes
        self._waiting_encoded += piece.data is not None

    @property
    def has_unsent(self) -> bool:
        """True if there are rows that are not in flight."""
        return bool(self._waiting or self._encoded or self._again)

    @property
    def is_quiet(self) -> bool:
        """True if nothing is in flight, so that a new writer id may be used."""
        return not (self.in_flight or self._encoded or self._again or self._waiting)

    def locate(self, partition_id: int) -> None:
        """Set the partition's id. Another id for the same name is a new partition, whose numbering starts again."""
        if self._partition_id not in (None, partition_id):
            self.reset()
        self._partition_id = partition_id
        self.bucket = TableBucket(self.table_id, partition_id, self.bucket_id)

    # ---- sending ----

    def may_send(self, now: float) -> bool:
        """True if a batch may be sent now."""
        if self.in_flight >= self._max_in_flight or now < self.not_before or (self._is_silent and self.in_flight):
            return False
        if self._encoded:
            return True
        return bool(self._waiting) and (self.in_flight == 0 or self._is_due(now))

    def _is_due(self, now: float) -> bool:
        if self._waiting_encoded or self._waiting_bytes >= self._batch_bytes:
            return True
        return now - self._waiting[0].arrived >= self._timeout

    def due_in(self, now: float) -> float | None:
        """Seconds until a batch may be sent because of time alone; None if only an answer can allow it."""
        if not self.has_unsent or self.in_flight >= self._max_in_flight or (self._is_silent and self.in_flight):
            return None
        due = now if self._encoded or not self._waiting else self._waiting[0].arrived + self._timeout
        return max(0.0, max(due, self.not_before) - now)

    def next_batch(self) -> WriteBatch:
        """The next batch to send; `may_send` must be true. `EncodingFailedError` if its rows cannot be encoded."""
        if not self._encoded:
            self._encode_waiting()
        batch = self._encoded.popleft()
        batch.bucket = self.bucket
        self.in_flight += 1
        batch.attempts += 1
        return batch

    def _encode_waiting(self) -> None:
        pieces = [self._pop_waiting()]
        first = pieces[0]
        parts = first.data
        if parts is None:
            size_bytes = first.size_bytes
            while self._waiting and self._waiting[0].data is None and self._waiting[0].encoder is first.encoder:
                size_bytes += self._waiting[0].size_bytes
                if size_bytes > self._batch_bytes:
                    break
                pieces.append(self._pop_waiting())
            try:
                rows = first.rows if len(pieces) == 1 else pa.concat_batches([piece.rows for piece in pieces])
                parts = list(first.encoder.encode_parts(rows))
            except FlussError as error:
                raise EncodingFailedError(error, pieces) from None
            except Exception as error:  # fail these rows, not the thread that sends those of all writers
                raise EncodingFailedError(FlussError(f"rows could not be encoded: {error!r}"), pieces) from error
        for piece in pieces:
            piece.rows = piece.data = None  # type: ignore[assignment]
            piece.batches = len(parts)
        self._encoded.extend(WriteBatch(self, part, pieces) for part in parts)

    def _pop_waiting(self) -> Piece:
        piece = self._waiting.popleft()
        self._waiting_bytes -= piece.size_bytes
        self._waiting_encoded -= piece.data is not None
        return piece

    def number(self, batch: WriteBatch, writer_id: int) -> None:
        """Number a batch, when it is sent for the first time or was renumbered."""
        if batch.sequence != NO_SEQUENCE:
            return
        if self.writer_id is None or (self.writer_id != writer_id and self.in_flight == 1 and not self._sent_before()):
            self.writer_id = writer_id
            self.next_sequence = 0
            self.acknowledged = -1
        batch.writer_id = self.writer_id
        batch.sequence = self.next_sequence
        self.next_sequence += 1

    def _sent_before(self) -> bool:
        return any(batch.sequence != NO_SEQUENCE for batch in self._encoded)

    # ---- answers ----

    def done(self, batch: WriteBatch) -> None:
        """Called when the batch is written."""
        self.in_flight -= 1
        self.trouble = None
        self.acknowledged = max(self.acknowledged, batch.sequence)

    def retry(self, batch: WriteBatch, not_before: float) -> None:
        """Send the batch again once everything in flight has been answered."""
        self.in_flight -= 1
        self._again.append(batch)
        self._is_silent = True
        self.not_before = max(self.not_before, not_before)

    def given_up(self, batch: WriteBatch) -> None:
        """Called when the batch was not written and will not be: the later ones move up."""
        self.in_flight -= 1
        self._has_gap = True
        self._is_silent = True

    def reset(self) -> None:
        """Number from 0 again, under another writer id: the fate of the earlier numbers is unknown.

        This is the only way to start over, so that the id is always dropped.
        """
        if self.writer_id is not None:
            self._drop_writer_id(self.writer_id)
        self._is_reset = True
        self._is_silent = True

    def speak_again(self) -> list[WriteBatch]:
        """Once everything in flight is answered, queue the batches to send again. Return batches that must fail."""
        if not self._is_silent or self.in_flight:
            return []
        again = sorted([*self._again, *self._encoded], key=_sending_order)
        lost: list[WriteBatch] = []
        if self._is_reset or self._has_gap:
            lost = [batch for batch in again if self._is_reset and batch.in_doubt]
            again = [batch for batch in again if batch not in lost]
            for batch in again:
                batch.sequence = NO_SEQUENCE
            self.next_sequence = self.acknowledged + 1
            if self._is_reset:
                self.writer_id = None
        self._encoded = deque(again)
        self._again = []
        self._is_silent = self._has_gap = self._is_reset = False
        return lost

    def take_everything(self) -> tuple[list[WriteBatch], list[Piece]]:
        """Remove and return batches and pieces that are not in flight, to be failed."""
        batches, pieces = [*self._again, *self._encoded], list(self._waiting)
        self._again, self._encoded, self._waiting = [], deque(), deque()
        self._waiting_bytes = self._waiting_encoded = 0
        if any(batch.sequence != NO_SEQUENCE for batch in batches):
            self.reset()
        return batches, pieces


class EncodingFailedError(Exception):
    """Rows of these pieces cannot become a batch."""

    def __init__(self, error: FlussError, pieces: list[Piece]) -> None:
        super().__init__(error.message)
        self.error = error
        self.pieces = pieces


def _sending_order(batch: WriteBatch) -> tuple[bool, int]:
    """Sort key: sent batches by number, then the others in their present order."""
    return batch.sequence == NO_SEQUENCE, batch.sequence
