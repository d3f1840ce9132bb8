"""Limit scans: read some rows of one bucket with one request.

For a log table these are the last rows of the bucket: a server returns whole batches, so the surplus rows are cut off
here. For a primary-key table they are the first current rows in key order; they have no offsets.
Creating a scanner sends nothing; the first read sends one request. After an error the scanner cannot be used again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pyarrow as pa

from fluss.api.base_scanner import pandas_of
from fluss.client.calls.bucket_offsets import LATEST, list_bucket_offsets
from fluss.client.decode.bad_batches import BadBatch
from fluss.client.decode.decoder import BatchDecoder, Decoded
from fluss.client.decode.log_rows import LogRows
from fluss.client.decode.log_walk import next_sound_batch, walk
from fluss.client.decode.scan_plan import ScanPlan
from fluss.client.decode.table_schemas import learn_schemas
from fluss.client.net.metadata import ClientTable
from fluss.client.net.session import Session
from fluss.client.scan.fetch_rules import Reaction, bucket_reaction
from fluss.client.scan.records import RecordBatch
from fluss.errors import FlussError
from fluss.lazy_imports import import_lock
from fluss.protocol import fluss_api_pb2 as pb
from fluss.protocol.api_keys import ApiKey
from fluss.values.basic import TableBucket

# The timestamp of the current rows of a primary-key table, which do not record when they were written.
NO_TIMESTAMP = -1


class BaseBatchScanner:
    """Reads at most `limit` rows of a bucket, once."""

    def __init__(self, session: Session, table: ClientTable, plan: ScanPlan, bucket: TableBucket) -> None:
        if plan.limit is None:
            raise FlussError("a bucket scan must have a limit; use new_scan().limit(n).create_bucket_batch_scanner(b)")
        if plan.predicate is not None:
            raise FlussError(
                "a filter cannot be combined with limit(), because servers count rows before they filter; drop one"
            )
        session.check_open()
        self._session = session
        self._table = table
        self._limit = plan.limit
        self._bucket = bucket
        self._decoder = BatchDecoder(table, plan)
        self._plan = plan
        self._spent = False
        self._found: RecordBatch | None = None
        self._skipped: deque[BadBatch] = deque()

    @property
    def bucket(self) -> TableBucket:
        """The bucket to read."""
        return self._bucket

    def _is_spent(self) -> bool:
        spent, self._spent = self._spent, True
        return spent

    def _told(self) -> RecordBatch | None:
        """Return the rows that were read, after reporting skipped batches in the user's thread."""
        while self._skipped:
            assert self._plan.on_skipped is not None
            self._plan.on_skipped(self._skipped.popleft())
        found, self._found = self._found, None
        return found

    async def _answer(self) -> Any:
        """The answer of the bucket's leader; retries if the leader moves, as it may right after a table is created."""
        cluster, path = self._session.cluster, self._table.path
        request = pb.LimitScanRequest(
            table_id=self._bucket.table_id,
            partition_id=self._bucket.partition_id,
            bucket_id=self._bucket.bucket_id,
            limit=self._limit,
        )
        pauses = cluster.pauses()
        while True:
            try:
                answer = await (await cluster.leader(self._bucket, path)).call(ApiKey.LIMIT_SCAN, request)
                if not answer.HasField("error_code") or not answer.error_code:
                    return answer
                text = answer.error_message or f"{self._bucket} of {path} cannot be scanned"
                raise FlussError(text, answer.error_code)
            except FlussError as error:
                moved = bucket_reaction(error.error_code, projected=False) is Reaction.MOVED
                if not moved or (pause := next(pauses, None)) is None:
                    raise
            cluster.invalidate(self._bucket)
            await asyncio.sleep(pause)

    async def _scan(self) -> None:
        """Read the bucket; runs on the I/O thread."""
        cluster, path = self._session.cluster, self._table.path
        answer = await self._answer()
        if self._table.has_primary_key:
            self._found = await self._current_rows(answer.records)
            return
        steps: list[Decoded] = []
        records, offset = memoryview(answer.records), -1
        while True:
            walked = walk(records, offset)
            await learn_schemas(cluster, self._decoder, walked.schema_ids)
            steps += self._decoder.decode(records[: walked.end], 0, self._bucket, projected=False)
            offset = offset if walked.next_offset is None else walked.next_offset
            records = records[walked.end :]
            if not len(records):
                break
            if offset < 0:  # the first batch is damaged: the offset in its header is the only one known
                offset = max(int.from_bytes(records[:8], "little", signed=True), 0)
            fault = walked.fault or f"{len(records)} bytes are not a whole batch"
            found = next_sound_batch(records, offset)
            if found is None:
                latest = await list_bucket_offsets(cluster, path, [self._bucket], LATEST)
                found = len(records), latest[self._bucket]
            steps.append(self._stepped_over(offset, found[1], fault))
            records, offset = records[found[0] :], found[1]
        self._found = self._last_rows(steps)

    def _stepped_over(self, first: int, next_offset: int, fault: str) -> Decoded:
        """A step over bytes that are not a batch, up to the next batch or the end of the log."""
        if not self._decoder.skips_bad_batches:
            return Decoded(None, first, error=self._decoder.damaged_log(self._bucket, first, fault))
        what = f"the data stored for offsets {first} to {next_offset - 1}"
        bad = self._decoder.bad_batch(self._bucket, first, next_offset - 1, what, fault)
        return Decoded(None, next_offset, skipped=bad)

    async def _current_rows(self, records: bytes) -> RecordBatch | None:
        with import_lock:
            from fluss.client.state.kv_scan import ValueBatches  # it imports scanners itself

        rows = await ValueBatches(self._session, self._table, self._plan).decode(self._bucket, records)
        if not rows.num_rows:
            return None
        return RecordBatch(LogRows(self._bucket, rows.slice(0, self._limit), 0, NO_TIMESTAMP))

    def _last_rows(self, steps: list[Decoded]) -> RecordBatch | None:
        found: list[LogRows] = []
        for step in steps:
            if step.error is not None:
                raise step.error
            if step.skipped is not None:
                self._skipped.append(step.skipped)
            if step.rows is not None:
                found.append(step.rows)
        if not found:
            return None
        surplus = sum(map(len, found)) - self._limit
        while surplus > 0 and surplus >= len(found[0]):
            surplus -= len(found.pop(0))
        if surplus > 0:
            found[0] = found[0].slice(surplus, len(found[0]))
        if len(found) == 1:
            return RecordBatch(found[0])
        table = pa.concat_tables([pa.Table.from_batches([rows.rows]) for rows in found], promote_options="default")
        rows = table.combine_chunks().to_batches()[0]
        return RecordBatch(LogRows(self._bucket, rows, found[0].offset_of(0), found[-1].timestamp))

    def _table_of(self, batches: list[RecordBatch]) -> pa.Table:
        if not batches:
            return self._decoder.output_schema.empty_table()
        return pa.Table.from_batches([batch.batch for batch in batches])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(bucket={self._bucket})"


class BatchScanner(BaseBatchScanner):
    """Reads up to `limit` rows of one bucket, once. Calls block.

    Of a log table it returns the last rows, of a primary-key table the first ones in key order.
    """

    def next_batch(self) -> RecordBatch | None:
        """The rows on the first call, then None."""
        if not self._is_spent():
            self._session.run(self._scan())
        return self._told()

    def collect_all_batches(self) -> list[RecordBatch]:
        """All remaining rows: one batch or none."""
        batch = self.next_batch()
        return [] if batch is None else [batch]

    def to_arrow(self) -> pa.Table:
        """All remaining rows as a `pyarrow.Table`."""
        return self._table_of(self.collect_all_batches())

    def to_pandas(self) -> Any:
        """All remaining rows as a `pandas.DataFrame`."""
        return pandas_of(self.to_arrow())
