"""STAGE_LOG: batches into staged files. The way of a request is that of every write: `write_requests`.

Batches are checked like those of PRODUCE_LOG, so nothing can be refused when they are appended later. The answer comes
when they are written; that they are on disk is what PREPARE_STAGED asks for.

A batch id that is decided already needs no rows: they are dropped and the answer says that nothing was staged. A job
that repeats a finished batch learns so at its commit, not by a failing task.
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
from fluss.server.storage.log.append import Outcome
from fluss.server.storage.log.incoming import check_batch_count, whole_batches
from fluss.server.storage.staged_files import StagedHeader
from fluss.server.tablet.buckets.access import TableAccess
from fluss.server.tablet.buckets.registry import BucketRegistry
from fluss.server.tablet.buckets.write_requests import ACKS_ALL, BucketWrite, PendingWrite, WriteApi
from fluss.server.tablet.log.batch_checks import BatchChecks
from fluss.server.tablet.log.log_format import LogFormats
from fluss.server.tablet.log.produce import refuses_primary_keys
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
        """Stage everything that can be; the answer comes when all results are there."""
        return self.handle(context, request)

    def _request_error(self, context: RequestContext, message: Any) -> FlussError | None:
        try:
            check_identity(message.transaction, message.batch_id)
        except FlussError as error:
            return error
        if message.acks != ACKS_ALL:
            return FlussError(f"staging knows acks -1 only, not {message.acks}", ErrorCode.INVALID_REQUIRED_ACKS)
        if message.writer_id < 0:
            return FlussError(
                f"writer id {message.writer_id} is none; ask for one with INIT_WRITER",
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
        return refuses_primary_keys(entry)

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
    """Records on their way into a staged file; see `write_requests.Accepted`."""

    def __init__(self, future: asyncio.Future[int] | None) -> None:
        self._future = future

    def add_written(self, callback: Outcome) -> None:
        """Call back when the thread has written them."""
        if self._future is None:
            callback(None)
        else:
            self._future.add_done_callback(partial(_report, callback))

    def add_durable(self, callback: Outcome) -> None:
        """The same: staged rows become durable when they are prepared."""
        self.add_written(callback)


def _report(callback: Outcome, future: asyncio.Future[int]) -> None:
    if future.cancelled():
        callback(FlussError("the tablet stops", ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return
    error = future.exception()
    if error is None or isinstance(error, FlussError):
        callback(error)
    else:
        callback(FlussError(f"staging failed in the server: {error!r}", ErrorCode.UNKNOWN_SERVER_ERROR))


def _check_numbers(batches: Sequence[tuple[int, BatchHeader]], writer_id: int) -> None:
    """All batches are the attempt's, and each follows the one before it."""
    previous: int | None = None
    for _, header in batches:
        if header.writer_id != writer_id:
            raise FlussError(
                f"a batch of writer {header.writer_id} among those of attempt {writer_id}",
                ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION,
            )
        if header.batch_sequence < 0 or (previous is not None and header.batch_sequence != previous + 1):
            raise FlussError(
                f"batch {header.batch_sequence} of attempt {writer_id} does not follow {previous}",
                ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION,
            )
        previous = header.batch_sequence
