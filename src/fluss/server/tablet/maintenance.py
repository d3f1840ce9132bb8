"""The background work of a tablet: follow the catalog, upload segments, delete and expire old ones.

Every loop runs forever with its own interval. Decisions are made in the event loop (`retention_plan`), blocking work is
done in the registry's maintenance worker. A failure of a bucket is logged once, until the bucket works again, and never
ends a loop: the next round tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import takewhile

from fluss.model.paths import TableBucket
from fluss.model.properties import DATALAKE_ENABLED, LOG_LOCAL_TTL, LOG_TIERED_LOCAL_SEGMENTS, LOG_TTL
from fluss.server.catalog import TableEntry
from fluss.server.config.server_config import ServerConfig
from fluss.server.storage.files import file_time_ms
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.segment import SegmentInfo
from fluss.server.tablet.buckets.final_ends import ClosingBuckets
from fluss.server.tablet.buckets.local_bucket import BucketState, LocalBucket
from fluss.server.tablet.buckets.registry import BucketRegistry
from fluss.server.tablet.remote.remote_log import RemoteLog
from fluss.server.tablet.remote.retention_plan import (
    LocalSegment,
    expired_remote_segments,
    local_delete_offset_after_upload,
    local_delete_offset_by_age,
    segments_to_upload,
    written_ms,
)

logger = logging.getLogger(__name__)

CATALOG_INTERVAL_MS = 100
UPLOAD_OPTIONS = ("remote.data.dir", "remote.data.dirs", "remote.log.task-interval-duration")
DROPPED_FILES_INTERVAL_MS = 60_000
# The minimum of all intervals, so that no configuration makes a loop that never sleeps.
MIN_INTERVAL_MS = 10


class Maintenance:
    """The background loops of one tablet."""

    def __init__(
        self,
        config: ServerConfig,
        registry: BucketRegistry,
        server_id: int,
        clock: Callable[[], int],
        oldest_snapshot_offset: Callable[[TableBucket], int | None],
        lake_end_offset: Callable[[TableBucket], int],
        closing: ClosingBuckets,
    ) -> None:
        self._config = config
        self._registry = registry
        self._server_id = server_id
        self._clock = clock
        self._oldest_snapshot_offset = oldest_snapshot_offset
        self._lake_end_offset = lake_end_offset
        self._closing = closing
        self._failing: set[TableBucket] = set()
        self._is_uploading = uploads_are_wanted(config)

    async def run(self) -> None:
        """Run all loops until cancelled."""
        loops = [
            _every(CATALOG_INTERVAL_MS, "catalog", self._follow_catalog),
            _every(self._config.log_retention_check_interval_ms, "retention", self.retention_round),
            _every(self._config.writer_id_check_interval_ms, "writer expiry", self.writer_expiry_round),
        ]
        if self._is_uploading:
            loops.append(_every(self._config.remote_log_task_interval_ms, "remote log", self.remote_round))
        if self._server_id == 0:  # Only one tablet searches the shared directory.
            loops.append(self._remove_dropped_files())
        loops.append(_guarded("opening of buckets", self._registry.open_existing))
        tasks = [asyncio.ensure_future(loop) for loop in loops]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _follow_catalog(self) -> None:
        self._registry.follow_catalog()
        self._closing.note_ends()

    async def _remove_dropped_files(self) -> None:
        await _guarded("removal of dropped files", self._registry.remove_dropped_files)
        await _every(DROPPED_FILES_INTERVAL_MS, "removal of dropped files", self._registry.remove_dropped_files)

    async def writer_expiry_round(self) -> None:
        """Expire writers that were silent for too long."""
        for _, log, _ in self._registry.open_buckets():
            log.expire_writers(self._clock())
            await asyncio.sleep(0)

    async def retention_round(self) -> None:
        """Delete local segments that are too old."""
        for local, log, remote in self._registry.open_buckets():
            entry = self._registry.table(local.bucket.table_id)
            if entry is not None and local.state is BucketState.OPEN:
                await self._guard(local, "retention", partial(self._retire, local, entry, log, remote))

    async def _retire(self, local: LocalBucket, entry: TableEntry, log: BucketLog, remote: RemoteLog) -> None:
        now_ms = self._clock()
        ttl_ms = int(entry.property(LOG_TTL))
        bound = self._deletable_below(local, entry, log)
        if self._is_uploading:
            bound = min(bound, remote.manifest.end_offset)
            local_ttl_ms = entry.property(LOG_LOCAL_TTL)
            ttl_ms = ttl_ms if local_ttl_ms is None else int(local_ttl_ms)
        else:
            bound = min(bound, self._expirable_below(local, entry, bound))
            if remote.was_used:  # Uploads were enabled once.
                await self._expire_remote(local, entry, remote)
                await self._collect_garbage(remote)
        if self._config.log_retention_roll_active_segment and _is_older(log, now_ms, ttl_ms):
            log.roll()
        sealed = log.sealed_segments()
        if sealed and sealed[0].max_timestamp > now_ms:
            _warn_of_clock(local)
        offset = local_delete_offset_by_age(_local_segments(sealed, now_ms), now_ms, ttl_ms, bound)
        _delete_local(log, remote, offset)

    async def remote_round(self) -> None:
        """Upload sealed segments, delete local copies of uploaded ones, expire remote ones."""
        for local, log, remote in self._registry.open_buckets():
            entry = self._registry.table(local.bucket.table_id)
            if entry is not None and local.state is BucketState.OPEN:
                await self._guard(local, "remote log", partial(self._upload, local, entry, log, remote))

    async def _upload(self, local: LocalBucket, entry: TableEntry, log: BucketLog, remote: RemoteLog) -> None:
        await self._collect_garbage(remote)
        # Readers of a remote segment get positions from the copy of its index, so the index has to be complete.
        sealed = list(takewhile(lambda segment: segment.is_indexed, log.sealed_segments()))
        chosen = segments_to_upload(
            _local_segments(sealed, self._clock()),
            remote.manifest,
            log.high_watermark,
            self._config.remote_log_task_max_upload_segments,
        )
        if chosen:
            await self._in_worker(lambda: remote.upload([sealed[position] for position in chosen], self._clock()))
        if local.state is not BucketState.OPEN:
            return  # The bucket was dropped during the upload; the drop removes what was uploaded.
        offset = local_delete_offset_after_upload(
            _local_segments(log.sealed_segments(), self._clock()),
            min(remote.manifest.end_offset, self._deletable_below(local, entry, log)),
            int(entry.property(LOG_TIERED_LOCAL_SEGMENTS)),
        )
        _delete_local(log, remote, offset)
        await self._expire_remote(local, entry, remote)

    def _deletable_below(self, local: LocalBucket, entry: TableEntry, log: BucketLog) -> int:
        """The offset below which the local log is not needed; a primary-key table needs all that is not in a snapshot.

        Rows are rebuilt from a snapshot and the *local* changelog after it, so this includes uploaded segments. The
        oldest snapshot counts: the newest one may turn out to be damaged, and readers may use others.
        """
        if not entry.has_primary_key:
            return log.high_watermark
        return min(self._oldest_snapshot_offset(local.bucket) or 0, log.high_watermark)

    def _expirable_below(self, local: LocalBucket, entry: TableEntry, end: int) -> int:
        """The offset below which the last copy of the log may expire: with a lake, only what the lake has."""
        return self._lake_end_offset(local.bucket) if entry.property(DATALAKE_ENABLED) else end

    async def _expire_remote(self, local: LocalBucket, entry: TableEntry, remote: RemoteLog) -> None:
        bound = self._expirable_below(local, entry, remote.manifest.end_offset)
        now_ms, segments = self._clock(), remote.manifest.segments
        if segments and segments[0].max_timestamp > now_ms:
            _warn_of_clock(local)
        expired = expired_remote_segments(
            remote.manifest, now_ms, int(entry.property(LOG_TTL)), bound, lambda item: remote.written_ms(item, now_ms)
        )
        if expired:
            await self._in_worker(lambda: remote.expire(expired))

    async def _collect_garbage(self, remote: RemoteLog) -> None:
        if remote.record.has_garbage:
            await self._in_worker(remote.collect_garbage)

    async def _in_worker(self, work: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._registry.maintenance_worker, work)

    async def _guard(self, local: LocalBucket, what: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            if local.bucket not in self._failing and local.state is BucketState.OPEN:
                self._failing.add(local.bucket)
                logger.warning("%s of %s failed and will be retried: %s", what, local.name, error)
        else:
            self._failing.discard(local.bucket)


def uploads_are_wanted(config: ServerConfig) -> bool:
    """True if segments are uploaded to remote storage: only if the configuration has one of the options for it.

    By default the remote directory would be on the same disk as the data, which would gain nothing, store every byte
    twice, and give clients on other machines paths that they cannot open.
    """
    return config.remote_log_task_interval_ms > 0 and any(name in config.values for name in UPLOAD_OPTIONS)


def _local_segments(segments: list[SegmentInfo], now_ms: int) -> list[LocalSegment]:
    return [
        LocalSegment(
            item.base_offset,
            item.next_offset,
            written_ms(item.max_timestamp, now_ms, partial(file_time_ms, item.path)),
        )
        for item in segments
    ]


def _warn_of_clock(local: LocalBucket) -> None:
    logger.warning("rows of %s have timestamps in the future: using file times for their age", local.name)


def _delete_local(log: BucketLog, remote: RemoteLog, offset: int) -> None:
    if offset > log.local_start_offset:
        # The checkpoint that removes the files also records that the remote record must exist.
        log.has_remote_record = remote.has_manifest
        log.delete_segments_up_to(offset)


def _is_older(log: BucketLog, now_ms: int, ttl_ms: int) -> bool:
    """True if everything in the log, including its active segment, is older than `ttl_ms`."""
    active = log.segments[-1]
    if ttl_ms <= 0 or log.high_watermark != log.log_end_offset or active.committed_size == 0:
        return False
    return now_ms - written_ms(log.newest_timestamp, now_ms, lambda: file_time_ms(active.log_path)) > ttl_ms


async def _every(interval_ms: int, what: str, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(max(MIN_INTERVAL_MS, interval_ms) / 1000)
        await _guarded(what, work)


async def _guarded(what: str, work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except Exception:
        logger.exception("background work (%s) failed and will be retried", what)
