"""PRODUCE_LOG: batches are appended to log tables as received. `write_requests` describes how requests are handled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from fluss.errors import ErrorCode, FlussError
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.catalog import TableEntry
from fluss.server.runtime.handlers import ProduceRequest, Reply, RequestContext
from fluss.server.storage.log.committer import Committer
from fluss.server.storage.log.incoming import check_batch_count
from fluss.server.tablet.buckets.access import TableAccess
from fluss.server.tablet.buckets.registry import BucketRegistry
from fluss.server.tablet.buckets.write_requests import BucketWrite, PendingWrite, WriteApi
from fluss.server.tablet.log.batch_checks import BatchChecks
from fluss.server.tablet.log.log_format import LogFormats


class ProduceApi(WriteApi):
    """Handler of PRODUCE_LOG."""

    response_type = pb.ProduceLogResponse
    result_field = "base_offset"

    def __init__(
        self,
        registry: BucketRegistry,
        access: TableAccess,
        committer: Committer,
        clock: Callable[[], int],
        checks: BatchChecks,
    ) -> None:
        super().__init__(registry, access, committer, clock)
        self._formats = LogFormats()
        self._checks = checks

    def produce_log(self, context: RequestContext, request: ProduceRequest) -> Awaitable[Reply]:
        """Append the batches to all buckets that accept them; the answer is sent when all results are there."""
        return self.handle(context, request)

    def _table_error(self, context: RequestContext, entry: TableEntry) -> FlussError | None:
        return primary_key_error(entry)

    def _append(self, write: BucketWrite, pending: PendingWrite) -> None:
        log, _ = write.local.opened()
        check_batch_count(write.records)
        is_arrow = self._formats.is_arrow(write.entry, write.records)
        check = partial(self._checks.check, write.entry, is_arrow, write.records)
        append = log.append(write.records, self._clock(), pending.release_one, check)
        pending.appended(write.position, append, append.base_offset)


def primary_key_error(entry: TableEntry) -> FlussError | None:
    """The error for appends to a primary-key table; None for a log table."""
    if not entry.has_primary_key:
        return None
    return FlussError(
        f"cannot append to {entry.path}, which has a primary key; use upserts instead",
        ErrorCode.INVALID_TABLE_EXCEPTION,
    )
