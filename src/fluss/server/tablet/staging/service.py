"""The staged appends of one tablet, assembled from their parts. States: new -> serving -> (`close`) stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from fluss.protocol.api_keys import ApiKey
from fluss.server.apis.authorizer import Authorizer
from fluss.server.catalog import Catalog
from fluss.server.config.server_config import ServerConfig
from fluss.server.runtime.handlers import Handler
from fluss.server.storage.files import FileSystem
from fluss.server.storage.log.committer import Committer
from fluss.server.storage.log.options import RESERVED_FREE_BYTES
from fluss.server.tablet.buckets.access import TableAccess
from fluss.server.tablet.buckets.registry import BucketRegistry
from fluss.server.tablet.log.batch_checks import BatchChecks
from fluss.server.tablet.staging.applier import StagedApplier
from fluss.server.tablet.staging.cleaning import StagedCleaning
from fluss.server.tablet.staging.commit_apis import StagedCommitApis
from fluss.server.tablet.staging.limits import StagingLimits
from fluss.server.tablet.staging.stage import StageApi
from fluss.server.tablet.staging.workers import StagingWorkers

logger = logging.getLogger(__name__)

# The interval at which decided work is looked for if no request asks for it.
WORK_INTERVAL_SECONDS = 0.1


class StagingService:
    """The handlers and the background work of staged appends."""

    def __init__(
        self,
        config: ServerConfig,
        registry: BucketRegistry,
        catalog: Catalog,
        committer: Committer,
        files: FileSystem,
        server_id: int,
        tablet_count: int,
        clock: Callable[[], int],
    ) -> None:
        limits = StagingLimits(
            expiration_ms=config.staged_append_expiration_ms,
            max_bucket_bytes=config.staged_append_max_bucket_bytes,
            max_tablet_bytes=config.staged_append_max_bytes // tablet_count,
            reserved_free_bytes=RESERVED_FREE_BYTES,
        )
        self._registry = registry
        self._catalog = catalog
        self._clock = clock
        self._clean_interval_seconds = config.staged_append_check_interval_ms / 1000
        self.workers = StagingWorkers(files, limits)
        self.applier = StagedApplier(registry, catalog, self.workers, committer, server_id, tablet_count, clock)
        self.cleaning = StagedCleaning(registry, catalog, self.workers, self.applier, clock)

    def handlers(self, access: TableAccess, authorizer: Authorizer, checks: BatchChecks) -> Mapping[int, Handler]:
        """The handlers by API key."""
        registry, catalog, workers = self._registry, self._catalog, self.workers
        stages = StageApi(registry, access, workers, self._clock, catalog, authorizer, checks)
        commits = StagedCommitApis(registry, catalog, workers, self.applier, self.cleaning, authorizer)
        return {
            ApiKey.STAGE_LOG: stages.stage_log,
            ApiKey.PREPARE_STAGED: commits.prepare_staged,
            ApiKey.APPLY_STAGED: commits.apply_staged,
            ApiKey.ABORT_STAGED: commits.abort_staged,
        }

    async def run(self) -> None:
        """Look for decided work and for files to remove, until cancelled."""
        loop = asyncio.get_running_loop()
        clean_at = loop.time() + self._clean_interval_seconds
        while True:
            try:
                self.applier.start_new_work()
                if loop.time() >= clean_at:
                    clean_at = loop.time() + self._clean_interval_seconds
                    await self.cleaning.round()
            except Exception:
                logger.exception("background work on staged rows failed and will be retried")
            await asyncio.sleep(WORK_INTERVAL_SECONDS)

    async def close(self) -> None:
        """Stop; decided rows that are not applied yet are applied after the next start."""
        await self.applier.close()
        await self.workers.close()
