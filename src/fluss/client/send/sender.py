"""The sender: takes pieces of all writers of a connection, sends them as requests and handles the answers.

One per connection, on the I/O thread. For every bucket there is a `BucketQueue`; the sender takes batches from them,
puts batches of one table (and the same target columns) for one server into requests of at most
`writer.request-max-size` bytes (one batch per bucket and request), and lets `answer_rules.react` decide on each
result. It never waits: whatever a bucket lacks (writer id, leader, connection, time) is provided by a separate task or
timer, which then calls `send` again, while other buckets continue.

`busy` holds only the writers that have rows in flight: a writer object may be dropped, but its rows are not.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections import deque
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from fluss.client.net.cluster import Cluster
from fluss.client.net.rpc import RpcConnection
from fluss.client.send.acknowledgements import Chunk, PendingResult
from fluss.client.send.answer_rules import DOUBTFUL_CODES, STALE_METADATA_CODES, Reaction, react
from fluss.client.send.bucket_queue import BucketQueue, EncodingFailedError, Piece, WriteBatch
from fluss.client.send.preparation import WriterIds, may_pass, prepare_bucket
from fluss.client.send.requests import (
    ACKS,
    errors_by_batch,
    in_doubt_error,
    pauses_by_bucket,
    retry_pause,
    write_request,
)
from fluss.client.send.write_memory import MemoryBudget
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TablePath
from fluss.protocol import fluss_api_pb2 as pb

# How long a server may wait for durability before it answers 25; the batch is then sent again and recognised.
SERVER_TIMEOUT_MS = 30_000
# Sequences of buckets must be kept as long as a writer id is used. With more buckets a new id is taken.
MAX_BUCKET_QUEUES = 65_536
MAX_UNREPORTED_FAILURES = 16

logger = logging.getLogger(__name__)
_QueueKey = tuple[int, str | None, int]
_Targets = tuple[int, ...] | None
_Answer = pb.ProduceLogResponse | pb.PutKvResponse


class RowSource(Protocol):
    """The interface of a writer for the sender."""

    def begin_flush(self) -> Sequence[Chunk]:
        """Hand over all rows; return the chunks to wait for."""

    def close(self, error: FlussError) -> None:
        """Called when the connection has ended: waiting rows fail with this error."""


class Sender:
    """Created and used on the I/O thread, except `memory` and the reads of `cluster` by routers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.config = config = cluster.config
        self.memory = MemoryBudget(config.writer_buffer_memory_size)
        self.busy: set[RowSource] = set()
        # Unreported failures, raised at the end; only the newest ones.
        self.unreported: deque[Chunk] = deque(maxlen=MAX_UNREPORTED_FAILURES)
        self._writers: weakref.WeakSet[RowSource] = weakref.WeakSet()
        self._writers_lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._acks = ACKS[config.writer_acks]
        self._server_timeout_ms = min(SERVER_TIMEOUT_MS, config.request_timeout_ms)
        self._writer_ids = WriterIds(cluster, config.writer_enable_idempotence)
        self._queues: dict[_QueueKey, BucketQueue] = {}
        self._unsent: dict[_QueueKey, BucketQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._closed: FlussError | None = None

    def register(self, writer: RowSource) -> None:
        """Register a writer, which is closed with the connection. Any thread."""
        with self._writers_lock:
            self._writers.add(writer)

    def add(self, piece: Piece) -> None:
        """Queue rows for a bucket after all earlier rows. `send` sends them."""
        if self._closed is not None:
            self._settle_piece(piece, self._closed)
            return
        key = (piece.encoder.table.table_id, piece.partition_name, piece.bucket_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = self._new_queue(piece)
        queue.add(piece, self._now())
        self._unsent[key] = queue

    def _new_queue(self, piece: Piece) -> BucketQueue:
        if len(self._queues) >= MAX_BUCKET_QUEUES:
            self._queues = {key: queue for key, queue in self._queues.items() if not queue.is_quiet}
            if self._writer_ids.current is not None:
                self._writer_ids.drop(self._writer_ids.current)
        config = self.config
        return BucketQueue(
            piece.encoder,
            piece.partition_name,
            piece.bucket_id,
            batch_bytes=config.writer_batch_size,
            batch_timeout_seconds=config.writer_batch_timeout_ms / 1000,
            max_in_flight=config.writer_max_inflight_requests_per_bucket,
            drop_writer_id=self._writer_ids.drop,
        )

    def _now(self) -> float:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time()

    # ---- sending ----

    def send(self) -> None:
        """Send everything that may be sent now."""
        while self._unsent and self._send_round():
            pass

    def _send_round(self) -> bool:
        """Send one batch of every bucket that may send. False if none may."""
        now = self._now()
        requests: dict[tuple[RpcConnection, int, _Targets], list[WriteBatch]] = {}
        earliest: float | None = None
        progress = False
        for key, queue in list(self._unsent.items()):
            connection = self._connection(queue, now)
            if connection is not None:
                progress = True
                try:
                    batch = queue.next_batch()
                    kind = (connection, queue.table_id, batch.encoder.target_columns)
                    requests.setdefault(kind, []).append(batch)
                except EncodingFailedError as failed:
                    for piece in failed.pieces:
                        self._settle_piece(piece, failed.error)
            elif not queue.is_preparing and (due_in := queue.due_in(now)) is not None:
                earliest = due_in if earliest is None else min(earliest, due_in)
            if not queue.has_unsent:
                del self._unsent[key]
        for (connection, table_id, _), batches in requests.items():
            self._send_batches(connection, table_id, batches)
        if earliest is not None:
            self._send_later(earliest)
        return progress

    def _connection(self, queue: BucketQueue, now: float) -> RpcConnection | None:
        """The connection for the next batch of a bucket; None if none may be sent now, or it needs preparation."""
        if queue.is_preparing or not queue.may_send(now):
            return None
        if queue.bucket is not None and self._writer_ids.current is not None:
            node = self.cluster.leader_node(queue.bucket)
            connection = None if node is None else self.cluster.open_connection_to(node)
            if connection is not None:
                if connection.is_writable:
                    return connection
                self._start(queue, self._wait_writable(connection))
                return None
        self._start(queue, self._prepare(queue))
        return None

    def _send_batches(self, connection: RpcConnection, table_id: int, batches: list[WriteBatch]) -> None:
        """Send requests of limited size; each has a bucket at most once."""
        request: list[WriteBatch] = []
        size_bytes = 0
        for batch in batches:
            if request and size_bytes + len(batch.data) > self.config.writer_request_max_size:
                self._send_request(connection, table_id, request)
                request, size_bytes = [], 0
            request.append(batch)
            size_bytes += len(batch.data)
        self._send_request(connection, table_id, request)

    def _send_request(self, connection: RpcConnection, table_id: int, batches: list[WriteBatch]) -> None:
        writer_id = self._writer_ids.current
        assert writer_id is not None
        for batch in batches:
            batch.queue.number(batch, writer_id)
        message, records = write_request(table_id, batches, self._acks, self._server_timeout_ms)
        future = connection.produce(message, records)
        future.add_done_callback(partial(self._answered, batches))

    # ---- preparation: leader, writer id, partition ----

    def _start(self, queue: BucketQueue, work: Coroutine[Any, Any, None]) -> None:
        queue.is_preparing = True
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

        def finished(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            queue.is_preparing = False
            self._speak_again(queue)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._fail_queue(queue, error if isinstance(error, FlussError) else FlussError(repr(error)))
            self.send()

        task.add_done_callback(finished)

    async def _wait_writable(self, connection: RpcConnection) -> None:
        await connection.drain()

    async def _prepare(self, queue: BucketQueue) -> None:
        """Prepare a bucket. Permanent errors are raised; temporary ones cause a pause."""
        try:
            await self._writer_ids.get({queue.path, *(other.path for other in self._unsent.values())})
            await prepare_bucket(self.cluster, queue, self.config.writer_dynamic_create_partition_enabled)
            queue.failed_preparations = 0
        except FlussError as error:
            if not may_pass(error) or self.cluster.closed:
                raise
            queue.failed_preparations += 1
            if queue.failed_preparations > self.config.writer_retries:
                raise
            queue.trouble = error
            queue.not_before = self._now() + retry_pause(queue.failed_preparations)

    def _send_later(self, seconds: float) -> None:
        """Keep one timer, for the earliest time."""
        when = self._now() + seconds
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = asyncio.get_running_loop().call_later(seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self.send()

    # ---- answers ----

    def _answered(self, batches: list[WriteBatch], future: asyncio.Future[_Answer]) -> None:
        if future.cancelled():
            errors = [FlussError("the request was cancelled", ErrorCode.NETWORK_EXCEPTION)] * len(batches)
        elif (failure := future.exception()) is not None:
            error = failure if isinstance(failure, FlussError) else FlussError(repr(failure))
            errors = [error] * len(batches)
        else:
            errors = errors_by_batch(batches, future.result())  # type: ignore[assignment]
            self._slow_down(batches, future.result())
        for batch, result in zip(batches, errors, strict=True):
            self._settle(batch, result)
        for batch in batches:
            queue = batch.queue
            self._speak_again(queue)
            if queue.has_unsent:
                self._unsent[queue.table_id, queue.partition_name, queue.bucket_id] = queue
        self.send()

    def _slow_down(self, batches: list[WriteBatch], answer: _Answer) -> None:
        pauses = pauses_by_bucket(answer, self.config.writer_kv_backpressure_max_throttle_ms / 1000)
        for batch in batches if pauses else ():
            if batch.bucket is not None and (pause := pauses.get(batch.bucket[1:])) is not None:
                batch.queue.not_before = max(batch.queue.not_before, self._now() + pause)

    def _speak_again(self, queue: BucketQueue) -> None:
        for lost in queue.speak_again():
            self._settle_batch(lost, in_doubt_error(queue))

    def _settle(self, batch: WriteBatch, error: FlussError | None) -> None:
        """Apply the rules to one result."""
        queue = batch.queue
        code = 0 if error is None else error.error_code
        batch.corrupt_answers += code == ErrorCode.CORRUPT_RECORD_EXCEPTION
        reaction = react(
            code,
            batch.sequence,
            queue.acknowledged,
            idempotent=batch.writer_id >= 0,
            in_doubt=batch.in_doubt,
            is_last=queue.next_sequence == batch.sequence + 1,
            attempts=batch.attempts,
            retries=self.config.writer_retries,
            resets=batch.resets,
            corrupt_answers=batch.corrupt_answers,
        )
        if reaction is Reaction.DONE:
            queue.done(batch)
            self._settle_batch(batch, None)
            return
        assert error is not None
        batch.in_doubt = batch.in_doubt or code in DOUBTFUL_CODES
        if code in STALE_METADATA_CODES and queue.bucket is not None:
            self.cluster.invalidate(queue.bucket)
        if reaction in (Reaction.RESET, Reaction.FAIL_AND_RESET):
            queue.reset()
        if reaction in (Reaction.RETRY, Reaction.RESET, Reaction.ASK_LATER):
            batch.resets += reaction is not Reaction.RETRY
            queue.trouble = error
            queue.retry(batch, self._now() + self._retry_pause(batch, code))
        else:
            queue.given_up(batch)
            if code == ErrorCode.PARTITION_NOT_EXISTS:
                self._forget_partition(queue)
            self._settle_batch(batch, error)

    def _retry_pause(self, batch: WriteBatch, code: int) -> float:
        if code == ErrorCode.STORAGE_BACKPRESSURE_EXCEPTION:
            return self.config.writer_kv_backpressure_max_throttle_ms / 1000
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION:
            return 0.0  # the batch before it decides when
        return retry_pause(batch.attempts)

    def tell_silence(self, path: TablePath, seconds: float) -> None:
        """Log that rows of a table have waited this long without an acknowledgement, with the reason if known."""
        troubles = [queue.trouble for queue in self._queues.values() if queue.path == path]
        trouble = next((error for error in reversed(troubles) if error is not None), "no answer yet")
        logger.warning(
            "rows for table %s have not been acknowledged for %.0f s, still trying: %s (logged once until one is)",
            path,
            seconds,
            trouble,
        )

    def _settle_batch(self, batch: WriteBatch, error: FlussError | None) -> None:
        for piece in batch.pieces:
            piece.batches -= 1
            piece.error = piece.error or error
            if piece.batches == 0:
                self._settle_piece(piece, piece.error)

    def _settle_piece(self, piece: Piece, error: FlussError | None) -> None:
        self.memory.release(piece.size_bytes)
        piece.chunk.release(error)

    def _fail_queue(self, queue: BucketQueue, error: FlussError) -> None:
        """Fail everything that waits for this bucket."""
        batches, pieces = queue.take_everything()
        for batch in batches:
            self._settle_batch(batch, error)
        for piece in pieces:
            self._settle_piece(piece, error)
        self._speak_again(queue)
        self._forget_partition(queue)

    def _forget_partition(self, queue: BucketQueue) -> None:
        """Drop the cached partition, so that the next write looks it up by name again."""
        if queue.partition_name is not None:
            queue.bucket = None

    # ---- the end ----

    async def close(self) -> None:
        """Send the rows that writers still have and wait for them, at most one request time-out.

        Raise the first error of these rows, or of earlier ones that was not reported.
        """
        error = FlussError("the connection is closed: rows can no longer be written")
        chunks = [chunk for writer in list(self.busy) for chunk in writer.begin_flush()]
        chunks += [chunk for chunk in self.unreported if not chunk.reported]
        try:
            waiting = PendingResult(chunks, "close()")
            await asyncio.wait_for(_awaited(waiting), self.config.request_timeout_ms / 1000)
        except TimeoutError:
            count = sum(not chunk.settled for chunk in chunks)
            error = FlussError(
                f"the connection was closed, but {count} writes were not acknowledged within "
                f"{self.config.request_timeout_ms} ms",
                ErrorCode.REQUEST_TIME_OUT,
            )
            raise error from None
        finally:
            self._closed = error
            self.memory.close(error)
            with self._writers_lock:
                writers = list(self._writers)
            for writer in writers:
                writer.close(error)
            for task in list(self._tasks):
                task.cancel()
            for queue in self._queues.values():
                self._fail_queue(queue, error)


async def _awaited(result: PendingResult) -> None:
    await result
