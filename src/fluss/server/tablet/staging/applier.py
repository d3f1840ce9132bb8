"""Appending staged rows whose commit is decided.

Theory. The catalog's `staged_work` lists what has to be appended; `start_new_work` reads it when its counter has
changed, and starts one task per bucket with work. A task handles the work of its bucket in the order of the decisions,
and the files of each commit in the order of the commit. Every file goes through the normal append in parts of a few
MiB, with a few of them in flight, so other writers and readers of the tablet are served meanwhile.

Steps of one work item, and why a crash between any two of them is harmless:

    append   the log's writer state has the sequences of the attempt that were appended; appending continues after them
    durable  all appends are acknowledged, and synced in every mode of `log.flush`
    mark     the row is removed from the catalog. Before that, everything above is repeated and finds nothing to do
    remove   the files are removed. Files that are left belong to a decided batch without work: `cleaning` removes them

Failed work (a full disk, a bucket that cannot be opened) is retried with growing pauses, forever: decided rows are
never given up. Work for a dropped table or partition is removed from the catalog and ends here too. Everything runs in
the event loop's thread; files are read in the staging threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.server.apis.placement import leader_of
from fluss.server.catalog import Catalog
from fluss.server.catalog.staged_records import StagedFileEntry, StagedWork
from fluss.server.storage.log.append import Append
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.committer import Committer
from fluss.server.tablet.buckets.local_bucket import LocalBucket
from fluss.server.tablet.buckets.registry import BucketRegistry, wait_until_settled
from fluss.server.tablet.staging.staged_reader import StagedReader
from fluss.server.tablet.staging.workers import StagingWorkers

logger = logging.getLogger(__name__)

# Buckets that are appended to at the same time; each has at most MAX_APPENDS_IN_FLIGHT appends in memory.
MAX_BUCKETS_AT_ONCE = 4
MAX_APPENDS_IN_FLIGHT = 2
FIRST_PAUSE_SECONDS = 0.05
LAST_PAUSE_SECONDS = 2.0


class StagedApplier:
    """The decided work of this tablet, and one task per bucket that has some."""

    def __init__(
        self,
        registry: BucketRegistry,
        catalog: Catalog,
        workers: StagingWorkers,
        committer: Committer,
        server_id: int,
        tablet_count: int,
        clock: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._catalog = catalog
        self._staged = catalog.store.staged
        self._workers = workers
        self._committer = committer
        self._server_id = server_id
        self._tablet_count = tablet_count
        self._clock = clock
        self._seen_counter = -1
        self._work: dict[TableBucket, deque[StagedWork]] = {}
        self._tasks: dict[TableBucket, asyncio.Task[None]] = {}
        self._problems: dict[TableBucket, FlussError] = {}
        self._marks: list[int] = []
        self._marking: asyncio.Future[None] | None = None
        self._slots = asyncio.Semaphore(MAX_BUCKETS_AT_ONCE)
        self._waiters: set[asyncio.Future[None]] = set()
        self._is_stopping = False

    # ---- finding work ----

    def start_new_work(self) -> None:
        """Start work for new decisions; cheap if there are none."""
        counter = self._staged.work_counter()
        if counter == self._seen_counter or self._is_stopping:
            return
        known = {work.work_id for works in self._work.values() for work in works}
        for work in self._staged.work():
            bucket = work.bucket
            if work.work_id in known or leader_of(bucket, self._tablet_count) != self._server_id:
                continue
            self._work.setdefault(bucket, deque()).append(work)
            if bucket not in self._tasks:
                task = asyncio.get_running_loop().create_task(self._run(bucket))
                self._tasks[bucket] = task
                task.add_done_callback(partial(self._ended, bucket))
        self._seen_counter = counter

    def is_applied(self, bucket: TableBucket, writer_id: int) -> bool:
        """True if no rows of an attempt wait to be appended to this bucket, as of the last `start_new_work`."""
        return not any(file.writer_id == writer_id for work in self._work.get(bucket, ()) for file in work.files)

    async def wait(self, table_id: int, transaction: str, batch_id: int, timeout_ms: int) -> None:
        """Wait until this tablet has applied a batch and all earlier ones to its buckets; FlussError 25 on timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while waiting := self._waiting_for(table_id, transaction, batch_id):
            changed: asyncio.Future[None] = loop.create_future()
            self._waiters.add(changed)
            try:
                await asyncio.wait_for(changed, max(0.0, deadline - loop.time()))
            except TimeoutError:
                reasons = [self._problems[bucket].message for bucket in waiting if bucket in self._problems]
                why = f". The last error was: {reasons[0]}" if reasons else ""
                raise FlussError(
                    f"batch {batch_id} of {transaction!r} is decided, but not yet appended to {len(waiting)} buckets "
                    f"after {timeout_ms} ms; the server continues with it by itself{why}",
                    ErrorCode.REQUEST_TIME_OUT,
                ) from None
            finally:
                self._waiters.discard(changed)

    def _waiting_for(self, table_id: int, transaction: str, batch_id: int) -> list[TableBucket]:
        return [
            bucket
            for bucket, works in self._work.items()
            if bucket.table_id == table_id
            and any(work.transaction == transaction and work.batch_id <= batch_id for work in works)
        ]

    async def close(self) -> None:
        """Stop between two steps; the next start continues."""
        self._is_stopping = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- one bucket ----

    def _ended(self, bucket: TableBucket, task: asyncio.Task[None]) -> None:
        del self._tasks[bucket]
        self._problems.pop(bucket, None)
        self._work.pop(bucket, None)
        self._notify_waiters()
        if not task.cancelled() and task.exception() is not None:
            logger.error("appending staged rows failed unexpectedly", exc_info=task.exception())
            self._seen_counter = -1  # The next `start_new_work` starts it again.

    def _notify_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _run(self, bucket: TableBucket) -> None:
        works = self._work[bucket]
        pause = FIRST_PAUSE_SECONDS
        while works:
            try:
                self._registry.follow_catalog()
                if not self._catalog.has_bucket(bucket):
                    return
                async with self._slots:
                    await self._apply(bucket, works[0])
                self._problems.pop(bucket, None)
                pause = FIRST_PAUSE_SECONDS
                works.popleft()
                self._notify_waiters()
            except FlussError as error:
                if bucket not in self._problems:
                    logger.warning("cannot append staged rows to %s yet: %s", bucket, error.message)
                self._problems[bucket] = error
                await asyncio.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE_SECONDS)

    async def _apply(self, bucket: TableBucket, work: StagedWork) -> None:
        local = self._registry.find(bucket)
        await wait_until_settled([local])
        log, _ = local.opened()
        for file in work.files:
            await self._append_file(local, log, file)
        await self._sync(log)
        await self._mark(work.work_id)
        writer_ids = [file.writer_id for file in work.files]
        await self._workers.submit(local, lambda files: files.remove(writer_ids))
        for writer_id in writer_ids:
            log.writers.forget(writer_id)

    async def _mark(self, work_id: int) -> None:
        """Mark work as applied. Buckets that finish in the same step of the loop share one transaction."""
        self._marks.append(work_id)
        if self._marking is None:
            self._marking = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(self._write_marks)
        await asyncio.shield(self._marking)

    def _write_marks(self) -> None:
        marking, self._marking = self._marking, None
        marks, self._marks = self._marks, []
        assert marking is not None
        try:
            self._staged.applied(marks)
        except FlussError as error:
            marking.set_exception(error)
        else:
            marking.set_result(None)

    async def _append_file(self, local: LocalBucket, log: BucketLog, file: StagedFileEntry) -> None:
        """Append the batches that the log lacks, and wait until all of them are durable."""
        next_sequence = log.writers.last_sequence(file.writer_id) + 1
        if next_sequence >= file.batch_count:
            return
        reader = StagedReader(local.name, log.directory, file, next_sequence, self._workers.files)
        in_flight: deque[asyncio.Future[None]] = deque()
        try:
            while (data := await self._workers.submit(local, reader.read)) is not None:
                await self._room()
                local.opened()  # The bucket may have been dropped meanwhile.
                append = log.append(memoryview(data), self._clock(), _nothing)
                in_flight.append(_durable(append))
                if len(in_flight) >= MAX_APPENDS_IN_FLIGHT:
                    await in_flight.popleft()
            while in_flight:
                await in_flight.popleft()
        finally:
            if in_flight:
                await asyncio.gather(*in_flight, return_exceptions=True)

    async def _room(self) -> None:
        """Wait while the commit thread is full."""
        while self._committer.is_full:
            drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._committer.add_drained_callback(partial(_complete, drained))
            await drained

    async def _sync(self, log: BucketLog) -> None:
        """Sync the log if `log.flush` does not sync before acknowledging: the staged file is about to be removed."""
        if self._committer.flush == "always":
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._committer.request_sync(log)
        self._committer.call_after_writes(partial(_complete, done))
        await done
        log.check_writable()


def _durable(append: Append) -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: FlussError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    append.add_durable(done)
    return future


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _nothing() -> None:
    """The release callback of an append: its buffer belongs to the append, so there is nothing to release."""
