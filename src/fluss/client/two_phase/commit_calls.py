"""The driver's side of a staged commit, on the I/O thread: prepare, decide, wait.

Every step can be repeated: preparing only checks and syncs, deciding is recognised by its token, applying only waits.
So each step is retried, with growing pauses, after every temporary failure (a lost connection, a restarted server, a
leader that moved) until the deadline. A full disk (70) is not waited for: the caller should know about it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fluss.client.net.cluster import Cluster
from fluss.client.net.metadata import ClientTable
from fluss.client.net.rpc import RpcConnection
from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from google.protobuf.message import Message

# Added to the deadline of the work itself, for its last answer.
GRACE_SECONDS = 30.0
# How long a tablet may hold a request that waits for rows to be appended.
APPLY_WAIT_MS = 10_000
FIRST_PAUSE_SECONDS = 0.02
LAST_PAUSE_SECONDS = 1.0

T = TypeVar("T")


class StagedFile(NamedTuple):
    """The rows that one attempt has staged in one bucket."""

    bucket: TableBucket
    writer_id: int
    batch_count: int
    size_bytes: int


class Commit:
    """One commit, or one query about a transaction."""

    def __init__(
        self, cluster: Cluster, table: ClientTable, transaction: str, batch_id: int, timeout_seconds: float
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._transaction = transaction
        self._batch_id = batch_id
        self._token = uuid.uuid4().hex
        self._deadline = time.monotonic() + timeout_seconds

    async def run(self, files: Sequence[StagedFile]) -> bool:
        """Prepare, decide, and wait until the rows can be read; False if the batch was decided before."""
        buckets: dict[TableBucket, list[StagedFile]] = {}
        for file in files:
            buckets.setdefault(file.bucket, []).append(file)
        # First, because rows of a decided batch are not kept, and a dropped table has no leaders to look for.
        accepted = not await self._was_decided() and await self._prepare_and_decide(buckets)
        await self._wait_applied()
        return accepted

    async def _prepare_and_decide(self, buckets: dict[TableBucket, list[StagedFile]]) -> bool:
        try:
            await self._insist(lambda: self._prepare(buckets))
        except FlussError as error:
            if error.error_code == ErrorCode.UNKNOWN_WRITER_ID_EXCEPTION and await self._was_decided():
                return False  # by another driver, at this moment
            raise
        return await self._insist(lambda: self._decide(buckets))

    async def last_batch_id(self) -> int | None:
        """The last decided batch of the transaction."""
        answer = await self._insist(self._status)
        return int(answer.last_batch_id) if answer.HasField("last_batch_id") else None

    async def _was_decided(self) -> bool:
        last = await self.last_batch_id()
        return last is not None and last >= self._batch_id

    # ---- steps ----

    async def _prepare(self, buckets: dict[TableBucket, list[StagedFile]]) -> None:
        """Send one request per server. If a leader has moved, the next try looks it up again."""
        groups: dict[RpcConnection, list[TableBucket]] = {}
        for bucket in buckets:
            connection = await self._cluster.leader(bucket, self._table.path)
            groups.setdefault(connection, []).append(bucket)
        calls = [self._prepare_on(connection, group, buckets) for connection, group in groups.items()]
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _prepare_on(
        self, connection: RpcConnection, group: list[TableBucket], buckets: dict[TableBucket, list[StagedFile]]
    ) -> None:
        request = staged_pb.PrepareStagedRequest(
            table_id=self._table.table_id, transaction=self._transaction, batch_id=self._batch_id
        )
        for bucket in group:
            _add_bucket(request.buckets, bucket, buckets[bucket])
        try:
            await connection.call(ApiKey.PREPARE_STAGED, request)
        except FlussError:
            for bucket in group:
                self._cluster.invalidate(bucket)
            raise

    async def _decide(self, buckets: dict[TableBucket, list[StagedFile]]) -> bool:
        request = staged_pb.DecideStagedRequest(
            table_id=self._table.table_id, transaction=self._transaction, batch_id=self._batch_id, token=self._token
        )
        for bucket, files in buckets.items():
            _add_bucket(request.buckets, bucket, files)
        answer = await self._cluster.call_coordinator(ApiKey.DECIDE_STAGED, request)
        return bool(answer.accepted)

    async def _status(self) -> staged_pb.GetStagedCommitResponse:
        request = staged_pb.GetStagedCommitRequest(table_id=self._table.table_id, transaction=self._transaction)
        answer: staged_pb.GetStagedCommitResponse = await self._cluster.call_coordinator(
            ApiKey.GET_STAGED_COMMIT, request, idempotent=True
        )
        return answer

    async def _wait_applied(self) -> None:
        """Ask every tablet until it is done; the coordinator, which knows all buckets, decides.

        So a tablet that does not answer, and has nothing to append, does not delay the commit.
        """
        pause = FIRST_PAUSE_SECONDS
        while True:
            reason = _too_long(self._transaction, self._batch_id)
            try:
                await self._apply()
            except FlussError as error:
                if self._cluster.closed or not error.is_retriable:
                    raise
                reason = error
            if (await self._insist(self._status)).unapplied_buckets == 0:
                return
            # Buckets may have moved to new tablets.
            await self._insist(self._cluster.refresh)
            await self._pause(pause, reason)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)

    async def _apply(self) -> None:
        request = staged_pb.ApplyStagedRequest(
            table_id=self._table.table_id,
            transaction=self._transaction,
            batch_id=self._batch_id,
            timeout_ms=min(APPLY_WAIT_MS, self._rest_ms()),
        )
        await _ask_all(self._cluster, ApiKey.APPLY_STAGED, request)

    # ---- retries ----

    def _rest_ms(self) -> int:
        return max(1, int((self._deadline - time.monotonic()) * 1000))

    async def _insist(self, step: Callable[[], Awaitable[T]]) -> T:
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return await step()
            except FlussError as error:
                if self._cluster.closed or not error.is_retriable or error.error_code == ErrorCode.DISK_WRITE_LOCKED:
                    raise
                await self._pause(pause, error)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)

    async def _pause(self, seconds: float, error: FlussError) -> None:
        if time.monotonic() + seconds > self._deadline:
            raise error
        await asyncio.sleep(seconds)


async def is_supported(cluster: Cluster) -> bool:
    """True if coordinator and tablets list the APIs of staged appends."""
    coordinator, tablet = await cluster.coordinator(), await cluster.any_tablet()
    return coordinator.supports(ApiKey.DECIDE_STAGED) and tablet.supports(ApiKey.STAGE_LOG)


async def abort(cluster: Cluster, table_id: int, transaction: str, batch_id: int, writer_ids: Sequence[int]) -> None:
    """Remove staged rows of attempts, or of all attempts of a batch, on every tablet."""
    request = staged_pb.AbortStagedRequest(
        table_id=table_id, transaction=transaction, batch_id=batch_id, writer_ids=writer_ids
    )
    await _ask_all(cluster, ApiKey.ABORT_STAGED, request)


async def _ask_all(cluster: Cluster, api_key: ApiKey, request: Message) -> None:
    """Send the same request to every tablet; raise the first error when all have answered."""

    async def ask(node: Any) -> None:
        connection = await cluster.connection(node)
        await connection.call(api_key, request)

    for result in await asyncio.gather(*map(ask, cluster.metadata.tablets.values()), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _add_bucket(target: Any, bucket: TableBucket, files: Sequence[StagedFile]) -> None:
    entry = target.add(partition_id=bucket.partition_id, bucket_id=bucket.bucket_id)
    for file in files:
        entry.files.add(writer_id=file.writer_id, batch_count=file.batch_count, size_bytes=file.size_bytes)


def _too_long(transaction: str, batch_id: int) -> FlussError:
    return FlussError(
        f"batch {batch_id} of {transaction!r} is committed, but not all of its rows can be read yet; the server "
        "continues to append them",
        ErrorCode.REQUEST_TIME_OUT,
    )
