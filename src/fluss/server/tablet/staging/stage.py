"""STAGE_LOG: batches are written to staged files. Requests are handled like all writes: see `write_requests`.

Batches are checked like those of PRODUCE_LOG, so none can be refused when they are appended later. The answer is sent
when they are written; PREPARE_STAGED syncs them.

If a batch id is already decided, its rows are not needed: they are dropped, and the answer has 0 staged bytes. A job
that repeats a finished batch finds that out at its commit, not by a failing task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from fluss.codec.batches.log_batch import BatchHeader
from fluss.errors import ErrorCode, FlussError
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.server.apis.authorizer import Authorizer
from fluss.server.apis.staged_rules import check_identity, staged_user
from fluss.server.catalog import Catalog, TableEntry
from fluss.server.runtime.handlers import ProduceRequest, Reply, RequestContext
from fluss.server.storage.log.append import AppendCallback
from fluss.server.storage.log.incoming import check_batch_count, whole_batches
from fluss.server.storage.staged_files import StagedHeader
from fluss.server.tablet.buckets.access import TableAccess
from fluss.server.tablet.buckets.registry import BucketRegistry
from fluss.server.tablet.buckets.write_requests import ACKS_ALL, BucketWrite, PendingWrite, WriteApi
from fluss.server.tablet.log.batch_checks import BatchChecks
from fluss.server.tablet.log.log_format import LogFormats
from fluss.server.tablet.log.produce import primary_key_error
from fluss.server.tablet.staging.workers import StagingWorkers


class StageApi(WriteApi):
    """Handler of STAGE_LOG."""

    response_type = staged_pb.StageLogResponse
    result_field = "staged_bytes"

    def __init__(
        self,
        registry: BucketRegistry,
        access: TableAccess,
        workers: StagingWorkers,
        clock: Callable[[], int],
        catalog: Catalog,
        authorizer: Authorizer,
        checks: BatchChecks,
    ) -> None:
        super().__init__(registry, access, workers, clock)
        self._workers = workers
        self._catalog = catalog
        self._authorizer = authorizer
        self._formats = LogFormats()
        self._checks = checks

    def stage_log(self, context: RequestContext, request: ProduceRequest) -> Awaitable[Reply]:
        """Stage rows for all buckets that accept them; the answer is sent when all results are there."""
        return self.handle(context, request)

    def _request_error(self, context: RequestContext, message: Any) -> FlussError | None:
        try:
            check_identity(message.transaction, message.batch_id)
        except FlussError as error:
            return error
        if message.acks != ACKS_ALL:
            return FlussError(f"acks must be -1 for staging, got {message.acks}", ErrorCode.INVALID_REQUIRED_ACKS)
        if message.writer_id < 0:
            return FlussError(
                f"invalid writer id {message.writer_id}; obtain one with INIT_WRITER",
                ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION,
            )
        refusal = super()._request_error(context, message)
        if refusal is None:
            user = staged_user(context, self._authorizer)
            owners = self._catalog.store.staged.owners
            owners.claim(message.table_id, message.transaction, user, self._clock())
            owners.check_attempts(message.table_id, message.transaction, user, [message.writer_id])
        return refusal

    def _table_error(self, context: RequestContext, entry: TableEntry) -> FlussError | None:
        return primary_key_error(entry)

    def _append(self, write: BucketWrite, pending: PendingWrite) -> None:
        log, _ = write.local.opened()
        message = pending.message
        is_arrow = self._formats.is_arrow(write.entry, write.records)
        check_batch_count(write.records)
        batches = whole_batches(write.records)
        self._checks.check(write.entry, is_arrow, write.records, batches)
        _check_numbers(batches, message.writer_id)
        last = self._catalog.store.staged.last_batch_id(message.table_id, message.transaction)
        if not batches or (last is not None and message.batch_id <= last):
            pending.release_one()
            pending.appended(write.position, _Staged(None), 0)
            return
        header = StagedHeader(message.table_id, message.writer_id, message.batch_id, message.transaction)
        log.writers.protected.add(message.writer_id)
        now_ms = self._clock()
        future = self._workers.submit(
            write.local,
            lambda files: files.stage(header, write.records, batches, now_ms),
            len(write.records),
        )
        future.add_done_callback(lambda _: pending.release_one())
        pending.appended(write.position, _Staged(future), len(write.records))


class _Staged:
    """Records that are being written to a staged file; implements `write_requests.Accepted`."""

    def __init__(self, future: asyncio.Future[int] | None) -> None:
        self._future = future

    def add_written(self, callback: AppendCallback) -> None:
        """Call back when the thread has written them."""
        if self._future is None:
            callback(None)
        else:
            self._future.add_done_callback(partial(_report, callback))

    def add_durable(self, callback: AppendCallback) -> None:
        """Call back when they are written: staged rows become durable only when they are prepared."""
        self.add_written(callback)


def _report(callback: AppendCallback, future: asyncio.Future[int]) -> None:
    if future.cancelled():
        callback(FlussError("the tablet is stopping; retry later", ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return
    error = future.exception()
    if error is None or isinstance(error, FlussError):
        callback(error)
    else:
        text = f"staging failed in the server: {error!r}; stage the rows again with a new writer id"
        callback(FlussError(text, ErrorCode.UNKNOWN_SERVER_ERROR))


def _check_numbers(batches: Sequence[tuple[int, BatchHeader]], writer_id: int) -> None:
    """Raise FlussError if a batch belongs to another attempt or does not follow the one before it."""
    previous: int | None = None
    for _, header in batches:
        if header.writer_id != writer_id:
            raise FlussError(
                f"the batches of attempt {writer_id} must have its writer id, got {header.writer_id}",
                ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION,
            )
        if header.batch_sequence < 0 or (previous is not None and header.batch_sequence != previous + 1):
            expected = "0 or more" if previous is None else str(previous + 1)
            raise FlussError(
                f"attempt {writer_id} sent batch {header.batch_sequence}, expected {expected}; send batches in order",
                ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION,
            )
        previous = header.batch_sequence
