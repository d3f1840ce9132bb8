"""The core of a scanner: subscriptions, waiting, polling, bounded reads. The two public scanners are built on it.

Any thread may call the methods of `ScannerCore`; those with `_async` in their name are coroutines of the user's event
loop, the others block. Rows are normally in the `ReadyQueue` before they are requested, and a poll is then a few
operations on it, without the I/O thread.

States: open -> closed. Closing the connection closes its scanners; a scanner that is garbage collected closes itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from fluss.client.calls.admin import AdminCalls
from fluss.client.calls.bucket_offsets import EARLIEST, LATEST, TIMESTAMP, list_bucket_offsets
from fluss.client.decode.decoder import BatchDecoder
from fluss.client.decode.log_rows import LogRows
from fluss.client.decode.scan_plan import ScanPlan
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.client.scan.fetcher import Fetcher
from fluss.client.scan.leftover_rows import Unread
from fluss.client.scan.ready_queue import ReadyQueue
from fluss.client.scan.subscription import Subscription
from fluss.errors import ErrorCode, FlussError
from fluss.values.basic import EARLIEST_OFFSET, LATEST_OFFSET, TableBucket

MAX_WAIT_SECONDS = threading.TIMEOUT_MAX
PROGRESS_CHECK_SECONDS = 1.0

Take = Callable[[Callable[[], None]], list[LogRows]]


def _never() -> bool:
    return False


class ScannerCore:
    """The shared core of the public scanners; see the module docstring."""

    def __init__(self, session: Session, table: ClientTable, plan: ScanPlan) -> None:
        session.check_open()
        self.session = session
        self.table = table
        self.decoder = BatchDecoder(table, plan)
        self.queue = ReadyQueue(self._pump_soon, plan.on_skipped)
        self._fetcher = Fetcher(session.cluster, self.decoder, self.queue)
        self._subscriptions: dict[TableBucket, Subscription] = {}
        self._seen: set[TableBucket] = set()
        self.unread = Unread(self.queue, self._subscriptions)
        self._closed = False
        session.add_close_hook(self._close_on_io)

    # ---- subscriptions ----

    def bucket(self, partition_id: int | None, bucket_id: int) -> TableBucket:
        """A bucket of the table; raises if it cannot be one."""
        if isinstance(bucket_id, bool) or not isinstance(bucket_id, int):
            raise FlussError(f"bucket_id must be an int, got {bucket_id!r}")
        if not 0 <= bucket_id < self.table.bucket_count:
            raise FlussError(
                f"buckets of table {self.table.path} are 0 to {self.table.bucket_count - 1}, got {bucket_id}",
                ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
            )
        return TableBucket.with_partition(self.table.table_id, partition_id, bucket_id)

    def check_partitioning(self, *, partitioned: bool) -> None:
        """Raise unless the subscription matches the table: by partition if and only if it is partitioned."""
        if self.table.is_partitioned and not partitioned:
            raise FlussError(
                f"table {self.table.path} is partitioned: use subscribe_partition(partition_id, bucket_id, offset), "
                "or subscribe_all()"
            )
        if partitioned and not self.table.is_partitioned:
            raise FlussError(f"table {self.table.path} is not partitioned: use subscribe(bucket_id, offset)")

    def subscribe(self, offsets: Mapping[TableBucket, int]) -> None:
        """Read these buckets from these offsets on; latest offsets and unknown partitions are looked up first."""
        self._check_open()
        for bucket, offset in offsets.items():
            if isinstance(offset, bool) or not isinstance(offset, int) or offset < EARLIEST_OFFSET:
                raise FlussError(
                    f"{bucket}: offset must be an int >= 0, EARLIEST_OFFSET or LATEST_OFFSET, got {offset!r}"
                )
        resolved = dict(offsets)
        latest = [bucket for bucket, offset in offsets.items() if offset == LATEST_OFFSET]
        if latest or self._unknown_partitions(offsets):
            resolved |= self.session.run(self._resolve(list(offsets), latest))
        self._replace({bucket: Subscription(bucket, offset) for bucket, offset in resolved.items()})

    def _unknown_partitions(self, buckets: Iterable[TableBucket]) -> bool:
        cluster = self.session.cluster
        return any(bucket.partition_id is not None and cluster.leader_node(bucket) is None for bucket in buckets)

    async def _resolve(self, buckets: list[TableBucket], latest: list[TableBucket]) -> dict[TableBucket, int]:
        cluster = self.session.cluster
        unknown = {b.partition_id for b in buckets if b.partition_id is not None and cluster.leader_node(b) is None}
        if unknown:
            await cluster.refresh(tables=[self.table.path], partition_ids=sorted(unknown))
        if not latest:
            return {}
        return await list_bucket_offsets(cluster, self.table.path, latest, LATEST)

    def subscribe_all(self, start_offset: int) -> None:
        """Read every bucket of every partition that exists now."""
        buckets = self.session.run(self.all_buckets())
        self.subscribe(dict.fromkeys(buckets, start_offset))
        self._seen.update(buckets)

    def subscribe_added(self, buckets: Iterable[TableBucket]) -> None:
        """Read buckets from their start, unless `subscribe_all`, `subscribe_from` or this method has seen them."""
        added = [bucket for bucket in buckets if bucket not in self._seen]
        self._seen.update(added)
        if added:
            self._replace({bucket: Subscription(bucket, EARLIEST_OFFSET) for bucket in added})

    def subscribe_from(self, timestamp_ms: int) -> None:
        """Read every bucket from the first row at or after a time."""

        async def find() -> dict[TableBucket, int]:
            buckets = await self.all_buckets()
            path = self.table.path
            return await list_bucket_offsets(self.session.cluster, path, buckets, TIMESTAMP, timestamp_ms)

        found = self.session.run(find())
        self.subscribe(found)
        self._seen.update(found)

    async def all_buckets(self) -> list[TableBucket]:
        """Every bucket of every partition that exists now. Runs on the I/O thread."""
        partition_ids: list[int | None] = [None]
        if self.table.is_partitioned:
            infos = await AdminCalls(self.session.cluster).list_partition_infos(self.table.path, None)
            partition_ids = [info.partition_id for info in infos]
        return [
            TableBucket.with_partition(self.table.table_id, partition_id, bucket_id)
            for partition_id in partition_ids
            for bucket_id in range(self.table.bucket_count)
        ]

    def move(self, offsets: Mapping[TableBucket, int]) -> None:
        """Move subscribed buckets to other offsets. Sends no request, so that it works after any error."""
        with self.queue.lock:
            known = {bucket: offset for bucket, offset in offsets.items() if bucket in self._subscriptions}
        if known:
            with contextlib.suppress(FlussError):  # closed meanwhile
                self._replace({bucket: Subscription(bucket, offset) for bucket, offset in known.items()})

    def _replace(self, fresh: dict[TableBucket, Subscription]) -> None:
        self.unread.give_back()
        with self.queue.lock:
            for bucket, subscription in fresh.items():
                old = self._subscriptions.get(bucket)
                if old is not None:
                    old.active = False
                self._subscriptions[bucket] = subscription
        self.queue.recount()
        self.session.io.call_soon(self._fetcher.add, list(fresh.values()))

    def unsubscribe(self, bucket: TableBucket) -> None:
        """Stop returning rows of this bucket, including those already fetched."""
        self._check_open()
        self.unread.give_back()
        with self.queue.lock:
            subscription = self._subscriptions.pop(bucket, None)
            if subscription is None:
                return
            subscription.active = False
        self.queue.recount()
        self.queue.wake()
        self.session.io.call_soon(self._fetcher.remove, [subscription])

    def positions(self) -> list[tuple[TableBucket, int]]:
        """Subscribed buckets and the offset of the next row that a poll returns."""
        waiting = self.unread.positions()
        with self.queue.lock:
            return [(bucket, waiting.get(bucket, each.position)) for bucket, each in self._subscriptions.items()]

    # ---- polling ----

    def poll(self, limit_rows: int | None, timeout_ms: int) -> list[LogRows]:
        """Rows that are available, or the first to arrive within the time-out; blocks."""
        self._check_open()
        self.unread.give_back()
        deadline = time.monotonic() + _seconds(timeout_ms)
        return self._wait(lambda waiter: self.queue.take(limit_rows, waiter), deadline)

    async def poll_async(self, limit_rows: int | None, timeout_ms: int) -> list[LogRows]:
        """`poll` as a coroutine; other tasks on the event loop get to run even if rows are already available."""
        self._check_open()
        self.unread.give_back()
        deadline = time.monotonic() + _seconds(timeout_ms)
        await asyncio.sleep(0)
        return await self._wait_async(lambda waiter: self.queue.take(limit_rows, waiter), deadline)

    def _wait(self, take: Take, deadline: float, is_done: Callable[[], bool] = _never) -> list[LogRows]:
        gate = threading.Lock()
        gate.acquire()
        while True:
            taken = take(gate.release)
            if taken or is_done():
                return taken
            left = deadline - time.monotonic()
            try:
                if left <= 0 or not gate.acquire(timeout=min(left, MAX_WAIT_SECONDS)):
                    return take(_nobody)  # what arrived at the last moment
            finally:
                self.queue.forget(gate.release)
            self._check_open()

    async def _wait_async(self, take: Take, deadline: float, is_done: Callable[[], bool] = _never) -> list[LogRows]:
        """Wait with a future and a timer: `asyncio.wait_for` would create a task for every wait."""
        loop = asyncio.get_running_loop()
        while True:
            arrived: asyncio.Future[None] = loop.create_future()

            def wake(arrived: asyncio.Future[None] = arrived) -> None:
                if not arrived.done():
                    arrived.set_result(None)

            def waiter(wake: Callable[[], None] = wake) -> None:
                with contextlib.suppress(RuntimeError):  # the user's loop has ended
                    loop.call_soon_threadsafe(wake)

            taken = take(waiter)
            if taken or is_done():
                return taken
            left = deadline - time.monotonic()
            timer = loop.call_later(min(left, MAX_WAIT_SECONDS), wake) if left > 0 else None
            try:
                if timer is None:
                    return []
                await arrived
            finally:
                if timer is not None:
                    timer.cancel()
                self.queue.forget(waiter)
            self._check_open()

    # ---- bounded reads ----

    async def begin_bounded(self) -> list[Subscription]:
        """Set the end of every subscribed bucket to its latest offset now. Runs on the I/O thread."""
        with self.queue.lock:
            subscriptions = list(self._subscriptions.values())
        if not subscriptions:
            raise FlussError("no bucket is subscribed; call subscribe() or subscribe_all() first")
        cluster, path = self.session.cluster, self.table.path
        ends = await list_bucket_offsets(cluster, path, [s.bucket for s in subscriptions], LATEST)
        at_start = [s.bucket for s in subscriptions if s.position == EARLIEST_OFFSET]
        starts = await list_bucket_offsets(cluster, path, at_start, EARLIEST) if at_start else {}
        with self.queue.lock:
            for subscription in subscriptions:
                end = ends[subscription.bucket]
                # All rows may have expired: then there is nothing to wait for.
                empty = subscription.position == EARLIEST_OFFSET and starts[subscription.bucket] >= end
                subscription.stop_offset = subscription.position if empty else end
        self._fetcher.pump()
        return subscriptions

    def bound(self, stops: Mapping[TableBucket, int]) -> list[Subscription]:
        """Set the ends of subscribed buckets, for `take_bounded`."""
        with self.queue.lock:
            subscriptions = [self._subscriptions[bucket] for bucket in stops]
            for subscription in subscriptions:
                subscription.stop_offset = stops[subscription.bucket]
        return subscriptions

    def take_bounded(self, subscriptions: list[Subscription], wait_seconds: float) -> list[LogRows]:
        """Rows before the ends that are available or arrive within this time; blocks."""
        deadline = time.monotonic() + wait_seconds
        return self._wait(
            self.queue.take_bounded, deadline, lambda: all(subscription.is_finished for subscription in subscriptions)
        )

    def end_bounded(self, subscriptions: list[Subscription]) -> None:
        """Remove the ends."""
        with self.queue.lock:
            for subscription in subscriptions:
                subscription.stop_offset = None
        self.queue.recount()
        with contextlib.suppress(FlussError):  # closed meanwhile
            self._pump_soon()

    def next_bounded(self, subscriptions: list[Subscription]) -> list[LogRows] | None:
        """The next rows before the end; None when all buckets have reached it. Blocks."""
        patience = _Patience(self, subscriptions)
        while not patience.is_done():
            taken = self._wait(self.queue.take_bounded, patience.next_look(), patience.is_done)
            if taken:
                return taken
            patience.check()
        return None

    async def next_bounded_async(self, subscriptions: list[Subscription]) -> list[LogRows] | None:
        """`next_bounded` for a coroutine."""
        patience = _Patience(self, subscriptions)
        while not patience.is_done():
            taken = await self._wait_async(self.queue.take_bounded, patience.next_look(), patience.is_done)
            if taken:
                return taken
            patience.check()
        return None

    @property
    def last_trouble(self) -> FlussError | None:
        """The last error that was not raised because it may be temporary."""
        return self._fetcher.last_trouble

    # ---- life ----

    @property
    def is_closed(self) -> bool:
        """True if it or its connection was closed."""
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise FlussError("the scanner is closed")
        self.session.check_open()

    def _pump_soon(self) -> None:
        with contextlib.suppress(FlussError):  # the connection is closed: nothing to fetch
            self.session.io.call_soon(self._fetcher.pump)

    def close(self) -> None:
        """Stop fetching and drop all rows. May be called twice, from any thread, and does not wait."""
        if self._closed:
            return
        self._closed = True
        self.session.remove_close_hook(self._close_on_io)
        self._end_all()
        with contextlib.suppress(FlussError):
            self.session.io.submit(self._fetcher.close())

    async def _close_on_io(self) -> None:
        self._closed = True
        self._end_all()
        await self._fetcher.close()

    def _end_all(self) -> None:
        with self.queue.lock:
            for subscription in self._subscriptions.values():
                subscription.active = False
            self._subscriptions.clear()
        self.queue.recount()
        self.queue.wake()


class _Patience:
    """The limit of a bounded read without progress: the request time-out."""

    def __init__(self, core: ScannerCore, subscriptions: list[Subscription]) -> None:
        self._core = core
        self._subscriptions = subscriptions
        self._seconds = core.session.config.request_timeout_ms / 1000
        self._deadline = time.monotonic() + self._seconds
        self._reached = self._progress()

    def _progress(self) -> int:
        return sum(subscription.fetch_offset for subscription in self._subscriptions)

    def is_done(self) -> bool:
        """True if every bucket has reached its end."""
        return all(subscription.is_finished for subscription in self._subscriptions)

    def next_look(self) -> float:
        """The time of the next check for progress."""
        return min(self._deadline, time.monotonic() + PROGRESS_CHECK_SECONDS)

    def check(self) -> None:
        """Raise if there was no progress for too long."""
        reached, now = self._progress(), time.monotonic()
        if reached != self._reached:
            self._reached, self._deadline = reached, now + self._seconds
        if now < self._deadline or self.is_done():
            return
        trouble = self._core.last_trouble
        because = f"; the last error was: {trouble}" if trouble is not None else ""
        raise FlussError(
            f"no rows of {self._core.table.path} for {self._seconds:.0f} s, but its end is not reached{because}",
            ErrorCode.REQUEST_TIME_OUT,
        )


def _nobody() -> None:
    """A callback that does nothing."""


def _seconds(timeout_ms: int) -> float:
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, (int, float)):
        raise FlussError(f"timeout_ms must be a number of milliseconds, got {timeout_ms!r}")
    if timeout_ms < 0:
        raise FlussError(f"timeout_ms must be non-negative, got: {timeout_ms}")
    return timeout_ms / 1000
