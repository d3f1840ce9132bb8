"""The final end offsets of buckets in expired partitions: the lake must reach them before the partition is dropped.

Once a partition is closing in this tablet's catalog, requests can no longer append to it. Rows that were accepted
before are already in the log, perhaps not yet on disk; staged appends that were decided before may still have to be
applied. When neither is left, the end of the bucket is final and is recorded in the catalog, again after a restart.
"""

from __future__ import annotations

import logging

from fluss.errors import FlussError
from fluss.model.paths import TableBucket
from fluss.server.apis.placement import leader_of
from fluss.server.catalog import Catalog
from fluss.server.tablet.buckets.local_bucket import BucketState
from fluss.server.tablet.buckets.registry import BucketRegistry

logger = logging.getLogger(__name__)


class ClosingBuckets:
    """Records the ends of the buckets that this tablet leads. Event loop only, after the registry has been updated."""

    def __init__(self, registry: BucketRegistry, catalog: Catalog, server_id: int, tablet_count: int) -> None:
        self._registry = registry
        self._catalog = catalog
        self._server_id = server_id
        self._tablet_count = tablet_count
        self._noted: set[TableBucket] = set()

    def note_ends(self) -> None:
        """Record the ends that are final by now; cheap if nothing is closing."""
        closing = self._catalog.closing_partitions
        if not closing:
            self._noted.clear()
            return
        self._noted = {bucket for bucket in self._noted if bucket.partition_id in closing}
        wanted = [bucket for bucket in self._own_buckets(closing) if bucket not in self._noted]
        if not wanted:
            return
        staged = {work.bucket for work in self._catalog.store.staged.work()}
        for bucket in wanted:
            if bucket not in staged:
                self._note_end(bucket)

    def _own_buckets(self, closing: frozenset[int]) -> list[TableBucket]:
        found: list[TableBucket] = []
        for partition_id in closing:
            owner = self._catalog.partition_by_id(partition_id)
            if owner is None:
                continue  # the partition was dropped in the meantime
            table = owner[0]
            found += [TableBucket(table.table_id, partition_id, number) for number in range(table.bucket_count)]
        return [bucket for bucket in found if leader_of(bucket, self._tablet_count) == self._server_id]

    def _note_end(self, bucket: TableBucket) -> None:
        try:
            local = self._registry.find(bucket)
            if local.state is not BucketState.OPEN:
                return  # the bucket is being opened or is broken: the next round tries again
            log, _ = local.opened()
            if log.high_watermark == log.log_end_offset:
                self._catalog.store.closing.note_end(bucket, log.log_end_offset)
                self._noted.add(bucket)
        except FlussError as error:
            logger.warning("cannot record the end of %s in an expired partition yet: %s", bucket, error.message)
