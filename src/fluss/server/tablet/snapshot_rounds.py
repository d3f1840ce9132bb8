"""The rounds in which snapshots are taken, and in which old ones and leftovers are removed.

A loop checks every open primary-key bucket once a second. The first visit after a bucket was opened cleans up after a
crash: a local checkpoint, objects without a registered snapshot. From then on a snapshot is due `kv.snapshot.interval`
after the last one, if anything was written since; each such visit also retires snapshots that neither retention nor a
lease keeps. Buckets are visited one at a time, so that snapshots do not slow down requests.

A failure (remote storage is full or unreachable) only affects the snapshot, not writes and reads. It is logged once,
until it works again, and the bucket is visited again after the interval, but after at most `RETRY_SECONDS`.

Decisions and the catalog belong to the loop's thread; files and remote storage to the worker of this object.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fluss.server.catalog.kv_snapshot_records import KvSnapshotRecords
from fluss.server.config.server_config import ServerConfig
from fluss.server.storage.kv.checkpoint import StoreFiles, finish_checkpoint, link_files, remove_checkpoint
from fluss.server.storage.kv.kv_bucket import KvBucket
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.tablet.buckets.local_bucket import BucketState, LocalBucket
from fluss.server.tablet.buckets.registry import BucketRegistry
from fluss.server.tablet.kv_snapshots.bucket_snapshots import BucketSnapshots, SnapshotStopped

logger = logging.getLogger(__name__)

SNAPSHOT_OPTIONS = ("remote.data.dir", "remote.data.dirs", "kv.snapshot.interval")
TICK_SECONDS = 1.0
MIN_PAUSE_SECONDS = 0.01
RETRY_SECONDS = 60.0
# The interval if no snapshots are taken: leases on earlier snapshots may still expire.
CLEAN_UP_SECONDS = 600.0
# The time for which a snapshot waits for rows to be in files, or for the changelog to be on disk.
SETTLE_SECONDS = 30.0
_POLL_SECONDS = 0.01
_Result = TypeVar("_Result")


def snapshots_are_wanted(config: ServerConfig) -> bool:
    """True if snapshots are taken: only if the configuration has one of the options for them, as for the remote log.

    By default the remote directory would be on the same disk as the data: a second copy of all rows, which would be
    lost with the disk.
    """
    return config.kv_snapshot_interval_ms > 0 and any(name in config.values for name in SNAPSHOT_OPTIONS)


class KvSnapshotRounds:
    """The snapshots of all buckets of a tablet: when they are due, and the thread that uploads them."""

    def __init__(
        self, config: ServerConfig, registry: BucketRegistry, records: KvSnapshotRecords, clock: Callable[[], int]
    ) -> None:
        self._registry = registry
        self._records = records
        self._clock = clock
        self._is_wanted = snapshots_are_wanted(config)
        self._interval_seconds = config.kv_snapshot_interval_ms / 1000 if self._is_wanted else CLEAN_UP_SECONDS
        self._retained = config.kv_snapshot_num_retained
        # The time at which a bucket is due. A bucket that is opened again has a new object, and so a first visit.
        self._due: dict[LocalBucket, float] = {}
        self._failing: set[LocalBucket] = set()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="kv-snapshot")

    async def run(self) -> None:
        """Run one round after the other, until cancelled."""
        while True:
            await asyncio.sleep(max(MIN_PAUSE_SECONDS, min(TICK_SECONDS, self._interval_seconds)))
            try:
                await self.round()
            except Exception:
                logger.exception("a round of snapshots failed and will be retried")

    async def round(self, *, at_once: bool = False) -> None:
        """Visit the buckets that are due, or all of them."""
        open_now = [local for local, _, _ in self._registry.open_buckets() if local.snapshots is not None]
        self._due = {local: due for local, due in self._due.items() if local in set(open_now)}
        for local in open_now:
            is_first = local not in self._due
            if not (is_first or at_once or self._due[local] <= time.monotonic()):
                continue
            worked = await self._visit(local, is_first=is_first, take=self._is_wanted and (at_once or not is_first))
            pause = self._interval_seconds if worked else min(self._interval_seconds, RETRY_SECONDS)
            self._due[local] = time.monotonic() + pause

    async def close(self) -> None:
        """Wait for the worker; the buckets are closed, so it ends soon."""
        await asyncio.get_running_loop().run_in_executor(None, self._worker.shutdown)

    async def _visit(self, local: LocalBucket, *, is_first: bool, take: bool) -> bool:
        """Clean up and take a snapshot; False if something failed."""
        log, kv, snapshots = local.log, local.kv, local.snapshots
        if log is None or kv is None or snapshots is None or local.state is not BucketState.OPEN:
            return True
        try:
            if is_first:
                await self._first_visit(local, kv, snapshots)
            self._records.retire(local.bucket, self._retained, self._clock())
            await self._collect_garbage(local, snapshots)
            if take:
                await self._take(local, log, kv, snapshots)
        except SnapshotStopped:
            return True
        except Exception as error:
            if local.state is BucketState.OPEN and local not in self._failing:
                logger.warning("snapshot of %s failed and will be retried: %s", local.name, error)
                self._failing = {known for known in self._failing if known in self._due} | {local}
            return False
        self._failing.discard(local)
        return True

    async def _first_visit(self, local: LocalBucket, kv: KvBucket, snapshots: BucketSnapshots) -> None:
        if (self._records.newest_offset(local.bucket) or 0) > local.end_offset_when_opened:
            await self._in_worker(snapshots.note_none_registered)
        beyond = self._records.remove_beyond(local.bucket, local.end_offset_when_opened)
        if beyond:
            logger.warning(
                "%s: removed %d snapshots that contained more than the changelog, which has lost its end",
                local.name, beyond,
            )  # fmt: skip
        await self._in_worker(remove_checkpoint, kv.store.directory)

    async def _take(self, local: LocalBucket, log: BucketLog, kv: KvBucket, snapshots: BucketSnapshots) -> None:
        newest = self._records.newest_offset(local.bucket) or 0
        if kv.applied_offset == newest:
            return
        await self._flush(kv)
        store_directory = kv.store.directory
        try:
            await self._copy(local, log, snapshots, link_files(kv.store))
        finally:
            # Do not await it: a stopping tablet does not wait, and the next start cleans up.
            self._worker.submit(remove_checkpoint, store_directory)

    async def _copy(self, local: LocalBucket, log: BucketLog, snapshots: BucketSnapshots, linked: StoreFiles) -> None:
        """Upload linked files and register them as a snapshot."""
        checkpoint = await self._in_worker(finish_checkpoint, linked)
        registered = self._records.of_bucket(local.bucket)
        snapshot = await self._in_worker(snapshots.upload, checkpoint, registered)
        await self._until_durable(log, snapshot.log_offset)
        if snapshots.closed or not self._records.register(snapshot, self._retained, self._clock()):
            raise SnapshotStopped(f"{local.name} was closed or dropped")
        logger.debug(
            "%s: snapshot %d up to offset %d, %d bytes uploaded",
            local.name, snapshot.snapshot_id, snapshot.log_offset, snapshot.uploaded_bytes,
        )  # fmt: skip
        await self._in_worker(snapshots.note_registered, snapshot, checkpoint)
        await self._collect_garbage(local, snapshots)

    async def _collect_garbage(self, local: LocalBucket, snapshots: BucketSnapshots) -> None:
        await self._in_worker(snapshots.collect_garbage, self._records.of_bucket(local.bucket))

    async def _flush(self, kv: KvBucket) -> None:
        """Flush rows to files in RocksDB's threads: linking would flush them too, but block everything else.

        Linking has to write the rows that arrive during a flush. So there are two flushes, after which these are few.
        """
        for _ in range(2):
            kv.check_usable()
            kv.flush()
            for _ in range(round(SETTLE_SECONDS / _POLL_SECONDS)):
                if not kv.is_flushing:
                    break
                await asyncio.sleep(_POLL_SECONDS)

    async def _until_durable(self, log: BucketLog, offset: int) -> None:
        """Wait until the changelog is on disk up to `offset`: a snapshot must not have rows that the log could lose."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while log.durable_offset < offset:
            if time.monotonic() > deadline or log.is_closed:
                raise OSError(f"the changelog is not on disk up to offset {offset} after {SETTLE_SECONDS:g} s")
            log.checkpoint()
            await asyncio.sleep(_POLL_SECONDS)

    async def _in_worker(self, work: Callable[..., _Result], *arguments: object) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work, *arguments)
