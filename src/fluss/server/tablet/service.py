"""The tablet role, assembled from its parts.

States: new -> (start) serving -> (stop) stopped, each transition once, in the event loop's thread. `start` returns
before the buckets are open: requests for a bucket wait until it is open, everything else is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fluss.protocol.api_keys import ApiKey
from fluss.server.apis.permission_checks import with_permission_checks
from fluss.server.apis.read_apis import SharedApis
from fluss.server.apis.topology import Topology
from fluss.server.catalog import Catalog
from fluss.server.config.server_config import ServerConfig
from fluss.server.runtime.handlers import Handler
from fluss.server.storage.files import FileSystem
from fluss.server.storage.kv.limits import KvResources
from fluss.server.storage.log.committer import Committer
from fluss.server.storage.log.options import RESERVED_FREE_BYTES, LogOptions
from fluss.server.storage.remote_store import RemoteStore
from fluss.server.tablet.buckets.access import TableAccess
from fluss.server.tablet.buckets.final_ends import ClosingBuckets
from fluss.server.tablet.buckets.registry import BucketRegistry
from fluss.server.tablet.kv.insert_missing import MissingRows
from fluss.server.tablet.kv.kv_reads import KvReads
from fluss.server.tablet.kv.kv_scan import ScanKvApi, scan_limits
from fluss.server.tablet.kv.kv_split import SplitKvApi
from fluss.server.tablet.kv.lookup import LookupApi
from fluss.server.tablet.kv.prefix_lookup import PrefixLookupApi
from fluss.server.tablet.kv.put import KvWriter, PutApi
from fluss.server.tablet.kv.put_queue import PutQueues
from fluss.server.tablet.log.batch_checks import BatchChecks
from fluss.server.tablet.log.fetch import FetchApi
from fluss.server.tablet.log.limit_scan import LimitScanApi
from fluss.server.tablet.log.offsets import OffsetsApi
from fluss.server.tablet.log.produce import ProduceApi
from fluss.server.tablet.log.read_stops import ReadStops
from fluss.server.tablet.log.writers import WritersApi
from fluss.server.tablet.maintenance import Maintenance
from fluss.server.tablet.snapshot_rounds import KvSnapshotRounds
from fluss.server.tablet.staging.service import StagingService

TABLET_SERVER_TYPE = 2


class _Parts(NamedTuple):
    """The parts that exist while the tablet serves."""

    committer: Committer
    registry: BucketRegistry
    maintenance: Maintenance
    snapshots: KvSnapshotRounds
    staging: StagingService
    kv_writer: KvWriter
    handlers: Mapping[int, Handler]


class TabletService:
    """Serves the buckets that this tablet leads."""

    server_type = TABLET_SERVER_TYPE

    def __init__(
        self,
        config: ServerConfig,
        catalog: Catalog,
        topology: Topology,
        server_id: int,
        clock: Callable[[], int],
        files: FileSystem | None = None,
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._topology = topology
        self._server_id = server_id
        self._clock = clock
        self._files = files or FileSystem()
        self._parts: _Parts | None = None

    @property
    def registry(self) -> BucketRegistry:
        """The buckets of a started tablet."""
        return self._started().registry

    @property
    def committer(self) -> Committer:
        """The commit thread of a started tablet."""
        return self._started().committer

    @property
    def maintenance(self) -> Maintenance:
        """The background work of a started tablet."""
        return self._started().maintenance

    @property
    def snapshots(self) -> KvSnapshotRounds:
        """The snapshots of a started tablet."""
        return self._started().snapshots

    @property
    def staging(self) -> StagingService:
        """The staged appends of a started tablet."""
        return self._started().staging

    def apis(self) -> Mapping[int, Handler]:
        """The handlers of a started tablet by API key."""
        return self._started().handlers

    async def start(self) -> None:
        """Create all parts, after which requests can be handled."""
        assert self._parts is None, "a tablet is started once"
        config, loop = self._config, asyncio.get_running_loop()

        def post(callback: Callable[[], None]) -> None:
            loop.call_soon_threadsafe(callback)

        committer = Committer(post, self._files, config.log_flush, config.log_flush_interval_ms)
        resources = KvResources(config.kv_block_cache_size, config.kv_write_buffers_size, config.kv_recent_rows_size)
        registry = BucketRegistry(
            config.data_dir,
            self._catalog,
            self._server_id,
            self._topology.tablet_count,
            committer,
            LogOptions(
                segment_bytes=config.log_segment_file_size,
                index_interval_bytes=config.log_index_interval_size,
                writer_expiration_ms=config.writer_id_expiration_ms,
                reserved_free_bytes=RESERVED_FREE_BYTES,
            ),
            RemoteStore(config.remote_data_dir, config.values_with_prefix("s3.")),
            self._files,
            self._clock,
            resources,
        )
        records = self._catalog.store.kv_snapshots
        maintenance = Maintenance(
            config,
            registry,
            self._server_id,
            self._clock,
            records.oldest_offset,
            self._catalog.store.lake.end_offset,
            ClosingBuckets(registry, self._catalog, self._server_id, self._topology.tablet_count),
        )
        snapshots = KvSnapshotRounds(config, registry, records, self._clock)
        tablet_count = self._topology.tablet_count
        staging = StagingService(
            config, registry, self._catalog, committer, self._files, self._server_id, tablet_count, self._clock
        )
        kv_writer = KvWriter(self._catalog.store, self._clock)
        registry.dropped_listeners.append(kv_writer.forget)
        queues = PutQueues(resources.long_work)
        handlers = self._handlers(committer, registry, staging, kv_writer, queues)
        self._parts = _Parts(committer, registry, maintenance, snapshots, staging, kv_writer, handlers)

    def _handlers(
        self,
        committer: Committer,
        registry: BucketRegistry,
        staging: StagingService,
        kv_writer: KvWriter,
        queues: PutQueues,
    ) -> Mapping[int, Handler]:
        shared = SharedApis(self._config, self._catalog, self._topology, self._clock)
        access = TableAccess(shared.environment.authorizer)
        stops = ReadStops()
        checks = BatchChecks(full=self._config.log_validate == "full")
        offsets = OffsetsApi(registry, access, self._clock, stops)
        kv_reads = KvReads(registry, access)
        scans = ScanKvApi(kv_reads, self._clock, scan_limits(self._config))
        handlers: Mapping[int, Handler] = {
            ApiKey.PRODUCE_LOG: ProduceApi(registry, access, committer, self._clock, checks).produce_log,
            ApiKey.PUT_KV: PutApi(registry, access, committer, self._clock, kv_writer, queues).put_kv,
            ApiKey.LOOKUP: LookupApi(kv_reads, MissingRows(kv_writer, committer, queues)).lookup,
            ApiKey.PREFIX_LOOKUP: PrefixLookupApi(kv_reads).prefix_lookup,
            ApiKey.SCAN_KV: scans.scan_kv,
            ApiKey.SCAN_KV_RANGE: scans.scan_kv_range,
            ApiKey.SPLIT_KV: SplitKvApi(kv_reads).split_kv,
            ApiKey.FETCH_LOG: FetchApi(registry, access, stops).fetch_log,
            ApiKey.LIST_OFFSETS: offsets.list_offsets,
            ApiKey.GET_TABLE_STATS: offsets.table_stats,
            ApiKey.LIMIT_SCAN: LimitScanApi(registry, access).limit_scan,
            ApiKey.INIT_WRITER: WritersApi(registry, access, self._catalog.store).init_writer,
            **staging.handlers(access, shared.environment.authorizer, checks),
        }
        return {**shared.apis(), **with_permission_checks(shared.environment, handlers)}

    async def run_background(self) -> None:
        """Open buckets, follow the catalog, upload, delete, and take snapshots until cancelled."""
        parts = self._started()
        others = [asyncio.ensure_future(parts.snapshots.run()), asyncio.ensure_future(parts.staging.run())]
        try:
            await parts.maintenance.run()
        finally:
            for other in others:
                other.cancel()

    async def stop(self) -> None:
        """Make everything that was accepted durable, and close. Waiting fetches are answered."""
        parts = self._parts
        if parts is None:
            return
        await parts.staging.close()
        await parts.registry.close()
        parts.kv_writer.close()
        await parts.snapshots.close()
        parts.committer.close()

    def _started(self) -> _Parts:
        assert self._parts is not None, "the tablet is not started"
        return self._parts
