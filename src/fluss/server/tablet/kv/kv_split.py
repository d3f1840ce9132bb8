"""SPLIT_KV: where buckets can be cut, for readers that take the pieces apart from each other.

The answer names the offset of the changelog that the rows are at; readers of the pieces use the changelog to see all
of them at that offset. Samples of keys are remembered until a quarter of the rows has changed since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import kv_range_api_pb2 as pb
from fluss.server.runtime.handlers import RequestContext
from fluss.server.runtime.time_slices import TimeSlices
from fluss.server.storage.kv.pieces import KeySample, cuts_between_files
from fluss.server.storage.kv.store import KvStore
from fluss.server.tablet.buckets.asked_buckets import asked_buckets, bucket_of
from fluss.server.tablet.buckets.local_bucket import LocalBucket
from fluss.server.tablet.kv.reading import STEP_ROWS, KvReads, RowCursor

MAX_PIECES = 1024
MAX_REMEMBERED_SAMPLES = 256
# Up to this size keys are sampled: two or three seconds of a tablet's time, and not again for the next readers.
SAMPLED_BYTES = 256 * 1024 * 1024
# For all buckets of a request. Those whose turn does not come are not cut; the next request may find them sampled.
SAMPLING_SECONDS = 3.0
# A sample is of use until this share of the rows may be others.
_STALE_SHARE = 0.25


class _Remembered(NamedTuple):
    sample: KeySample
    rows: int
    offset: int


class SplitKvApi:
    """Handler of SPLIT_KV. All in the event loop's thread."""

    def __init__(self, reads: KvReads) -> None:
        self._reads = reads
        # Oldest first.
        self._samples: dict[TableBucket, _Remembered] = {}
        reads.registry.dropped_listeners.append(self.forget)

    def forget(self, dropped: Collection[TableBucket]) -> None:
        """These buckets are gone."""
        for bucket in dropped:
            self._samples.pop(bucket, None)

    async def split_kv(self, context: RequestContext, request: pb.SplitKvRequest) -> pb.SplitKvResponse:
        """One answer per bucket, in order, each once; an error is inside of it."""
        if request.piece_bytes <= 0 or (request.HasField("piece_rows") and request.piece_rows <= 0):
            raise FlussError("pieces must be larger than nothing", ErrorCode.INVALID_SCAN_REQUEST)
        self._reads.registry.follow_catalog()
        self._reads.check_table(context, request.table_id, checks_version=False)
        named = (bucket_of(request.table_id, item) for item in request.buckets_req)
        asked = asked_buckets(self._reads.registry, request.table_id, named)
        await self._reads.settled(asked)
        response = pb.SplitKvResponse()
        until = asyncio.get_running_loop().time() + SAMPLING_SECONDS
        turns = TimeSlices()
        for bucket in asked:
            await turns.yield_if_over()
            answer = response.buckets_resp.add(partition_id=bucket.partition_id, bucket_id=bucket.bucket_id)
            try:
                await self._split(bucket, request, answer, until)
            except FlussError as error:
                answer.error_code, answer.error_message = error.error_code, error.message
        return response

    async def _split(
        self, bucket: TableBucket, request: pb.SplitKvRequest, answer: pb.PbSplitKvRespForBucket, until: float
    ) -> None:
        local, store = self._reads.store(bucket)
        pieces = -(-store.stored_bytes // request.piece_bytes)
        if request.HasField("piece_rows"):  # an unknown number of rows is negative
            pieces = max(pieces, -(-store.applied.row_count // request.piece_rows))
        pieces = min(pieces, MAX_PIECES)
        if pieces > 1:
            is_large = store.stored_bytes > SAMPLED_BYTES
            cuts = cuts_between_files(store.files(), pieces) if is_large else None
            if cuts is None:
                sample = self._known_sample(bucket, store)
                if sample is None and asyncio.get_running_loop().time() < until:
                    sample = await self._sample(bucket, local, store)
                cuts = [] if sample is None else sample.cuts(pieces)
            answer.first_keys.extend(cuts)
        answer.log_offset = store.applied_offset

    def _known_sample(self, bucket: TableBucket, store: KvStore) -> KeySample | None:
        known = self._samples.get(bucket)
        is_fresh = known is not None and store.applied_offset - known.offset <= _STALE_SHARE * known.rows
        return known.sample if known is not None and is_fresh else None

    async def _sample(self, bucket: TableBucket, local: LocalBucket, store: KvStore) -> KeySample:
        sample, rows = KeySample(), 0
        cursor = RowCursor(local, store)
        offset = cursor.applied_offset
        try:
            while keys := cursor.take_keys(STEP_ROWS):
                sample.add(keys)
                rows += len(keys)
                await asyncio.sleep(0)
            cursor.check_open()
        finally:
            cursor.close()
        self._samples.pop(bucket, None)
        self._samples[bucket] = _Remembered(sample, rows, offset)
        while len(self._samples) > MAX_REMEMBERED_SAMPLES:
            del self._samples[next(iter(self._samples))]
        return sample
