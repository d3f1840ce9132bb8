"""The coordinator: the one writer of the metadata.

Theory. Handlers are synchronous: each checks, writes one transaction and answers when it is on disk, so requests are
served in the order in which they arrive and no two changes interleave. Only requests that involve a lake wait, for a
thread (`coordinator/lake`), and check the metadata again afterwards. `run_background` runs in the same event loop: it
creates and drops partitions by time, and removes expired offsets and leases. At the start, the default database is
created if there is none, and the coordinator epoch grows. On a full disk neither is possible, but the coordinator
starts anyway: readers need it, and changes are refused one by one until there is space.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from fluss.errors import ErrorCode, FlussError
from fluss.model.names import DEFAULT_DATABASE
from fluss.protocol.api_keys import ApiKey
from fluss.server.apis.acl_apis import AclApis
from fluss.server.apis.permission_checks import with_permission_checks
from fluss.server.apis.read_apis import SharedApis
from fluss.server.apis.topology import Topology
from fluss.server.catalog import Catalog, CatalogStore, TableEntry
from fluss.server.catalog.records import ExpiringRecords
from fluss.server.catalog.safety_copies import SafetyCopies
from fluss.server.config.server_config import ServerConfig
from fluss.server.coordinator.cluster_control import ClusterControl
from fluss.server.coordinator.disk_watch import CHECK_INTERVAL_MS, DiskWatch
from fluss.server.coordinator.kv_snapshot_apis import LONGEST_LEASE_MS, KvSnapshotApis
from fluss.server.coordinator.lake.lake_tables import LakeTables
from fluss.server.coordinator.lake.lake_threads import LakeThreads
from fluss.server.coordinator.lake.offsets_files import OffsetsFiles
from fluss.server.coordinator.lake.partition_expiry import LakePartitionExpiry
from fluss.server.coordinator.lake.snapshot_apis import LakeSnapshotApis
from fluss.server.coordinator.lake.tiering import LakeTiering
from fluss.server.coordinator.producer_offsets import ProducerOffsetApis, longest_offsets_ms
from fluss.server.coordinator.staged_commits import StagedCommitApis
from fluss.server.coordinator.tables.alter_table import AlterTableApi
from fluss.server.coordinator.tables.auto_partition import AutoPartitioner
from fluss.server.coordinator.tables.database_apis import DatabaseApis
from fluss.server.coordinator.tables.partition_apis import PartitionApis
from fluss.server.coordinator.tables.table_apis import TableApis
from fluss.server.coordinator.tables.table_copies import SYNC_INTERVAL_MS, TableCopies
from fluss.server.runtime.handlers import Handler
from fluss.server.storage.directory.disk_reserve import KEEP_INTERVAL_MS, keep_reserves
from fluss.server.storage.remote_store import RemoteStore

logger = logging.getLogger(__name__)

COORDINATOR_SERVER_TYPE = 1
DAY_MS = 86_400_000


class CoordinatorService:
    """The handlers and the background work of the coordinator."""

    server_type = COORDINATOR_SERVER_TYPE

    def __init__(self, config: ServerConfig, catalog: Catalog, topology: Topology, clock: Callable[[], int]) -> None:
        self._config = config
        self._catalog = catalog
        self._clock = clock
        self.epoch = _next_epoch(catalog.store)
        self._copies = TableCopies(config.data_dir, catalog.store)
        catalog.store.create_first_database(DEFAULT_DATABASE, clock())
        self._copies.start()
        catalog.refresh()
        self._shared = SharedApis(config, catalog, topology, clock)
        self.lake_tiering = LakeTiering(self._shared.environment, self.epoch)
        self._lake_expiry = LakePartitionExpiry(self._shared.environment, self.lake_tiering.make_due)
        self.auto_partitioner = AutoPartitioner(self._shared.environment, self._lake_expiry)
        self._cluster = ClusterControl(self._shared.environment)
        lake_work = LakeThreads(config.lake_request_timeout_ms)
        self._lake_tables = LakeTables(self._shared.environment, lake_work)
        remote = RemoteStore(config.remote_data_dir, config.values_with_prefix("s3."))
        self._lake_files = OffsetsFiles(remote, lake_work)

    def apis(self) -> Mapping[int, Handler]:
        """Return the handlers by API key."""
        environment = self._shared.environment
        databases = DatabaseApis(environment, self._lake_files)
        tables = TableApis(environment, self.auto_partitioner, self._lake_tables, self._lake_files)
        partitions = PartitionApis(environment)
        acls = AclApis(environment)
        producers = ProducerOffsetApis(environment)
        snapshots = KvSnapshotApis(environment)
        staged = StagedCommitApis(environment)
        lake_snapshots = LakeSnapshotApis(environment, self._lake_files, self._lake_registered)
        handlers: Mapping[int, Handler] = {
            ApiKey.CREATE_DATABASE: databases.create_database,
            ApiKey.ALTER_DATABASE: databases.alter_database,
            ApiKey.DROP_DATABASE: databases.drop_database,
            ApiKey.CREATE_TABLE: tables.create_table,
            ApiKey.ALTER_TABLE: AlterTableApi(environment, self.auto_partitioner, self._lake_tables).alter_table,
            ApiKey.DROP_TABLE: tables.drop_table,
            ApiKey.CREATE_PARTITION: partitions.create_partition,
            ApiKey.DROP_PARTITION: partitions.drop_partition,
            ApiKey.CREATE_ACLS: acls.create_acls,
            ApiKey.DROP_ACLS: acls.drop_acls,
            ApiKey.ALTER_CLUSTER_CONFIGS: self._cluster.alter_cluster_configs,
            ApiKey.ADD_SERVER_TAG: self._cluster.add_server_tag,
            ApiKey.REMOVE_SERVER_TAG: self._cluster.remove_server_tag,
            ApiKey.REBALANCE: self._cluster.rebalance,
            ApiKey.LIST_REBALANCE_PROGRESS: self._cluster.list_rebalance_progress,
            ApiKey.CANCEL_REBALANCE: self._cluster.cancel_rebalance,
            ApiKey.REGISTER_PRODUCER_OFFSETS: producers.register_producer_offsets,
            ApiKey.GET_PRODUCER_OFFSETS: producers.get_producer_offsets,
            ApiKey.DELETE_PRODUCER_OFFSETS: producers.delete_producer_offsets,
            ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE: snapshots.acquire_kv_snapshot_lease,
            ApiKey.RELEASE_KV_SNAPSHOT_LEASE: snapshots.release_kv_snapshot_lease,
            ApiKey.DROP_KV_SNAPSHOT_LEASE: snapshots.drop_kv_snapshot_lease,
            ApiKey.LIST_KV_SNAPSHOTS: snapshots.list_kv_snapshots,
            ApiKey.LIST_REMOTE_LOG_MANIFESTS: snapshots.list_remote_log_manifests,
            ApiKey.LAKE_TIERING_HEARTBEAT: self.lake_tiering.heartbeat,
            ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT: lake_snapshots.prepare,
            ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT: lake_snapshots.commit,
            ApiKey.DECIDE_STAGED: staged.decide_staged,
            ApiKey.GET_STAGED_COMMIT: staged.get_staged_commit,
        }
        return {**self._shared.apis(), **with_permission_checks(environment, handlers)}

    async def run_background(self) -> None:
        """Run all periodic work, each at its interval, until cancelled."""
        await asyncio.gather(
            self._lake_files.check_store(),
            self._repeat(self.auto_partitioner.update_all, self._config.auto_partition_check_interval_ms),
            self._repeat(self.purge_expired, self._config.producer_offsets_cleanup_interval_ms),
            self._repeat(self.purge_leases, self._config.kv_snapshot_lease_check_interval_ms),
            self._repeat(DiskWatch(self._config.data_dir).check, CHECK_INTERVAL_MS),
            self._keep_reserves(),
            self._repeat(self.watch_lake, self._config.lake_tiering_check_interval_ms),
            self._sync_copies(),
            SafetyCopies(self._config.data_dir, self._catalog.store.file).run(),
        )

    async def _keep_reserves(self) -> None:
        while True:
            await asyncio.sleep(KEEP_INTERVAL_MS / 1000)
            keep_reserves(self._config.data_dir)

    async def _sync_copies(self) -> None:
        while True:
            await asyncio.sleep(SYNC_INTERVAL_MS / 1000)
            await self._copies.sync()

    async def _repeat(self, step: Callable[[], None], interval_ms: int) -> None:
        while True:
            try:
                step()
            except FlussError as error:
                logger.warning("background work failed, retrying in %d ms: %s", interval_ms, error)
            await asyncio.sleep(interval_ms / 1000)

    def purge_expired(self) -> None:
        """Remove expired producer offsets."""
        longest_ms = longest_offsets_ms(self._config.producer_offsets_ttl_ms)
        self._limit(self._catalog.store.producer_offsets, "producer offsets", longest_ms)
        self._catalog.store.producer_offsets.purge(self._clock())

    def purge_leases(self) -> None:
        """Remove expired snapshot leases; the tablets then retire the snapshots."""
        self._limit(self._catalog.store.kv_snapshot_leases, "leases of snapshots", LONGEST_LEASE_MS)
        self._catalog.store.kv_snapshot_leases.purge(self._clock())

    def _limit(self, records: ExpiringRecords, what: str, longest_ms: int) -> None:
        count = records.limit(longest_ms, self._clock())
        if count:
            logger.warning(
                "%d %s would have ended more than %.0f days from now, so the clock was ahead when they were stored; "
                "they now end after that time",
                count,
                what,
                longest_ms / DAY_MS,
            )

    def watch_lake(self) -> None:
        """Reassign tables of silent tiering services, and drop expired partitions that the lake has completely."""
        self.lake_tiering.update()
        for entry in self._lake_expiry.waiting_tables():
            self.auto_partitioner.update_table(entry)

    def _lake_registered(self, entry: TableEntry) -> None:
        """Drop the partitions of a table that were waiting for the lake snapshot just registered."""
        self.auto_partitioner.update_table(entry)

    def close(self) -> None:
        """Write the final mark of the catalog, which the caller closes."""
        self._copies.close()


def _next_epoch(store: CatalogStore) -> int:
    """Return a new epoch, or the last one if the disk has no space to store a new one."""
    try:
        return store.next_coordinator_epoch()
    except FlussError as error:
        if error.error_code != ErrorCode.DISK_WRITE_LOCKED:
            raise
        logger.warning("metadata can be read but not changed for now: %s", error.message)
        return store.file.counter("coordinator_epoch")
