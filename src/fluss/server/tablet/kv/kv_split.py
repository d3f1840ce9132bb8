"""SPLIT_KV: keys at which buckets can be split into ranges that readers read independently.

The answer has the changelog offset of the rows; readers of the ranges use the changelog to bring all of them to that
offset. Samples of keys are kept until a quarter of the rows has changed.
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
from fluss.server.storage.kv.split_points import KeySample, split_points_of_files
from fluss.server.storage.kv.store import KvStore
from fluss.server.tablet.buckets.local_bucket import LocalBucket
from fluss.server.tablet.buckets.requested_buckets import bucket_of, requested_buckets
from fluss.server.tablet.kv.kv_reads import STEP_ROWS, KvReads, RowCursor

MAX_RANGES = 1024
MAX_REMEMBERED_SAMPLES = 256
# The keys of stores up to this size are sampled, which takes a tablet two or three seconds, once for many readers.
SAMPLED_BYTES = 256 * 1024 * 1024
# The time for all buckets of a request. Buckets that are not reached in it are not split; a later request samples them.
SAMPLING_SECONDS = 3.0
# A sample is used until this share of the rows may have changed.
_STALE_SHARE = 0.25


class _Remembered(NamedTuple):
    sample: KeySample
    rows: int
    offset: int


class SplitKvApi:
    """Handler of SPLIT_KV. Used only in the event loop's thread."""

    def __init__(self, reads: KvReads) -> None:
        self._reads = reads
        # Oldest first.
        self._samples: dict[TableBucket, _Remembered] = {}
        reads.registry.dropped_listeners.append(self.forget)

    def forget(self, dropped: Collection[TableBucket]) -> None:
        """Remove the samples of dropped buckets."""
        for bucket in dropped:
            self._samples.pop(bucket, None)

    async def split_kv(self, context: RequestContext, request: pb.SplitKvRequest) -> pb.SplitKvResponse:
        """Return the split points of each requested bucket, each once and in order; errors are part of the answers."""
        if request.piece_bytes <= 0 or (request.HasField("piece_rows") and request.piece_rows <= 0):
            text = f"piece_bytes and piece_rows must be greater than zero, got {request.piece_bytes}"
            if request.HasField("piece_rows"):
                text += f" and {request.piece_rows}"
            raise FlussError(text, ErrorCode.INVALID_SCAN_REQUEST)
        self._reads.registry.follow_catalog()
        self._reads.check_table(context, request.table_id, checks_version=False)
        named = (bucket_of(request.table_id, item) for item in request.buckets_req)
        asked = requested_buckets(self._reads.registry, request.table_id, named)
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
        ranges = -(-store.stored_bytes // request.piece_bytes)
        if request.HasField("piece_rows"):  # an unknown number of rows is negative
            ranges = max(ranges, -(-store.applied.row_count // request.piece_rows))
        ranges = min(ranges, MAX_RANGES)
        if ranges > 1:
            is_large = store.stored_bytes > SAMPLED_BYTES
            points = split_points_of_files(store.files(), ranges) if is_large else None
            if points is None:
                sample = self._known_sample(bucket, store)
                if sample is None and asyncio.get_running_loop().time() < until:
                    sample = await self._sample(bucket, local, store)
                points = [] if sample is None else sample.split_points(ranges)
            answer.first_keys.extend(points)
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
