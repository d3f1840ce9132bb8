"""Threads that write, sync and read staged files, so that the event loop never waits for them.

Every bucket belongs to one of `STAGING_THREADS` threads, so the requests of a bucket run in the order in which they
were submitted, in parallel with those of other buckets. `queued_bytes` counts what was submitted and not yet written;
the loop stops reading data while `is_full`. All public methods are for the loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.server.storage.files import FileSystem
from fluss.server.tablet.buckets.helper_threads import start_work
from fluss.server.tablet.buckets.local_bucket import BucketState, LocalBucket
from fluss.server.tablet.staging.bucket_files import BucketFiles
from fluss.server.tablet.staging.limits import MAX_QUEUED_BYTES, STAGING_THREADS, StagedBytes, StagingLimits

T = TypeVar("T")


class StagingWorkers:
    """The staged files of all buckets of a tablet, and the threads that they belong to."""

    def __init__(self, files: FileSystem, limits: StagingLimits) -> None:
        self.limits = limits
        self.staged_bytes = StagedBytes()
        self.queued_bytes = 0
        self.files = files
        self._buckets: dict[TableBucket, tuple[LocalBucket, BucketFiles]] = {}
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix=f"staging-{number}") for number in range(STAGING_THREADS)
        ]
        self._is_closed = False
        self._drained: list[Callable[[], None]] = []

    # ---- back-pressure for WriteApi ----

    @property
    def is_full(self) -> bool:
        """True if callers should stop reading data from their clients."""
        return self.queued_bytes >= MAX_QUEUED_BYTES

    def add_drained_callback(self, callback: Callable[[], None]) -> None:
        """Have a function called once, when the queue is at most half full again."""
        self._drained.append(callback)

    def _released(self, size: int) -> None:
        self.queued_bytes -= size
        if self._drained and self.queued_bytes <= MAX_QUEUED_BYTES // 2:
            callbacks, self._drained = self._drained, []
            for callback in callbacks:
                callback()

    # ---- work ----

    def submit(self, local: LocalBucket, work: Callable[[BucketFiles], T], size_bytes: int = 0) -> asyncio.Future[T]:
        """Run `work` in the thread of an open bucket, after everything that was submitted before.

        An OSError becomes FlussError 26.
        """
        log, _ = local.opened()
        if self._is_closed:
            raise FlussError(f"{local.name}: the tablet is stopping; retry later", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        known = self._buckets.get(local.bucket)
        if known is None or known[0] is not local:
            bucket_files = BucketFiles(log.directory, local.name, self.files, self.limits, self.staged_bytes)
            known = self._buckets[local.bucket] = (local, bucket_files)
        bucket_files = known[1]
        self.queued_bytes += size_bytes

        def run() -> T:
            try:
                return work(bucket_files)
            except OSError as error:
                text = f"cannot read or write staged rows of {local.name}: {error}; check the disk"
                raise FlussError(text, ErrorCode.STORAGE_EXCEPTION) from error

        future = start_work(self._thread(local.bucket), run)
        if size_bytes:
            future.add_done_callback(lambda _: self._released(size_bytes))
        return future

    def _thread(self, bucket: TableBucket) -> ThreadPoolExecutor:
        # The hash is independent of `placement`, which chose the tablet by the sum of the ids.
        return self._threads[hash(bucket) % STAGING_THREADS]

    def known_buckets(self) -> list[LocalBucket]:
        """The buckets that have had requests; buckets that are gone are dropped."""
        for bucket, (local, bucket_files) in list(self._buckets.items()):
            if local.state is BucketState.GONE:
                del self._buckets[bucket]
                self._thread(bucket).submit(bucket_files.forget)
        return [local for local, _ in self._buckets.values()]

    async def close(self) -> None:
        """Wait for everything that was submitted."""
        self._is_closed = True
        loop = asyncio.get_running_loop()
        for thread in self._threads:
            await loop.run_in_executor(None, thread.shutdown)
