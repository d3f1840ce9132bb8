"""Rows that a loop over a scanner, or an open batch reader, has taken from the queue but not yet returned.

A loop takes rows in portions, but the user may stop after any row. So the portion belongs to the scanner and not to the
loop: a row counts as read when it is returned, positions reflect that, and any other read from the scanner first puts
the remaining rows back. A loop that still runs then finds its portion gone and takes another one. Only one thread at a
time loops over a scanner; others may ask for positions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from fluss.client.decode.log_rows import LogRows
from fluss.client.decode.materialize import ScanRecord
from fluss.client.scan.ready_queue import ReadyQueue
from fluss.client.scan.records import RecordBatch
from fluss.client.scan.subscription import Subscription
from fluss.values.basic import TableBucket

_Piece = tuple[Subscription, LogRows]


class _Portion:
    """Rows of several buckets in order; `handed_on` counts the rows of the first one that were returned."""

    __slots__ = ("handed_on", "pieces")

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self.pieces = deque(pieces)
        self.handed_on = 0

    def left(self) -> list[_Piece]:
        """The rows that were not returned, without those of ended subscriptions."""
        if not self.pieces:
            return []
        subscription, rows = self.pieces[0]
        rest = [(subscription, rows.slice(self.handed_on, len(rows))), *list(self.pieces)[1:]]
        return [(subscription, rows) for subscription, rows in rest if subscription.active and len(rows)]


class Unread:
    """The rows that a scanner has taken but not returned; one per scanner."""

    def __init__(self, queue: ReadyQueue, subscriptions: Mapping[TableBucket, Subscription]) -> None:
        self._queue = queue
        self._subscriptions = subscriptions
        self._portion = _Portion(())

    def records(self, taken: Sequence[LogRows]) -> Iterator[ScanRecord]:
        """Yield rows that were just taken, one at a time, until they are put back."""
        portion = self._begin(taken)
        while portion.pieces:
            for number, record in enumerate(portion.pieces[0][1].records(), 1):
                if portion is not self._portion:
                    return
                portion.handed_on = number
                yield record
            if portion is not self._portion:
                return
            self._next_piece(portion)

    def batches(self, taken: Sequence[LogRows]) -> Iterator[RecordBatch]:
        """Yield rows that were just taken, a batch at a time, until they are put back."""
        portion = self._begin(taken)
        while portion is self._portion and portion.pieces:
            rows = portion.pieces[0][1]
            self._next_piece(portion)
            yield RecordBatch(rows)

    def positions(self) -> dict[TableBucket, int]:
        """The offset of the next row, for buckets that have rows here."""
        found: dict[TableBucket, int] = {}
        with self._queue.lock:
            for subscription, rows in self._portion.left():
                found.setdefault(subscription.bucket, rows.offset_of(0))
        return found

    def give_back(self) -> None:
        """Put all rows that were not returned back at the front of the queue."""
        with self._queue.lock:
            portion, self._portion = self._portion, _Portion(())
            left = portion.left()
            if left:
                self._queue.put_back(left)

    def _begin(self, taken: Sequence[LogRows]) -> _Portion:
        with self._queue.lock:
            subscribed = self._subscriptions
            self._portion = _Portion([(subscribed[rows.bucket], rows) for rows in taken if rows.bucket in subscribed])
            return self._portion

    def _next_piece(self, portion: _Portion) -> None:
        with self._queue.lock:
            portion.pieces.popleft()
            portion.handed_on = 0
