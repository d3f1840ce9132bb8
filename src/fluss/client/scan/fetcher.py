"""The fetcher of one scanner: requests records from servers, ahead of the user, within limits.

Everything here runs on the I/O thread. `pump` drives it: it checks all subscriptions and starts whatever can start now.
It is called after everything that may allow more work: a subscription, an answer, a finished decoding, room made by the
user, the end of a pause.

A bucket is in at most one fetch. A server normally has one fetch of this scanner in flight, a long poll, which returns
when rows are available. A bucket that becomes fetchable while that poll waits (new, or its data was consumed) does not
wait for it: it goes into a further fetch, at most `MAX_FETCHES_IN_FLIGHT_PER_SERVER`; they are merged again when they
return.

Memory: a bucket with undecoded bytes is not fetched, nothing is fetched while the decoding stage is full.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

from fluss.client.decode.decoder import BatchDecoder, Decoded
from fluss.client.net.cluster import Cluster
from fluss.client.scan.decode_stage import DecodeStage, Source
from fluss.client.scan.fetch_rules import Reaction, bucket_reaction, request_reaction
from fluss.client.scan.ready_queue import ReadyQueue
from fluss.client.scan.remote_reader import RemoteReader
from fluss.client.scan.subscription import Subscription
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.client_payloads import FetchAnswer
from fluss.values.basic import ServerNode

MAX_FETCHES_IN_FLIGHT_PER_SERVER = 4
# Apache Fluss 0.9.1 answers a waiting fetch only when its time is over, even if rows arrived long before. After a
# server has done so this many times in a row, it is asked to wait for this long only.
LATE_ANSWERS_IN_A_ROW = 2
LATE_ANSWER_TOLERANCE_MS = 100
MAX_WAIT_OF_LATE_SERVER_MS = 20
_CLIENT = -1
_BucketKey = tuple["int | None", int]

logger = logging.getLogger(__name__)


class Fetcher:
    """Made on any thread; every method but the constructor runs on the I/O thread."""

    def __init__(self, cluster: Cluster, decoder: BatchDecoder, queue: ReadyQueue) -> None:
        self._cluster = cluster
        self._config = cluster.config
        self._decoder = decoder
        self._queue = queue
        self._path = decoder.table.path
        self._subscriptions: dict[TableBucket, Subscription] = {}
        self._in_flight: dict[int, int] = {}
        self._locating: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._stage = DecodeStage(cluster, decoder, queue, self._progressed)
        self._remote = RemoteReader(cluster, self._stage)
        self._reported_partitions: set[int] = set()
        self._late_answers: dict[int, int] = {}
        self.closed = False
        self.last_trouble: FlussError | None = None

    # ---- calls of the scanner ----

    def add(self, subscriptions: Iterable[Subscription]) -> None:
        """Begin to fetch buckets; older subscriptions of them end."""
        for subscription in subscriptions:
            self._stage.discard(self._subscriptions.get(subscription.bucket))
            self._subscriptions[subscription.bucket] = subscription
        self.pump()

    def remove(self, subscriptions: Iterable[Subscription]) -> None:
        """Stop fetching buckets."""
        for subscription in subscriptions:
            if self._subscriptions.get(subscription.bucket) is subscription:
                del self._subscriptions[subscription.bucket]
            self._stage.discard(subscription)
        self.pump()

    async def close(self) -> None:
        """Stop everything."""
        self.closed = True
        self.remove(list(self._subscriptions.values()))
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        self._stage.close()
        self._remote.close()

    def _progressed(self, trouble: FlussError | None) -> None:
        """Called when the decoding stage made room, or had an error."""
        self.last_trouble = trouble or self.last_trouble
        self.pump()

    # ---- starting work ----

    def pump(self) -> None:
        """Start every decoding and every fetch that can start now."""
        if self.closed or self._cluster.closed:
            return
        now = asyncio.get_running_loop().time()
        wake_at = 0.0
        homeless: list[Subscription] = []
        by_server: dict[int, tuple[ServerNode, list[Subscription]]] = {}
        for subscription in self._subscriptions.values():
            if subscription.raw:
                self._stage.decode_waiting(subscription)
            if self._stage.is_full or not subscription.wants_fetch:
                continue
            if subscription.not_before > now:
                wake_at = min(wake_at or subscription.not_before, subscription.not_before)
                continue
            node = self._cluster.leader_node(subscription.bucket)
            if node is None:
                homeless.append(subscription)
            else:
                by_server.setdefault(node.id, (node, []))[1].append(subscription)
        for node, subscriptions in by_server.values():
            self._start_fetch(node, subscriptions)
        if homeless and self._locating is None:
            self._locating = self._spawn(self._locate(homeless))
        if wake_at:
            self._wake_at(wake_at)

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= when and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._timed_pump)

    def _timed_pump(self) -> None:
        self._timer = None
        self.pump()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- fetching ----

    def _start_fetch(self, node: ServerNode, subscriptions: list[Subscription]) -> None:
        if self._in_flight.get(node.id, 0) >= MAX_FETCHES_IN_FLIGHT_PER_SERVER:
            return
        starved = [subscription for subscription in subscriptions if subscription.starved]
        if starved:
            # Its batch is larger than the space left in the answer: fetched alone, it is returned whole.
            subscriptions = starved[:1]
        projected = not any(subscription.full_rows for subscription in subscriptions)
        self._in_flight[node.id] = self._in_flight.get(node.id, 0) + 1
        for subscription in subscriptions:
            subscription.in_flight = True
            subscription.asked_offset = subscription.fetch_offset
        self._spawn(self._fetch(node, subscriptions, projected))

    def _wait_ms(self, node: ServerNode) -> int:
        wait_ms = self._config.scanner_log_fetch_wait_max_time_ms
        late = self._late_answers.get(node.id, 0) >= LATE_ANSWERS_IN_A_ROW
        return min(wait_ms, MAX_WAIT_OF_LATE_SERVER_MS) if late else wait_ms

    def _note_timing(self, node: ServerNode, wait_ms: int, took_ms: float, answer: FetchAnswer) -> None:
        """Note rows in an answer that took the whole wait: they did not wake the server, or they came just then."""
        if wait_ms <= MAX_WAIT_OF_LATE_SERVER_MS or not any(map(len, filter(None, answer.records))):
            return
        late = wait_ms <= took_ms <= wait_ms + LATE_ANSWER_TOLERANCE_MS  # longer: the network is slow
        self._late_answers[node.id] = self._late_answers.get(node.id, 0) + 1 if late else 0

    def _request(self, subscriptions: list[Subscription], projected: bool, wait_ms: int) -> pb.FetchLogRequest:
        config = self._config
        request = pb.FetchLogRequest(
            follower_server_id=_CLIENT,
            max_bytes=config.scanner_log_fetch_max_bytes,
            min_bytes=config.scanner_log_fetch_min_bytes,
            max_wait_ms=wait_ms,
        )
        positions = self._decoder.wire_positions if projected else None
        table = request.tables_req.add(
            table_id=self._decoder.table.table_id,
            projection_pushdown_enabled=positions is not None,
            projected_fields=positions or (),
        )
        if self._decoder.row_filter is not None and self._decoder.row_filter.pushed is not None:
            table.filter_predicate.CopyFrom(self._decoder.row_filter.pushed)
            table.filter_schema_id = self._decoder.table.schema_id
        for subscription in subscriptions:
            table.buckets_req.add(
                partition_id=subscription.bucket.partition_id,
                bucket_id=subscription.bucket.bucket_id,
                fetch_offset=subscription.fetch_offset,
                max_fetch_bytes=config.scanner_log_fetch_max_bytes_for_bucket,
            )
        return request

    async def _fetch(self, node: ServerNode, subscriptions: list[Subscription], projected: bool) -> None:
        wait_ms = self._wait_ms(node)
        request = self._request(subscriptions, projected, wait_ms)
        try:
            connection = self._cluster.open_connection_to(node) or await self._cluster.connection(node)
            started = asyncio.get_running_loop().time()
            answer = await connection.fetch(request)
            took_ms = (asyncio.get_running_loop().time() - started) * 1000
        except FlussError as error:
            self._request_failed(node, subscriptions, error)
        else:
            self._take_answer(subscriptions, answer, projected)
            self._note_timing(node, wait_ms, took_ms, answer)
        finally:
            self._in_flight[node.id] -= 1
            for subscription in subscriptions:
                subscription.in_flight = False
        self.pump()

    def _request_failed(self, node: ServerNode, subscriptions: list[Subscription], error: FlussError) -> None:
        if self.closed or self._cluster.closed:
            return
        self.last_trouble = error
        if request_reaction(error.error_code) is Reaction.RAISE:
            for subscription in subscriptions:
                self._stage.fail(subscription, error)
            return
        logger.info("fetch from %s failed, will be retried: %s", node.uid, error)
        self._cluster.invalidate_server(node.id)
        for subscription in subscriptions:
            subscription.pause()

    def _take_answer(self, subscriptions: list[Subscription], answer: FetchAnswer, projected: bool) -> None:
        asked: dict[_BucketKey, Subscription] = {
            (subscription.bucket.partition_id, subscription.bucket.bucket_id): subscription
            for subscription in subscriptions
        }
        entries = (entry for table in answer.message.tables_resp for entry in table.buckets_resp)
        for entry, records in zip(entries, answer.records, strict=True):
            key = (entry.partition_id if entry.HasField("partition_id") else None, entry.bucket_id)
            subscription = asked.get(key)
            if subscription is None or not subscription.active:
                continue
            if subscription.fetch_offset != subscription.asked_offset:
                continue  # an error has moved it back meanwhile
            if entry.HasField("error_code") and entry.error_code:
                self._bucket_failed(subscription, entry, projected)
                continue
            subscription.backoff_seconds = 0.0
            if entry.HasField("remote_log_fetch_info"):
                task = self._spawn(self._remote.read(subscription, entry.remote_log_fetch_info))
                subscription.remote_task = task
                continue
            filtered_end = entry.filtered_end_offset if entry.HasField("filtered_end_offset") else None
            end_offset = max(entry.high_watermark, filtered_end or 0)
            source = Source(projected, filtered_end, is_last=subscription.starved, end_offset=end_offset)
            self._take_records(subscription, records, source)

    def _take_records(self, subscription: Subscription, records: memoryview | None, source: Source) -> None:
        filtered_end = source.filtered_end
        if records is None or not len(records):
            if filtered_end is not None and filtered_end > subscription.fetch_offset:
                subscription.fetch_offset = filtered_end
                self._queue.put(subscription, [Decoded(None, filtered_end)])
            return
        # Only part of a batch: other buckets used up the answer. If it was fetched alone, it is damaged.
        subscription.starved = not self._stage.add(subscription, records, source)

    # ---- errors ----

    def _bucket_failed(self, subscription: Subscription, entry: Any, projected: bool) -> None:
        code, message = entry.error_code, entry.error_message
        error = FlussError(message or f"{subscription.bucket} of {self._path} cannot be read", code)
        self.last_trouble = error
        projects = projected and self._decoder.wire_positions is not None
        reaction = bucket_reaction(code, projected=projects)
        is_damaged = code == ErrorCode.CORRUPT_RECORD_EXCEPTION and self._decoder.skips_bad_batches
        if is_damaged and entry.filtered_end_offset > subscription.fetch_offset:
            self._stage.skip(subscription, entry.filtered_end_offset, error.message)  # the server knows where it ends
            return
        if is_damaged and projects:
            reaction = Reaction.WHOLE_ROWS  # a server cannot project a bad batch; fetched whole, it is skipped here
        if reaction is Reaction.RAISE:
            self._stage.fail(subscription, error)
        elif reaction is Reaction.WHOLE_ROWS:
            subscription.full_rows = True
        else:
            if reaction is Reaction.MOVED:
                self._cluster.invalidate(subscription.bucket)
            subscription.pause()

    async def _locate(self, homeless: list[Subscription]) -> None:
        """Find the leaders of these buckets."""
        partition_ids = sorted({s.bucket.partition_id for s in homeless if s.bucket.partition_id is not None})
        try:
            await self._ask_leaders(partition_ids)
        except FlussError as error:
            self.last_trouble = error
            if request_reaction(error.error_code) is Reaction.RAISE and not self._cluster.closed:
                for subscription in homeless:
                    self._stage.fail(subscription, error)
        finally:
            self._locating = None
        for subscription in homeless:
            if self._cluster.leader_node(subscription.bucket) is None:
                subscription.pause()
        self.pump()

    async def _ask_leaders(self, partition_ids: list[int]) -> None:
        """One request for all; if a partition is gone, one for each, so that the others are found."""
        try:
            await self._cluster.refresh(tables=[self._path], partition_ids=partition_ids)
            return
        except FlussError as error:
            if error.error_code != ErrorCode.PARTITION_NOT_EXISTS:
                raise
            self.last_trouble = error
        for partition_id in partition_ids:
            try:
                await self._cluster.refresh(tables=[self._path], partition_ids=[partition_id])
            except FlussError as error:
                if error.error_code != ErrorCode.PARTITION_NOT_EXISTS:
                    raise
                if partition_id not in self._reported_partitions:
                    self._reported_partitions.add(partition_id)
                    logger.warning("partition %d of %s is gone; unsubscribe from it", partition_id, self._path)
