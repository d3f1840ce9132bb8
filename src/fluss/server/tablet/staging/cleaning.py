"""Removing staged files that can never be committed.

There are three kinds: files of a decided batch that its commit did not use (or whose rows are already in the log),
files of attempts that a client aborts, and files of a batch to which nothing was added for `staged.append.expiration`.
The expiration is counted per batch and not per file: a task that finished early must not lose its rows while others are
still running.

A decided batch id forbids all later decisions for it and for those before, so files of the first kind can be removed at
once. For the others a commit may be in progress, between its prepare and its decision; so they are revoked in the
catalog first (`StagedRecords.revoke`), which either forbids the decision or finds that it was made. Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from fluss.server.catalog import Catalog
from fluss.server.storage.staged_files import StagedHeader
from fluss.server.tablet.buckets.local_bucket import BucketState, LocalBucket
from fluss.server.tablet.buckets.registry import BucketRegistry
from fluss.server.tablet.staging.applier import StagedApplier
from fluss.server.tablet.staging.bucket_files import FileSummary
from fluss.server.tablet.staging.workers import StagingWorkers


class StagedCleaning:
    """Removes staged files of this tablet's buckets, in rounds and for aborts."""

    def __init__(
        self,
        registry: BucketRegistry,
        catalog: Catalog,
        workers: StagingWorkers,
        applier: StagedApplier,
        clock: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._staged = catalog.store.staged
        self._workers = workers
        self._applier = applier
        self._clock = clock

    async def round(self) -> None:
        """Clean all buckets that have staged files."""
        known = set(self._workers.known_buckets())
        found: list[tuple[LocalBucket, list[FileSummary]]] = []
        for local, log, _ in self._registry.open_buckets():
            if log.writers.protected or local in known:
                found.append((local, await self._files_of(local)))
        newest: dict[tuple[int, str, int] | None, int] = {}
        for _, files in found:
            for file in files:
                batch = _batch_of(file)
                newest[batch] = max(newest.get(batch, 0), file.touched_ms)
        expired_before_ms = self._clock() - self._workers.limits.expiration_ms
        for local, files in found:
            finished = {file.writer_id for file in files if self._is_finished(local, file)}
            expired = {file.writer_id for file in files if newest[_batch_of(file)] < expired_before_ms} - finished
            await self._remove(local, finished)
            if expired:
                await self._remove(local, self._staged.revoke(expired))

    async def _files_of(self, local: LocalBucket) -> list[FileSummary]:
        """The files of a bucket; writers without a file lose their protection."""
        if local.state is not BucketState.OPEN:
            return []
        before = self._protected(local)
        found = await self._summaries(local)
        self._unprotect(local, before - {file.writer_id for file in found})
        return found

    async def _summaries(self, local: LocalBucket) -> list[FileSummary]:
        now_ms = self._clock()
        return await self._workers.submit(local, lambda files: files.summaries(now_ms))

    def _is_finished(self, local: LocalBucket, file: FileSummary) -> bool:
        """True if the batch of a file is decided and nothing of the file is left to be appended."""
        if file.header is None:
            return False
        # Read both from the catalog now: a decision moves the batch id and adds its work in one transaction.
        last = self._staged.last_batch_id(file.header.table_id, file.header.transaction)
        self._applier.start_new_work()
        return (
            last is not None and file.header.batch_id <= last and self._applier.is_applied(local.bucket, file.writer_id)
        )

    async def abort(self, table_id: int, transaction: str, batch_id: int, writer_ids: Collection[int]) -> None:
        """Remove the undecided files of these attempts, or of all attempts of the batch, on this tablet."""

        def is_meant(header: StagedHeader | None) -> bool:
            return (
                header is not None
                and (header.table_id, header.transaction, header.batch_id) == (table_id, transaction, batch_id)
                and (not writer_ids or header.writer_id in writer_ids)
            )

        found: list[tuple[LocalBucket, list[int]]] = []
        for local, log, _ in self._registry.open_buckets():
            if local.bucket.table_id == table_id and log.writers.protected:
                files = await self._summaries(local)
                found.append((local, [file.writer_id for file in files if is_meant(file.header)]))
        meant = {writer_id for _, ids in found for writer_id in ids}
        if not meant:
            return
        revoked = self._staged.revoke(meant)
        for local, ids in found:
            await self._remove(local, revoked.intersection(ids))

    async def _remove(self, local: LocalBucket, writer_ids: Collection[int]) -> None:
        if not writer_ids or local.state is not BucketState.OPEN:
            return
        await self._workers.submit(local, lambda files: files.remove(list(writer_ids)))
        self._unprotect(local, writer_ids)

    def _protected(self, local: LocalBucket) -> set[int]:
        return set(local.opened()[0].writers.protected)

    def _unprotect(self, local: LocalBucket, writer_ids: Collection[int]) -> None:
        if local.state is BucketState.OPEN:
            local.opened()[0].writers.protected.difference_update(writer_ids)


def _batch_of(file: FileSummary) -> tuple[int, str, int] | None:
    """Table, transaction and batch id; None for files with an incomplete header."""
    header = file.header
    return None if header is None else (header.table_id, header.transaction, header.batch_id)
