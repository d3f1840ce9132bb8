"""PREPARE_STAGED, APPLY_STAGED and ABORT_STAGED: the tablet's part of a commit. All three are idempotent."""

from __future__ import annotations

import asyncio
from functools import partial

from fluss.model.paths import TableBucket
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.server.apis.authorizer import Authorizer
from fluss.server.apis.staged_rules import check_identity, staged_buckets, staged_table, staged_user
from fluss.server.catalog import Catalog, TableEntry
from fluss.server.catalog.staged_records import StagedFileEntry
from fluss.server.runtime.handlers import RequestContext
from fluss.server.tablet.buckets.registry import BucketRegistry, wait_until_settled
from fluss.server.tablet.staging.applier import StagedApplier
from fluss.server.tablet.staging.bucket_files import BucketFiles
from fluss.server.tablet.staging.cleaning import StagedCleaning
from fluss.server.tablet.staging.workers import StagingWorkers

# A client that wants to wait longer repeats the request: no request may occupy a connection forever.
MAX_WAIT_MS = 60_000


class StagedCommitApis:
    """Handlers of PREPARE_STAGED, APPLY_STAGED and ABORT_STAGED."""

    def __init__(
        self,
        registry: BucketRegistry,
        catalog: Catalog,
        workers: StagingWorkers,
        applier: StagedApplier,
        cleaning: StagedCleaning,
        authorizer: Authorizer,
    ) -> None:
        self._registry = registry
        self._catalog = catalog
        self._workers = workers
        self._applier = applier
        self._cleaning = cleaning
        self._authorizer = authorizer

    async def prepare_staged(
        self, context: RequestContext, request: staged_pb.PrepareStagedRequest
    ) -> staged_pb.PrepareStagedResponse:
        """Check that all named files are complete, and sync them.

        FlussError 33 if one is not complete, 7 or 36 if the table or partition was dropped.
        """
        entry = self._begin(context, request.table_id, request.transaction, request.batch_id)
        buckets = staged_buckets(self._catalog, entry, request.buckets)
        prepared = [self._prepare(bucket, files, request) for bucket, files in buckets]
        for result in await asyncio.gather(*prepared, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        return staged_pb.PrepareStagedResponse()

    async def _prepare(
        self, bucket: TableBucket, files: tuple[StagedFileEntry, ...], request: staged_pb.PrepareStagedRequest
    ) -> None:
        local = self._registry.find(bucket)
        await wait_until_settled([local])
        work = partial(BucketFiles.prepare, transaction=request.transaction, batch_id=request.batch_id, entries=files)
        await self._workers.submit(local, work)

    async def apply_staged(
        self, context: RequestContext, request: staged_pb.ApplyStagedRequest
    ) -> staged_pb.ApplyStagedResponse:
        """Wait until a decided batch is in the logs of this tablet's buckets."""
        self._begin(context, request.table_id, request.transaction, request.batch_id)
        self._applier.start_new_work()
        timeout_ms = max(0, min(request.timeout_ms, MAX_WAIT_MS))
        await self._applier.wait(request.table_id, request.transaction, request.batch_id, timeout_ms)
        return staged_pb.ApplyStagedResponse()

    async def abort_staged(
        self, context: RequestContext, request: staged_pb.AbortStagedRequest
    ) -> staged_pb.AbortStagedResponse:
        """Remove the files of a batch, or of some of its attempts, unless its commit is decided."""
        self._begin(context, request.table_id, request.transaction, request.batch_id)
        await self._cleaning.abort(
            request.table_id, request.transaction, request.batch_id, frozenset(request.writer_ids)
        )
        return staged_pb.AbortStagedResponse()

    def _begin(self, context: RequestContext, table_id: int, transaction: str, batch_id: int) -> TableEntry:
        self._registry.follow_catalog()
        check_identity(transaction, batch_id)
        entry = staged_table(self._catalog, table_id)
        self._catalog.store.staged.owners.check(table_id, transaction, staged_user(context, self._authorizer))
        return entry
