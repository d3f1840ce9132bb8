"""LIST_OFFSETS and GET_TABLE_STATS: offsets of a bucket at the start, at the end or at a time, and row counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fluss.errors import ErrorCode, FlussError
from fluss.model.paths import TableBucket
from fluss.protocol import fluss_api_pb2 as pb
from fluss.server.runtime.handlers import Reply, RequestContext
from fluss.server.storage.kv.store import UNKNOWN_ROW_COUNT
from fluss.server.storage.log.bucket_log import BucketLog
from fluss.server.storage.log.reserved_offsets import lost_offsets
from fluss.server.tablet.buckets.access import TableAccess
from fluss.server.tablet.buckets.local_bucket import LocalBucket
from fluss.server.tablet.buckets.registry import BucketRegistry
from fluss.server.tablet.buckets.requested_buckets import bucket_of, requested_buckets
from fluss.server.tablet.log.fetch_reader import earliest_offset
from fluss.server.tablet.log.fetch_request import CLIENT_FOLLOWER_ID
from fluss.server.tablet.log.read_stops import ReadStops
from fluss.server.tablet.remote.remote_log import RemoteLog

EARLIEST = 0
LATEST = 1
TIMESTAMP = 2
LEADER_END_SNAPSHOT = 3


def offset_for_timestamp(log: BucketLog, remote: RemoteLog, timestamp: int, now_ms: int) -> int:
    """An offset from which a client gets everything at or after `timestamp`.

    It is exact for local data, and at or before the exact batch for data that is only remote.
    """
    if timestamp > now_ms:
        raise FlussError(
            f"timestamp {timestamp} is in the future: the server's clock is at {now_ms}; use the latest offset",
            ErrorCode.INVALID_TIMESTAMP_EXCEPTION,
        )
    # A log that never had a record has no newest timestamp: every time from 1970 on is after its end.
    if timestamp > log.newest_timestamp or (timestamp >= 0 and log.high_watermark == 0):
        return log.high_watermark
    found = remote.offset_for_timestamp(timestamp, below=log.local_start_offset)
    if found is None:
        found = log.offset_for_timestamp(timestamp)
    if found is None:
        raise FlussError(
            f"no record at or after timestamp {timestamp}; use the latest offset", ErrorCode.UNKNOWN_SERVER_ERROR
        )
    return found


def list_offset(local: LocalBucket, request: pb.ListOffsetsRequest, now_ms: int) -> int:
    """The offset of one bucket for the offset type of the request."""
    log, remote = local.opened()
    is_client = request.follower_server_id == CLIENT_FOLLOWER_ID
    if request.offset_type == EARLIEST:
        return earliest_offset(log, remote) if is_client else log.local_start_offset
    if request.offset_type == LATEST:
        return log.high_watermark if is_client else log.log_end_offset
    if request.offset_type == TIMESTAMP:
        return offset_for_timestamp(log, remote, request.startTimestamp, now_ms)
    return local.end_offset_when_opened


def row_count(local: LocalBucket) -> int:
    """The number of rows of a bucket: for a log table all readable rows, for a primary-key table one per key."""
    log, remote = local.opened()
    if local.kv is None:
        start = earliest_offset(log, remote)
        return log.high_watermark - start - lost_offsets(log.lost, start)
    count = local.kv.row_count
    if count == UNKNOWN_ROW_COUNT:
        raise FlussError(
            f"rows of {local.name} are not counted, because its changelog does not distinguish inserts from updates; "
            "scan the table to count them",
            ErrorCode.INVALID_TABLE_EXCEPTION,
        )
    return count


class OffsetsApi:
    """Handlers of LIST_OFFSETS and GET_TABLE_STATS."""

    def __init__(
        self, registry: BucketRegistry, access: TableAccess, clock: Callable[[], int], stops: ReadStops
    ) -> None:
        self._registry = registry
        self._access = access
        self._clock = clock
        self._stops = stops

    def list_offsets(self, context: RequestContext, request: pb.ListOffsetsRequest) -> Reply | Awaitable[Reply]:
        """One entry per requested bucket, each once; FlussError if the request itself is invalid."""
        self._registry.follow_catalog()
        if request.offset_type not in (EARLIEST, LATEST, TIMESTAMP, LEADER_END_SNAPSHOT):
            raise FlussError(
                f"unknown offset type {request.offset_type}, expected {EARLIEST} to {LEADER_END_SNAPSHOT}",
                ErrorCode.UNKNOWN_SERVER_ERROR,
            )
        if request.offset_type == TIMESTAMP and not request.HasField("startTimestamp"):
            raise FlussError(
                f"startTimestamp must be given for offset type {TIMESTAMP}", ErrorCode.UNKNOWN_SERVER_ERROR
            )
        partition_id = request.partition_id if request.HasField("partition_id") else None
        named = (TableBucket(request.table_id, partition_id, bucket_id) for bucket_id in request.bucket_id)
        buckets = requested_buckets(self._registry, request.table_id, named)

        stops = self._stops.of(context)

        def answer() -> Reply:
            response = pb.ListOffsetsResponse()
            for bucket in buckets:
                result = response.buckets_resp.add(bucket_id=bucket.bucket_id)
                try:
                    result.offset = list_offset(self._registry.find(bucket), request, self._clock())
                    if request.offset_type != EARLIEST:
                        stops.raise_to(bucket, result.offset)
                except FlussError as error:
                    result.error_code, result.error_message = error.error_code, error.message
            return response

        return self._registry.when_open(buckets, answer)

    def table_stats(self, context: RequestContext, request: pb.GetTableStatsRequest) -> Reply | Awaitable[Reply]:
        """The number of rows of each requested bucket."""
        self._registry.follow_catalog()
        entry = self._registry.table(request.table_id)
        table_error = self._access.error(context, entry.path) if entry is not None else None
        named = [bucket_of(request.table_id, item) for item in request.buckets_req]
        if table_error is not None:
            buckets = list(dict.fromkeys(named))  # not counted: that error would tell how many the table has
        else:
            buckets = requested_buckets(self._registry, request.table_id, named)

        def answer() -> Reply:
            response = pb.GetTableStatsResponse()
            for bucket in buckets:
                result = response.buckets_resp.add(bucket_id=bucket.bucket_id)
                if bucket.partition_id is not None:
                    result.partition_id = bucket.partition_id
                try:
                    if table_error is not None:
                        raise table_error
                    result.row_count = row_count(self._registry.find(bucket))
                except FlussError as error:
                    result.error_code, result.error_message = error.error_code, error.message
            return response

        return self._registry.when_open(buckets if table_error is None else [], answer)
