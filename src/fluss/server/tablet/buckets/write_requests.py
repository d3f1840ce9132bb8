"""Write requests: every bucket of a request is appended, acknowledged and reported on its own.

Theory. Requests are taken up in order of arrival. All buckets of a request are appended at once, in the same step of
the event loop; a bucket that is still being opened takes the append in the step that opens it, before later requests. A
request for many buckets (`TAKEN_AT_ONCE_BUCKETS`) is taken up in steps, with others served in between; requests for the
same table wait behind it, so appends to a bucket keep their order. The answer is sent when every bucket has its result:
the append is written (acks 0 and 1), durable (acks -1), failed, or `timeout_ms` has passed (acks -1; the data stays and
may still become durable). All errors are results of buckets and never of the request, because clients retry requests
that fail as a whole forever.

Buffers: the records of all buckets share one receive buffer. It is returned when the last bucket no longer needs it,
which is independent of the answer: an append that timed out still reads from it.

Back-pressure: while the commit thread is full, requests wait in order of arrival in `_deferred`. They hold their
buffers, and the network layer reads no more than its buffer pool allows, so senders slow down. Beyond
`MAX_DEFERRED_BYTES` buckets are refused with error 72, after which clients retry with a pause.

`WriteApi` handles a request; `produce` and `kv.put` define what is appended.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

from google.protobuf.message import Message

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.server.catalog import TableEntry
from fluss.server.runtime.handlers import ProduceRequest, Reply, RequestContext
from fluss.server.storage.log.append import AppendCallback
from fluss.server.tablet.buckets.access import TableAccess
from fluss.server.tablet.buckets.local_bucket import BucketState, LocalBucket
from fluss.server.tablet.buckets.registry import BucketRegistry
from fluss.server.tablet.buckets.requested_buckets import max_buckets

logger = logging.getLogger(__name__)

ACKS_ALL = -1
ACKS_NONE = 0
ACKS_LEADER = 1
# A request for more buckets is taken up in steps of this many.
TAKEN_AT_ONCE_BUCKETS = 128
MAX_DEFERRED_BYTES = 512 * 1024 * 1024


class Backpressure(Protocol):
    """The writer of the records, such as the commit thread: requests wait while it `is_full`."""

    @property
    def is_full(self) -> bool:
        """True if callers should stop reading data from their clients."""

    def add_drained_callback(self, callback: Callable[[], None]) -> None:
        """Have a function called once, when there is room again."""


class Accepted(Protocol):
    """Records that were accepted, such as an `Append`."""

    def add_written(self, callback: AppendCallback) -> None:
        """Call back when they are written, or with the error."""

    def add_durable(self, callback: AppendCallback) -> None:
        """Call back when they are as durable as `acks` -1 requires, or with the error."""


class BucketWrite(NamedTuple):
    """The part of a write request that is for one bucket."""

    local: LocalBucket
    entry: TableEntry
    records: memoryview
    position: int


class PendingWrite:
    """A request that is not answered yet. Its results are set by the position of the bucket in the request."""

    __slots__ = (
        "_buffer_users",
        "_open_results",
        "_release",
        "_response",
        "_result_field",
        "_timer",
        "acks",
        "api_version",
        "future",
        "message",
        "size_bytes",
    )

    def __init__(
        self,
        context: RequestContext,
        request: ProduceRequest,
        future: asyncio.Future[Reply],
        response: Any,
        result_field: str,
    ) -> None:
        self.message = request.message
        self.acks: int = request.message.acks
        self.api_version = context.api_version
        self.size_bytes = sum(map(len, request.records))
        self.future = future
        self._release = request.release
        self._buffer_users = len(request.records)
        self._open_results = len(request.records)
        self._timer: asyncio.TimerHandle | None = None
        self._response = response
        self._result_field = result_field
        for item in request.message.buckets_req:
            entry = self._response.buckets_resp.add(bucket_id=item.bucket_id)
            if item.HasField("partition_id"):
                entry.partition_id = item.partition_id
        if not request.records:
            request.release()
            self._answer()

    def release_one(self) -> None:
        """Record that one bucket no longer needs its records."""
        self._buffer_users -= 1
        if self._buffer_users == 0:
            self._release()
        assert self._buffer_users >= 0, "a bucket released its records twice"

    def refuse(self, position: int, error: FlussError) -> None:
        """Set an error as the result of a bucket that is not appended, and release its records."""
        try:
            self.release_one()
        finally:
            self.fail(position, error)

    def fail(self, position: int, error: FlussError) -> None:
        """Set an error as the result of a bucket, without releasing its records."""
        entry = self._response.buckets_resp[position]
        entry.error_code = error.error_code
        entry.error_message = error.message
        self._settle()

    def appended(self, position: int, append: Accepted, result: int, check: Callable[[], None] | None = None) -> None:
        """Set `result` for a bucket once its append is written or durable, as `acks` requires.

        `check` is called then, and may still raise a FlussError.
        """
        entry = self._response.buckets_resp[position]

        def done(error: FlussError | None) -> None:
            if self.future.done():
                return  # The request was already answered with a timeout, or it was cancelled.
            try:
                if error is None and check is not None:
                    check()
            except FlussError as failure:
                error = failure
            if error is not None:
                self.fail(position, error)
            else:
                setattr(entry, self._result_field, result)
                self._settle()

        if self.acks == ACKS_ALL:
            append.add_durable(done)
        else:
            append.add_written(done)

    def start_timer(self, timeout_ms: int) -> None:
        """Start the time limit, after which buckets without a result get error 25."""
        if self.acks == ACKS_ALL and not self.future.done():
            loop = self.future.get_loop()
            self._timer = loop.call_later(max(0, timeout_ms) / 1000, self._time_over, timeout_ms)

    def _time_over(self, timeout_ms: int) -> None:
        if self.future.done():
            return
        for entry in self._response.buckets_resp:
            if not entry.HasField(self._result_field) and not entry.HasField("error_code"):
                entry.error_code = ErrorCode.REQUEST_TIME_OUT
                entry.error_message = (
                    f"the records are not durable after {timeout_ms} ms; they are kept and may still become durable"
                )
        self._answer()

    def _settle(self) -> None:
        self._open_results -= 1
        if self._open_results == 0:
            self._answer()

    def _answer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.future.done():
            self.future.set_result(self._response)


class _Taken(NamedTuple):
    """A request that is taken up, and the error that applies to all of its buckets."""

    request: ProduceRequest
    pending: PendingWrite
    error: FlussError | None


class WriteApi(ABC):
    """Base class of the handlers of write requests."""

    response_type: type[Message]
    result_field: str

    def __init__(
        self, registry: BucketRegistry, access: TableAccess, committer: Backpressure, clock: Callable[[], int]
    ) -> None:
        self._registry = registry
        self._access = access
        self._committer = committer
        self._clock = clock
        self._deferred: deque[tuple[ProduceRequest, PendingWrite, FlussError | None]] = deque()
        self._deferred_bytes = 0
        # By table: the request that is being taken up in steps, and those that wait behind it.
        self._taken_up: dict[int, deque[_Taken]] = {}
        self._long_work = registry.long_work

    def handle(self, context: RequestContext, request: ProduceRequest) -> Awaitable[Reply]:
        """Append the records to all buckets that accept them; the answer is sent when all results are there.

        FlussError 3 or 21 for a request that no client sends: one that names a bucket twice, or more than exist.
        """
        try:
            self._registry.follow_catalog()
            error = self._request_error(context, request.message)
        except FlussError as failure:
            error = failure  # The metadata cannot be read.
        if error is None and len(request.records) > 1:
            self._check_buckets(request.message)  # after the permission: its errors describe the table
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        pending = PendingWrite(context, request, future, self.response_type(), self.result_field)
        if self._deferred or self._committer.is_full:
            self._defer(request, pending, error)
        else:
            self._start(request, pending, error)
        return pending.future

    def _check_buckets(self, message: Any) -> None:
        named = message.buckets_req
        if len(
            {(item.partition_id if item.HasField("partition_id") else None, item.bucket_id) for item in named}
        ) < len(named):
            raise FlussError(
                f"the write request to table id {message.table_id} names a bucket twice; send one request after the "
                "other",
                ErrorCode.CORRUPT_MESSAGE,
            )
        entry = self._registry.table(message.table_id)
        if entry is not None and len(named) > max_buckets(entry):
            text = f"the request names {len(named)} buckets, more than {entry.path} can have; refresh the metadata"
            raise FlussError(text, ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION)

    def _request_error(self, context: RequestContext, message: Any) -> FlussError | None:
        """The error that applies to all buckets of the request; None if there is none."""
        if message.acks not in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
            return FlussError(f"acks must be -1, 0 or 1, got {message.acks}", ErrorCode.INVALID_REQUIRED_ACKS)
        entry = self._registry.table(message.table_id)
        if entry is None:
            return FlussError(
                f"unknown table id {message.table_id}; refresh the metadata",
                ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION,
            )
        return self._access.error(context, entry.path) or self._table_error(context, entry)

    @abstractmethod
    def _table_error(self, context: RequestContext, entry: TableEntry) -> FlussError | None:
        """The error if the table does not accept such requests; None if it does."""

    @abstractmethod
    def _append(self, write: BucketWrite, pending: PendingWrite) -> None:
        """Append the records of an open bucket; FlussError if that is not possible.

        An implementation that does not raise is responsible for releasing the records.
        """

    def _defer(self, request: ProduceRequest, pending: PendingWrite, error: FlussError | None) -> None:
        if self._deferred_bytes + pending.size_bytes > MAX_DEFERRED_BYTES:
            error = FlussError(
                f"{self._deferred_bytes} bytes are waiting for the disk, the limit is {MAX_DEFERRED_BYTES}; "
                "retry later",
                ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION,
            )
        self._deferred_bytes += pending.size_bytes
        self._deferred.append((request, pending, error))
        if len(self._deferred) == 1:
            self._resume_when_drained()

    def _resume_when_drained(self) -> None:
        # In a step of its own: the callback runs in the middle of settling an append.
        loop = asyncio.get_running_loop()

        def resume_soon() -> None:
            loop.call_soon(self._resume)

        self._committer.add_drained_callback(resume_soon)

    def _resume(self) -> None:
        """Take up requests that waited for the commit thread, oldest first, until it is full again."""
        while self._deferred and not self._committer.is_full:
            request, pending, error = self._deferred.popleft()
            self._deferred_bytes -= pending.size_bytes
            self._start(request, pending, error)
        if self._deferred:
            self._resume_when_drained()

    def _start(self, request: ProduceRequest, pending: PendingWrite, error: FlussError | None) -> None:
        table_id = request.message.table_id
        taken = _Taken(request, pending, error)
        waiting = self._taken_up.get(table_id)
        if waiting is not None:
            waiting.append(taken)
        elif len(request.records) > TAKEN_AT_ONCE_BUCKETS:
            self._taken_up[table_id] = deque((taken,))
            self._long_work.start(self._take_up_in_steps(table_id))
        else:
            for _ in self._take_up(taken):
                pass

    def _take_up_in_steps(self, table_id: int) -> Iterator[None]:
        """Take up a request for very many buckets, then the requests for the same table that arrived meanwhile."""
        waiting = self._taken_up[table_id]
        while waiting:
            yield from self._take_up(waiting[0])
            waiting.popleft()
        del self._taken_up[table_id]

    def _take_up(self, taken: _Taken) -> Iterator[None]:
        """Take up the buckets of one request. Raises nothing, because others wait behind it."""
        request, pending, error = taken
        message = request.message
        for position, item in enumerate(message.buckets_req):
            if position and not position % TAKEN_AT_ONCE_BUCKETS:
                yield
            try:
                if error is not None:
                    pending.refuse(position, error)
                else:
                    self._take_up_bucket(request, pending, position, item)
            except Exception:
                # The bucket has no result, so it gets error 25 when `timeout_ms` has passed.
                logger.exception("cannot refuse a bucket of a write to table %d", message.table_id)
        pending.start_timer(message.timeout_ms)

    def _take_up_bucket(self, request: ProduceRequest, pending: PendingWrite, position: int, item: Any) -> None:
        table_id = request.message.table_id
        bucket = TableBucket(table_id, item.partition_id if item.HasField("partition_id") else None, item.bucket_id)
        try:
            entry = self._registry.table(table_id)
            if entry is None:
                raise _dropped(table_id)
            local = self._registry.find(bucket)
        except Exception as error:
            refuse(str(bucket), position, pending, error)
            return
        write = BucketWrite(local, entry, request.records[position], position)
        if local.state is BucketState.OPENING:
            local.when_settled(partial(self._append_or_refuse, write, pending))
        else:
            self._append_or_refuse(write, pending)

    def _append_or_refuse(self, write: BucketWrite, pending: PendingWrite) -> None:
        try:
            self._registry.check_takes_rows(write.local)
            self._append(write, pending)
        except Exception as error:
            refuse(write.local.name, write.position, pending, error)


def _dropped(table_id: int) -> FlussError:
    return FlussError(
        f"table id {table_id} was dropped; refresh the metadata", ErrorCode.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION
    )


def refuse(name: str, position: int, pending: PendingWrite, error: Exception) -> None:
    """Set an exception as the result of a bucket."""
    if not isinstance(error, FlussError):
        # A defect, or unforeseen records: the other buckets of the request are still appended.
        logger.error("a write to %s failed", name, exc_info=error)
        text = f"{name}: the write failed in the server: {error!r}; see the server's log"
        error = FlussError(text, ErrorCode.UNKNOWN_SERVER_ERROR)
    pending.refuse(position, error)
