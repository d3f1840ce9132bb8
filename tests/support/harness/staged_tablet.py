"""A tablet without sockets for tests of staged appends, and the steps of a commit as calls.

Nothing happens in the background here: decided work is found when APPLY asks for it, files are cleaned when told so.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from fluss.codec.batches.log_batch import iter_batches
from fluss.errors import FlussError
from fluss.protocol import staged_api_pb2 as staged_pb
from fluss.protocol.api_keys import ApiKey
from fluss.server.runtime.handlers import ProduceRequest
from tests.support.harness.tablet import TabletHarness
from tests.support.servers.log_cluster import arrow_batch, ids_of
from tools.waiting import patience

QUERY = "query"
TIMEOUT_MS = int(patience(60_000))


class Attempt:
    """One attempt of a test: what it sent, by bucket."""

    def __init__(self, writer_id: int, batch_id: int = 0, transaction: str = QUERY) -> None:
        self.writer_id = writer_id
        self.batch_id = batch_id
        self.transaction = transaction
        self.sent: dict[tuple[int | None, int], list[bytes]] = {}

    def batches(self, *rows: Sequence[int], bucket: int = 0, partition: int | None = None, **more: Any) -> bytes:
        """The next batches for a bucket, one for each list of ids."""
        sent = self.sent.setdefault((partition, bucket), [])
        made = [
            arrow_batch(ids, writer_id=self.writer_id, batch_sequence=len(sent) + number, **more)
            for number, ids in enumerate(rows)
        ]
        sent += made
        return b"".join(made)


class StagedTablet(TabletHarness):
    """A tablet and the calls about staged appends."""

    async def stage(
        self,
        table: int,
        attempt: Attempt,
        records: bytes,
        bucket: int = 0,
        partition: int | None = None,
        **context: Any,
    ) -> staged_pb.PbStageLogRespForBucket:
        """STAGE_LOG for one bucket; the caller looks at its error."""
        message: staged_pb.PbStageLogRespForBucket = await self.begin_stage(
            table, attempt, records, bucket, partition, **context
        )
        return message

    def begin_stage(
        self,
        table: int,
        attempt: Attempt,
        records: bytes,
        bucket: int = 0,
        partition: int | None = None,
        **context: Any,
    ) -> Any:
        """The same without waiting for the answer."""
        message = staged_pb.StageLogRequest(
            acks=-1,
            table_id=table,
            timeout_ms=TIMEOUT_MS,
            transaction=attempt.transaction,
            batch_id=attempt.batch_id,
            writer_id=attempt.writer_id,
        )
        message.buckets_req.add(bucket_id=bucket, partition_id=partition, records=b"")
        request = ProduceRequest(message, [memoryview(bytearray(records))], self._released())
        return _first_bucket(self.begin(ApiKey.STAGE_LOG, request, **context))

    async def prepare(self, table: int, *attempts: Attempt, **context: Any) -> None:
        """PREPARE_STAGED of everything that the attempts sent."""
        first = attempts[0]
        request = staged_pb.PrepareStagedRequest(
            table_id=table, transaction=first.transaction, batch_id=first.batch_id, buckets=buckets_of(attempts)
        )
        await self.call(ApiKey.PREPARE_STAGED, request, **context)

    def decide(self, table: int, *attempts: Attempt, token: str = "token", **context: Any) -> bool:
        """DECIDE_STAGED; whether it was accepted."""
        first = attempts[0]
        request = staged_pb.DecideStagedRequest(
            table_id=table,
            transaction=first.transaction,
            batch_id=first.batch_id,
            token=token,
            buckets=buckets_of(attempts),
        )
        return bool(self.coordinator.call(ApiKey.DECIDE_STAGED, request, **context).accepted)

    async def apply(
        self, table: int, batch_id: int = 0, transaction: str = QUERY, timeout_ms: int = TIMEOUT_MS, **context: Any
    ) -> None:
        """APPLY_STAGED."""
        request = staged_pb.ApplyStagedRequest(
            table_id=table, transaction=transaction, batch_id=batch_id, timeout_ms=timeout_ms
        )
        await self.call(ApiKey.APPLY_STAGED, request, **context)

    async def abort(self, table: int, batch_id: int = 0, writer_ids: Sequence[int] = (), **context: Any) -> None:
        """ABORT_STAGED."""
        request = staged_pb.AbortStagedRequest(
            table_id=table, transaction=QUERY, batch_id=batch_id, writer_ids=writer_ids
        )
        await self.call(ApiKey.ABORT_STAGED, request, **context)

    async def commit(self, table: int, *attempts: Attempt, token: str = "token") -> bool:
        """All steps."""
        await self.prepare(table, *attempts)
        accepted = self.decide(table, *attempts, token=token)
        await self.apply(table, attempts[0].batch_id, attempts[0].transaction)
        return accepted

    def last_batch_id(self, table: int, transaction: str = QUERY) -> int | None:
        """GET_STAGED_COMMIT."""
        request = staged_pb.GetStagedCommitRequest(table_id=table, transaction=transaction)
        answer = self.coordinator.call(ApiKey.GET_STAGED_COMMIT, request)
        return int(answer.last_batch_id) if answer.HasField("last_batch_id") else None

    async def rows(self, table: int, bucket: int = 0) -> list[int]:
        """The ids in a bucket's log, in their order."""
        found: list[int] = []
        offset = 0
        while True:
            answer = await self.fetch(table, offset, bucket)
            if answer.HasField("error_code"):
                raise FlussError(answer.error_message, answer.error_code)
            if not answer.records:
                return found
            found += ids_of(answer.records)
            # After a power cut there may be offsets without rows: the number of rows says nothing.
            *_, (_, last) = iter_batches(answer.records)
            offset = last.next_offset

    def staged_files(self) -> list[Path]:
        """All staged files below the data directory."""
        # Unlike rglob, walk does not mind directories that vanish meanwhile.
        walked = ((Path(folder), names) for folder, _, names in os.walk(self.directory))
        return sorted(folder / name for folder, names in walked for name in names if name.endswith(".staged"))


def run_tablet(directory: Path, scenario: Callable[[StagedTablet], Awaitable[None]], **options: Any) -> None:
    """Run a scenario on a tablet over `directory`, which may hold the state of an earlier one."""

    async def main() -> None:
        tablet = StagedTablet(directory, **options)
        async with tablet:
            await scenario(tablet)

    asyncio.run(main())


async def staged(tablet: StagedTablet, table: int, writer_id: int, *rows: list[int], **more: Any) -> Attempt:
    """An attempt that has staged these batches in bucket 0."""
    attempt = Attempt(writer_id, **more)
    assert (await tablet.stage(table, attempt, attempt.batches(*rows))).error_code == 0
    return attempt


async def _first_bucket(answer: Any) -> staged_pb.PbStageLogRespForBucket:
    result: staged_pb.PbStageLogRespForBucket = (await asyncio.wait_for(answer, patience(60))).buckets_resp[0]
    return result


def buckets_of(attempts: Sequence[Attempt]) -> list[staged_pb.PbStagedBucket]:
    """What PREPARE and DECIDE say about these attempts."""
    buckets: dict[tuple[int | None, int], staged_pb.PbStagedBucket] = {}
    for attempt in attempts:
        for (partition, bucket), sent in attempt.sent.items():
            entry = buckets.setdefault(
                (partition, bucket), staged_pb.PbStagedBucket(partition_id=partition, bucket_id=bucket)
            )
            entry.files.add(writer_id=attempt.writer_id, batch_count=len(sent), size_bytes=sum(map(len, sent)))
    return list(buckets.values())
