"""INIT_WRITER: ids for idempotent writers, unique in the whole server and never reused.

A tablet takes ids from the catalog in blocks, because each block is a transaction on disk. The rest of a block is lost
when the tablet stops, which does no harm: there are 2^63 ids.
"""

from __future__ import annotations

from fluss.model.paths import TablePath
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.catalog import CatalogStore
from fluss.server.runtime.handlers import RequestContext
from fluss.server.tablet.buckets.access import TableAccess
from fluss.server.tablet.buckets.registry import BucketRegistry

WRITER_ID_BLOCK = 100


class WritersApi:
    """Handler of INIT_WRITER."""

    def __init__(self, registry: BucketRegistry, access: TableAccess, store: CatalogStore) -> None:
        self._registry = registry
        self._access = access
        self._store = store
        self._next_id = 0
        self._end_id = 0

    def init_writer(self, context: RequestContext, request: pb.InitWriterRequest) -> pb.InitWriterResponse:
        """Return a new writer id, for users who may write at least one of the named tables."""
        self._registry.follow_catalog()
        paths = [TablePath(path.database_name, path.table_name) for path in request.table_path]
        self._access.check_any_write(context, paths)
        if self._next_id == self._end_id or self._next_id < self._store.staged.owners.first_writer_id:
            self._next_id = self._store.allocate_writer_ids(WRITER_ID_BLOCK)
            self._end_id = self._next_id + WRITER_ID_BLOCK
        writer_id = self._next_id
        self._next_id += 1
        return pb.InitWriterResponse(writer_id=writer_id)
