"""The buckets that a tablet leads: opened when needed, closed and deleted when their table is dropped.

Theory. The catalog determines which buckets exist, and placement which tablet leads them; this registry follows both.
Call `follow_catalog` before a request is handled; it does work only if something changed. Buckets that no longer exist
become GONE at once, and the maintenance worker removes their files if the catalog has a record of the drop. So a bucket
in `find`'s map exists and is led here, and a request needs only one dictionary lookup.

A bucket is opened by the first request for it, or in the background at the start if it has files. Opening blocks
(recovery), so it happens in worker threads, and the loop continues to serve everything else. All other code here runs
in the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeAlias

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.server.apis.placement import leader_of
from fluss.server.catalog import Catalog, TableEntry
from fluss.server.runtime.handlers import Reply
from fluss.server.storage.directory.disk_reserve import make_room_for_opening
from fluss.server.storage.directory.table_directories import mark_dropped, remove_empty
from fluss.server.storage.files import FileSystem, is_disk_full, is_shortage
from fluss.server.storage.kv.kv_bucket import KvBucket
from fluss.server.storage.kv.limits import KvResources
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.committer import Committer
from fluss.server.storage.log.options import LogOptions
from fluss.server.storage.remote_store import RemoteStore
from fluss.server.tablet.buckets.dropped_files import DroppedFiles
from fluss.server.tablet.buckets.helper_threads import start_work
from fluss.server.tablet.buckets.kv_rules import KvRules
from fluss.server.tablet.buckets.local_bucket import BROKEN_RETRY_MS, BucketState, LocalBucket
from fluss.server.tablet.kv_snapshots.bucket_snapshots import BucketSnapshots
from fluss.server.tablet.kv_snapshots.restore import SnapshotRestorer
from fluss.server.tablet.remote.remote_log import RemoteLog

logger = logging.getLogger(__name__)

OPENING_THREADS = 4
# The buckets that the start opens at a time: few, so that a requested one is never far back in the queue.
MAX_BACKGROUND_OPENINGS = 2

OpenedBucket: TypeAlias = tuple[BucketLog, RemoteLog, KvBucket | None, BucketSnapshots | None]


class BucketRegistry:
    """The map of this tablet's buckets, and the threads that open them and remove their files."""

    def __init__(
        self,
        data_dir: Path,
        catalog: Catalog,
        server_id: int,
        tablet_count: int,
        committer: Committer,
        options: LogOptions,
        store: RemoteStore,
        files: FileSystem,
        clock: Callable[[], int],
        kv_resources: KvResources,
    ) -> None:
        self._data_dir = data_dir
        self._catalog = catalog
        self._server_id = server_id
        self._tablet_count = tablet_count
        self._committer = committer
        self._options = options
        self._store = store
        self._files = files
        self._clock = clock
        self._kv_resources = kv_resources
        self.long_work = kv_resources.long_work  # shared by the whole process
        self._buckets: dict[TableBucket, LocalBucket] = {}
        # Called with the buckets that were dropped, so that other modules remove what they keep about them.
        self.dropped_listeners: list[Callable[[Collection[TableBucket]], None]] = []
        self._seen_change = catalog.change
        self._is_stopping = False
        self._opening_workers = ThreadPoolExecutor(OPENING_THREADS, thread_name_prefix="bucket-open")
        # One thread: uploads and deletions are not urgent and must not slow down requests.
        self.maintenance_worker = ThreadPoolExecutor(1, thread_name_prefix="bucket-maintenance")
        self._dropped_files = DroppedFiles(data_dir, catalog, store, self.maintenance_worker, files)

    def follow_catalog(self) -> None:
        """Apply metadata changes; cheap if there are none."""
        self._catalog.refresh()
        if self._catalog.change == self._seen_change:
            return
        self._seen_change = self._catalog.change
        dropped = [bucket for bucket in self._buckets if not self._catalog.has_bucket(bucket)]
        for bucket in dropped:
            self._drop(self._buckets.pop(bucket))
        if dropped:
            for listener in self.dropped_listeners:
                listener(dropped)

    def table(self, table_id: int) -> TableEntry | None:
        """A table as of the last `follow_catalog`."""
        return self._catalog.table_by_id(table_id)

    def find(self, bucket: TableBucket) -> LocalBucket:
        """The bucket, which starts to open if it is not open; FlussError 21 or 12 if this tablet does not serve it."""
        local = self._buckets.get(bucket)
        if local is None:
            self._check_ours(bucket)
            local = LocalBucket(bucket, self._describe(bucket))
            self._buckets[bucket] = local
            self._start_opening(local)
        elif local.kv is not None and local.kv.failure is not None and local.state is BucketState.OPEN:
            self._close_failed(local, local.kv)
        elif local.state is BucketState.BROKEN and self._clock() >= local.retry_at_ms:
            local.becomes_opening()
            self._start_opening(local)
        return local

    def check_takes_rows(self, local: LocalBucket) -> None:
        """Raise FlussError 36 for a bucket of an expired partition, which is dropped when the lake has all of it."""
        if local.bucket.partition_id in self._catalog.closing_partitions:
            raise FlussError(
                f"{local.name}: the partition has expired and accepts no more rows; it is dropped when the lake has "
                "all of its rows",
                ErrorCode.PARTITION_NOT_EXISTS,
            )

    def when_open(self, buckets: Sequence[TableBucket], answer: Callable[[], Reply]) -> Reply | Awaitable[Reply]:
        """Call `answer` now, or when no bucket is being opened any more. `answer` handles errors of buckets itself."""
        opening = []
        for bucket in buckets:
            try:
                local = self.find(bucket)
            except FlussError:
                continue
            if local.state is BucketState.OPENING:
                opening.append(local)
        if not opening:
            return answer()
        return _answer_when_settled(opening, answer)

    def open_buckets(self) -> Iterator[tuple[LocalBucket, BucketLog, RemoteLog]]:
        """Every bucket that is open now. The map may change between the steps of the iteration."""
        for local in list(self._buckets.values()):
            log, remote = local.log, local.remote
            if local.state is BucketState.OPEN and log is not None and remote is not None:
                yield local, log, remote

    async def open_existing(self) -> None:
        """Open the buckets that have files, a few at a time; one that cannot be opened is logged and skipped."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        ours = [
            bucket for bucket in self._catalog.buckets() if leader_of(bucket, self._tablet_count) == self._server_id
        ]
        paths = [(bucket, self._directory(bucket)) for bucket in ours]
        existing = await loop.run_in_executor(
            self.maintenance_worker, lambda: [bucket for bucket, path in paths if path.is_dir()]
        )
        limit = asyncio.Semaphore(MAX_BACKGROUND_OPENINGS)
        for bucket in existing:
            await limit.acquire()
            if self._is_stopping:
                return
            if bucket in self._buckets or not self._catalog.has_bucket(bucket):
                limit.release()
                continue
            local = self.find(bucket)
            if local.state is BucketState.OPENING:
                local.when_settled(limit.release)
            else:
                limit.release()
        for _ in range(MAX_BACKGROUND_OPENINGS):
            await limit.acquire()
        is_open = sum(1 for _ in self.open_buckets())
        if existing:
            logger.info("opened %d of %d buckets with files in %.1f s", is_open, len(existing), loop.time() - began_at)

    async def remove_dropped_files(self) -> None:
        """Remove the directories of tables and partitions that are known to be dropped."""
        await self._dropped_files.search()

    async def close(self) -> None:
        """Close every log. Requests get error 12 from now on, after which clients refresh their metadata."""
        self._is_stopping = True
        loop = asyncio.get_running_loop()
        gone = list(self._buckets.values())
        self._buckets.clear()
        for local in gone:
            text = f"{local.name}: the tablet is stopping; refresh the metadata and retry"
            local.becomes_gone(FlussError(text, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            if local.remote is not None:
                local.remote.close()
            if local.snapshots is not None:
                local.snapshots.close()
        # An opening in progress ends in `_opening_done`, which stores the log of a bucket that is gone.
        await loop.run_in_executor(None, self._opening_workers.shutdown)
        await asyncio.sleep(0)
        for local in gone:
            if local.log is not None:
                _close_log(local.log, local.name)
            if local.kv is not None:
                local.kv.close()
        await loop.run_in_executor(None, self.maintenance_worker.shutdown)

    def _check_ours(self, bucket: TableBucket) -> None:
        if not self._catalog.has_bucket(bucket):
            raise unknown_bucket(bucket)
        leader = leader_of(bucket, self._tablet_count)
        if leader != self._server_id or self._is_stopping:
            raise FlussError(
                f"{self._describe(bucket)} is led by tablet {leader}, not by {self._server_id}; refresh the metadata",
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )

    def _describe(self, bucket: TableBucket) -> str:
        entry = self._catalog.table_by_id(bucket.table_id)
        name = str(entry.path) if entry is not None else f"table {bucket.table_id}"
        if bucket.partition_id is not None:
            partition = self._catalog.partition(bucket.table_id, bucket.partition_id)
            name += f"(p={partition.name})" if partition is not None else f"(p={bucket.partition_id})"
        return f"bucket {bucket.bucket_id} of {name}"

    def _directory(self, bucket: TableBucket) -> Path:
        return self._data_dir / self._catalog.directory(bucket)

    def _start_opening(self, local: LocalBucket) -> None:
        try:
            future = start_work(self._opening_workers, self._opening(local))
        except Exception as error:  # for instance, the catalog cannot be read
            self._opening_failed(local, error)
            return
        future.add_done_callback(lambda done: self._opening_done(local, done))

    def _opening(self, local: LocalBucket) -> Callable[[], OpenedBucket]:
        bucket = local.bucket
        entry = self._catalog.table_by_id(bucket.table_id)
        assert entry is not None, f"{local.name} is opened without a table"
        partition = None
        if bucket.partition_id is not None:
            partition = self._catalog.partition(bucket.table_id, bucket.partition_id)
        rules = KvRules(entry) if entry.has_primary_key else None
        path, name, directory = entry.path, partition.name if partition is not None else None, self._directory(bucket)
        registered = self._catalog.store.kv_snapshots.of_bucket(bucket) if rules is not None else []

        def open_all() -> OpenedBucket:
            make_room_for_opening(self._data_dir)
            log = BucketLog.open(directory, self._options, self._committer, self._files)
            remote = RemoteLog.open(directory, self._store, path, bucket, name, self._files)
            remote.check_record(log.local_start_offset, log.has_remote_record)
            log.has_remote_record = remote.has_manifest
            if rules is None:
                return log, remote, None, None
            snapshots = BucketSnapshots.open(directory, self._store, path, bucket, name, self._files, registered)
            restore = SnapshotRestorer(registered, self._store, self._kv_resources)
            return log, remote, KvBucket.open(log, rules.format, self._kv_resources, restore), snapshots

        return open_all

    def _opening_done(self, local: LocalBucket, done: asyncio.Future[OpenedBucket]) -> None:
        error = None if done.cancelled() else done.exception()
        if local.state is BucketState.GONE:
            if error is None and not done.cancelled():
                local.log, local.remote, local.kv, local.snapshots = done.result()
                if not self._is_stopping:
                    self._let_go(local)
        elif error is None and not done.cancelled():
            local.becomes_open(*done.result())
        else:
            self._opening_failed(local, error)

    def _opening_failed(self, local: LocalBucket, error: BaseException | None) -> None:
        counted = {"is_counted": is_shortage(error)}
        logger.error("cannot open %s, which is not served now: %s", local.name, error, extra=counted)
        local.becomes_broken(_opening_error(local.name, error), self._clock() + BROKEN_RETRY_MS)

    def _close_failed(self, local: LocalBucket, kv: KvBucket) -> None:
        """Close a bucket whose store has failed, so that a later request opens and replays it."""
        log, remote = local.opened()
        assert kv.failure is not None
        if local.snapshots is not None:
            local.snapshots.close()
        local.becomes_failed(kv.failure, self._clock() + BROKEN_RETRY_MS)
        remote.close()
        _close_log(log, local.name)
        kv.close()

    def _drop(self, local: LocalBucket) -> None:
        was_open = local.state is BucketState.OPEN
        local.becomes_gone(unknown_bucket(local.bucket))
        if was_open:
            self._let_go(local)

    def _let_go(self, local: LocalBucket) -> None:
        """Handle a bucket that left the catalog: its files are removed if it was dropped, and kept otherwise."""
        if self._catalog.store.drops.contains(local.bucket.table_id, local.bucket.partition_id):
            self._remove_files(local)
            return
        logger.error("%s is not in the catalog, but there is no record of a drop: its files are kept", local.name)
        assert local.log is not None
        assert local.remote is not None
        local.remote.close()
        if local.snapshots is not None:
            local.snapshots.close()
        _close_log(local.log, local.name)
        if local.kv is not None:
            local.kv.close()

    def _remove_files(self, local: LocalBucket) -> None:
        """Remove rows and remote objects first, then the local directory, which lists the remote objects."""
        assert local.log is not None
        is_whole_table = self._catalog.table_by_id(local.bucket.table_id) is None
        levels = is_whole_table and local.bucket.partition_id is not None
        mark_dropped(Path(local.log.directory).parents[levels], self._files)
        work: list[Callable[[], None]] = []
        if local.kv is not None:
            work.append(local.kv.abandon())
        if local.snapshots is not None:
            local.snapshots.close()
            if local.snapshots.was_used:
                work.append(local.snapshots.destroy)
        assert local.remote is not None
        if local.remote.was_used:
            work.append(local.remote.destroy)
        else:
            local.remote.close()
        if not work:
            self._remove_log(local)
            return

        def removed(done: asyncio.Future[None]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is None:
                self._remove_log(local)
                return
            counted = {"is_counted": True}  # the search for leftover files tries again
            logger.warning("cannot remove the files of dropped %s yet: %s", local.name, error, extra=counted)
            assert local.log is not None
            _close_log(local.log, local.name)

        future = start_work(self.maintenance_worker, partial(_run_all, work))
        future.add_done_callback(removed)

    def _remove_log(self, local: LocalBucket) -> None:
        log = local.log
        assert log is not None
        # If the table still exists, keep its directory: another partition may be creating its own in it right now.
        table_gone = self._catalog.table_by_id(local.bucket.table_id) is None
        parents = list(Path(log.directory).parents)[: (local.bucket.partition_id is not None) + table_gone]
        log.destroy(lambda: remove_empty(parents, self._files))


def _run_all(work: list[Callable[[], None]]) -> None:
    for step in work:
        step()


async def wait_until_settled(opening: Iterable[LocalBucket]) -> None:
    """Wait until none of the buckets is being opened."""
    for local in opening:
        if local.state is BucketState.OPENING:
            settled = asyncio.Event()
            local.when_settled(settled.set)
            await settled.wait()


async def _answer_when_settled(opening: list[LocalBucket], answer: Callable[[], Reply]) -> Reply:
    await wait_until_settled(opening)
    return answer()


def unknown_bucket(bucket: TableBucket) -> FlussError:
    """The error for a bucket that does not exist or was dropped."""
    partition = f", partition {bucket.partition_id}" if bucket.partition_id is not None else ""
    return FlussError(
        f"unknown bucket {bucket.bucket_id} of table id {bucket.table_id}{partition}; refresh the metadata",
        ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
    )


def _opening_error(name: str, error: BaseException | None) -> FlussError:
    """The error for requests on a bucket that cannot be opened; a full disk is reported as such, so users can act."""
    reason = error.message if isinstance(error, FlussError) else str(error)
    is_full = isinstance(error, FlussError) and error.error_code == ErrorCode.DISK_WRITE_LOCKED
    if is_full or (isinstance(error, OSError) and is_disk_full(error)):
        text = f"cannot open {name}: {reason}; no space left on the disk, free some space and it opens by itself"
        return FlussError(text, ErrorCode.DISK_WRITE_LOCKED)
    return FlussError(f"cannot open {name}: {reason}; see the server's log", ErrorCode.STORAGE_EXCEPTION)


def _close_log(log: BucketLog, name: str) -> None:
    try:
        log.close()
    except (OSError, FlussError) as error:
        logger.error("%s was not closed cleanly, the next start recovers it: %s", name, error)
