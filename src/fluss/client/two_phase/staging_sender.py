"""The sender of one staged attempt: batches go to staged files (STAGE_LOG) instead of the log.

It differs from `sender` in two ways. The attempt has a writer id of its own, under which sequences start at 0 in every
bucket; it is never changed, because the server identifies the attempt by it. And the attempt is all or nothing: the
first batch that cannot be staged ends it (`failure`), and everything that waits after it fails too.

`staged` counts what the server has acknowledged, by bucket. I/O thread only.
"""

from __future__ import annotations

from functools import partial

from fluss.client.net.cluster import Cluster
from fluss.client.net.rpc import RpcConnection
from fluss.client.send.answer_rules import MAX_CORRUPT_ANSWERS_PER_BATCH, RETRIED_CODES, STALE_METADATA_CODES, Reaction
from fluss.client.send.bucket_queue import SEQUENCE_MASK, BucketQueue, WriteBatch
from fluss.client.send.preparation import WriterIds
from fluss.client.send.sender import Sender
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import staged_api_pb2 as staged_pb

ACKS_ALL = -1


class StagingSender(Sender):
    """The sender of one staged attempt; see the module docstring."""

    def __init__(self, cluster: Cluster, transaction: str, batch_id: int) -> None:
        super().__init__(cluster)
        self.failure: FlussError | None = None
        self.staged: dict[TableBucket, tuple[int, int]] = {}
        self._transaction = transaction
        self._batch_id = batch_id
        self._writer_ids = _OneWriterId(cluster, enabled=True)

    @property
    def writer_id(self) -> int | None:
        """The attempt's id; None until something was sent."""
        return self._writer_ids.current

    def _send_request(self, connection: RpcConnection, table_id: int, batches: list[WriteBatch]) -> None:
        writer_id = self._writer_ids.current
        assert writer_id is not None
        message = staged_pb.StageLogRequest(
            acks=ACKS_ALL,
            table_id=table_id,
            timeout_ms=self._server_timeout_ms,
            transaction=self._transaction,
            batch_id=self._batch_id,
            writer_id=writer_id,
        )
        records = []
        for batch in batches:
            batch.queue.number(batch, writer_id)
            assert batch.bucket is not None
            message.buckets_req.add(partition_id=batch.bucket.partition_id, bucket_id=batch.bucket.bucket_id)
            records.append(batch.encoder.numbered(batch.data, writer_id, batch.sequence & SEQUENCE_MASK))
        future = connection.produce(message, records)
        future.add_done_callback(partial(self._answered, batches))

    def _settle(self, batch: WriteBatch, error: FlussError | None) -> None:
        queue = batch.queue
        code = 0 if error is None else error.error_code
        reaction = stage_reaction(code, batch.sequence, queue.acknowledged, batch.attempts, self.config.writer_retries)
        if reaction is Reaction.DONE:
            queue.done(batch)
            assert batch.bucket is not None
            count, size_bytes = self.staged.get(batch.bucket, (0, 0))
            self.staged[batch.bucket] = (count + 1, size_bytes + len(batch.data))
            self._settle_batch(batch, None)
            return
        assert error is not None
        if code in STALE_METADATA_CODES and queue.bucket is not None:
            self.cluster.invalidate(queue.bucket)
        if reaction is Reaction.RETRY and self.failure is None:
            queue.trouble = error
            queue.retry(batch, self._now() + self._retry_pause(batch, code))
            return
        queue.given_up(batch)
        self._settle_batch(batch, error)
        self.fail(error)

    def _fail_queue(self, queue: BucketQueue, error: FlussError) -> None:
        """Fail the attempt, because a bucket can never be written."""
        super()._fail_queue(queue, error)
        self.fail(error)

    def fail(self, error: FlussError) -> None:
        """End the attempt: nothing more is sent. Requests in flight are still answered."""
        if self.failure is None:
            self.failure = self._closed = error
            self.memory.close(error)
            self._unsent.clear()
            for queue in self._queues.values():
                super()._fail_queue(queue, error)


class _OneWriterId(WriterIds):
    """A writer id that is never replaced."""

    def drop(self, writer_id: int) -> None:
        """Keep the id: the rows staged under it would be lost."""


def stage_reaction(code: int, sequence: int, acknowledged: int, attempts: int, retries: int) -> Reaction:
    """DONE, RETRY or FAIL. A staged file takes batches in order and skips those it has, so a batch in doubt can always
    be sent again."""
    out_of_order = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_EXCEPTION
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_EXCEPTION):
        return Reaction.DONE
    if sequence <= acknowledged and (out_of_order or code in RETRIED_CODES):
        return Reaction.DONE  # only the answer was lost: a later batch is there
    if out_of_order and sequence != acknowledged + 1:
        return Reaction.RETRY  # an earlier batch has not arrived
    if code == ErrorCode.CORRUPT_RECORD_EXCEPTION:
        retries = min(retries, MAX_CORRUPT_ANSWERS_PER_BATCH - 1)  # the same bytes would be refused later too
    return Reaction.RETRY if code in RETRIED_CODES and attempts <= retries else Reaction.FAIL
