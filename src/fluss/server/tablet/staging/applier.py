"""Appending what is decided.

Theory. The catalog's `staged_work` is the list of what has to be done; `look` reads it when its counter has moved, and
starts one task per bucket with work. A task takes the work of its bucket in the order of the decisions, and the files
of a piece of work in the order of the commit. Every file goes through the normal append in pieces of a few MiB, with a
few pieces under way, so other writers and readers of the tablet go on meanwhile.

Steps for one piece of work, and why a crash between any two is harmless:

    append   the log's writer state says which sequences of the attempt it has; appending goes on behind them
    durable  all appends are acknowledged, and synced whatever `log.flush` says
    mark     the row is removed from the catalog. Before it, everything above is repeated and finds nothing to do
    remove   the files go. Files that stay behind belong to a decided batch without work: `cleaning` removes them

What fails (a full disk, a bucket that cannot be opened) is tried again with growing pauses, for ever: decided rows are
never given up. Work of a dropped table or partition is gone from the catalog and ends here too. Everything runs in the
event loop's thread; files are read in the staging threads.
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
from fluss.server.tablet.staging.reading import StagedReader
from fluss.server.tablet.staging.workers import StagingWorkers

logger = logging.getLogger(__name__)

# Buckets that are appended to at the same time; each holds at most MAX_PIECES_UNDER_WAY pieces in memory.
MAX_BUCKETS_AT_ONCE = 4
MAX_PIECES_UNDER_WAY = 2
FIRST_PAUSE_SECONDS = 0.05
LAST_PAUSE_SECONDS = 2.0


class StagedApplier:
    """See the module's text."""

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

    # ---- what there is to do ----

    def look(self) -> None:
        """Take in new decisions and see to it that they are carried out; cheap when there are none."""
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

    def undecided(self, bucket: TableBucket, writer_id: int) -> bool:
        """Whether nothing of an attempt waits to be appended to this bucket, as of the last `look`."""
        return not any(file.writer_id == writer_id for work in self._work.get(bucket, ()) for file in work.files)

    async def wait(self, table_id: int, transaction: str, batch_id: int, timeout_ms: int) -> None:
        """Wait until the batch and all before it are applied in the buckets of this tablet; 25 if it takes longer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while waiting := self._waiting_for(table_id, transaction, batch_id):
            changed: asyncio.Future[None] = loop.create_future()
            self._waiters.add(changed)
            try:
                await asyncio.wait_for(changed, max(0.0, deadline - loop.time()))
            except TimeoutError:
                reasons = [self._problems[bucket].message for bucket in waiting if bucket in self._problems]
                why = f"; it waits because: {reasons[0]}" if reasons else ""
                raise FlussError(
                    f"batch {batch_id} of {transaction!r} is decided, but after {timeout_ms} ms not appended to "
                    f"{len(waiting)} buckets; that goes on by itself{why}",
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
        """Stop between two steps; the next start goes on."""
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
        self._tell_waiters()
        if not task.cancelled() and task.exception() is not None:
            logger.error("appending staged rows failed unexpectedly", exc_info=task.exception())
            self._seen_counter = -1  # The next look starts it again.

    def _tell_waiters(self) -> None:
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
                    await self._carry_out(bucket, works[0])
                self._problems.pop(bucket, None)
                pause = FIRST_PAUSE_SECONDS
                works.popleft()
                self._tell_waiters()
            except FlussError as error:
                if bucket not in self._problems:
                    logger.warning("staged rows wait to be appended to %s: %s", bucket, error.message)
                self._problems[bucket] = error
                await asyncio.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE_SECONDS)

    async def _carry_out(self, bucket: TableBucket, work: StagedWork) -> None:
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
        """One transaction for all buckets that are done in this step of the loop: each one waits for the disk."""
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
        """Append what the log does not have yet, and wait until it is durable. Nothing is under way afterwards."""
        next_sequence = log.writers.last_sequence(file.writer_id) + 1
        if next_sequence >= file.batch_count:
            return
        reader = StagedReader(local.name, log.directory, file, next_sequence, self._workers.files)
        under_way: deque[asyncio.Future[None]] = deque()
        try:
            while (data := await self._workers.submit(local, reader.read)) is not None:
                await self._room()
                local.opened()  # It may have been dropped meanwhile.
                append = log.append(memoryview(data), self._clock(), _nothing)
                under_way.append(_durable(append))
                if len(under_way) >= MAX_PIECES_UNDER_WAY:
                    await under_way.popleft()
            while under_way:
                await under_way.popleft()
        finally:
            if under_way:
                await asyncio.gather(*under_way, return_exceptions=True)

    async def _room(self) -> None:
        """Others fill the commit thread: wait for it like everybody."""
        while self._committer.is_full:
            drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._committer.add_drained_callback(partial(_complete, drained))
            await drained

    async def _sync(self, log: BucketLog) -> None:
        """Where acknowledged does not mean synced, do it now: the staged file is about to go."""
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
    """The buffer of a piece is nobody else's."""
