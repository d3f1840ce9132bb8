"""The idempotent writers of a bucket and their latest batches.

Per writer id: the latest batches as (sequence, base offset, last offset, timestamp), oldest first. The newest five are
the window in which a repeated batch is recognised; a client keeps at most five in flight.

Entries are added when a batch is accepted, before it is on disk. So that a failed write can be taken back, and a
checkpoint can describe the state at an older, durable offset, a writer keeps all batches that are not durable yet and
the five durable ones before them. The number of batches beyond five is bounded by the queue of the committer and by the
distance between checkpoints. Owned by the loop thread (by the opening thread during recovery).

`protected` writers have staged rows (see `tablet.staging`): their entries decide which of these rows are already in the
log, so they are neither expired nor evicted. They are removed one by one when their staged rows are done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fluss.codec.batches.log_batch import NO_WRITER_ID, BatchHeader
from fluss.errors import ErrorCode, FlussError
from fluss.server.storage.log.options import DUPLICATE_WINDOW_BATCHES

MAX_SEQUENCE = 2**31 - 1
# If there are too many writers, one in this many is dropped at once, so that the search is rarely needed.
_EVICTED_SHARE = 10


class WriterBatch(NamedTuple):
    """One recorded batch of a writer."""

    sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class WriterState:
    """The idempotent writers of one bucket, each with its latest batches."""

    def __init__(self, max_writers: int) -> None:
        self._max_writers = max_writers
        self._writers: dict[int, deque[WriterBatch]] = {}
        self.protected: set[int] = set()

    def __len__(self) -> int:
        return len(self._writers)

    def check(self, writer_id: int, sequence: int) -> WriterBatch | None:
        """None if the sequence is the next one; the stored batch if it repeats one; otherwise FlussError 31."""
        batches = self._writers.get(writer_id)
        if batches is None:
            if sequence == 0:
                return None
            raise out_of_order(writer_id, sequence, -1)
        last = batches[-1].sequence
        if sequence == last + 1 or (sequence == 0 and last == MAX_SEQUENCE):
            return None
        for age, batch in enumerate(reversed(batches)):
            if age == DUPLICATE_WINDOW_BATCHES:
                break
            if batch.sequence == sequence:
                return batch
        raise out_of_order(writer_id, sequence, last)

    def check_all(self, batches: Sequence[tuple[int, BatchHeader]]) -> WriterBatch | None:
        """The stored batch that one of these repeats, or None; FlussError 31 if there is a gap in the sequence."""
        if len(batches) == 1:
            header = batches[0][1]
            return None if header.writer_id == NO_WRITER_ID else self.check(header.writer_id, header.batch_sequence)
        seen: dict[int, int] = {}
        for _, header in batches:
            writer_id, sequence = header.writer_id, header.batch_sequence
            if writer_id == NO_WRITER_ID:
                continue
            last = seen.get(writer_id)
            if last is None:
                repeated = self.check(writer_id, sequence)
                if repeated is not None:
                    return repeated
            elif sequence != (0 if last == MAX_SEQUENCE else last + 1):
                raise out_of_order(writer_id, sequence, last)
            seen[writer_id] = sequence
        return None

    def last_sequence(self, writer_id: int) -> int:
        """The newest accepted sequence of a writer; -1 for an unknown writer."""
        batches = self._writers.get(writer_id)
        return -1 if batches is None else batches[-1].sequence

    def forget(self, writer_id: int) -> None:
        """Remove a writer that will send nothing more and has no batches that are not durable."""
        self.protected.discard(writer_id)
        self._writers.pop(writer_id, None)

    def record(self, writer_id: int, batch: WriterBatch, durable_offset: int) -> None:
        """Record an accepted (or replayed) batch; everything before `durable_offset` is on disk."""
        batches = self._writers.get(writer_id)
        if batches is None:
            if len(self._writers) >= self._max_writers:
                self._evict()
            self._writers[writer_id] = deque((batch,))
            return
        batches.append(batch)
        # If the entry after the window is durable, a full durable window is left without the oldest entry.
        while len(batches) > DUPLICATE_WINDOW_BATCHES and (
            batches[DUPLICATE_WINDOW_BATCHES].last_offset < durable_offset
        ):
            batches.popleft()

    def rollback(self, offset: int) -> None:
        """Remove all batches at or after `offset`, which were never written."""
        for writer_id in list(self._writers):
            batches = self._writers[writer_id]
            while batches and batches[-1].base_offset >= offset:
                batches.pop()
            if not batches:
                del self._writers[writer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove writers that have been silent for too long; returns how many."""
        silent = [
            key
            for key, batches in self._writers.items()
            if now_ms - batches[-1].timestamp > expiration_ms and key not in self.protected
        ]
        for writer_id in silent:
            del self._writers[writer_id]
        return len(silent)

    def snapshot(self, end_offset: int) -> list[tuple[int, list[WriterBatch]]]:
        """The newest five batches of every writer as of the time when the log ended at `end_offset`."""
        result = []
        for writer_id, batches in self._writers.items():
            kept = [batch for batch in batches if batch.last_offset < end_offset][-DUPLICATE_WINDOW_BATCHES:]
            if kept:
                result.append((writer_id, kept))
        return result

    def load(self, writers: Iterable[tuple[int, Iterable[WriterBatch]]]) -> None:
        """Load the writers of a snapshot; call only while there are none."""
        self._writers = {writer_id: deque(batches) for writer_id, batches in writers}

    def _evict(self) -> None:
        by_age = sorted(
            self._writers.keys() - self.protected, key=lambda writer_id: self._writers[writer_id][-1].timestamp
        )
        for writer_id in by_age[: max(1, len(by_age) // _EVICTED_SHARE)]:
            del self._writers[writer_id]


def out_of_order(writer_id: int, sequence: int, last: int) -> FlussError:
    return FlussError(
        f"writer {writer_id} sent batch sequence {sequence}, expected {0 if last in (-1, MAX_SEQUENCE) else last + 1}"
        f" (last accepted: {last if last >= 0 else 'none'}); request a new writer id to start over",
        ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION,
    )
