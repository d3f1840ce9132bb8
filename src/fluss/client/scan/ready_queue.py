"""The queue of decoded rows between the I/O side and the user.

One lock protects it; it is held for a few list operations, never while decoding or waiting. Producers (`put`, from the
I/O thread or a decoding thread) append steps of one bucket in offset order. Consumers (`take`, `take_bounded`) remove
them and advance the position of the bucket, so that a position is never ahead of the user's rows. Steps of ended
subscriptions are dropped.

There is no waiting here: a consumer that finds nothing registers a callback, which the next producer calls once,
outside of the lock.

Producers bound the queue: they decode only while `ready_bytes` is below `MAX_READY_BYTES`, and the consumer calls
`on_room` when it has taken enough.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from fluss.client.decode.bad_batches import BadBatch, OnSkipped, warn_of
from fluss.client.decode.decoder import Decoded
from fluss.client.decode.log_rows import LogRows
from fluss.client.scan.subscription import Subscription
from fluss.errors import FlussError
from fluss.values.basic import TableBucket

MAX_READY_BYTES = 64 * 1024 * 1024
# Added per step, so that many tiny batches are limited too.
STEP_OVERHEAD_BYTES = 512

Waiter = Callable[[], None]
_Entry = tuple["Subscription | None", Decoded]


class ReadyQueue:
    """Thread-safe. `on_room` is called outside of the lock if a producer waited for room, or an error was taken.

    `on_skipped` is called for skipped batches by the consumer that reaches their place, at a moment when it holds no
    rows that an error of the callback could lose.
    """

    def __init__(self, on_room: Callable[[], None], on_skipped: OnSkipped | None = None) -> None:
        self.lock = threading.Lock()
        self._on_room = on_room
        self._on_skipped = on_skipped or warn_of
        self._entries: deque[_Entry] = deque()
        self._waiters: list[Waiter] = []
        self._ready_bytes = 0
        self._producer_waits = False

    # ---- producers ----

    def has_room(self) -> bool:
        """True if more may be decoded now; if not, `on_room` is called when it may."""
        with self.lock:
            if self._ready_bytes < MAX_READY_BYTES:
                return True
            self._producer_waits = True
            return False

    def put(self, subscription: Subscription | None, steps: Sequence[Decoded]) -> None:
        """Add steps of one bucket, or an error that belongs to none, and wake the consumer."""
        with self.lock:
            if subscription is not None and not subscription.active:
                return
            for step in steps:
                self._entries.append((subscription, step))
                self._ready_bytes += step.size_bytes + STEP_OVERHEAD_BYTES
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()

    def wake(self) -> None:
        """Wake the waiting consumer, e.g. because the scanner is closed."""
        with self.lock:
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()

    # ---- consumers ----

    def take(self, limit_rows: int | None = None, waiter: Waiter | None = None) -> list[LogRows]:
        """Rows that are ready, at most `limit_rows`; raises an error if it is the next entry in the queue.

        If there is nothing, `waiter` is kept for the next producer.
        """
        while True:
            taken, skipped = self._take_up_to_skipped(limit_rows, waiter)
            if skipped is None:
                return taken
            self._on_skipped(skipped)

    def _take_up_to_skipped(
        self, limit_rows: int | None, waiter: Waiter | None
    ) -> tuple[list[LogRows], BadBatch | None]:
        taken: list[LogRows] = []
        skipped: BadBatch | None = None
        rows_left = limit_rows
        error: FlussError | None = None
        failed: Subscription | None = None
        with self.lock:
            while self._entries and (rows_left is None or rows_left > 0):
                subscription, step = self._entries[0]
                if step.error is not None:
                    if taken:
                        break  # first return what came before it
                    self._pop()
                    if subscription is None or subscription.active:
                        error, failed = step.error, subscription
                        break
                    continue
                if subscription is None or not subscription.active:
                    self._pop()
                    continue
                if step.skipped is not None:
                    if not taken:
                        self._pop()
                        subscription.position, skipped = step.next_offset, step.skipped
                    break
                rows = step.rows
                if rows is not None and rows_left is not None and len(rows) > rows_left:
                    cut = rows.cut_at(rows_left)
                    if cut < len(rows):
                        self._replace_front(subscription, step, rows.slice(cut, len(rows)))
                        rows = rows.slice(0, cut)
                        subscription.position = rows.last_offset + 1
                        taken.append(rows)
                        break
                self._pop()
                subscription.position = step.next_offset
                if rows is not None:
                    taken.append(rows)
                    rows_left = None if rows_left is None else rows_left - len(rows)
            if not taken and error is None and skipped is None and waiter is not None:
                self._waiters.append(waiter)
            room = self._room_was_made()
        self._go_on(room, error, failed)
        return taken, skipped

    def _go_on(self, room: bool, error: FlussError | None, failed: Subscription | None) -> None:
        """After something was taken, outside of the lock: let fetching continue, and raise the error that was found."""
        if room or error is not None:
            if failed is not None:
                failed.waits_for_user = False
            self._on_room()
        if error is not None:
            raise error

    def take_bounded(self, waiter: Waiter | None = None) -> list[LogRows]:
        """Like `take`, but rows at or after the `stop_offset` of their bucket stay in the queue."""
        while True:
            taken, skipped = self._take_bounded_up_to_skipped(waiter)
            if skipped is None:
                return taken
            self._on_skipped(skipped)

    def _take_bounded_up_to_skipped(self, waiter: Waiter | None) -> tuple[list[LogRows], BadBatch | None]:
        taken: list[LogRows] = []
        skipped: BadBatch | None = None
        kept: list[_Entry] = []
        error: FlussError | None = None
        failed: Subscription | None = None
        with self.lock:
            while self._entries:
                subscription, step = self._entries[0]
                if step.error is not None and (subscription is None or subscription.active):
                    if not taken:
                        self._pop()
                        error, failed = step.error, subscription
                    break
                if taken and step.skipped is not None:
                    break  # first return what came before it
                self._pop()
                if subscription is None or not subscription.active:
                    continue
                if subscription.is_finished:
                    kept.append((subscription, step))
                    continue
                if step.skipped is not None:
                    subscription.position, skipped = step.next_offset, step.skipped
                    break
                self._take_before_stop(subscription, step, taken, kept)
            for entry in reversed(kept):
                self._entries.appendleft(entry)
            # Rows that stay do not count until `recount`: they would block the buckets that are still to be read.
            if not taken and error is None and skipped is None and waiter is not None:
                self._waiters.append(waiter)
            room = self._room_was_made()
        self._go_on(room, error, failed)
        return taken, skipped

    def _take_before_stop(
        self, subscription: Subscription, step: Decoded, taken: list[LogRows], kept: list[_Entry]
    ) -> None:
        rows, stop = step.rows, subscription.stop_offset
        assert stop is not None
        if rows is None or step.next_offset <= stop:
            subscription.position = step.next_offset
        else:
            cut = rows.index_of(stop)
            subscription.position = stop
            if cut < len(rows):
                size = step.size_bytes * (len(rows) - cut) // len(rows)
                kept.append((subscription, Decoded(rows.slice(cut, len(rows)), step.next_offset, size)))
            rows = rows.slice(0, cut) if cut else None
        if rows is not None:
            taken.append(rows)

    def forget(self, waiter: Waiter) -> None:
        """Remove the callback of a consumer that no longer waits."""
        with self.lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def recount(self) -> None:
        """Drop the steps of ended subscriptions, and recount the rest."""
        with self.lock:
            alive = [entry for entry in self._entries if entry[0] is None or entry[0].active]
            self._entries = deque(alive)
            self._ready_bytes = sum(step.size_bytes + STEP_OVERHEAD_BYTES for _, step in alive)
            room = self._room_was_made()
        if room:
            self._on_room()

    # ---- inside the lock ----

    def put_back(self, pieces: Sequence[tuple[Subscription, LogRows]]) -> None:
        """Put unused rows back at the front; positions move back to them. The caller holds the lock."""
        behind: dict[TableBucket, int] = {}
        for subscription, rows in reversed(pieces):
            next_offset = behind.get(subscription.bucket, subscription.position)
            size = int(rows.rows.nbytes)
            self._entries.appendleft((subscription, Decoded(rows, next_offset, size)))
            self._ready_bytes += size + STEP_OVERHEAD_BYTES
            behind[subscription.bucket] = rows.offset_of(0)
        for subscription, _ in pieces:
            subscription.position = behind[subscription.bucket]

    def _pop(self) -> None:
        _, step = self._entries.popleft()
        self._ready_bytes = max(0, self._ready_bytes - step.size_bytes - STEP_OVERHEAD_BYTES)

    def _replace_front(self, subscription: Subscription, step: Decoded, rest: LogRows) -> None:
        size = step.size_bytes * len(rest) // max(len(step.rows or rest), 1)
        self._entries[0] = (subscription, Decoded(rest, step.next_offset, size))
        self._ready_bytes -= step.size_bytes - size

    def _room_was_made(self) -> bool:
        if self._producer_waits and self._ready_bytes <= MAX_READY_BYTES // 2:
            self._producer_waits = False
            return True
        return False
